#include "report/thin.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct span {
    cJSON  *event;
    double  from_us;
    double  step; /* of a "step" span; else -1 */
    int64_t call; /* which one it belongs to; -1: none */
    bool    is_transfer;
};

/* ---- reading ----------------------------------------------------------------------------------- */

static const cJSON *field(const cJSON *object, const char *key) { return cJSON_GetObjectItemCaseSensitive(object, key); }

static double number(const cJSON *object, const char *key, double otherwise)
{
    const cJSON *item = field(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : otherwise;
}

static bool is_text(const cJSON *object, const char *key, const char *text)
{
    const char *value = cJSON_GetStringValue(field(object, key));
    return value != NULL && strcmp(value, text) == 0;
}

static struct span read_span(cJSON *event)
{
    const cJSON *args = field(event, "args");
    double       seq = number(args, "seq", -1), communicator = number(args, "communicator", 0);
    bool         has_call = seq >= 0 && seq < 1e12 && communicator >= 0 && communicator < 1e6;
    return (struct span){ .event = event,
                          .from_us = number(event, "ts", 0),
                          .step = is_text(event, "cat", "step") ? number(args, "step", -1) : -1,
                          .call = has_call ? (int64_t)communicator * 1000000000000 + (int64_t)seq : -1,
                          .is_transfer = is_text(event, "cat", "send") || is_text(event, "cat", "receive") };
}

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->from_us > y->from_us) - (x->from_us < y->from_us);
}

static int by_number(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* ---- choosing ---------------------------------------------------------------------------------- */

/* spans[first...] are the newest ones; moves on to where no rank is within a step. */
static size_t begin_with_step(const struct span *spans, size_t n, size_t first)
{
    double last_cut = -1;
    for (size_t i = 0; i < first; i++)
        if (spans[i].step > last_cut) last_cut = spans[i].step;
    for (size_t i = first; i < n && last_cut >= 0; i++)
        if (spans[i].step > last_cut) return i;
    return first;
}

static void remove_event(cJSON *events, cJSON *event) { cJSON_Delete(cJSON_DetachItemViaPointer(events, event)); }

/* Removes spans[0] to spans[first - 1] and the transfers of their calls; how many are left. */
static size_t cut(cJSON *events, const struct span *spans, size_t n, size_t first, int64_t *calls)
{
    size_t n_calls = 0, n_left = 0;
    for (size_t i = 0; i < first; i++)
        if (spans[i].call >= 0) calls[n_calls++] = spans[i].call;
    qsort(calls, n_calls, sizeof *calls, by_number);
    for (size_t i = 0; i < n; i++) {
        bool is_half = spans[i].is_transfer && bsearch(&spans[i].call, calls, n_calls, sizeof *calls, by_number) != NULL;
        if (i < first || is_half) remove_event(events, spans[i].event);
        else n_left++;
    }
    return n_left;
}

static void say_left_out(cJSON *trace, size_t n_gone)
{
    cJSON *other = cJSON_GetObjectItemCaseSensitive(trace, "otherData");
    cJSON_DeleteItemFromObjectCaseSensitive(other, "left_out_events");
    if (n_gone == 0) return;
    if (other == NULL) other = cJSON_AddObjectToObject(trace, "otherData");
    cJSON_AddNumberToObject(other, "left_out_events", (double)n_gone);
}

gm_status gmr_thin_trace(cJSON *trace, size_t n_most, size_t *n_left)
{
    cJSON       *events = cJSON_GetObjectItemCaseSensitive(trace, "traceEvents"), *event, *next;
    size_t       n_all = (size_t)cJSON_GetArraySize(events), n = 0;
    struct span *spans = gmi_alloc(n_all + 1, sizeof *spans);
    int64_t     *calls = gmi_alloc(n_all + 1, sizeof *calls);
    gm_status    status = spans != NULL && calls != NULL ? GM_OK : GM_ERR_NOMEM;
    for (event = events != NULL ? events->child : NULL; event != NULL && status == GM_OK; event = next) {
        next = event->next;
        if (is_text(event, "ph", "X")) spans[n++] = read_span(event);
        else if (is_text(event, "ph", "s") || is_text(event, "ph", "t") || is_text(event, "ph", "f")) remove_event(events, event);
    }
    *n_left = n;
    if (status == GM_OK && n > n_most) {
        qsort(spans, n, sizeof *spans, by_begin);
        *n_left = cut(events, spans, n, begin_with_step(spans, n, n - n_most), calls);
    }
    if (status == GM_OK) say_left_out(trace, n - *n_left);
    gmi_free(spans);
    gmi_free(calls);
    return status;
}
