#include "plan/turns.h"

#include <math.h>

static const double PS_PER_US = 1e6, PS_PER_S = 1e12;

enum { SHALLOW_BYTES = 256 * 1024, DEEP_BYTES = 1024 * 1024, TRY_US = 50, MEASURED_AT_ONCE = 2 /* processes, each walking as far */ };

/* Along a line between two points: y of x. */
static double between(double x, double x0, double y0, double x1, double y1) { return y0 + (x - x0) / (x1 - x0) * (y1 - y0); }

static double reach_value(const struct bench_turns *m, double walked_bytes, double (*value)(const struct bench_turn_reach *))
{
    const struct bench_turn_reach *r = m->reaches;
    if (walked_bytes <= r[0].walked_bytes) return value(&r[0]);
    for (int i = 1; i < BENCH_TURN_REACHES; i++) {
        if (walked_bytes > r[i].walked_bytes) continue;
        return between(log(walked_bytes), log(r[i - 1].walked_bytes), value(&r[i - 1]), log(r[i].walked_bytes), value(&r[i]));
    }
    return value(&r[BENCH_TURN_REACHES - 1]);
}

static double send_factor(const struct bench_turn_reach *r) { return r->send_factor; }
static double recv_factor(const struct bench_turn_reach *r) { return r->recv_factor; }
static double deep_send_factor(const struct bench_turn_reach *r) { return r->deep_send_factor; }
static double deep_recv_factor(const struct bench_turn_reach *r) { return r->deep_recv_factor; }
static double add_ps(const struct bench_turn_reach *r) { return PS_PER_S / r->add_Bps; }
static double add_kept_ps(const struct bench_turn_reach *r) { return PS_PER_S / r->add_kept_Bps; }

static int64_t ps(double us) { return (int64_t)(us * PS_PER_US + 0.5); }

struct plan_turns plan_turns_of(const struct bench_turns *m, double walked_bytes)
{
    double each_bytes = walked_bytes / MEASURED_AT_ONCE;
    return (struct plan_turns){ .measured = m, .miss_ps = ps(m->miss_us), .yield_ps = ps(m->yield_us), .switch_ps = ps(m->switch_us),
                                .wake_ps = ps(m->wake_us), .call_ps = ps(m->call_us), .look_ps = ps(m->try_us), .try_ps = ps(TRY_US),
                                .send_factor = reach_value(m, each_bytes, send_factor), .recv_factor = reach_value(m, each_bytes, recv_factor),
                                .deep_send_factor = reach_value(m, each_bytes, deep_send_factor),
                                .deep_recv_factor = reach_value(m, each_bytes, deep_recv_factor), .ack_ps = ps(m->ack_us),
                                .add_ps = reach_value(m, each_bytes, add_ps), .add_kept_ps = reach_value(m, each_bytes, add_kept_ps) };
}

/* The calls of a whole message; beyond the largest that was measured, as many of these as fit. */
static double message_us(const struct bench_turn_call *calls, bool is_send, double factor, double bytes)
{
    double few_us = is_send ? calls[0].send_us : calls[0].recv_us, us = few_us;
    const struct bench_turn_call *last = &calls[BENCH_TURN_CALLS - 1];
    if (bytes > last->bytes) return message_us(calls, is_send, factor, last->bytes) * bytes / last->bytes;
    for (int i = 1; i < BENCH_TURN_CALLS && bytes > calls[i - 1].bytes; i++) {
        double y0 = is_send ? calls[i - 1].send_us : calls[i - 1].recv_us, y1 = is_send ? calls[i].send_us : calls[i].recv_us;
        us = between(fmin(bytes, calls[i].bytes), calls[i - 1].bytes, y0, calls[i].bytes, y1);
    }
    return few_us + (us - few_us) * factor;
}

/* Between messages of a part of the ring's chunks and whole pieces. */
static double factor_for(double shallow, double deep, double bytes)
{
    if (bytes <= SHALLOW_BYTES) return shallow;
    return bytes >= DEEP_BYTES ? deep : between(bytes, SHALLOW_BYTES, shallow, DEEP_BYTES, deep);
}

static int64_t part_ps(double us, size_t message_bytes, size_t moved_bytes)
{
    return ps(message_bytes > moved_bytes ? us * (double)moved_bytes / (double)message_bytes : us);
}

int64_t plan_turns_send_ps(const struct plan_turns *t, bool on_one_core, size_t message_bytes, size_t moved_bytes)
{
    const struct bench_turn_call *calls = t->measured->calls[on_one_core];
    double                        factor = factor_for(t->send_factor, t->deep_send_factor, (double)message_bytes);
    return part_ps(message_us(calls, true, factor, (double)message_bytes), message_bytes, moved_bytes);
}

int64_t plan_turns_recv_ps(const struct plan_turns *t, bool on_one_core, bool is_in_cache, size_t message_bytes, size_t moved_bytes)
{
    const struct bench_turn_call *calls = t->measured->calls[on_one_core];
    double                        factor = is_in_cache ? 1 : factor_for(t->recv_factor, t->deep_recv_factor, (double)message_bytes);
    return part_ps(message_us(calls, false, factor, (double)message_bytes), message_bytes, moved_bytes);
}
