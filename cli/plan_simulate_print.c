/* plan_simulate_print.c - simulations as a table for people, and as JSON. */
#include <string.h>

#include "cli/plan_simulate.h"

static const char *size_text(double bytes, char text[16])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    int                      unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
    snprintf(text, 16, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

static const char *time_text(double ms, char text[16])
{
    if (ms >= 1e4) snprintf(text, 16, "%.1f s", ms / 1e3);
    else if (ms >= 1) snprintf(text, 16, "%.*f ms", ms >= 100 ? 0 : ms >= 10 ? 1 : 2, ms);
    else snprintf(text, 16, "%.*f us", ms >= 0.1 ? 0 : 1, ms * 1e3);
    return text;
}

static int n_hosts(const struct plan_simulation *s)
{
    int per_host = s->ranks_per_host > 0 ? s->ranks_per_host : 1;
    return (s->n_ranks + per_host - 1) / per_host;
}

static void print_what(FILE *file, const struct cli_simulations *all)
{
    const struct plan_simulation *s = &all->points[0].simulation;
    char                          size[16], rate[16], latency[16];
    fprintf(file, "one training step, simulated: the real schedules over simulated links\n"
                  "  gradient   %s%s%s%s%s\n",
            size_text((double)s->bytes, size), all->model != NULL ? " of " : "", all->model != NULL ? all->model : "",
            s->wire != NULL ? ", sent as " : ", sent as f32", s->wire != NULL ? s->wire : "");
    fprintf(file, "  network    %s/s each way for each host, %s; %d worker%s a host\n", size_text(s->links.bandwidth_Bps, rate),
            time_text(s->links.latency_us / 1e3, latency), s->ranks_per_host, s->ranks_per_host == 1 ? "" : "s");
}

static const struct cli_simulated *find(const struct cli_simulations *all, int n_ranks, const char *algorithm)
{
    const struct cli_simulated *best = NULL;
    for (int i = 0; i < all->n_points; i++) {
        const struct cli_simulated *p = &all->points[i];
        if (p->simulation.n_ranks != n_ranks || p->why_not != NULL) continue;
        if (algorithm != NULL && strcmp(p->simulation.algorithm, algorithm) != 0) continue;
        if (best == NULL || p->result.step_ms < best->result.step_ms) best = p;
    }
    return best;
}

static void print_point(FILE *file, const struct cli_simulated *p, bool is_best, bool is_verbose)
{
    const struct plan_simulation_result *r = &p->result;
    char step[16], compute[16], wait[16], exchange[16], sent[16];
    if (p->why_not != NULL) {
        fprintf(file, "  %-13s %s\n", p->simulation.algorithm, p->why_not);
        return;
    }
    fprintf(file, "%s %-13s %9s %9s %9s %9s %10s", is_best ? "*" : " ", p->simulation.algorithm, time_text(r->step_ms, step),
            time_text(r->compute_ms, compute), time_text(r->wait_ms, wait), time_text(r->exchange_ms, exchange),
            size_text((double)r->most_payload_bytes, sent));
    if (r->busiest_host >= 0) fprintf(file, " %4.0f %%", 100 * r->busiest_share);
    else fprintf(file, "      -");
    if (is_verbose) {
        fprintf(file, "   %llu transfers, %llu events, %.2f s to simulate", (unsigned long long)r->n_transfers,
                (unsigned long long)r->n_events, r->wall_s);
        if (r->busiest_host >= 0) {
            fprintf(file, "; busiest: host %d, %s, %llu bytes", r->busiest_host, r->is_busiest_out ? "sending" : "receiving",
                    (unsigned long long)r->busiest_bytes);
        }
    }
    fputc('\n', file);
}

static void print_best(FILE *file, const struct cli_simulated *best, const struct cli_simulated *ring)
{
    const struct plan_simulation *s = &best->simulation;
    char                          step[16], turns[16], waiting[16];
    if (s->n_ranks == 1) return;
    fprintf(file, "  best: %s, %s\n", s->algorithm, time_text(best->result.step_ms, step));
    if (ring == NULL || ring == best || n_hosts(s) < 2) return;
    snprintf(turns, sizeof turns, "%d", 2 * (s->n_ranks - 1));
    double latency_ms = 2 * (s->n_ranks - 1) * s->links.latency_us / 1e3;
    if (s->ranks_per_host > 1 || latency_ms < ring->result.exchange_ms / 4) return;
    fprintf(file, "  the ring is %.1f times slower there: its %s steps follow one another, and each waits for a latency, %s in all\n",
            ring->result.step_ms / best->result.step_ms, turns, time_text(latency_ms, waiting));
}

static void print_crossings(FILE *file, const struct cli_simulations *all, int n_ranks)
{
    char size[16];
    bool is_first = true;
    for (int i = 0; i < all->n_crossings; i++) {
        const struct cli_crossing *c = &all->crossings[i];
        if (c->n_ranks != n_ranks) continue;
        fprintf(file, is_first ? "  faster than the ring: " : ", ");
        is_first = false;
        if (c->up_to_bytes == 0) fprintf(file, "%s never", c->algorithm);
        else fprintf(file, "%s up to %s%s", c->algorithm, size_text((double)c->up_to_bytes, size), c->is_open ? " and beyond" : "");
    }
    if (!is_first) fputc('\n', file);
}

static void print_waiting(FILE *file, const struct cli_simulated *p)
{
    const struct plan_simulation_result *r = &p->result;
    char                                 text[16];
    int                                  longest = -1;
    if (r->straggler >= 0) {
        fprintf(file, "  rank %d is the straggler: all others wait for it, which costs %s of each step\n", r->straggler,
                time_text(r->straggler_costs_ms, text));
    }
    for (int rank = 0; rank < r->n_ranks; rank++) {
        if (r->ranks[rank].waits_for >= 0 && (longest < 0 || r->ranks[rank].waits_for_ms > r->ranks[longest].waits_for_ms)) longest = rank;
    }
    if (longest < 0) return;
    fprintf(file, "  in %s rank %d sleeps longest for another one: %s for rank %d\n", p->simulation.algorithm, longest,
            time_text(r->ranks[longest].waits_for_ms, text), r->ranks[longest].waits_for);
}

static void print_world(FILE *file, const struct cli_simulations *all, int first, bool is_verbose)
{
    int                         n_ranks = all->points[first].simulation.n_ranks;
    const struct cli_simulated *best = find(all, n_ranks, NULL), *ring = find(all, n_ranks, "ring");
    fprintf(file, "\n%d worker%s on %d host%s\n  %-13s %9s %9s %9s %9s %10s %6s\n", n_ranks, n_ranks == 1 ? "" : "s",
            n_hosts(&all->points[first].simulation), n_hosts(&all->points[first].simulation) == 1 ? "" : "s", "algorithm", "step",
            "compute", "waiting", "exchange", "sent", "card");
    for (int i = first; i < all->n_points && all->points[i].simulation.n_ranks == n_ranks; i++) {
        print_point(file, &all->points[i], &all->points[i] == best, is_verbose);
    }
    if (best == NULL) return;
    print_best(file, best, ring);
    print_crossings(file, all, n_ranks);
    if (n_ranks > 1) print_waiting(file, best);
}

void cli_print_simulations(FILE *file, const struct cli_simulations *all, bool is_verbose)
{
    double wall_s = 0, n_transfers = 0;
    if (all->n_points == 0) {
        fprintf(file, "none of these algorithms can be simulated so; --wire other than f32 is for \"lean\"\n");
        return;
    }
    print_what(file, all);
    for (int i = 0; i < all->n_points; i++) {
        bool is_first = i == 0 || all->points[i].simulation.n_ranks != all->points[i - 1].simulation.n_ranks;
        if (is_first) print_world(file, all, i, is_verbose);
        wall_s += all->points[i].result.wall_s;
        n_transfers += (double)all->points[i].result.n_transfers;
    }
    fprintf(file, "\nsimulated %.0f transfers in %.2f s\n", n_transfers, wall_s);
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

enum { MAX_LISTED_RANKS = 128 };

static void add_ranks(cJSON *object, const struct plan_simulation_result *r)
{
    if (r->n_ranks > MAX_LISTED_RANKS) return;
    cJSON *list = cJSON_AddArrayToObject(object, "by_rank");
    for (int rank = 0; rank < r->n_ranks; rank++) {
        const struct plan_simulated_rank *from = &r->ranks[rank];
        cJSON                            *to = cJSON_CreateObject();
        cJSON_AddNumberToObject(to, "rank", rank);
        cJSON_AddNumberToObject(to, "compute_ms", from->compute_ms);
        cJSON_AddNumberToObject(to, "finish_ms", from->finish_ms);
        cJSON_AddNumberToObject(to, "idle_ms", from->idle_ms);
        cJSON_AddNumberToObject(to, "core_ms", from->core_ms);
        cJSON_AddNumberToObject(to, "waits_for", from->waits_for);
        cJSON_AddNumberToObject(to, "waits_for_ms", from->waits_for_ms);
        cJSON_AddNumberToObject(to, "payload_bytes", (double)from->payload_sent_bytes);
        cJSON_AddItemToArray(list, to);
    }
}

static cJSON *point_to_json(const struct cli_simulated *p, bool is_best)
{
    const struct plan_simulation_result *r = &p->result;
    cJSON                               *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "world_size", p->simulation.n_ranks);
    cJSON_AddStringToObject(object, "algorithm", p->simulation.algorithm);
    if (p->why_not != NULL) {
        cJSON_AddStringToObject(object, "left_out", p->why_not);
        return object;
    }
    cJSON_AddBoolToObject(object, "best", is_best);
    cJSON_AddNumberToObject(object, "predicted_ms", r->step_ms);
    cJSON_AddNumberToObject(object, "compute_ms", r->compute_ms);
    cJSON_AddNumberToObject(object, "wait_ms", r->wait_ms);
    cJSON_AddNumberToObject(object, "exchange_ms", r->exchange_ms);
    cJSON_AddNumberToObject(object, "payload_bytes", (double)r->payload_bytes);
    cJSON_AddNumberToObject(object, "protocol_bytes", (double)r->protocol_bytes);
    cJSON_AddNumberToObject(object, "busiest_host", r->busiest_host);
    cJSON_AddNumberToObject(object, "busiest_share", r->busiest_share);
    cJSON_AddNumberToObject(object, "busiest_bytes", (double)r->busiest_bytes);
    cJSON_AddNumberToObject(object, "straggler", r->straggler);
    cJSON_AddNumberToObject(object, "straggler_costs_ms", r->straggler_costs_ms);
    cJSON_AddNumberToObject(object, "grain_bytes", (double)r->grain_bytes);
    cJSON_AddNumberToObject(object, "transfers", (double)r->n_transfers);
    cJSON_AddNumberToObject(object, "events", (double)r->n_events);
    cJSON_AddNumberToObject(object, "simulated_in_s", r->wall_s);
    add_ranks(object, r);
    return object;
}

static void add_links(cJSON *object, const struct plan_links *l)
{
    cJSON *to = cJSON_AddObjectToObject(object, "links");
    cJSON_AddNumberToObject(to, "latency_us", l->latency_us);
    cJSON_AddNumberToObject(to, "bandwidth_Bps", l->bandwidth_Bps);
    cJSON_AddNumberToObject(to, "burst_bytes", l->burst_bytes);
    cJSON_AddNumberToObject(to, "local_latency_us", l->local_latency_us);
    cJSON_AddNumberToObject(to, "local_bandwidth_Bps", l->local_bandwidth_Bps);
    cJSON_AddNumberToObject(to, "call_us", l->call_us);
    cJSON_AddNumberToObject(to, "wake_us", l->wake_us);
    cJSON_AddNumberToObject(to, "copy_Bps", l->copy_Bps);
    cJSON_AddNumberToObject(to, "add_Bps", l->add_Bps);
}

cJSON *cli_simulations_to_json(const struct cli_simulations *all)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "command", "plan");
    cJSON_AddBoolToObject(object, "simulated", true);
    if (all->model != NULL) cJSON_AddStringToObject(object, "model", all->model);
    if (all->n_points > 0) {
        const struct plan_simulation *s = &all->points[0].simulation;
        cJSON_AddNumberToObject(object, "gradient_bytes", (double)s->bytes);
        cJSON_AddNumberToObject(object, "per_host", s->ranks_per_host);
        add_links(object, &s->links);
    }
    cJSON *points = cJSON_AddArrayToObject(object, "points");
    for (int i = 0; i < all->n_points; i++) {
        const struct cli_simulated *p = &all->points[i];
        cJSON_AddItemToArray(points, point_to_json(p, p == find(all, p->simulation.n_ranks, NULL)));
    }
    cJSON *crossings = cJSON_AddArrayToObject(object, "crossovers");
    for (int i = 0; i < all->n_crossings; i++) {
        cJSON *to = cJSON_CreateObject();
        cJSON_AddNumberToObject(to, "world_size", all->crossings[i].n_ranks);
        cJSON_AddStringToObject(to, "algorithm", all->crossings[i].algorithm);
        cJSON_AddNumberToObject(to, "faster_than_ring_up_to_bytes", (double)all->crossings[i].up_to_bytes);
        cJSON_AddBoolToObject(to, "and_beyond", all->crossings[i].is_open);
        cJSON_AddItemToArray(crossings, to);
    }
    return object;
}
