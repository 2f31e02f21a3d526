#include "coll/layout.h"

#include <stdlib.h>

#include "base/alloc.h"

struct seat {
    uint64_t host_id;
    int      rank;
};

static int by_host_then_rank(const void *a, const void *b)
{
    const struct seat *x = a, *y = b;
    if (x->host_id != y->host_id) return x->host_id < y->host_id ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* For each rank the first one of its host. */
static void find_leaders(struct seat *seats, int n_ranks, int *leader)
{
    int first = 0;
    qsort(seats, (size_t)n_ranks, sizeof *seats, by_host_then_rank);
    for (int i = 0; i < n_ranks; i++) {
        if (seats[i].host_id == 0 || seats[i].host_id != seats[first].host_id) first = i;
        leader[seats[i].rank] = seats[first].rank;
    }
}

static void number(struct gmi_layout *l, const int *leader, int n_ranks)
{
    for (int rank = 0; rank < n_ranks; rank++) {
        int host = leader[rank] == rank ? l->n_hosts++ : l->host[leader[rank]];
        l->host[rank] = host;
        l->place[rank] = l->first[host + 1]++; /* counts here */
    }
    l->least_on_a_host = n_ranks;
    for (int host = 0; host < l->n_hosts; host++) {
        if (l->first[host + 1] < l->least_on_a_host) l->least_on_a_host = l->first[host + 1];
        l->first[host + 1] += l->first[host];
    }
    for (int rank = 0; rank < n_ranks; rank++) l->members[l->first[l->host[rank]] + l->place[rank]] = rank;
}

gm_status gmi_layout_init(struct gmi_layout *l, const uint64_t *host_ids, int n_ranks)
{
    size_t       n = (size_t)n_ranks;
    struct seat *seats = gmi_alloc(n, sizeof *seats);
    int         *leader = gmi_alloc(n, sizeof *leader), *memory = gmi_alloc(4 * n + 1, sizeof *memory);
    gm_status    status = seats != NULL && leader != NULL && memory != NULL ? GM_OK : GM_ERR_NOMEM;
    *l = (struct gmi_layout){ 0 };
    if (status == GM_OK) {
        *l = (struct gmi_layout){ .host = memory, .place = memory + n, .members = memory + 2 * n, .first = memory + 3 * n };
        for (int rank = 0; rank < n_ranks; rank++) seats[rank] = (struct seat){ host_ids[rank], rank };
        find_leaders(seats, n_ranks, leader);
        number(l, leader, n_ranks);
    } else {
        gmi_free(memory);
    }
    gmi_free(seats);
    gmi_free(leader);
    return status;
}

void gmi_layout_fini(struct gmi_layout *l)
{
    gmi_free(l->host);
    *l = (struct gmi_layout){ 0 };
}
