/* cost.h - how long an algorithm takes: what it has to do (effort), times what that costs here.
 *
 *     time = crowd (turns * turn + reduced * reduce + spilled * keep) + handled * message + moved * byte
 *
 *     turns      messages that must follow one another, each waiting for the one before
 *     messages   that the busiest rank sends, and that all ranks together send
 *     sent, recv, all   bytes that it sends, that it receives, and that all together send
 *     reduced    bytes that pass through arithmetic on the longest path
 *     kept       bytes that arrive before they can be used, and are read again later; spilled: what of
 *                them does not fit into a cache
 *     handled    messages, or all messages / cores if that is more
 *     moved      within a host, where a core copies every byte: (sent + recv) / 2, or all / cores if that
 *                is more; between hosts, whose links work both ways at once: the larger of sent and recv,
 *                or all / hosts if that is more
 *     crowd      ranks to a core, at least 1; between hosts a turn is a wait, which takes no core
 *
 * This is the usual model (latency, bandwidth, arithmetic) with two terms for what a small machine adds:
 * ranks that share cores, and memory that is slower than a cache. Constants are of a kind of link.
 *
 * A model of so few constants cannot know every machine to a few percent. Where all algorithms have been measured, a
 * profile says outright which is fastest up to which size (gmi_choice), and the model chooses for all other worlds.
 * How to measure, where the built-in profile comes from, and how well it chooses: docs/tuning.md.
 *
 * All ranks must choose alike, so everything here depends on what all of them know. */
#ifndef GMI_COST_H
#define GMI_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For one call, on the rank that has most to do. Written by each algorithm beside its byte formula. */
struct gmi_effort {
    double turns;
    double messages, all_messages;
    double sent_bytes, recv_bytes, all_bytes;
    double reduced_bytes, kept_bytes;
    bool   stays_with_neighbours; /* bytes go between neighbours in the ring only */
};

static inline struct gmi_effort gmi_effort_sum(struct gmi_effort a, struct gmi_effort b)
{
    a.turns += b.turns;
    a.messages += b.messages;
    a.all_messages += b.all_messages;
    a.sent_bytes += b.sent_bytes;
    a.recv_bytes += b.recv_bytes;
    a.all_bytes += b.all_bytes;
    a.reduced_bytes += b.reduced_bytes;
    a.kept_bytes += b.kept_bytes;
    return a;
}

/* What links of one kind cost. Whole numbers, so that all ranks have the same ones. */
struct gmi_link_costs {
    uint32_t turn_ns, message_ns;
    uint32_t byte_ps, reduce_ps, keep_ps; /* picoseconds for one byte */
    uint32_t cache_bytes;                 /* so many kept bytes cost nothing */
};

enum gmi_link_kind { GMI_KIND_MEMORY, GMI_KIND_LOOPBACK, GMI_KIND_NETWORK, GMI_KINDS };

/* Where something was measured: over links of this kind, by so many ranks on so many hosts, and on so many cores of each
 * host, of which those that no rank could use do not count. */
struct gmi_site {
    uint8_t  kind;
    uint16_t n_ranks, n_cores, n_hosts;
};

/* What is fastest there, for whole buffers up to this size. Those of one site and collective stand together by rising
 * size; the last one's has no limit (UINT64_MAX). */
struct gmi_choice {
    struct gmi_site site;
    uint8_t          collective, algorithm; /* gm_collective; gmi_algo.id */
    uint64_t         most_bytes;
};

enum { GMI_MAX_CHOICES = 320 };

/* Constants for all kinds, and what was measured: built in, or from a file (coll/profile.h). */
struct gmi_profile {
    struct gmi_link_costs kinds[GMI_KINDS];
    struct gmi_choice     choices[GMI_MAX_CHOICES];
    uint32_t              n_choices;
};

/* What the choice depends on besides the call: of one communicator. */
struct gmi_costs {
    int                n_ranks;
    int                n_hosts, most_on_a_host; /* ranks on the host that has most */
    int                n_cores;                 /* of the host that has fewest for its ranks */
    double             crowd;
    enum gmi_link_kind kind;        /* of the worst link between two ranks */
    enum gmi_link_kind kind_within; /* of the worst link within a host */
    struct gmi_profile profile;
};

/* The constants of a kind one by one, in the order in which they travel: index from 0; NULL behind the last. */
uint32_t *gmi_link_constant(struct gmi_link_costs *costs, int index);

const char *gmi_link_kind_name(enum gmi_link_kind kind); /* "memory", "loopback", "network": keys of a profile */

/* Costs of `n_ranks` on one host with so many cores, by the built-in profile: for tests, and before anything is known. */
struct gmi_costs gmi_costs_of_host(int n_ranks, int n_cores, enum gmi_link_kind kind);

struct gmi_site gmi_costs_site(const struct gmi_costs *costs);

/* Microseconds over links of that kind. */
double gmi_cost_us(const struct gmi_costs *costs, enum gmi_link_kind kind, const struct gmi_effort *effort);

#endif
