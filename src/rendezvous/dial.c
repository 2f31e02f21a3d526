#include "rendezvous/dial.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"

enum { LOG_EVERY_MS = 5000 };

static int64_t earliest(int64_t a, int64_t b, int64_t c)
{
    int64_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* What the last try came to, or what is tried now. */
static const char *last_try(const struct gmi_call *call, char *text, size_t text_bytes)
{
    char address[GMI_ADDRESS_TEXT_BYTES];
    if (call->error.text[0] != '\0') return call->error.text;
    if (call->state != GMI_CALL_CONNECTING || call->index >= call->list.n_addresses) return "no answer";
    snprintf(text, text_bytes, "%s: no answer", gmi_address_format(&call->list.addresses[call->index], address));
    return text;
}

static gm_status wait_for_call(const struct gmi_dial *d, struct gmi_call *call, struct gmi_poller *poller,
                               gm_error *error)
{
    int64_t next_log_ns = gmi_deadline_after_ms(LOG_EVERY_MS);
    char    text[GMI_ADDRESS_TEXT_BYTES + 16];
    for (;;) {
        gm_status status = gmi_call_progress(call);
        if (status == GM_OK) return GM_OK;
        if (status != GM_AGAIN) return gmi_error_set(error, status, "cannot join through %s: %s", d->whom, call->error.text);
        if (gmi_deadline_passed(d->deadline_ns)) {
            return gmi_error_set(error, GM_ERR_TIMEOUT, "could not reach %s in time; the last try: %s", d->whom,
                                 last_try(call, text, sizeof text));
        }
        if (gmi_deadline_passed(d->look_again_ns) && call->state == GMI_CALL_PAUSED) return GM_AGAIN;
        if (gmi_deadline_passed(next_log_ns)) {
            gmi_log(d->log, GM_LOG_WARN, "still waiting for %s: %s", d->whom, last_try(call, text, sizeof text));
            next_log_ns = gmi_deadline_after_ms(LOG_EVERY_MS);
        }
        gmi_poller_clear(poller);
        gmi_call_watch(call, poller);
        gmi_poller_wait(poller, earliest(gmi_call_next_ns(call), d->deadline_ns, next_log_ns));
    }
}

gm_status gmi_dial(const struct gmi_dial *d, struct gmi_stream *stream, gm_error *error)
{
    struct gmi_call   call;
    struct gmi_poller poller;
    gmi_call_init(&call, d->host, d->port, d->own, d->secret, d->judge);
    gmi_poller_init(&poller);
    gm_status status = wait_for_call(d, &call, &poller, error);
    *stream = gmi_stream_plain(-1);
    if (status == GM_OK && gmi_call_take_stream(&call, stream) != GM_OK) {
        status = gmi_error_set(error, GM_ERR_NOMEM, "no memory to encrypt the connection with %s", d->whom);
    }
    gmi_call_fini(&call);
    gmi_poller_fini(&poller);
    return status;
}
