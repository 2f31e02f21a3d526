/* fare.c - how the connections to other hosts fare: by the kernel's counters, which cost nothing until they are read.
 *
 *     every LOOK_EVERY_MS    what was sent again since the last look, of what was sent: a lossy link is a warning
 *     once                   the longest way, if another one of this rank is much shorter: a warning
 *     when asked             all of it, for `gradmesh status` (status.c), which asks twice and names the slowest
 *     at the end             the link over which something was under way for the longest time, as information
 *
 * A lost packet is sent again by the kernel, so nothing fails; it only takes longer, and nothing else says why. Nor does
 * anything fail on a long way, but a call is as slow as its slowest link. A rank compares its own links: one whose
 * links are all long, or that has only one, says nothing, since its neighbours do, or the network is such. */
#include <limits.h>
#include <stdio.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "net/socket.h"

enum { LOOK_EVERY_MS = 5000, SAY_EVERY_MS = 60000, LEAST_RESENT = 20, LOSSY_PERCENT = 1, FAR_US = 5000, FAR_TIMES = 5 };

static void tell_if_lossy(struct gmi_line *line, const struct gmi_socket_fare *fare, void *user)
{
    int64_t         now_ns = *(const int64_t *)user;
    struct gm_comm *root = line->comm->root;
    uint64_t        resent = fare->resent_packets - line->seen_resent, sent = fare->sent_packets - line->seen_sent;
    int             peer = gmi_line_peer(line);
    line->seen_resent = fare->resent_packets;
    line->seen_sent = fare->sent_packets;
    if (resent < LEAST_RESENT || resent * 100 < sent * LOSSY_PERCENT || now_ns < line->say_lossy_ns) return;
    line->say_lossy_ns = now_ns + SAY_EVERY_MS * GMI_NS_PER_MS;
    gmi_log(&root->log, GM_LOG_WARN, "rank %d: the link to rank %d (%s) is lossy or too narrow: %llu of %llu packets of the last seconds "
            "were sent again, and an answer takes %.1f ms", root->rank, peer, root->control.members[peer].address,
            (unsigned long long)resent, (unsigned long long)sent, fare->rtt_us / 1e3);
}

/* Calls `look` for each link of which the kernel tells. */
static void look_at_all(struct gm_comm *root, void (*look)(struct gmi_line *, const struct gmi_socket_fare *, void *), void *user)
{
    for (struct gm_comm *comm = root; comm != NULL; comm = comm->next) {
        for (int lane = 0; lane < GMI_LANES; lane++) {
            for (int k = 0; comm->lines[lane] != NULL && k < comm->n_ranks; k++) {
                struct gmi_line       *line = &comm->lines[lane][k];
                struct gmi_socket_fare fare;
                if (line->port->link != NULL && gmi_link_fare(line->port->link, &fare)) look(line, &fare, user);
            }
        }
    }
}

struct ways {
    const struct gmi_line *longest;
    unsigned               most_us, least_us;
};

static void measure_way(struct gmi_line *line, const struct gmi_socket_fare *fare, void *user)
{
    struct ways *ways = user;
    if (fare->least_rtt_us == 0) return;
    if (fare->least_rtt_us < ways->least_us) ways->least_us = fare->least_rtt_us;
    if (fare->least_rtt_us <= ways->most_us) return;
    ways->most_us = fare->least_rtt_us;
    ways->longest = line;
}

static void tell_if_far(struct gm_comm *root)
{
    struct ways ways = { .least_us = UINT_MAX };
    if (root->has_told_of_far) return;
    look_at_all(root, measure_way, &ways);
    if (ways.most_us < FAR_US || ways.most_us / FAR_TIMES < ways.least_us) return;
    int peer = gmi_line_peer(ways.longest);
    root->has_told_of_far = true;
    gmi_log(&root->log, GM_LOG_WARN, "rank %d: rank %d (%s) is far: an answer takes at least %.1f ms, over the shortest link %.2f ms; "
            "each call takes as long as its slowest link", root->rank, peer, root->control.members[peer].address,
            ways.most_us / 1e3, ways.least_us / 1e3);
}

void gmi_fare_step(struct gm_comm *root)
{
    int64_t now_ns = gmi_now_ns();
    if (now_ns < root->next_fare_ns || root->control.phase != GMI_READY) return;
    root->next_fare_ns = now_ns + LOOK_EVERY_MS * GMI_NS_PER_MS;
    look_at_all(root, tell_if_lossy, &now_ns);
    tell_if_far(root);
}

struct busiest {
    const struct gmi_line *line;
    struct gmi_socket_fare fare;
};

static void take_if_busier(struct gmi_line *line, const struct gmi_socket_fare *fare, void *user)
{
    struct busiest *busiest = user;
    if (fare->busy_ns > busiest->fare.busy_ns) *busiest = (struct busiest){ line, *fare };
}

void gmi_fare_tell(struct gm_comm *root)
{
    struct busiest busiest = { 0 };
    if (root->log.level < GM_LOG_INFO) return;
    look_at_all(root, take_if_busier, &busiest);
    if (busiest.line == NULL) return;
    const struct gmi_socket_fare *f = &busiest.fare;
    int                           peer = gmi_line_peer(busiest.line);
    gmi_log(&root->log, GM_LOG_INFO, "rank %d: its busiest link went to rank %d (%s): something was under way for %.3f s, %.1f MB/s; "
            "%llu of %llu packets were sent again, and an answer takes %.2f ms", root->rank, peer, root->control.members[peer].address,
            (double)f->busy_ns / 1e9, (double)f->acked_bytes * 1e3 / (double)f->busy_ns, (unsigned long long)f->resent_packets,
            (unsigned long long)f->sent_packets, f->rtt_us / 1e3);
}
