/* control_gather.c - until everybody is here: who listens where, who is missing, and whether all agree. */
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/control_parts.h"
#include "comm/fingerprint.h"
#include "net/socket.h"

enum { MISSING_AFTER_CHANGE_MS = 50, LATECOMERS_MS = 3000, MAX_CORES = 1 << 20 };

/* ---- who is where ------------------------------------------------------------------------------- */

static void put_place(const struct gmi_member *m, struct gmi_buffer *body)
{
    gmi_buffer_put_text(body, m->address);
    gmi_buffer_put_u64(body, m->host_id);
    gmi_buffer_put_u32(body, m->sharing);
    gmi_buffer_put_u32(body, (uint32_t)m->n_cores);
    gmi_buffer_put_u64(body, m->process.space);
    gmi_buffer_put_u64(body, m->process.born_ticks);
    gmi_buffer_put_u32(body, m->process.pid);
}

/* False: bytes that cannot be right. */
static bool read_place(struct gmi_member *m, struct gmi_reader *r)
{
    gmi_reader_text(r, m->address, sizeof m->address);
    m->host_id = gmi_reader_u64(r);
    uint32_t sharing = gmi_reader_u32(r);
    uint32_t n_cores = gmi_reader_u32(r);
    m->sharing = (enum gmi_sharing)sharing;
    m->n_cores = (int)n_cores;
    m->process.space = gmi_reader_u64(r);
    m->process.born_ticks = gmi_reader_u64(r);
    m->process.pid = gmi_reader_u32(r);
    return !r->is_short && sharing <= GMI_SHARES_WITH_ALL && n_cores <= MAX_CORES;
}

static bool is_one_host(const struct gmi_member *a, const struct gmi_member *b)
{
    return a->host_id == b->host_id && a->host_id != 0;
}

bool gmi_control_is_local(const struct gmi_control *c, int peer) { return is_one_host(&c->members[c->rank], &c->members[peer]); }

int gmi_control_local_ranks(const struct gmi_control *c)
{
    int n = 1;
    for (int k = 0; k < c->n_ranks; k++) n += k != c->rank && gmi_control_is_local(c, k);
    return n;
}

static void put_choice(const struct gmi_choice *c, struct gmi_buffer *body)
{
    gmi_buffer_put_u16(body, c->site.kind);
    gmi_buffer_put_u16(body, c->site.n_ranks);
    gmi_buffer_put_u16(body, c->site.n_cores);
    gmi_buffer_put_u16(body, c->site.n_hosts);
    gmi_buffer_put_u16(body, c->collective);
    gmi_buffer_put_u16(body, c->algorithm);
    gmi_buffer_put_u64(body, c->most_bytes);
}

static struct gmi_choice read_choice(struct gmi_reader *r)
{
    struct gmi_choice c = { .site.kind = (uint8_t)gmi_reader_u16(r) };
    c.site.n_ranks = gmi_reader_u16(r);
    c.site.n_cores = gmi_reader_u16(r);
    c.site.n_hosts = gmi_reader_u16(r);
    c.collective = (uint8_t)gmi_reader_u16(r);
    c.algorithm = (uint8_t)gmi_reader_u16(r);
    c.most_bytes = gmi_reader_u64(r);
    return c;
}

static void put_profile(struct gmi_profile *p, struct gmi_buffer *body)
{
    const uint32_t *constant;
    for (int kind = 0; kind < GMI_KINDS; kind++) {
        for (int i = 0; (constant = gmi_link_constant(&p->kinds[kind], i)) != NULL; i++) gmi_buffer_put_u32(body, *constant);
    }
    gmi_buffer_put_u32(body, p->n_choices);
    for (uint32_t i = 0; i < p->n_choices; i++) put_choice(&p->choices[i], body);
}

static bool read_profile(struct gmi_profile *p, struct gmi_reader *r)
{
    uint32_t *constant;
    for (int kind = 0; kind < GMI_KINDS; kind++) {
        for (int i = 0; (constant = gmi_link_constant(&p->kinds[kind], i)) != NULL; i++) *constant = gmi_reader_u32(r);
    }
    uint32_t n_choices = gmi_reader_u32(r);
    p->n_choices = n_choices <= GMI_MAX_CHOICES ? n_choices : 0;
    for (uint32_t i = 0; i < p->n_choices; i++) p->choices[i] = read_choice(r);
    return p->n_choices == n_choices;
}

static bool can_share(const struct gmi_member *a, const struct gmi_member *b)
{
    return is_one_host(a, b) && a->sharing != GMI_SHARES_NEVER && b->sharing != GMI_SHARES_NEVER;
}

bool gmi_control_may_share(const struct gmi_control *c, int peer) { return can_share(&c->members[c->rank], &c->members[peer]); }

/* Rank `asker` will share memory with everybody, and cannot with `other`. */
static void sharing_refused(struct gmi_control *c, int asker, int other)
{
    const struct gmi_member *a = &c->members[asker], *b = &c->members[other];
    struct gmi_failure       f = { .status = GM_ERR_UNSUPPORTED, .culprit = asker, .reporter = c->rank };
    char                     why[80] = "";
    if (b->sharing == GMI_SHARES_NEVER) {
        snprintf(why, sizeof why, "rank %d uses the transport tcp", other);
    } else if (a->host_id == 0) {
        snprintf(why, sizeof why, "rank %d cannot tell on which host it is", asker);
    } else {
        snprintf(why, sizeof why, "rank %d is on another host", other);
    }
    snprintf(f.cause, sizeof f.cause, "rank %d must share memory with all ranks (transport shm), but %s; the transport auto uses "
             "memory where it can be had and TCP elsewhere", asker, why);
    gmi_control_fail_from(c, &f, -1);
}

/* Has somebody asked for what cannot be? Known before the first data link is made. */
static bool is_sharing_refused(struct gmi_control *c)
{
    for (int a = 0; a < c->n_ranks; a++) {
        if (c->members[a].sharing != GMI_SHARES_WITH_ALL) continue;
        for (int b = 0; b < c->n_ranks; b++) {
            if (a == b || can_share(&c->members[a], &c->members[b])) continue;
            sharing_refused(c, a, b);
            return true;
        }
    }
    return false;
}

/* ---- who cannot be reached ------------------------------------------------------------------------ */

static bool has_loopback_address(const struct gmi_member *m)
{
    struct gmi_address a;
    gm_error           ignored;
    gmi_error_clear(&ignored);
    return gmi_address_parse_numeric(&a, m->address, &ignored) == GM_OK && gmi_address_is_loopback(&a);
}

static bool shut_in(struct gmi_control *c, int a, int b)
{
    struct gmi_failure f = { .status = GM_ERR_UNSUPPORTED, .culprit = a, .reporter = c->rank };
    snprintf(f.cause, sizeof f.cause, "rank %d listens at %s, which is loopback and cannot be reached by rank %d on another host; "
             "choose another interface for it (GRADMESH_SOCKET_IFNAME)", a, c->members[a].address, b);
    gmi_control_fail_from(c, &f, -1);
    return true;
}

/* Does one listen at his host's own loopback while another comes from elsewhere? That would show as a time limit. */
static bool is_somebody_shut_in(struct gmi_control *c)
{
    int open[2] = { -1, -1 }; /* who listens to the network, on two hosts */
    for (int k = 0; k < c->n_ranks; k++) {
        if ((open[0] >= 0 && is_one_host(&c->members[open[0]], &c->members[k])) || has_loopback_address(&c->members[k])) continue;
        open[open[0] >= 0] = k;
        if (open[1] >= 0) break;
    }
    for (int k = 0; k < c->n_ranks && open[0] >= 0; k++) {
        int other = is_one_host(&c->members[open[0]], &c->members[k]) ? open[1] : open[0];
        if (other >= 0 && has_loopback_address(&c->members[k])) return shut_in(c, k, other);
    }
    return false;
}

/* ---- gathering --------------------------------------------------------------------------------- */

void gmi_control_missing(const struct gmi_control *c, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    if (!gmi_control_is_hub(c)) {
        snprintf(text, text_bytes, "%s", c->missing);
        return;
    }
    for (int k = 0; k < c->n_ranks && used + 16 < text_bytes; k++) {
        if (c->members[k].has_joined) continue;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%d", used ? ", " : "", k);
    }
    if (used + 16 >= text_bytes) snprintf(text + used, text_bytes - used, ", ...");
}

gm_status gmi_control_judge(struct gmi_control *c, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    int rank = peer->rank;
    if (peer->session != 0) return gmi_control_judge_move(c, peer, why, why_bytes);
    if (!gmi_control_is_hub(c) || rank <= 0) {
        snprintf(why, why_bytes, "control connections are for ranks 1 to %d, at rank 0; this is rank %d and you are %d",
                 c->n_ranks - 1, c->rank, rank);
        return GM_ERR_REFUSED;
    }
    struct gmi_member *m = &c->members[rank];
    if (c->has_failure && c->phase == GMI_GATHERING) {
        snprintf(why, why_bytes, "start-up has failed: %s", c->failure.cause);
        return c->failure.status;
    }
    if (m->has_left || c->is_leaving || c->has_failure) {
        snprintf(why, why_bytes, "this communicator is ending; come again");
        return GM_ERR_STATE;
    }
    if (m->has_joined && !gmi_socket_is_over(m->courier.stream.fd)) {
        snprintf(why, why_bytes, "rank %d is already taken by the process at %s; each rank may be started once", rank,
                 m->address);
        return GM_ERR_REFUSED;
    }
    if (c->phase == GMI_READY) {
        snprintf(why, why_bytes, "this communicator is complete; come again");
        return GM_ERR_STATE;
    }
    return GM_OK;
}

void gmi_control_admit(struct gmi_control *c, int rank, struct gmi_stream stream)
{
    struct gmi_member *m = &c->members[rank];
    if (c->phase == GMI_READY) {
        gmi_control_connect(c, rank, stream);
        return;
    }
    gmi_courier_fini(&m->courier);
    gmi_courier_init(&m->courier, stream);
    gmi_control_heard(c, rank);
    m->has_joined = false;
}

/* Those who wait hear soon of somebody who has come or gone; not at once, as many may come together. */
void gmi_control_tell_who_is_missing_soon(struct gmi_control *c)
{
    int64_t soon_ns = gmi_deadline_after_ms(MISSING_AFTER_CHANGE_MS);
    if (soon_ns < c->next_missing_ns) c->next_missing_ns = soon_ns;
}

static void join(struct gmi_control *c, int rank)
{
    c->members[rank].has_joined = true;
    gmi_control_tell_who_is_missing_soon(c);
}

static bool have_all_joined(const struct gmi_control *c)
{
    for (int k = 0; k < c->n_ranks; k++) {
        if (!c->members[k].has_joined) return false;
    }
    return true;
}

static void become_ready(struct gmi_control *c)
{
    c->phase = GMI_READY;
    c->notify(c->notify_user);
}

static void announce_ready(struct gmi_control *c)
{
    struct gmi_buffer body = { 0 };
    gmi_random_bytes(&c->session, sizeof c->session);
    gmi_buffer_put_u64(&body, c->session);
    gmi_buffer_put_u32(&body, c->epoch);
    gmi_buffer_put_u32(&body, (uint32_t)c->n_ranks);
    put_profile(&c->profile, &body);
    for (int k = 0; k < c->n_ranks; k++) put_place(&c->members[k], &body);
    gmi_control_send_to_all_but(c, -1, GMI_READY_TABLE, &body);
    gmi_buffer_fini(&body);
    become_ready(c);
}

static void conclude_if_complete(struct gmi_control *c)
{
    if (!have_all_joined(c)) return;
    if (c->has_pending) { /* settings differ, and now all are here to be told */
        gmi_control_fail_from(c, &c->pending, -1);
    } else if (!is_sharing_refused(c) && !is_somebody_shut_in(c)) {
        announce_ready(c);
    }
}

static void set_own_address(struct gmi_control *c, const char *address)
{
    snprintf(c->members[c->rank].address, sizeof c->members[c->rank].address, "%s", address);
}

void gmi_control_join_self(struct gmi_control *c, const char *own_address)
{
    set_own_address(c, own_address);
    join(c, c->rank);
    conclude_if_complete(c);
}

void gmi_control_attach(struct gmi_control *c, struct gmi_stream stream, const char *own_address)
{
    gmi_courier_init(&c->members[c->hub].courier, stream);
    gmi_control_heard(c, c->hub);
    struct gmi_buffer body = { 0 };
    set_own_address(c, own_address);
    put_place(&c->members[c->rank], &body);
    gmi_buffer_put_text(&body, c->fingerprint);
    gmi_courier_send(&c->members[c->hub].courier, GMI_JOIN, &body);
    gmi_buffer_fini(&body);
}

void gmi_control_tell_who_is_missing(struct gmi_control *c)
{
    char text[sizeof c->missing];
    gmi_control_missing(c, text, sizeof text);
    struct gmi_buffer body = { 0 };
    gmi_buffer_put_text(&body, text);
    gmi_control_send_to_all_but(c, -1, GMI_MISSING, &body);
    gmi_buffer_fini(&body);
}

void gmi_control_hear_join(struct gmi_control *c, int from, struct gmi_reader *r)
{
    struct gmi_member *m = &c->members[from];
    bool           is_good = read_place(m, r);
    size_t         theirs_bytes = gmi_reader_u32(r);
    const uint8_t *theirs = gmi_reader_take(r, theirs_bytes);
    if (!is_good || theirs == NULL || c->phase != GMI_GATHERING) {
        gmi_control_bad_message(c, from);
        return;
    }
    struct gmi_failure f = { .status = GM_ERR_MISMATCH, .culprit = from, .reporter = c->rank };
    if (!c->has_pending &&
        gmi_fingerprint_differs(c->fingerprint, 0, (const char *)theirs, theirs_bytes, from, f.cause, sizeof f.cause)) {
        gmi_control_fail_after(c, &f, LATECOMERS_MS); /* who comes a little later shall hear of it too */
    }
    join(c, from);
    conclude_if_complete(c);
}

bool gmi_control_hear_ready(struct gmi_control *c, struct gmi_reader *r)
{
    c->session = gmi_reader_u64(r);
    c->epoch = gmi_reader_u32(r);
    if (gmi_reader_u32(r) != (uint32_t)c->n_ranks) return false;
    if (!read_profile(&c->profile, r)) return false;
    for (int k = 0; k < c->n_ranks; k++) {
        if (!read_place(&c->members[k], r)) return false;
        gmi_address_localize(c->members[k].address, &c->meeting);
        c->members[k].has_joined = true;
    }
    become_ready(c);
    return true;
}
