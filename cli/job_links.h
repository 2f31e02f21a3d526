/* job_links.h - the links of a running job, as its ranks on this host tell of them: which one is the bottleneck? */
#ifndef CLI_JOB_LINKS_H
#define CLI_JOB_LINKS_H

#include <stdbool.h>
#include <stdint.h>

/* Over the time between two questions. */
struct cli_link {
    int      from, to;
    int64_t  busy_ns; /* of the sender's life, something was under way */
    uint64_t acked_bytes, sent_packets, resent_packets;
    unsigned rtt_us;
    double   busy_share, MBps, resent_share; /* once compared; busy_share -1: not known */
};

struct cli_links {
    struct cli_link *all;
    int              n, n_room;
    int              busiest; /* -1: nothing moves over any */
    double           next_share; /* of the link that is next busiest */
};

/* "link 2 busy_ns ..." of the rank `from`; other lines, and what there is no memory for, are passed over. */
void cli_links_take(struct cli_links *links, const char *line, int from);
/* What changed since `before`, of the rank `from`, whose clock went on by `elapsed_ns`. */
void cli_links_compare(struct cli_links *links, const struct cli_links *before, int from, double elapsed_ns);
void cli_links_find_busiest(struct cli_links *links);
void cli_links_fini(struct cli_links *links);

#endif
