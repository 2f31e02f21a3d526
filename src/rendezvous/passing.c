#include "rendezvous/passing.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "rendezvous/hello.h"

/* Strangers let in and looked at in one go. */
enum { KNOCKS_PER_STEP = 16 };

/* ---- words ----------------------------------------------------------------------------------- */

static const char *const texts[GMI_PASSING_TROUBLE_END] = {
    [GMI_PASSING_FINE] = "had no trouble",
    [GMI_PASSING_NOTHING_TO_GIVE] = "could not make the memory",
    [GMI_PASSING_NO_SOCKET] = "could not make a local socket to pass the memory over",
    [GMI_PASSING_NOT_REACHED] = "found nobody at the local socket",
    [GMI_PASSING_OTHER_USER] = "found a process of another user at the local socket",
    [GMI_PASSING_NOT_SENT] = "could not pass the memory on",
    [GMI_PASSING_NOT_RECEIVED] = "could not receive the memory",
    [GMI_PASSING_TOO_SLOW] = "did not get the memory in time",
    [GMI_PASSING_UNUSABLE] = "could not map the memory",
};

const char *gmi_passing_why(const struct gmi_passing *p, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%s%s%s", texts[p->trouble], p->trouble_errno ? ": " : "",
             p->trouble_errno ? strerror(p->trouble_errno) : "");
    return text;
}

static void note_trouble(struct gmi_passing *p, enum gmi_passing_trouble trouble, int sys_errno,
                         bool is_ours)
{
    p->trouble = trouble;
    p->trouble_errno = sys_errno;
    p->is_trouble_ours = is_ours;
}

static void put_trouble(const struct gmi_passing *p, uint8_t *w)
{
    gmi_put_u32(w, p->trouble);
    gmi_put_u32(w + 4, (uint32_t)p->trouble_errno);
}

static bool get_trouble(struct gmi_passing *p, const uint8_t *w)
{
    uint32_t trouble = gmi_get_u32(w);
    if (trouble >= GMI_PASSING_TROUBLE_END) return false;
    note_trouble(p, (enum gmi_passing_trouble)trouble, (int)gmi_get_u32(w + 4), false);
    return true;
}

/* ---- the connection -------------------------------------------------------------------------- */

static gm_status flush(struct gmi_passing *p)
{
    while (p->out_sent_bytes < p->out_bytes) {
        struct iovec part = { p->out + p->out_sent_bytes, p->out_bytes - p->out_sent_bytes };
        size_t       moved;
        gm_status    status = gmi_socket_send_some(p->fd, &part, 1, &moved, &p->sys_errno);
        if (status != GM_OK) return status;
        p->out_sent_bytes += moved;
        p->total_sent_bytes += moved;
    }
    return GM_OK;
}

/* Never a byte beyond what is wanted: what follows is the link's. */
static gm_status fill(struct gmi_passing *p, size_t want_bytes)
{
    while (p->in_bytes < want_bytes) {
        struct iovec part = { p->in + p->in_bytes, want_bytes - p->in_bytes };
        size_t       moved;
        gm_status    status = gmi_socket_recv_some(p->fd, &part, 1, &moved, &p->sys_errno);
        if (status != GM_OK) return status;
        p->in_bytes += moved;
        p->total_recv_bytes += moved;
    }
    return GM_OK;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static struct gmi_passing blank(int fd, bool is_giver, enum gmi_passing_state state)
{
    return (struct gmi_passing){ .fd = fd,
                                 .is_giver = is_giver,
                                 .state = state,
                                 .listener_fd = -1,
                                 .local_fd = -1,
                                 .deadline_ns = GMI_NEVER };
}

static void leave_local(struct gmi_passing *p)
{
    gmi_socket_close(&p->listener_fd);
    gmi_socket_close(&p->local_fd);
}

static void close_fds(struct gmi_passing *p)
{
    for (int i = 0; i < p->n_fds; i++) gmi_socket_close(&p->fds[i]);
}

void gmi_passing_fini(struct gmi_passing *p)
{
    leave_local(p);
    if (!p->is_giver) close_fds(p);
}

/* ---- the giver ------------------------------------------------------------------------------- */

static void write_offer(struct gmi_passing *p)
{
    put_trouble(p, p->out);
    gmi_put_u32(p->out + 8, p->note);
    memcpy(p->out + 16, p->name, sizeof p->name);
    memcpy(p->out + 32, p->secret, sizeof p->secret);
    p->out_bytes = GMI_OFFER_BYTES;
}

void gmi_passing_give(struct gmi_passing *p, int fd, const int *fds, int n_fds, uint32_t note,
                      int trouble_errno)
{
    int sys_errno = 0;
    *p = blank(fd, true, GMI_PASSING_OFFERING);
    p->note = note;
    p->n_fds = n_fds;
    if (n_fds > 0) memcpy(p->fds, fds, (size_t)n_fds * sizeof *fds);
    gmi_random_bytes(p->name, sizeof p->name);
    gmi_random_bytes(p->secret, sizeof p->secret);
    if (n_fds == 0) {
        note_trouble(p, GMI_PASSING_NOTHING_TO_GIVE, trouble_errno, true);
    } else if (gmi_local_listen(&p->listener_fd, p->name, &sys_errno) != GM_OK) {
        note_trouble(p, GMI_PASSING_NO_SOCKET, sys_errno, true);
    }
    write_offer(p);
}

/* Who knocks takes the place of whoever knocked before and has not proven himself: the taker proves
 * himself at once, so it is never he who is sent away for long. */
static bool let_in(struct gmi_passing *p)
{
    int       fd, sys_errno;
    gm_status status = gmi_socket_accept(p->listener_fd, &fd, &sys_errno);
    if (status == GM_ERR_SYSTEM) { /* no descriptor for whoever comes: he finds nobody */
        p->accept_errno = sys_errno;
        leave_local(p);
    }
    if (status != GM_OK) return false;
    if (!gmi_local_is_same_user(fd)) {
        gmi_socket_close(&fd);
        return true;
    }
    gmi_socket_close(&p->local_fd);
    p->local_fd = fd;
    p->heard_secret_bytes = 0;
    return true;
}

/* GM_OK: who has knocked knows the secret. GM_AGAIN: not yet. Else he is no taker. */
static gm_status hear_secret(struct gmi_passing *p)
{
    while (p->heard_secret_bytes < sizeof p->secret) {
        struct iovec part = { p->heard_secret + p->heard_secret_bytes,
                              sizeof p->secret - p->heard_secret_bytes };
        size_t       moved;
        int          sys_errno;
        gm_status    status = gmi_socket_recv_some(p->local_fd, &part, 1, &moved, &sys_errno);
        if (status != GM_OK) return status;
        p->heard_secret_bytes += moved;
    }
    return CRYPTO_memcmp(p->secret, p->heard_secret, sizeof p->secret) == 0 ? GM_OK : GM_ERR_REFUSED;
}

/* Who has proven himself gets them, once. Should that fail, he reads an end of file and says so in
 * his answer. */
static void give(struct gmi_passing *p)
{
    int       sys_errno;
    gm_status status = gmi_local_send_fds(p->local_fd, p->fds, p->n_fds, &sys_errno);
    (void)status;
    leave_local(p);
}

static void attend_to_local(struct gmi_passing *p)
{
    for (int i = 0; i < KNOCKS_PER_STEP && p->listener_fd >= 0; i++) {
        gm_status status = p->local_fd >= 0 ? hear_secret(p) : GM_AGAIN;
        if (status == GM_OK) {
            give(p);
        } else if (status != GM_AGAIN) {
            gmi_socket_close(&p->local_fd);
        } else if (!let_in(p)) {
            return;
        }
    }
}

static gm_status wait_for_answer(struct gmi_passing *p)
{
    gm_status status = fill(p, GMI_ANSWER_BYTES);
    if (status != GM_OK) return status;
    if (!get_trouble(p, p->in)) return GM_ERR_PROTOCOL;
    bool know_we_better = p->accept_errno != 0;
    if (know_we_better) note_trouble(p, GMI_PASSING_NOT_SENT, p->accept_errno, true);
    p->state = GMI_PASSING_OVER;
    return GM_OK;
}

/* ---- the taker ------------------------------------------------------------------------------- */

void gmi_passing_take(struct gmi_passing *p, int fd, int n_fds, gmi_try_fds_fn try_fds, void *user,
                      int64_t timeout_ms)
{
    *p = blank(fd, false, GMI_PASSING_HEARING);
    p->try_fds = try_fds;
    p->user = user;
    p->n_fds = n_fds;
    p->timeout_ms = timeout_ms;
    for (int i = 0; i < n_fds; i++) p->fds[i] = -1;
}

static void answer(struct gmi_passing *p, enum gmi_passing_trouble trouble, int sys_errno)
{
    note_trouble(p, trouble, sys_errno, true);
    put_trouble(p, p->out);
    p->out_bytes = GMI_ANSWER_BYTES;
    leave_local(p);
    p->state = GMI_PASSING_ANSWERING;
}

static void go_there(struct gmi_passing *p)
{
    int          sys_errno = 0;
    size_t       moved = 0;
    struct iovec part = { p->secret, sizeof p->secret };
    if (gmi_local_connect(&p->local_fd, p->name, &sys_errno) != GM_OK) {
        answer(p, GMI_PASSING_NOT_REACHED, sys_errno);
    } else if (!gmi_local_is_same_user(p->local_fd)) {
        answer(p, GMI_PASSING_OTHER_USER, 0);
    } else if (gmi_socket_send_some(p->local_fd, &part, 1, &moved, &sys_errno) != GM_OK ||
               moved != sizeof p->secret) {
        answer(p, GMI_PASSING_NOT_REACHED, sys_errno); /* an empty socket takes 16 bytes */
    } else {
        p->state = GMI_PASSING_RECEIVING;
    }
}

static gm_status hear_offer(struct gmi_passing *p)
{
    gm_status status = fill(p, GMI_OFFER_BYTES);
    if (status != GM_OK) return status;
    if (!get_trouble(p, p->in)) return GM_ERR_PROTOCOL;
    if (p->trouble != GMI_PASSING_FINE) { /* nothing to answer to */
        p->state = GMI_PASSING_OVER;
        return GM_OK;
    }
    p->note = gmi_get_u32(p->in + 8);
    memcpy(p->name, p->in + 16, sizeof p->name);
    memcpy(p->secret, p->in + 32, sizeof p->secret);
    p->deadline_ns = gmi_deadline_after_ms(p->timeout_ms);
    go_there(p);
    return GM_OK;
}

static gm_status receive(struct gmi_passing *p)
{
    int       sys_errno = 0;
    gm_status status = gmi_local_recv_fds(p->local_fd, p->fds, p->n_fds, &sys_errno);
    if (status == GM_AGAIN && !gmi_deadline_passed(p->deadline_ns)) return GM_AGAIN;
    if (status == GM_AGAIN) {
        answer(p, GMI_PASSING_TOO_SLOW, 0);
    } else if (status == GM_ERR_PEER_LOST) {
        answer(p, GMI_PASSING_NOT_SENT, sys_errno);
    } else if (status != GM_OK) {
        answer(p, GMI_PASSING_NOT_RECEIVED, sys_errno);
    } else if (!p->try_fds(p->user, p->fds, p->n_fds, p->note, &sys_errno)) {
        answer(p, GMI_PASSING_UNUSABLE, sys_errno);
    } else {
        answer(p, GMI_PASSING_FINE, 0);
    }
    close_fds(p);
    return GM_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

gm_status gmi_passing_progress(struct gmi_passing *p)
{
    gm_status status;
    if (p->state == GMI_PASSING_OFFERING) {
        if ((status = flush(p)) != GM_OK) return status;
        p->state = p->trouble == GMI_PASSING_FINE ? GMI_PASSING_WAITING : GMI_PASSING_OVER;
    }
    if (p->state == GMI_PASSING_WAITING) {
        attend_to_local(p);
        return wait_for_answer(p);
    }
    if (p->state == GMI_PASSING_HEARING) {
        if ((status = hear_offer(p)) != GM_OK) return status;
    }
    if (p->state == GMI_PASSING_RECEIVING) {
        if ((status = receive(p)) != GM_OK) return status;
    }
    if (p->state == GMI_PASSING_ANSWERING) {
        if ((status = flush(p)) != GM_OK) return status;
        p->state = GMI_PASSING_OVER;
    }
    return GM_OK;
}

void gmi_passing_watch(const struct gmi_passing *p, struct gmi_poller *poller)
{
    if (p->state == GMI_PASSING_OVER) return;
    /* While it receives, the taker leaves the connection alone: the end of the giver shows at the
     * local socket. */
    unsigned interest = p->out_sent_bytes < p->out_bytes ? GMI_WRITABLE : GMI_READABLE;
    if (p->state != GMI_PASSING_RECEIVING) gmi_poller_add(poller, p->fd, interest);
    if (p->listener_fd >= 0) gmi_poller_add(poller, p->listener_fd, GMI_READABLE);
    if (p->local_fd >= 0) gmi_poller_add(poller, p->local_fd, GMI_READABLE);
}

int64_t gmi_passing_next_ns(const struct gmi_passing *p)
{
    return p->state == GMI_PASSING_RECEIVING ? p->deadline_ns : GMI_NEVER;
}
