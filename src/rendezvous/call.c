#include "rendezvous/call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "net/socket.h"

enum { FIRST_PAUSE_MS = 5, LONGEST_PAUSE_MS = 250, TRY_TIMEOUT_MS = 10000, REFUSED_MS = 1500 };

/* The answerer must be the rank that was called. An old address may lead to another one: look again. */
static gm_status expects(void *user, const struct gmi_hello *peer, char *why, size_t why_bytes)
{
    const struct gmi_hello *own = user;
    if (strcmp(peer->job_id, own->job_id) == 0 && peer->rank == own->target && peer->group == own->group) return GM_OK;
    snprintf(why, why_bytes, "expected rank %d of job '%s' here, found rank %d of job '%s'", (int)own->target,
             own->job_id, (int)peer->rank, peer->job_id);
    return GM_ERR_STATE;
}

void gmi_call_init(struct gmi_call *c, const char *host, int port, const struct gmi_hello *own,
                   const struct gmi_secret *secret, gmi_judge_fn judge)
{
    *c = (struct gmi_call){ .port = port, .own = *own, .secret = secret, .judge = judge ? judge : expects, .fd = -1,
                            .pause_ms = FIRST_PAUSE_MS };
    snprintf(c->host, sizeof c->host, "%s", host);
    gmi_error_clear(&c->error);
}

static void enter(struct gmi_call *c, enum gmi_call_state state)
{
    c->state = state;
    int wait_ms = state == GMI_CALL_PAUSED ? c->pause_ms : TRY_TIMEOUT_MS;
    c->next_ns = gmi_now_ns() + wait_ms * GMI_NS_PER_MS;
}

static void hang_up(struct gmi_call *c)
{
    if (c->state == GMI_CALL_SHAKING) gmi_handshake_fini(&c->handshake);
    gmi_socket_close(&c->fd);
}

static gm_status pause_then_again(struct gmi_call *c)
{
    hang_up(c);
    enter(c, GMI_CALL_PAUSED);
    c->pause_ms = 2 * c->pause_ms < LONGEST_PAUSE_MS ? 2 * c->pause_ms : LONGEST_PAUSE_MS;
    return GM_AGAIN;
}

/* Worth another try: nobody there yet, "come again", or a connection that broke half-way. */
static bool may_heal(gm_status status)
{
    return status == GM_AGAIN || status == GM_ERR_STATE || status == GM_ERR_PEER_LOST || status == GM_ERR_TIMEOUT;
}

static gm_status resolve(struct gmi_call *c)
{
    gmi_error_clear(&c->error);
    gm_status status = gmi_address_resolve(&c->list, c->host, c->port, &c->error);
    c->index = 0;
    for (int i = 0; i < c->list.n_addresses && status == GM_OK; i++) {
        status = gmi_secret_allows(c->secret, &c->list.addresses[i], &c->error);
    }
    if (status == GM_OK) return GM_OK;
    if (may_heal(status)) return pause_then_again(c);
    enter(c, GMI_CALL_FAILED);
    return status;
}

static gm_status connection_failed(struct gmi_call *c, const char *why)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    gmi_error_clear(&c->error);
    gmi_error_set(&c->error, GM_ERR_TIMEOUT, "%s: %s", gmi_address_format(&c->list.addresses[c->index], text), why);
    gmi_socket_close(&c->fd);
    c->index++;
    return GM_AGAIN;
}

static const char *why_in_vain(gm_status status, int sys_errno)
{
    if (status == GM_AGAIN) return "no answer";
    return sys_errno == EINVAL ? "this host has a route that throws such packets away (blackhole)" : strerror(sys_errno);
}

/* No descriptor, no memory, not permitted: that may pass, but nobody else will tell if it does not. */
static bool is_refused_for_good(struct gmi_call *c)
{
    if (!gmi_socket_is_our_trouble(c->error.sys_errno)) {
        c->refused_since_ns = 0;
    } else if (c->refused_since_ns == 0) {
        c->refused_since_ns = gmi_now_ns();
    }
    return c->refused_since_ns != 0 && gmi_now_ns() - c->refused_since_ns >= REFUSED_MS * GMI_NS_PER_MS;
}

static gm_status refused(struct gmi_call *c)
{
    hang_up(c);
    enter(c, GMI_CALL_FAILED);
    return c->error.status = GM_ERR_SYSTEM;
}

/* Tries the addresses from c->index on. GM_OK: connected; GM_AGAIN: under way, or all failed (paused). */
static gm_status connect_next(struct gmi_call *c)
{
    while (c->index < c->list.n_addresses) {
        int       sys_errno = 0;
        gm_status status;
        if (c->fd >= 0) {
            status = gmi_socket_connect_finish(c->fd, &sys_errno);
        } else {
            enter(c, GMI_CALL_CONNECTING);
            status = gmi_socket_connect_start(&c->fd, &c->list.addresses[c->index], c->source, &sys_errno);
        }
        if (status == GM_OK) return GM_OK;
        if (status == GM_AGAIN && !gmi_deadline_passed(c->next_ns)) return GM_AGAIN;
        connection_failed(c, why_in_vain(status, sys_errno));
        c->error.sys_errno = status == GM_AGAIN ? 0 : sys_errno;
    }
    return is_refused_for_good(c) ? refused(c) : pause_then_again(c);
}

static gm_status shake(struct gmi_call *c)
{
    gm_error error;
    gmi_error_clear(&error);
    gm_status status = gmi_handshake_progress(&c->handshake, &error);
    if (status == GM_AGAIN) return status;
    c->error = error;
    if (status == GM_OK) {
        c->fd = gmi_handshake_take_fd(&c->handshake);
        c->sent_bytes = c->handshake.total_sent_bytes;
        c->recv_bytes = c->handshake.total_recv_bytes;
        gmi_handshake_fini(&c->handshake);
        c->state = GMI_CALL_DONE;
        return status;
    }
    if (may_heal(status)) return pause_then_again(c);
    hang_up(c);
    enter(c, GMI_CALL_FAILED);
    return status;
}

gm_status gmi_call_progress(struct gmi_call *c)
{
    gm_status status;
    if (c->state == GMI_CALL_PAUSED) {
        if (!gmi_deadline_passed(c->next_ns)) return GM_AGAIN;
        enter(c, GMI_CALL_RESOLVING);
    }
    if (c->state == GMI_CALL_RESOLVING) {
        if ((status = resolve(c)) != GM_OK) return status;
        enter(c, GMI_CALL_CONNECTING);
    }
    if (c->state == GMI_CALL_CONNECTING) {
        if ((status = connect_next(c)) != GM_OK) return status;
        enter(c, GMI_CALL_SHAKING);
        gmi_handshake_init(&c->handshake, c->fd, true, &c->own, c->secret, c->judge, &c->own, TRY_TIMEOUT_MS);
        c->fd = -1;
    }
    if (c->state == GMI_CALL_SHAKING) return shake(c);
    return c->state == GMI_CALL_DONE ? GM_OK : c->error.status;
}

void gmi_call_watch(const struct gmi_call *c, struct gmi_poller *poller)
{
    if (c->state == GMI_CALL_CONNECTING && c->fd >= 0) gmi_poller_add(poller, c->fd, GMI_WRITABLE);
    if (c->state == GMI_CALL_SHAKING) gmi_handshake_watch(&c->handshake, poller);
}

int64_t gmi_call_next_ns(const struct gmi_call *c)
{
    return c->state == GMI_CALL_DONE || c->state == GMI_CALL_FAILED ? GMI_NEVER : c->next_ns;
}

int gmi_call_take_fd(struct gmi_call *c)
{
    int fd = c->fd;
    c->fd = -1;
    return fd;
}

gm_status gmi_call_take_stream(struct gmi_call *c, struct gmi_stream *stream)
{
    return gmi_handshake_stream(&c->handshake, gmi_call_take_fd(c), stream);
}

void gmi_call_fini(struct gmi_call *c) { hang_up(c); }
