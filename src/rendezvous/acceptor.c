#include "rendezvous/acceptor.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "net/socket.h"

enum { HANDSHAKE_TIMEOUT_MS = 5000, PAUSE_MS = 100, ACCEPTS_PER_STEP = 64, TOLD_STRANGERS = 8,
       QUIET_MS = 10000 };

gm_status gmi_acceptor_init(struct gmi_acceptor *a, const struct gmi_address *address,
                            const struct gmi_hello *own, gmi_judge_fn judge, gmi_admit_fn admit, void *user,
                            const struct gmi_log *log, const char *name, gm_error *error)
{
    *a = (struct gmi_acceptor){ .listener_fd = -1, .own = *own, .judge = judge, .admit = admit, .user = user,
                                .log = log, .name = name };
    return gmi_socket_listen(&a->listener_fd, address, error);
}

static void drop(struct gmi_acceptor *a, int index)
{
    gmi_handshake_fini(a->pending[index]);
    gmi_free(a->pending[index]);
    a->n_pending--;
    memmove(&a->pending[index], &a->pending[index + 1], (size_t)(a->n_pending - index) * sizeof a->pending[0]);
}

void gmi_acceptor_fini(struct gmi_acceptor *a)
{
    while (a->n_pending > 0) drop(a, a->n_pending - 1);
    gmi_socket_close(&a->listener_fd);
}

void gmi_acceptor_watch(struct gmi_acceptor *a, struct gmi_poller *poller)
{
    if (a->listener_fd >= 0 && gmi_deadline_passed(a->paused_until_ns)) {
        gmi_poller_add(poller, a->listener_fd, GMI_READABLE);
    }
    for (int i = 0; i < a->n_pending; i++) gmi_handshake_watch(a->pending[i], poller);
}

static bool accept_one(struct gmi_acceptor *a)
{
    int       fd, sys_errno = 0;
    gm_status status = gmi_socket_accept(a->listener_fd, &fd, &sys_errno);
    if (status == GM_AGAIN) return false;
    struct gmi_handshake *h = status == GM_OK ? gmi_alloc(1, sizeof *h) : NULL;
    if (h == NULL) {
        /* No descriptor or no memory: the oldest stranger gives his up; without one we wait a moment. */
        if (status == GM_OK) gmi_socket_close(&fd);
        gmi_log(a->log, GM_LOG_WARN, "%s: cannot accept a connection: %s", a->name, strerror(sys_errno));
        if (a->n_pending > 0) {
            drop(a, 0);
            return true;
        }
        a->paused_until_ns = gmi_now_ns() + PAUSE_MS * GMI_NS_PER_MS;
        return false;
    }
    if (a->n_pending == GMI_MAX_PENDING) drop(a, 0);
    gmi_handshake_init(h, fd, false, &a->own, a->judge, a->user, HANDSHAKE_TIMEOUT_MS);
    a->pending[a->n_pending++] = h;
    return true;
}

static void tell_of_stranger(struct gmi_acceptor *a, const char *text)
{
    char others[48] = "";
    if (a->n_strangers >= TOLD_STRANGERS && !gmi_deadline_passed(a->quiet_until_ns)) {
        a->n_untold++;
        return;
    }
    if (a->n_untold > 0) snprintf(others, sizeof others, " (and %d more)", a->n_untold);
    gmi_log(a->log, GM_LOG_WARN, "%s: %s%s", a->name, text, others);
    if (a->n_strangers < TOLD_STRANGERS) a->n_strangers++;
    a->n_untold = 0;
    a->quiet_until_ns = gmi_now_ns() + QUIET_MS * GMI_NS_PER_MS;
}

static void tell_of_refusal(struct gmi_acceptor *a, const gm_error *error)
{
    bool is_stranger = error->status == GM_ERR_PROTOCOL || error->status == GM_ERR_PEER_LOST;
    if (is_stranger) {
        tell_of_stranger(a, error->text);
    } else {
        gmi_log(a->log, error->status == GM_ERR_STATE ? GM_LOG_INFO : GM_LOG_WARN, "%s: %s", a->name, error->text);
    }
}

static void advance(struct gmi_acceptor *a, int *index)
{
    struct gmi_handshake *h = a->pending[*index];
    gm_status             status = gmi_handshake_progress(h);
    if (status == GM_AGAIN) {
        (*index)++;
        return;
    }
    if (status == GM_OK) {
        a->admit(a->user, gmi_handshake_take_fd(h), h);
    } else {
        tell_of_refusal(a, &h->error);
    }
    drop(a, *index);
}

void gmi_acceptor_step(struct gmi_acceptor *a)
{
    if (a->listener_fd >= 0 && gmi_deadline_passed(a->paused_until_ns)) {
        for (int i = 0; i < ACCEPTS_PER_STEP && accept_one(a); i++) {}
    }
    for (int i = 0; i < a->n_pending;) advance(a, &i);
}
