#include "plan/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "coll/op.h"

enum { ENDS_IN_A_BLOCK = 256, PARCELS_AT_ONCE = 1024 };

/* ---- parcels ------------------------------------------------------------------------------------- */

struct parcel_block {
    struct parcel_block *next;
    struct plan_parcel   parcels[PARCELS_AT_ONCE];
};

static bool make_parcels(struct plan_network *n)
{
    struct parcel_block *block = gmi_alloc(1, sizeof *block);
    if (block == NULL) return false;
    block->next = n->parcel_memory;
    n->parcel_memory = block;
    n->memory_bytes += sizeof *block;
    for (int i = 0; i < PARCELS_AT_ONCE; i++) {
        block->parcels[i].next = n->spare;
        n->spare = &block->parcels[i];
    }
    return true;
}

static void append(struct plan_parcels *list, struct plan_parcel *parcel)
{
    parcel->next = NULL;
    if (list->first == NULL) list->first = parcel;
    else list->last->next = parcel;
    list->last = parcel;
}

static struct plan_parcel *take_first(struct plan_parcels *list)
{
    struct plan_parcel *parcel = list->first;
    list->first = parcel->next;
    return parcel;
}

static size_t bytes_of(const struct plan_parcel *p) { return p->n_head_bytes + p->body_bytes; }

static int64_t later(int64_t a_ps, int64_t b_ps) { return a_ps > b_ps ? a_ps : b_ps; }

static int64_t time_of(size_t n_bytes, double byte_ps) { return (int64_t)((double)n_bytes * byte_ps + 0.5); }

static void add_event(struct plan_network *n, int64_t at_ps, enum plan_event_kind kind, uint32_t target)
{
    if (!plan_event_add(n->events, at_ps, kind, target)) n->is_out_of_memory = true;
}

/* ---- the way ------------------------------------------------------------------------------------- */

static int host_of(const struct plan_end *end) { return end->network->host[end->rank]; }
static bool is_local(const struct plan_end *end) { return host_of(end) == host_of(end->other); }

static void deliver(struct plan_end *from, struct plan_parcel *parcel, int64_t at_ps)
{
    append(&from->other->incoming, parcel);
    add_event(from->network, at_ps, PLAN_BYTES_ARRIVE, from->other->number);
}

/* A lane is its end's alone, and what enters it later has been sent later: nothing that happens until then can change it. */
static void cross_host(struct plan_end *end, struct plan_parcel *parcel)
{
    struct plan_network *n = end->network;
    end->lane_free_ps = later(end->lane_free_ps, n->core_ps) + time_of(bytes_of(parcel), n->costs.local_byte_ps);
    deliver(end, parcel, end->lane_free_ps + n->costs.local_latency_ps);
}

/* The card at the other end is reserved at once: all ways between hosts are equally long, so parcels reach it in the order
 * in which they began to leave. */
static void cross_network(struct plan_end *end, struct plan_parcel *parcel)
{
    struct plan_network *n = end->network;
    struct plan_card    *out = &n->cards[host_of(end)], *in = &n->cards[host_of(end->other)];
    size_t               n_bytes = bytes_of(parcel);
    int64_t              takes_ps = time_of(n_bytes, n->costs.byte_ps), saved_ps = time_of(n->costs.burst_bytes, n->costs.byte_ps);
    int64_t              first_byte_ps = n->now_ps + n->costs.latency_ps;
    out->out_free_ps = later(out->out_free_ps, n->now_ps - saved_ps) + takes_ps;
    in->in_free_ps = later(in->in_free_ps, first_byte_ps - saved_ps) + takes_ps;
    out->out_busy_ps += takes_ps;
    in->in_busy_ps += takes_ps;
    out->out_bytes += n_bytes;
    in->in_bytes += n_bytes;
    deliver(end, parcel, later(in->in_free_ps, later(out->out_free_ps, n->now_ps) + n->costs.latency_ps));
}

static void stand_in_line(struct plan_card *card, struct plan_end *end)
{
    end->is_in_line = true;
    end->next_in_line = NULL;
    if (card->first_in_line == NULL) card->first_in_line = end;
    else card->last_in_line->next_in_line = end;
    card->last_in_line = end;
}

static void serve_first_in_line(struct plan_network *n, int host)
{
    struct plan_card *card = &n->cards[host];
    struct plan_end  *end = card->first_in_line;
    GMI_CHECK(end != NULL); /* the event was for one */
    card->first_in_line = end->next_in_line;
    end->is_in_line = false;
    end->n_ready--;
    cross_network(end, take_first(&end->leaving));
    if (end->n_ready > 0) stand_in_line(card, end);
    if (card->first_in_line != NULL) add_event(n, card->out_free_ps, PLAN_CARD_IS_FREE, (uint32_t)host);
}

static void leave(struct plan_end *end)
{
    struct plan_network *n = end->network;
    int                  host = host_of(end);
    struct plan_card    *card = &n->cards[host];
    bool                 is_line_empty = card->first_in_line == NULL;
    end->n_ready++;
    if (!end->is_in_line) stand_in_line(card, end);
    if (!is_line_empty) return; /* somebody has asked for the card */
    if (card->out_free_ps > n->now_ps) add_event(n, card->out_free_ps, PLAN_CARD_IS_FREE, (uint32_t)host);
    else serve_first_in_line(n, host);
}

int plan_network_happens(struct plan_network *n, const struct plan_event *event)
{
    struct plan_end *end;
    switch ((enum plan_event_kind)event->kind) {
    case PLAN_BYTES_LEAVE:
        leave(plan_network_end(n, event->target));
        return -1;
    case PLAN_CARD_IS_FREE:
        serve_first_in_line(n, (int)event->target);
        return -1;
    case PLAN_BYTES_ARRIVE:
        end = plan_network_end(n, event->target);
        end->n_arrived++;
        return end->rank;
    case PLAN_ROOM_IS_MADE:
        return plan_network_end(n, event->target)->rank;
    case PLAN_RANK_RUNS:
    case PLAN_CORE_IS_FREE:
        break;
    }
    GMI_CHECK(false);
    return -1;
}

/* ---- the link ------------------------------------------------------------------------------------ */

static void charge_ps(struct plan_network *n, int64_t takes_ps) { n->core_ps += (int64_t)(n->slowness * (double)takes_ps); }

static int64_t plain_call_ps(const struct plan_network *n, size_t n_bytes)
{
    return n->costs.call_ps + time_of(n_bytes, n->costs.copy_ps);
}

static bool is_measured(const struct plan_end *end) { return end->network->costs.turns != NULL && is_local(end); }

static gm_status miss(struct plan_end *end)
{
    end->network->n_misses++;
    if (is_measured(end)) charge_ps(end->network, end->network->costs.turns->miss_ps);
    return GM_AGAIN;
}

static void charge_send(struct plan_end *end, const uint8_t *body, size_t asked_bytes, size_t moved_bytes)
{
    struct plan_network *n = end->network;
    n->n_misses = 0;
    end->has_sent = true;
    if (end->message_at != body || end->message_left_bytes == 0 || body == NULL) end->message_bytes = end->message_left_bytes = asked_bytes;
    if (is_measured(end)) charge_ps(n, plan_turns_send_ps(n->costs.turns, end->on_one_core, end->message_bytes, moved_bytes));
    else charge_ps(n, plain_call_ps(n, moved_bytes));
    end->message_left_bytes -= moved_bytes < end->message_left_bytes ? moved_bytes : end->message_left_bytes;
    end->message_at = body == NULL ? NULL : body + moved_bytes;
}

/* A rank that never found an end would hold its core, and see nothing that arrives meanwhile. */
static bool is_slice_over(struct plan_network *n)
{
    n->is_slice_over = n->is_slice_over || n->core_ps >= n->slice_end_ps;
    return n->is_slice_over;
}

static gm_status send_some(struct gmi_link *link, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    struct plan_end     *end = (struct plan_end *)link;
    struct plan_network *n = end->network;
    bool                 has_head = n_parts == 2 || parts[0].iov_len <= PLAN_HEAD_BYTES;
    size_t               head_bytes = has_head ? parts[0].iov_len : 0, body_bytes = 0;
    if (n_parts == 2 || !has_head) body_bytes = parts[n_parts - 1].iov_len;
    if (body_bytes > n->costs.grain_bytes) body_bytes = n->costs.grain_bytes;
    GMI_CHECK(n_parts <= 2 && head_bytes <= PLAN_HEAD_BYTES);

    *moved_bytes = 0;
    if (is_slice_over(n)) return GM_AGAIN;
    uint64_t unread_bytes = end->other->unread_bytes;
    end->wants_room = unread_bytes > 0 && unread_bytes + head_bytes + body_bytes > n->costs.buffer_bytes;
    if (end->wants_room) return miss(end);
    if (n->spare == NULL && !make_parcels(n)) {
        n->is_out_of_memory = true;
        return GM_AGAIN;
    }
    struct plan_parcel *parcel = n->spare;
    n->spare = parcel->next;
    parcel->head_at = 0;
    parcel->n_head_bytes = (uint32_t)head_bytes;
    parcel->body_bytes = body_bytes;
    if (has_head) memcpy(parcel->head, parts[0].iov_base, head_bytes);
    n->n_parcels++;
    *moved_bytes = head_bytes + body_bytes;
    end->other->unread_bytes += *moved_bytes;
    charge_send(end, body_bytes == 0 ? NULL : parts[n_parts - 1].iov_base, head_bytes + parts[n_parts - 1].iov_len, *moved_bytes);
    parcel->message_bytes = end->message_bytes;
    if (is_local(end)) {
        cross_host(end, parcel);
        return GM_OK;
    }
    append(&end->leaving, parcel);
    if (n->core_ps == n->now_ps) leave(end);
    else add_event(n, n->core_ps, PLAN_BYTES_LEAVE, end->number);
    return GM_OK;
}

/* Takes from a parcel into a part, and says how much. */
static size_t read_from(struct plan_parcel *parcel, uint8_t *into, size_t space_bytes)
{
    size_t head_bytes = parcel->n_head_bytes - parcel->head_at;
    if (head_bytes > 0) {
        if (head_bytes > space_bytes) head_bytes = space_bytes;
        memcpy(into, parcel->head + parcel->head_at, head_bytes);
        parcel->head_at += (uint32_t)head_bytes;
        return head_bytes;
    }
    size_t body_bytes = parcel->body_bytes < space_bytes ? parcel->body_bytes : space_bytes;
    parcel->body_bytes -= body_bytes;
    return body_bytes;
}

static void drop_if_empty(struct plan_end *end)
{
    struct plan_parcel *parcel = end->incoming.first;
    if (parcel->head_at < parcel->n_head_bytes || parcel->body_bytes > 0) return;
    take_first(&end->incoming);
    end->n_arrived--;
    parcel->next = end->network->spare;
    end->network->spare = parcel;
}

static bool is_scratch(const struct plan_network *n, const uint8_t *at)
{
    return n->costs.scratch != NULL && at >= n->costs.scratch && at < n->costs.scratch + GMI_SCRATCH_BYTES;
}

/* Of the first parcel that has arrived. */
static void charge_recv(struct plan_end *end, const uint8_t *into, size_t n_bytes)
{
    struct plan_network      *n = end->network;
    const struct plan_parcel *parcel = end->incoming.first;
    charge_ps(n, plan_turns_recv_ps(n->costs.turns, end->on_one_core, is_scratch(n, into), parcel->message_bytes, n_bytes));
}

static gm_status recv_some(struct gmi_link *link, const struct iovec *parts, int n_parts, size_t *moved_bytes)
{
    struct plan_end     *end = (struct plan_end *)link;
    struct plan_network *n = end->network;
    *moved_bytes = 0;
    if (is_slice_over(n)) return GM_AGAIN;
    if (end->n_arrived == 0) return miss(end);
    n->n_misses = 0;
    for (int i = 0; i < n_parts; i++) {
        size_t got_bytes = 0;
        while (end->n_arrived > 0 && got_bytes < parts[i].iov_len) {
            uint8_t *into = (uint8_t *)parts[i].iov_base + got_bytes;
            size_t   n_bytes = read_from(end->incoming.first, into, parts[i].iov_len - got_bytes);
            if (is_measured(end)) charge_recv(end, into, n_bytes);
            got_bytes += n_bytes;
            drop_if_empty(end);
        }
        *moved_bytes += got_bytes;
        if (got_bytes < parts[i].iov_len) break;
    }
    end->unread_bytes -= *moved_bytes;
    if (is_measured(end) && !end->has_sent) charge_ps(n, n->costs.turns->ack_ps);
    if (!is_measured(end)) charge_ps(n, plain_call_ps(n, *moved_bytes));
    if (end->other->wants_room) {
        end->other->wants_room = false;
        add_event(n, n->core_ps, PLAN_ROOM_IS_MADE, end->other->number);
    }
    return GM_OK;
}

static void watch(struct gmi_link *link, struct gmi_poller *poller, unsigned interest)
{
    (void)link;
    (void)poller;
    (void)interest;
}

static void do_nothing(struct gmi_link *link) { (void)link; }

static const struct gmi_link_ops ops = { .name = "simulated", .send_some = send_some, .recv_some = recv_some, .watch = watch,
                                         .finish = do_nothing, .close = do_nothing };

/* ---- ends ---------------------------------------------------------------------------------------- */

void plan_network_init(struct plan_network *n, const struct plan_network_costs *costs, struct plan_event_queue *events,
                       const int *host, struct plan_card *cards)
{
    *n = (struct plan_network){ .costs = *costs, .events = events, .host = host, .cards = cards, .slowness = 1, .slice_end_ps = INT64_MAX };
}

void plan_network_fini(struct plan_network *n)
{
    for (uint32_t i = 0; i < n->n_blocks; i++) gmi_free(n->blocks[i]);
    free(n->blocks);
    for (struct parcel_block *block = n->parcel_memory, *next; block != NULL; block = next) {
        next = block->next;
        gmi_free(block);
    }
    *n = (struct plan_network){ 0 };
}

struct plan_end *plan_network_end(const struct plan_network *n, uint32_t number)
{
    return &n->blocks[number / ENDS_IN_A_BLOCK][number % ENDS_IN_A_BLOCK];
}

static bool add_block(struct plan_network *n)
{
    struct plan_end **blocks = realloc(n->blocks, (n->n_blocks + 1) * sizeof(struct plan_end *));
    if (blocks == NULL) return false;
    n->blocks = blocks;
    n->blocks[n->n_blocks] = gmi_alloc(ENDS_IN_A_BLOCK, sizeof(struct plan_end));
    if (n->blocks[n->n_blocks] == NULL) return false;
    n->n_blocks++;
    n->memory_bytes += ENDS_IN_A_BLOCK * sizeof(struct plan_end);
    return true;
}

static struct plan_end *new_end(struct plan_network *n, int rank, int peer)
{
    struct plan_end *end = plan_network_end(n, n->n_ends);
    *end = (struct plan_end){ .link.ops = &ops, .network = n, .rank = rank, .number = n->n_ends++ };
    end->port = (struct gmi_port){ .link = &end->link, .peer = peer };
    return end;
}

bool plan_network_connect(struct plan_network *n, int a, int b, struct plan_end *ends[2])
{
    if (n->n_ends + 2 >= PLAN_MAX_TARGETS) return false;
    if (n->n_ends == n->n_blocks * ENDS_IN_A_BLOCK && !add_block(n)) return false; /* blocks hold whole pairs */
    ends[0] = new_end(n, a, b);
    ends[1] = new_end(n, b, a);
    ends[0]->other = ends[1];
    ends[1]->other = ends[0];
    return true;
}
