#include "cli/job_links.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static bool make_room(struct cli_links *links)
{
    if (links->n < links->n_room) return true;
    int              n_room = links->n_room > 0 ? 2 * links->n_room : 16;
    struct cli_link *all = gmi_alloc((size_t)n_room, sizeof *all);
    if (all == NULL) return false;
    if (links->n > 0) memcpy(all, links->all, (size_t)links->n * sizeof *all);
    gmi_free(links->all);
    links->all = all;
    links->n_room = n_room;
    return true;
}

void cli_links_take(struct cli_links *links, const char *line, int from)
{
    long long          busy_ns;
    unsigned long long acked, sent, resent;
    struct cli_link    l = { .from = from, .busy_share = -1 };
    if (sscanf(line, "link %d busy_ns %lld acked_bytes %llu sent %llu resent %llu rtt_us %u", &l.to, &busy_ns, &acked, &sent, &resent,
               &l.rtt_us) != 6 || !make_room(links)) {
        return;
    }
    l.busy_ns = busy_ns;
    l.acked_bytes = acked;
    l.sent_packets = sent;
    l.resent_packets = resent;
    links->all[links->n++] = l;
}

void cli_links_compare(struct cli_links *links, const struct cli_links *before, int from, double elapsed_ns)
{
    for (int i = 0; i < links->n; i++) {
        struct cli_link *l = &links->all[i];
        for (int k = 0; k < before->n && l->from == from && elapsed_ns > 0; k++) {
            const struct cli_link *b = &before->all[k];
            if (b->from != from || b->to != l->to || l->acked_bytes < b->acked_bytes || l->busy_ns < b->busy_ns) continue;
            double share = (double)(l->busy_ns - b->busy_ns) / elapsed_ns;
            l->busy_share = share > 1 ? 1 : share;
            l->MBps = (double)(l->acked_bytes - b->acked_bytes) / elapsed_ns * 1e3;
            uint64_t sent = l->sent_packets - b->sent_packets;
            l->resent_share = sent > 0 ? (double)(l->resent_packets - b->resent_packets) / (double)sent : 0;
        }
    }
}

void cli_links_find_busiest(struct cli_links *links)
{
    links->busiest = -1;
    links->next_share = 0;
    for (int i = 0; i < links->n; i++) {
        double share = links->all[i].busy_share;
        if (share <= 0) continue;
        if (links->busiest < 0 || share > links->all[links->busiest].busy_share) {
            if (links->busiest >= 0) links->next_share = links->all[links->busiest].busy_share;
            links->busiest = i;
        } else if (share > links->next_share) {
            links->next_share = share;
        }
    }
}

void cli_links_fini(struct cli_links *links)
{
    gmi_free(links->all);
    *links = (struct cli_links){ .busiest = -1 };
}
