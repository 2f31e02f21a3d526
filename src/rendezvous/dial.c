#include "rendezvous/dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "net/socket.h"

enum { FIRST_PAUSE_MS = 5, LONGEST_PAUSE_MS = 250, TRY_TIMEOUT_MS = 10000, LOG_EVERY_MS = 5000 };

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* Sleeps until something of `poller` (may be empty) is ready. GM_OK, GM_AGAIN at the deadline, or
 * GM_ERR_ABORTED when woken. */
static gm_status wait_or_woken(const struct gmi_dial *d, struct gmi_poller *poller, int64_t deadline_ns)
{
    if (d->wake_fd >= 0) gmi_poller_add(poller, d->wake_fd, GMI_READABLE);
    gm_status status = gmi_poller_wait(poller, earlier(deadline_ns, d->deadline_ns));
    if (d->wake_fd >= 0 && gmi_poller_ready(poller, d->wake_fd)) return GM_ERR_ABORTED;
    return status;
}

static gm_status pause_ms(const struct gmi_dial *d, struct gmi_poller *poller, int pause)
{
    int64_t until_ns = gmi_deadline_after_ms(pause);
    while (!gmi_deadline_passed(earlier(until_ns, d->deadline_ns))) {
        gmi_poller_clear(poller);
        if (wait_or_woken(d, poller, until_ns) == GM_ERR_ABORTED) return GM_ERR_ABORTED;
    }
    return GM_OK;
}

/* One TCP connection to one address. GM_OK, GM_AGAIN (nobody there; reason set), GM_ERR_ABORTED. */
static gm_status connect_once(const struct gmi_dial *d, struct gmi_poller *poller,
                              const struct gmi_address *to, int *fd, gm_error *reason)
{
    char      text[GMI_ADDRESS_TEXT_BYTES];
    int       sys_errno = 0;
    int64_t   until_ns = gmi_deadline_after_ms(TRY_TIMEOUT_MS);
    gm_status status = gmi_socket_connect_start(fd, to, d->source, &sys_errno);
    while (status == GM_AGAIN) {
        gmi_poller_clear(poller);
        gmi_poller_add(poller, *fd, GMI_WRITABLE);
        gm_status waited = wait_or_woken(d, poller, until_ns);
        if (waited == GM_ERR_ABORTED) {
            gmi_socket_close(fd);
            return waited;
        }
        status = waited == GM_AGAIN ? GM_ERR_TIMEOUT : gmi_socket_connect_finish(*fd, &sys_errno);
    }
    if (status == GM_OK) return GM_OK;
    gmi_socket_close(fd);
    gmi_error_clear(reason);
    gmi_error_set(reason, GM_AGAIN, "%s: %s", gmi_address_format(to, text),
                  status == GM_ERR_TIMEOUT ? "no answer" : strerror(sys_errno));
    return GM_AGAIN;
}

static gm_status shake_hands(const struct gmi_dial *d, struct gmi_poller *poller, int *fd,
                             uint64_t *sent_bytes, uint64_t *recv_bytes, gm_error *reason)
{
    struct gmi_handshake h;
    gmi_handshake_init(&h, *fd, true, d->own, d->judge, d->judge_user, TRY_TIMEOUT_MS);
    *fd = -1;
    gm_status status;
    while ((status = gmi_handshake_progress(&h)) == GM_AGAIN) {
        gmi_poller_clear(poller);
        gmi_handshake_watch(&h, poller);
        if (wait_or_woken(d, poller, h.deadline_ns) == GM_ERR_ABORTED) {
            gmi_handshake_fini(&h);
            return GM_ERR_ABORTED;
        }
        if (gmi_deadline_passed(d->deadline_ns)) h.deadline_ns = d->deadline_ns;
    }
    *reason = h.error;
    if (status == GM_OK) {
        *fd = gmi_handshake_take_fd(&h);
        *sent_bytes += h.total_sent_bytes;
        *recv_bytes += h.total_recv_bytes;
    }
    gmi_handshake_fini(&h);
    return status;
}

/* Tries all addresses of the name once. */
static gm_status try_once(const struct gmi_dial *d, struct gmi_poller *poller, int *fd, uint64_t *sent_bytes,
                          uint64_t *recv_bytes, gm_error *reason)
{
    struct gmi_address_list list;
    gmi_error_clear(reason);
    gm_status status = gmi_address_resolve(&list, d->host, d->port, reason);
    if (status != GM_OK) return status;
    for (int i = 0; i < list.n_addresses; i++) {
        status = connect_once(d, poller, &list.addresses[i], fd, reason);
        if (status == GM_OK) return shake_hands(d, poller, fd, sent_bytes, recv_bytes, reason);
        if (status != GM_AGAIN) return status;
    }
    return status;
}

/* Worth another try: nobody there yet, "come again", or a connection that broke half-way. */
static bool may_heal(gm_status status)
{
    return status == GM_AGAIN || status == GM_ERR_STATE || status == GM_ERR_PEER_LOST || status == GM_ERR_TIMEOUT;
}

static gm_status dial(const struct gmi_dial *d, struct gmi_poller *poller, int *fd, uint64_t *sent_bytes,
                      uint64_t *recv_bytes, gm_error *error)
{
    int64_t next_log_ns = gmi_deadline_after_ms(LOG_EVERY_MS);
    for (int pause = FIRST_PAUSE_MS;; pause = pause * 2 > LONGEST_PAUSE_MS ? LONGEST_PAUSE_MS : pause * 2) {
        gm_error  reason;
        gm_status status = try_once(d, poller, fd, sent_bytes, recv_bytes, &reason);
        if (status == GM_OK) return GM_OK;
        if (status == GM_ERR_ABORTED) return status;
        if (!may_heal(status)) {
            return gmi_error_set(error, status, "cannot join through %s: %s", d->whom, reason.text);
        }
        if (gmi_deadline_passed(d->deadline_ns)) {
            return gmi_error_set(error, GM_ERR_TIMEOUT, "could not reach %s in time; the last try: %s", d->whom,
                                 reason.text);
        }
        if (gmi_deadline_passed(d->first_deadline_ns)) return GM_AGAIN;
        if (gmi_deadline_passed(next_log_ns)) {
            gmi_log(d->log, GM_LOG_WARN, "still waiting for %s: %s", d->whom, reason.text);
            next_log_ns = gmi_deadline_after_ms(LOG_EVERY_MS);
        }
        if (pause_ms(d, poller, pause) == GM_ERR_ABORTED) return GM_ERR_ABORTED;
    }
}

gm_status gmi_dial(const struct gmi_dial *d, int *fd, uint64_t *sent_bytes, uint64_t *recv_bytes,
                   gm_error *error)
{
    struct gmi_poller poller;
    gmi_poller_init(&poller);
    *fd = -1;
    gm_status status = dial(d, &poller, fd, sent_bytes, recv_bytes, error);
    gmi_poller_fini(&poller);
    return status;
}
