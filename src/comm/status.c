/* status.c - answers `gradmesh status`: what this rank is doing, and what it knows of the others.
 *
 * Each rank listens on an abstract Unix socket whose name begins with "gradmesh-job-", so that who asks finds all
 * ranks of this host in /proc/net/unix, and learns of one that is stopped too: it does not answer, but the kernel
 * tells its pid. Who connects and runs as the same user gets one text and an end of file; nothing is read. The
 * service thread answers, so it works while a call hangs. Lines: docs/protocol.md. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "net/local.h"
#include "net/socket.h"

enum { ANSWERS_PER_STEP = 8 };

void gmi_status_start(struct gm_comm *root)
{
    char name[GMI_LOCAL_TEXT_BYTES];
    int  sys_errno = 0;
    snprintf(name, sizeof name, "gradmesh-job-%ld-%d-%08x-%s", (long)getpid(), root->rank, root->group_id, root->job_id);
    if (gmi_local_listen_as(&root->status_fd, name, &sys_errno) == GM_OK) return;
    root->status_fd = -1;
    gmi_log(&root->log, GM_LOG_INFO, "rank %d cannot be asked by gradmesh status: %s", root->rank, strerror(sys_errno));
}

static void put_line(struct gmi_buffer *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put_line(struct gmi_buffer *text, const char *format, ...)
{
    char    line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    line[n++] = '\n';
    gmi_buffer_append(text, line, (size_t)n);
}

static long long ms_since(int64_t since_ns)
{
    if (since_ns == 0) return -1;
    int64_t ns = gmi_now_ns() - since_ns;
    return ns > 0 ? ns / GMI_NS_PER_MS : 0;
}

static void put_rank(struct gmi_buffer *text, struct gm_comm *root, int rank)
{
    struct gmi_control        *c = &root->control;
    const struct gmi_member   *m = &c->members[rank];
    const struct gmi_progress *p = &m->progress;
    char                       call[128], doing[256];
    bool                       is_waiting = p->doing == GMI_WAITS_FOR;
    gmi_control_doing(c, rank, doing, sizeof doing); /* makes our own fresh */
    put_line(text, "rank %d pid %u doing %d entered %llu done %llu for_ms %lld peer %d silent_ms %lld left %d address %s", rank,
             m->process.pid, (int)p->doing, (unsigned long long)p->entered_seq, (unsigned long long)p->done_seq,
             ms_since(p->since_ns), is_waiting ? p->wait.peer : -1, rank == c->rank ? 0 : ms_since(m->pulse.heard_ns),
             m->has_left, m->address[0] ? m->address : "-");
    if (is_waiting) put_line(text, "call %s", gmi_descriptor_format(&p->wait.call, call, sizeof call));
    put_line(text, "says %s", doing);
}

/* How much of this rank's life went into waiting: who asks twice sees what of the time between. */
static void put_spent(struct gmi_buffer *text, struct gm_comm *root)
{
    const gm_traffic *traffic = &root->traffic[GM_COLLECTIVE_END];
    put_line(text, "spent now_ns %lld calls %llu waiting_ns %lld", (long long)gmi_now_ns(), (unsigned long long)traffic->calls,
             (long long)traffic->waiting_ns);
}

/* The links of the root's collectives that leave this host. */
static void put_links(struct gmi_buffer *text, struct gm_comm *root)
{
    for (int k = 0; root->lines[GMI_LANE_DATA] != NULL && k < root->n_ranks; k++) {
        const struct gmi_link *link = root->lines[GMI_LANE_DATA][k].port->link;
        struct gmi_socket_fare fare;
        if (link == NULL || !gmi_link_fare(link, &fare)) continue;
        put_line(text, "link %d busy_ns %lld acked_bytes %llu sent %llu resent %llu rtt_us %u", k, (long long)fare.busy_ns,
                 (unsigned long long)fare.acked_bytes, (unsigned long long)fare.sent_packets,
                 (unsigned long long)fare.resent_packets, fare.rtt_us);
    }
}

static void put_status(struct gmi_buffer *text, struct gm_comm *root)
{
    struct gmi_control *c = &root->control;
    bool                is_hub = c->rank == c->hub, is_ready = c->phase == GMI_READY;
    put_line(text, "gradmesh-status 1");
    put_line(text, "job %s", root->job_id);
    put_line(text, "group %s", root->group_name);
    put_line(text, "self %d of %d middle %d ready %d", root->rank, root->n_ranks, c->hub, is_ready);
    if (c->has_failure) put_line(text, "failure %s", c->failure.cause);
    if (!is_ready) {
        char missing[160];
        gmi_control_missing(c, missing, sizeof missing);
        put_line(text, "missing %s", missing);
    }
    put_spent(text, root);
    put_links(text, root);
    for (int k = 0; k < root->n_ranks; k++) {
        if (k == root->rank || (is_hub && (c->members[k].has_joined || is_ready))) put_rank(text, root, k);
    }
}

static void answer(struct gm_comm *root, int fd)
{
    struct gmi_buffer text = { 0 };
    put_status(&text, root);
    if (!text.is_out_of_memory) (void)!send(fd, text.bytes, text.used_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    gmi_buffer_fini(&text);
}

void gmi_status_step(struct gm_comm *root)
{
    for (int i = 0; i < ANSWERS_PER_STEP; i++) {
        int fd, sys_errno;
        gm_status status = gmi_socket_accept(root->status_fd, &fd, &sys_errno);
        /* No descriptors: the listener would be ready all the time. The job matters more than questions about it. */
        if (status == GM_ERR_SYSTEM) gmi_socket_close(&root->status_fd);
        if (status != GM_OK) return;
        if (gmi_local_is_same_user(fd)) answer(root, fd);
        gmi_socket_close(&fd);
    }
}
