#include "plan/model.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "coll/algo.h"
#include "reduce/wire.h"
#include "train/bucket.h"

enum { MAX_BUCKETS = 256 };


static double larger(double a, double b) { return a > b ? a : b; }
static double smaller(double a, double b) { return a < b ? a : b; }

/* ---- the network ---------------------------------------------------------------------------------- */

double plan_n_params(const struct gmt_layers *layers)
{
    double n = 0;
    for (int l = 1; l < layers->n_sizes; l++) n += ((double)layers->sizes[l - 1] + 1) * (double)layers->sizes[l];
    return n;
}

static double weights_of(const struct gmt_layers *layers, int l)
{
    return (double)layers->sizes[l] * (double)layers->sizes[l + 1];
}

/* Forward, gradient by weights, gradient by inputs: a multiplication and an addition each; nobody asks for the gradient by
 * the samples. */
double plan_sample_flops(const struct gmt_layers *layers)
{
    double flops = 0;
    for (int l = 0; l + 1 < layers->n_sizes; l++) flops += (l == 0 ? 4 : 6) * weights_of(layers, l);
    return flops;
}

/* ---- computing ------------------------------------------------------------------------------------ */

/* Workers that the machine of each of them has to carry. */
static int occupancy(const struct plan_job *job, int workers) { return job->is_network && !job->is_emulated ? 1 : workers; }

/* How many times as long the slowest computes because cores are shared. Bound to cores, whole workers share one. */
static double load(int workers, int threads, int n_cores)
{
    double wanted = threads == 1 ? ceil((double)workers / n_cores) : (double)workers * threads / n_cores;
    return larger(1, wanted);
}

/* The crew as it is, or the nearest that was measured, which *factor makes of it. NULL: there is none. */
static const struct plan_crew *crew_for(const struct plan_machine *machine, int workers, int threads, double *factor)
{
    const struct plan_crew *best = NULL;
    for (int i = 0; i < machine->n_crews; i++) {
        const struct plan_crew *crew = &machine->crews[i];
        if (best == NULL) best = crew;
        bool has_threads = crew->threads == threads, best_has = best->threads == threads;
        if (has_threads != best_has) {
            if (has_threads) best = crew;
            continue;
        }
        bool fits = crew->workers <= workers, best_fits = best->workers <= workers;
        if (fits && (!best_fits || crew->workers > best->workers)) best = crew;
        if (!fits && !best_fits && crew->workers < best->workers) best = crew;
    }
    if (best == NULL) return NULL;
    *factor = load(workers, threads, machine->n_cores) / load(best->workers, best->threads, machine->n_cores);
    if (best->threads != threads)
        *factor *= smaller(best->threads, machine->n_cores) / smaller(threads, machine->n_cores);
    return best;
}

struct times {
    double last_ms, mean_ms;
};

/* Through the measured points; beyond them along the last two, or in proportion to what grows. */
static struct times at_rows(const struct plan_crew *crew, double rows)
{
    const struct plan_speed *s = crew->speeds;
    int                      n = crew->n_speeds, i = 0;
    if (n == 1) {
        double fixed_ms = smaller(crew->update_ms, s[0].mean_ms), share = rows / s[0].rows;
        return (struct times){ fixed_ms + (s[0].step_ms - fixed_ms) * share, fixed_ms + (s[0].mean_ms - fixed_ms) * share };
    }
    while (i + 2 < n && rows > s[i + 1].rows) i++;
    double at = (rows - s[i].rows) / (s[i + 1].rows - s[i].rows);
    struct times t = { s[i].step_ms + at * (s[i + 1].step_ms - s[i].step_ms), s[i].mean_ms + at * (s[i + 1].mean_ms - s[i].mean_ms) };
    double least = smaller(s[0].mean_ms, smaller(crew->update_ms, s[0].step_ms));
    return (struct times){ larger(t.last_ms, least), larger(t.mean_ms, least) };
}

/* Without update and exchange, of one share computed in one part. What does not grow with rows grows with parameters, the
 * rest with operations. */
static struct times part_times(const struct plan_machine *machine, const struct plan_crew *crew, const struct plan_job *job, double rows)
{
    struct times t = at_rows(crew, rows), none = at_rows(crew, 0);
    double params = plan_n_params(&job->layers) / plan_n_params(&machine->layers);
    double flops = plan_sample_flops(&job->layers) / plan_sample_flops(&machine->layers);
    double fixed_ms = smaller(larger(none.mean_ms, crew->update_ms), t.mean_ms);
    return (struct times){ (fixed_ms - crew->update_ms) * params + (t.last_ms - fixed_ms) * flops,
                           (fixed_ms - crew->update_ms) * params + (t.mean_ms - fixed_ms) * flops };
}

struct compute {
    double last_ms, mean_ms; /* forward and backward, samples, looks at the gradient */
    double last_part_ms;     /* of last_ms: the part during which the gradient becomes complete */
    double update_ms;
};

static struct compute given_compute(const struct plan_machine *machine, const struct plan_job *job, double rows)
{
    double ms = rows * plan_sample_flops(&job->layers) / machine->flops * 1e3;
    return (struct compute){ ms, ms, ms / (double)job->accumulate, 12 * plan_n_params(&job->layers) / machine->memory_Bps * 1e3 };
}

static struct compute compute_of(const struct plan_machine *machine, const struct plan_job *job, int workers)
{
    double rows = ceil((double)job->batch / workers), k = smaller((double)job->accumulate, rows), factor = 1;
    if (machine->flops > 0) return given_compute(machine, job, rows);
    const struct plan_crew *crew = crew_for(machine, occupancy(job, workers), job->threads, &factor);
    if (crew == NULL) return (struct compute){ .last_ms = 0 };
    struct times part = part_times(machine, crew, job, rows / k);
    double       params = plan_n_params(&job->layers) / plan_n_params(&machine->layers);
    return (struct compute){ part.last_ms * k * factor, part.mean_ms * k * factor, part.last_ms * factor,
                             crew->update_ms * params * factor };
}

double plan_flops_of(const struct plan_machine *machine, const struct plan_job *job, int workers)
{
    double ms = compute_of(machine, job, workers).last_ms;
    return ms > 0 ? ceil((double)job->batch / workers) * plan_sample_flops(&job->layers) / ms * 1e3 : 0;
}

/* ---- exchanging ----------------------------------------------------------------------------------- */

/* Of one all-reduce. */
struct exchange {
    double turns_ms;   /* alpha: messages that wait for one another */
    double bytes_ms;   /* the link is busy */
    double core_ms;    /* the exchange among cores alone, until it is done everywhere */
    double sent_bytes;
    double cpu_ms;     /* of one rank's core */
    const struct gmi_algo *algo;
};

static const struct gmi_wire *wire_of(const struct plan_job *job)
{
    const struct gmi_wire *wire = NULL;
    (void)gmi_wire_find(job->wire, &wire);
    return wire;
}

/* What the library will choose, by the constants that it has. */
static struct gmi_costs library_costs(const struct plan_machine *machine, const struct plan_job *job, int workers)
{
    enum gmi_link_kind kind = job->is_network                        ? GMI_KIND_NETWORK
                              : strcmp(job->transport, "shm") == 0 ? GMI_KIND_MEMORY
                                                                     : GMI_KIND_LOOPBACK;
    struct gmi_costs costs = gmi_costs_of_host(workers, machine->n_cores, kind);
    if (!job->is_network) return costs;
    costs.n_hosts = workers;
    costs.most_on_a_host = 1;
    costs.n_cores = machine->n_cores;
    costs.crowd = 1;
    return costs;
}

static const struct gmi_algo *choose(const struct gmi_costs *costs, const struct plan_job *job, double bytes)
{
    enum gmi_view needs = wire_of(job) == NULL ? GMI_VIEW_PAIRS : GMI_VIEW_LEAN;
    return gmi_algo_choose("auto", GM_ALL_REDUCE, costs, (size_t)bytes, needs);
}

static double through(const double *x, const double *y, int n, double at)
{
    int i = 0;
    if (n == 1) return y[0] * at / x[0];
    while (i + 2 < n && at > x[i + 1]) i++;
    double value = y[i] + (at - x[i]) / (x[i + 1] - x[i]) * (y[i + 1] - y[i]);
    return larger(value, y[0] * smaller(1, at / x[0])); /* less than the least measured: no less than in proportion */
}

/* The measured exchange that comes nearest: of the largest crew up to `workers` with these threads, else of any. */
static const struct plan_exchange *nearest_exchange(const struct plan_machine *machine, const struct plan_job *job, int workers,
                                                    const struct plan_crew **whose)
{
    const struct plan_exchange *best = NULL;
    for (int i = 0; i < machine->n_crews; i++) {
        const struct plan_crew     *crew = &machine->crews[i];
        const struct plan_exchange *exchange = plan_crew_exchange(crew, job->transport, job->wire);
        if (exchange == NULL) exchange = plan_crew_exchange(crew, job->transport, "f32");
        if (exchange == NULL && crew->n_exchanges > 0) exchange = &crew->exchanges[0];
        if (exchange == NULL) continue;
        bool is_better = best == NULL || (crew->threads == job->threads && (*whose)->threads != job->threads) ||
                         (crew->threads == (*whose)->threads &&
                          (crew->workers <= workers ? crew->workers > (*whose)->workers || (*whose)->workers > workers
                                                    : (*whose)->workers > workers && crew->workers < (*whose)->workers));
        if (!is_better) continue;
        best = exchange;
        *whose = crew;
    }
    return best;
}

/* What among cores cannot be measured is taken from what was, in the ratio of the library's own estimates. */
static void add_core_costs(struct exchange *x, const struct plan_machine *machine, const struct plan_job *job, int workers, double bytes)
{
    const struct plan_crew     *crew = NULL;
    const struct plan_exchange *measured = nearest_exchange(machine, job, workers, &crew);
    struct plan_job             here = *job;
    here.is_network = false;
    struct gmi_costs costs = library_costs(machine, &here, workers);
    double           us = gmi_algo_us(choose(&costs, &here, bytes), &costs, (size_t)bytes);
    if (measured == NULL) {
        bool is_known = !job->is_network;
        x->core_ms = is_known ? us / 1e3 : 0;
        x->cpu_ms = x->core_ms / costs.crowd;
        return;
    }
    struct gmi_costs base = library_costs(machine, &here, crew->workers);
    double           ratio = us / gmi_algo_us(choose(&base, &here, bytes), &base, (size_t)bytes);
    if (crew->workers == workers) ratio = 1;
    x->core_ms = through(measured->bytes, measured->ms, measured->n_sizes, bytes) * ratio;
    double moved = (1 - 1.0 / workers) / (1 - 1.0 / crew->workers);
    x->cpu_ms = through(measured->bytes, measured->cpu_ms, measured->n_sizes, bytes) * moved;
}

/* Where each sends to several at once, their streams share cards at both ends and do not end together: towards the end a card
 * carries few of them, or none. */
static double share_of_line(const struct gmi_effort *effort, int workers)
{
    bool has_many = !effort->stays_with_neighbours && workers > 2 && effort->messages >= workers - 1 && effort->turns <= 2;
    return has_many ? PLAN_UNEVEN_STREAMS : 1;
}

static void add_link_costs(struct exchange *x, const struct plan_machine *machine, const struct plan_job *job, int workers, double bytes)
{
    const struct gmi_wire *wire = wire_of(job);
    struct gmi_effort      effort = x->algo->effort != NULL ? x->algo->effort(workers, bytes) : (struct gmi_effort){ .turns = 0 };
    double                 sent = larger(effort.sent_bytes, effort.recv_bytes), gamma_ms = effort.reduced_bytes / machine->reduce_Bps * 1e3;
    if (wire != NULL) { /* its effort is that of two bytes for a number; and all of it is made and read */
        size_t count = (size_t)(bytes / sizeof(float));
        gamma_ms += 2 * sent * 2 / machine->codec_Bps * 1e3;
        sent *= (double)gmi_wire_bytes(wire, count) / (2.0 * (double)(count > 0 ? count : 1));
    }
    x->turns_ms = effort.turns * job->link.latency_us / 1e3;
    x->bytes_ms = sent / share_of_line(&effort, workers) / job->link.bandwidth_Bps * 1e3;
    x->sent_bytes = sent;
    if (x->cpu_ms == 0) x->cpu_ms = gamma_ms; /* nothing was measured */
}

static struct exchange exchange_of(const struct plan_machine *machine, const struct plan_job *job, int workers, double bytes)
{
    struct gmi_costs costs = library_costs(machine, job, workers);
    struct exchange  x = { .algo = choose(&costs, job, bytes) };
    add_core_costs(&x, machine, job, workers, bytes);
    if (job->is_network) add_link_costs(&x, machine, job, workers, bytes);
    else x.sent_bytes = 2 * bytes * (workers - 1) / workers;
    if (job->is_network && !job->is_emulated) x.core_ms = x.cpu_ms; /* each on a core of its own */
    return x;
}

/* The link and the cores work at the same time, piece by piece: the slower of them counts. `room`: of the time that a core
 * would need alone, so many times as much is what it takes beside computing. `credit_bytes`: what a rested link takes at once. */
static double length_ms(const struct exchange *x, const struct plan_job *job, double room, double credit_bytes)
{
    if (!job->is_network) return x->core_ms * room;
    double link_ms = larger(0, x->bytes_ms - credit_bytes / job->link.bandwidth_Bps * 1e3);
    return x->turns_ms + larger(link_ms, x->core_ms * room);
}

double plan_exchange_ms(const struct plan_machine *machine, const struct plan_job *job, int workers, double bytes)
{
    struct exchange x = exchange_of(machine, job, workers, bytes);
    return length_ms(&x, job, 1, job->burst_bytes);
}

/* ---- buckets -------------------------------------------------------------------------------------- */

struct bucket {
    double bytes;
    double after; /* share of the part's computing that is done when it is complete */
};

/* The table of tensors alone: what buckets are cut by. */
static void lay_out(struct gmt_params *params, const struct gmt_layers *layers)
{
    memset(params, 0, sizeof *params);
    params->layers = *layers;
    for (int l = 0; l + 1 < layers->n_sizes; l++) {
        struct gmt_tensor *weight = &params->tensors[params->n_tensors++], *bias = &params->tensors[params->n_tensors++];
        *weight = (struct gmt_tensor){ .n_dims = 2, .n_rows = layers->sizes[l + 1], .n_cols = layers->sizes[l],
                                       .first_elem = params->n_elems, .n_elems = layers->sizes[l] * layers->sizes[l + 1] };
        *bias = (struct gmt_tensor){ .n_dims = 1, .n_rows = layers->sizes[l + 1], .n_cols = 1,
                                     .first_elem = params->n_elems + weight->n_elems, .n_elems = layers->sizes[l + 1] };
        params->n_elems += weight->n_elems + bias->n_elems;
    }
}

/* Operations of the backward pass when all from element `first` on is complete, and those of the forward pass. */
static double flops_when_complete(const struct gmt_params *params, double first)
{
    const struct gmt_layers *layers = &params->layers;
    double                   flops = 0;
    for (int l = 0; l + 1 < layers->n_sizes; l++) flops += 2 * weights_of(layers, l);
    for (int l = layers->n_sizes - 2; l >= 0; l--) {
        const struct gmt_tensor *weight = &params->tensors[2 * l];
        double                   size = (double)weight->n_elems, begins = (double)weight->first_elem;
        double                   done = larger(0, smaller(1, (begins + size - first) / size));
        flops += 2 * size * done;
        if (done < 1) break;
        if (l > 0 && first < begins) flops += 2 * size; /* the gradient by its inputs, for the layer below */
    }
    return flops;
}

static int cut(const struct plan_job *job, struct bucket *buckets)
{
    struct gmt_params params;
    lay_out(&params, &job->layers);
    size_t bucket_bytes = job->bucket_bytes;
    if (bucket_bytes == GMT_BUCKET_BYTES_AUTO) bucket_bytes = job->overlaps ? gmt_bucket_bytes_default(&params) : 0;
    if (bucket_bytes > 0 && params.n_elems * sizeof(float) / bucket_bytes >= MAX_BUCKETS - GMT_MAX_LAYERS)
        bucket_bytes = params.n_elems * sizeof(float) / (MAX_BUCKETS / 4);
    double all = flops_when_complete(&params, 0);
    int    n = 0;
    for (size_t end = params.n_elems; end > 0 && n < MAX_BUCKETS; n++) {
        struct gmt_bucket bucket = gmt_bucket_before(&params, bucket_bytes, end);
        buckets[n] = (struct bucket){ (double)bucket.n_elems * sizeof(float),
                                      flops_when_complete(&params, (double)bucket.first_elem) / all };
        end = bucket.first_elem;
    }
    return n;
}

/* ---- exchanging while computing ------------------------------------------------------------------- */

/* A thread computes, another exchanges, bucket after bucket; where they share a core each gets half of it as long as both want
 * it. */
struct overlap {
    const struct plan_job *job;
    double          crowd;     /* of those that exchange on a core; 0: they have cores beside those that compute */
    double          now_ms;    /* of the thread that computes */
    double          free_ms;   /* the link has been without work since, or will be from then on */
    double          credit_bytes;
    int             n_begun, n_ready;
    double          ready_ms[MAX_BUCKETS];
    struct exchange exchanges[MAX_BUCKETS];
    double          taken; /* share of the core that the running exchange takes */
};

/* Begins the next that is ready, not before `at_ms`. False: none is. */
static bool begin_next(struct overlap *o, double at_ms, bool is_computing)
{
    if (o->n_begun == o->n_ready) return false;
    struct exchange *x = &o->exchanges[o->n_begun];
    double           begin_ms = larger(o->free_ms, larger(at_ms, o->ready_ms[o->n_begun]));
    if (o->n_begun == 0) o->credit_bytes = o->job->burst_bytes;
    else o->credit_bytes = smaller(o->job->burst_bytes, o->credit_bytes + (begin_ms - o->free_ms) * o->job->link.bandwidth_Bps / 1e3);
    double cores_ms = o->crowd * x->cpu_ms;
    double length = length_ms(x, o->job, is_computing && o->crowd > 0 ? 2 : 1, o->credit_bytes);
    o->credit_bytes = larger(0, o->credit_bytes - x->sent_bytes);
    o->free_ms = begin_ms + length;
    o->taken = length > 0 ? smaller(0.5, cores_ms / length) : 0;
    o->n_begun++;
    return true;
}

static void compute(struct overlap *o, double work_ms)
{
    while (work_ms > 0) {
        bool is_exchanging = o->now_ms < o->free_ms || begin_next(o, o->now_ms, true);
        if (!is_exchanging || o->free_ms <= o->now_ms) {
            o->now_ms += work_ms;
            return;
        }
        double speed = 1 - o->taken, until_ms = smaller(o->free_ms, o->now_ms + work_ms / speed);
        work_ms -= (until_ms - o->now_ms) * speed;
        o->now_ms = until_ms;
        if (work_ms < 1e-12) return;
    }
}

/* Until all is exchanged; *computed_ms: until all is computed. */
static double run_overlapped(struct overlap *o, const struct bucket *buckets, int n, double head_ms, double part_ms, double *computed_ms)
{
    double done = 0;
    o->now_ms = head_ms;
    for (int i = 0; i < n; i++) {
        compute(o, (buckets[i].after - done) * part_ms);
        done = buckets[i].after;
        o->ready_ms[o->n_ready++] = o->now_ms;
    }
    *computed_ms = o->now_ms;
    while (begin_next(o, o->now_ms, false)) continue;
    return larger(o->free_ms, o->now_ms);
}

/* ---- the step ------------------------------------------------------------------------------------- */

static void add_exchange(struct plan_prediction *p, const struct exchange *x, const struct plan_job *job)
{
    p->exchange_ms += length_ms(x, job, 1, 0);
    p->link_ms += x->bytes_ms + x->turns_ms;
    p->cpu_ms += x->cpu_ms;
    p->sent_bytes += x->sent_bytes;
}

static void exchange_all(struct plan_prediction *p, const struct plan_machine *machine, const struct plan_job *job, const struct compute *c)
{
    struct bucket  buckets[MAX_BUCKETS];
    struct overlap o = { .job = job };
    int            n = cut(job, buckets), workers = p->workers, here = occupancy(job, workers);
    double         largest = 0, computed_ms, end_ms;
    if (here * (job->threads + 1) > machine->n_cores) o.crowd = ceil((double)here / machine->n_cores);
    for (int i = 0; i < n; i++) {
        o.exchanges[i] = exchange_of(machine, job, workers, buckets[i].bytes);
        if (buckets[i].bytes > largest) {
            largest = buckets[i].bytes;
            p->algorithm = o.exchanges[i].algo->name;
        }
        add_exchange(p, &o.exchanges[i], job);
    }
    if (!job->overlaps)
        for (int i = 0; i < n; i++) buckets[i].after = 1;
    end_ms = run_overlapped(&o, buckets, n, c->last_ms - c->last_part_ms, c->last_part_ms, &computed_ms);
    p->exposed_ms = end_ms - c->last_ms;
    p->hidden_ms = larger(0, p->exchange_ms - p->exposed_ms);
}

static struct plan_prediction predict(const struct plan_machine *machine, const struct plan_job *job, int workers)
{
    struct compute         c = compute_of(machine, job, workers);
    struct plan_prediction p = { .workers = workers, .compute_ms = c.mean_ms, .wait_ms = c.last_ms - c.mean_ms,
                                 .update_ms = c.update_ms, .algorithm = "" };
    if (workers > 1) exchange_all(&p, machine, job, &c);
    p.zero_comm_ms = c.last_ms + c.update_ms;
    p.step_ms = p.zero_comm_ms + p.exposed_ms;
    return p;
}

struct plan_prediction plan_predict(const struct plan_machine *machine, const struct plan_job *job, int workers)
{
    struct plan_prediction p = predict(machine, job, workers), alone = predict(machine, job, 1);
    p.speedup = p.step_ms > 0 ? alone.step_ms / p.step_ms : 0;
    p.zero_comm_speedup = p.zero_comm_ms > 0 ? alone.step_ms / p.zero_comm_ms : 0;
    p.efficiency = p.speedup / workers;
    p.pays = workers > 1 && p.step_ms < alone.step_ms;
    return p;
}

/* ---- questions ------------------------------------------------------------------------------------ */

static bool pays_with(const struct plan_machine *machine, struct plan_job job, int workers, size_t batch)
{
    job.batch = batch;
    return predict(machine, &job, workers).step_ms < predict(machine, &job, 1).step_ms;
}

size_t plan_break_even_batch(const struct plan_machine *machine, const struct plan_job *job, int workers)
{
    size_t low = (size_t)workers - 1, high = (size_t)workers;
    while (high <= (size_t)1 << 30 && !pays_with(machine, *job, workers, high)) {
        low = high;
        high *= 2;
    }
    if (high > (size_t)1 << 30) return 0;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (pays_with(machine, *job, workers, middle)) high = middle;
        else low = middle;
    }
    return high;
}

int plan_best_world(const struct plan_machine *machine, const struct plan_job *job, int max_workers)
{
    int    best = 1;
    double best_ms = predict(machine, job, 1).step_ms;
    for (int n = 2; n <= max_workers && (size_t)n <= job->batch; n++) {
        double ms = predict(machine, job, n).step_ms;
        if (ms < best_ms) {
            best = n;
            best_ms = ms;
        }
    }
    return best;
}

int plan_pays_up_to(const struct plan_machine *machine, const struct plan_job *job, int max_workers)
{
    int n = 1;
    while (n < max_workers && (size_t)n < job->batch && pays_with(machine, *job, n + 1, job->batch)) n++;
    return n;
}
