/* costs.c - what the choice of algorithms depends on: how many ranks there are, on which hosts, how
 * many cores they share, and over which kind of links the worst pair exchanges data.
 *
 * All of it follows from the table that rank 0 has sent to all, so all ranks choose alike. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "coll/profile.h"
#include "comm/comm.h"

struct seat {
    uint64_t host_id;
    bool     shares;
    int      n_cores;
};

static int by_host(const void *a, const void *b)
{
    const struct seat *x = a, *y = b;
    return (x->host_id > y->host_id) - (x->host_id < y->host_id);
}

/* The ranks first .. end - 1 of the sorted list are those of one host. */
static void add_host(struct gmi_costs *costs, const struct seat *seats, int n_here)
{
    bool do_all_share = true;
    int  n_cores = 0;
    for (int i = 0; i < n_here; i++) {
        do_all_share = do_all_share && seats[i].shares;
        if (seats[i].n_cores > n_cores) n_cores = seats[i].n_cores;
    }
    if (n_cores == 0) n_cores = n_here; /* each is bound to its own */
    double crowd = (double)n_here / n_cores;
    costs->n_hosts++;
    if (n_here > costs->most_on_a_host) costs->most_on_a_host = n_here;
    if (n_here > 1 && !do_all_share) costs->kind_within = GMI_KIND_LOOPBACK;
    if (costs->n_cores == 0 || crowd > costs->crowd) costs->n_cores = n_cores;
    if (crowd > costs->crowd) costs->crowd = crowd;
}

/* A host that is not known is one of its own. */
static bool is_same_host(const struct seat *a, const struct seat *b)
{
    return a->host_id == b->host_id && a->host_id != 0;
}

static void add_hosts(struct gmi_costs *costs, struct seat *seats, int n_ranks)
{
    int first = 0;
    qsort(seats, (size_t)n_ranks, sizeof *seats, by_host);
    for (int i = 1; i <= n_ranks; i++) {
        if (i < n_ranks && is_same_host(&seats[first], &seats[i])) continue;
        add_host(costs, seats + first, i - first);
        first = i;
    }
    costs->kind = costs->n_hosts > 1 ? GMI_KIND_NETWORK : costs->kind_within;
}

gm_status gmi_comm_weigh(struct gm_comm *comm)
{
    struct gm_comm *root = comm->root;
    struct seat    *seats = gmi_alloc((size_t)comm->n_ranks, sizeof *seats);
    if (seats == NULL) return GM_ERR_NOMEM;
    comm->costs = (struct gmi_costs){ .n_ranks = comm->n_ranks, .crowd = 1, .kind_within = GMI_KIND_MEMORY,
                                      .profile = root->control.profile };
    pthread_mutex_lock(&root->lock);
    for (int k = 0; k < comm->n_ranks; k++) {
        const struct gmi_member *m = &root->control.members[gmi_world_rank(comm, k)];
        seats[k] = (struct seat){ m->host_id, m->sharing != GMI_SHARES_NEVER, m->n_cores };
    }
    pthread_mutex_unlock(&root->lock);
    add_hosts(&comm->costs, seats, comm->n_ranks);
    for (int lane = 0; lane < GMI_LANES; lane++) {
        comm->groups[lane].kind = comm->costs.kind;
        comm->groups[lane].is_encrypted = root->is_encrypted;
    }
    gmi_free(seats);
    gmi_site_text(gmi_costs_site(&comm->costs), comm->site);
    gmi_log(&root->log, GM_LOG_INFO, "%s: %d ranks on %d host%s, at most %d to a host and %.2g to a core; links by %s",
            comm->group_name, comm->n_ranks, comm->costs.n_hosts, comm->costs.n_hosts == 1 ? "" : "s",
            comm->costs.most_on_a_host, comm->costs.crowd, gmi_link_kind_name(comm->costs.kind));
    return GM_OK;
}

/* ---- profiles ---------------------------------------------------------------------------------- */

enum { MAX_PROFILE_BYTES = 64 * 1024 };

gm_status gmi_profile_load(struct gmi_profile *profile, const char *path, gm_error *error)
{
    FILE *file = fopen(path, "re");
    char *text = gmi_alloc(MAX_PROFILE_BYTES + 1, 1);
    if (file == NULL || text == NULL) {
        int sys_errno = file == NULL ? errno : ENOMEM;
        if (file != NULL) fclose(file);
        gmi_free(text);
        return gmi_error_set(error, GM_ERR_ARG, "the profile %.200s cannot be read: %s", path, strerror(sys_errno));
    }
    size_t n = fread(text, 1, MAX_PROFILE_BYTES + 1, file);
    bool   is_whole = n <= MAX_PROFILE_BYTES && !ferror(file);
    fclose(file);
    text[is_whole ? n : 0] = '\0';
    const char *why;
    int         bad_line = gmi_profile_read(profile, text, &why);
    gmi_free(text);
    if (!is_whole) return gmi_error_set(error, GM_ERR_ARG, "the profile %.200s cannot be read, or is longer than 64 KiB", path);
    if (bad_line == 0) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "the profile %.200s, line %d: %s", path, bad_line, why);
}
