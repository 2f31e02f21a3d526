#include "rendezvous/acceptor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/socket.h"

enum { HANDSHAKE_TIMEOUT_MS = 5000, PAUSE_MS = 100, ACCEPTS_PER_STEP = 64, TOLD_STRANGERS = 8,
       QUIET_MS = 10000 };

gm_status gmi_acceptor_init(struct gmi_acceptor *a, const struct gmi_address *address, const struct gmi_hello *own,
                            const struct gmi_secret *secret, gmi_judge_fn judge, gmi_admit_fn admit, void *user,
                            const struct gmi_log *log, const char *name, gm_error *error)
{
    *a = (struct gmi_acceptor){ .listener_fd = -1, .own = *own, .secret = secret, .judge = judge, .admit = admit,
                                .user = user, .log = log, .name = name };
    gm_status status = gmi_secret_allows(secret, address, error);
    return status != GM_OK ? status : gmi_socket_listen(&a->listener_fd, address, error);
}

static void drop(struct gmi_acceptor *a, int index)
{
    gmi_handshake_fini(a->pending[index]);
    gmi_free(a->pending[index]);
    a->n_pending--;
    memmove(&a->pending[index], &a->pending[index + 1], (size_t)(a->n_pending - index) * sizeof a->pending[0]);
}

void gmi_acceptor_watch(struct gmi_acceptor *a, struct gmi_poller *poller)
{
    if (a->listener_fd >= 0 && gmi_deadline_passed(a->paused_until_ns)) {
        gmi_poller_add(poller, a->listener_fd, GMI_READABLE);
    }
    for (int i = 0; i < a->n_pending; i++) gmi_handshake_watch(a->pending[i], poller);
}

static void tell_of_stranger(struct gmi_acceptor *a, enum gmi_stranger_kind kind, const char *text)
{
    struct gmi_stranger_count *count = &a->strangers[kind];
    char                       others[48] = "";
    if (count->n_told >= TOLD_STRANGERS && !gmi_deadline_passed(count->quiet_until_ns)) {
        count->n_untold++;
        return;
    }
    if (count->n_untold > 0) snprintf(others, sizeof others, " (and %d more)", count->n_untold);
    gmi_log(a->log, GM_LOG_WARN, "%s: %s%s", a->name, text, others);
    if (count->n_told < TOLD_STRANGERS) count->n_told++;
    count->n_untold = 0;
    count->quiet_until_ns = gmi_now_ns() + QUIET_MS * GMI_NS_PER_MS;
}

static enum gmi_stranger_kind kind_of(const struct gmi_handshake *h, const gm_error *error)
{
    if (error->status == GM_ERR_PROTOCOL) return GMI_STRANGER_FOREIGN;
    return h->has_hello || error->status == GM_ERR_VERSION ? GMI_STRANGER_UNPROVEN : GMI_STRANGER_SILENT;
}

static void tell_of_refusal(struct gmi_acceptor *a, const struct gmi_handshake *h, const gm_error *error)
{
    if (!h->is_proven && error->status == GM_ERR_PEER_LOST && a->is_ending) {
        gmi_log(a->log, GM_LOG_INFO, "%s: %s", a->name, error->text);
    } else if (!h->is_proven) {
        tell_of_stranger(a, kind_of(h, error), error->text);
    } else {
        gmi_log(a->log, error->status == GM_ERR_STATE ? GM_LOG_INFO : GM_LOG_WARN, "%s: %s", a->name, error->text);
    }
}

void gmi_acceptor_fini(struct gmi_acceptor *a)
{
    int n_untold = 0;
    while (a->n_pending > 0) drop(a, a->n_pending - 1);
    for (int kind = 0; kind < GMI_STRANGER_KINDS; kind++) n_untold += a->strangers[kind].n_untold;
    if (n_untold > 0) gmi_log(a->log, GM_LOG_WARN, "%s: %d more were turned away", a->name, n_untold);
    memset(a->strangers, 0, sizeof a->strangers);
    gmi_socket_close(&a->listener_fd);
}

/* For a newcomer. Who has sent a hello may be about to prove himself; who has sent nothing for longest hardly is. */
static void make_room(struct gmi_acceptor *a)
{
    int                victim = 0;
    char               text[GMI_ADDRESS_TEXT_BYTES] = "somebody", line[GMI_ADDRESS_TEXT_BYTES + 64];
    struct gmi_address address;
    for (int i = a->n_pending - 1; i >= 0; i--) {
        if (!a->pending[i]->has_hello) victim = i;
    }
    if (gmi_socket_peer_address(a->pending[victim]->fd, &address) == GM_OK) gmi_address_format(&address, text);
    snprintf(line, sizeof line, "%s has not proven itself and made room for others", text);
    tell_of_stranger(a, a->pending[victim]->has_hello ? GMI_STRANGER_UNPROVEN : GMI_STRANGER_SILENT, line);
    drop(a, victim);
}

/* No descriptor or no memory: the oldest stranger gives his up; without one we wait a moment. Is another try worth it? */
static bool refused(struct gmi_acceptor *a, int sys_errno)
{
    if (a->refused_since_ns == 0) {
        gmi_log(a->log, GM_LOG_WARN, "%s: cannot accept a connection: %s", a->name, strerror(sys_errno));
        a->refused_since_ns = gmi_now_ns();
    }
    a->refused_errno = sys_errno;
    if (a->n_pending > 0) {
        make_room(a);
        return true;
    }
    a->paused_until_ns = gmi_now_ns() + PAUSE_MS * GMI_NS_PER_MS;
    return false;
}

int64_t gmi_acceptor_refused_ns(const struct gmi_acceptor *a)
{
    return a->refused_since_ns == 0 ? 0 : gmi_now_ns() - a->refused_since_ns;
}

void gmi_acceptor_close(struct gmi_acceptor *a) { gmi_socket_close(&a->listener_fd); }

static bool accept_one(struct gmi_acceptor *a)
{
    int       fd, sys_errno = 0;
    gm_status status = gmi_socket_accept(a->listener_fd, &fd, &sys_errno);
    if (status != GM_ERR_SYSTEM) a->refused_since_ns = 0;
    if (status == GM_AGAIN) return false;
    if (status != GM_OK) return refused(a, sys_errno);
    struct gmi_handshake *h = gmi_alloc(1, sizeof *h);
    if (h == NULL) {
        gmi_socket_close(&fd);
        return refused(a, ENOMEM);
    }
    if (a->n_pending == GMI_MAX_PENDING) make_room(a);
    gmi_handshake_init(h, fd, false, &a->own, a->secret, a->judge, a->user, HANDSHAKE_TIMEOUT_MS);
    a->pending[a->n_pending++] = h;
    return true;
}

static void advance(struct gmi_acceptor *a, int *index)
{
    struct gmi_handshake *h = a->pending[*index];
    gm_error              error;
    gmi_error_clear(&error);
    gm_status status = gmi_handshake_progress(h, &error);
    if (status == GM_AGAIN) {
        (*index)++;
        return;
    }
    if (status == GM_OK) {
        a->admit(a->user, gmi_handshake_take_fd(h), h);
    } else {
        tell_of_refusal(a, h, &error);
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
