#include "cli/live.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/live_parts.h"
#include "report/page.h"
#include "report/thin.h"

/* A trace is sent again and again, so it is shorter than that of a page that is made once. */
enum { EVERY_MS = 1000, IDLE_S = 10, GRACE_MS = 3000, MOST_SPANS = 4000 };

int cli_live_port(const char *text)
{
    char *end;
    if (text == NULL || text[0] == '\0') return 0;
    long port = strtol(text, &end, 10);
    return *end == '\0' && port >= 0 && port <= 65535 ? (int)port : -1;
}

gm_status cli_live_check(gm_error *error)
{
    char folder[PATH_MAX];
    return gmr_page_find_parts(NULL, folder, sizeof folder, error);
}

/* ---- what is answered --------------------------------------------------------------------------- */

static void put(struct gmi_buffer *into, const char *text) { gmi_buffer_append(into, text, strlen(text)); }

/* What came after `from` records and `n_seen` traces; the lock is held. */
static void write_data(struct gmi_buffer *into, const struct cli_live *live, size_t from, unsigned long long n_seen)
{
    char head[256];
    if (from > live->n_records) from = live->n_records;
    size_t first = from == 0 ? 0 : live->ends[from - 1];
    snprintf(head, sizeof head, "{\"version\":\"%s\",\"live\":{\"every_ms\":%d,\"next\":%zu,\"trace\":%llu,\"is_over\":%s},\"files\":[",
             gm_version(), EVERY_MS, live->n_records, live->n_traces, live->is_over ? "true" : "false");
    put(into, head);
    put(into, "{\"name\":\"training\",\"kind\":\"train\",\"is_cut\":false,\"data\":[");
    if (live->n_records > from) gmi_buffer_append(into, live->records.bytes + first + 1, live->records.used_bytes - first - 1);
    put(into, "]}");
    if (live->trace != NULL && n_seen != live->n_traces) {
        put(into, ",{\"name\":\"last steps\",\"kind\":\"trace\",\"is_cut\":false,\"data\":");
        put(into, live->trace);
        put(into, "}");
    }
    put(into, "]}");
}

/* The viewer of that number; a new one takes the place of who asked longest ago. The lock is held. */
static struct cli_live_viewer *find_viewer(struct cli_live *live, unsigned long long number)
{
    struct cli_live_viewer *oldest = &live->viewers[0];
    for (int i = 0; i < CLI_LIVE_MOST_CONNECTIONS; i++) {
        struct cli_live_viewer *viewer = &live->viewers[i];
        if (viewer->asked_ns != 0 && viewer->number == number) return viewer;
        if (viewer->asked_ns < oldest->asked_ns) oldest = viewer;
    }
    *oldest = (struct cli_live_viewer){ .number = number };
    return oldest;
}

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned code, const char *type, char *text, size_t n_bytes,
                             enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(n_bytes, text, mode);
    if (response == NULL) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code, const char *sentence)
{
    return reply(connection, code, "text/plain", (char *)(uintptr_t)sentence, strlen(sentence), MHD_RESPMEM_PERSISTENT);
}

static bool is_token(const struct cli_live *live, const char *text)
{
    unsigned char different = 0;
    if (text == NULL || strlen(text) != sizeof live->token - 1) return false;
    for (size_t i = 0; i < sizeof live->token - 1; i++) different |= (unsigned char)(text[i] ^ live->token[i]);
    return different == 0;
}

static unsigned long long number_of(struct MHD_Connection *connection, const char *key)
{
    const char *text = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, key);
    return text != NULL && isdigit((unsigned char)text[0]) ? strtoull(text, NULL, 10) : 0;
}

/* *last: the viewer whom this answer tells the end, once it has arrived. */
static enum MHD_Result answer_data(struct cli_live *live, struct MHD_Connection *connection, void **last)
{
    struct gmi_buffer text = { 0 };
    pthread_mutex_lock(&live->lock);
    struct cli_live_viewer *viewer = find_viewer(live, number_of(connection, "viewer"));
    viewer->asked_ns = gmi_now_ns();
    write_data(&text, live, (size_t)number_of(connection, "from"), number_of(connection, "trace"));
    if (live->is_over) *last = viewer;
    pthread_mutex_unlock(&live->lock);
    enum MHD_Result result = text.is_out_of_memory
                                 ? refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory\n")
                                 : reply(connection, MHD_HTTP_OK, "application/json", (char *)text.bytes, text.used_bytes,
                                         MHD_RESPMEM_MUST_COPY);
    gmi_buffer_fini(&text);
    return result;
}

/* An answer has left, or could not. */
static void completed(void *user, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode how)
{
    struct cli_live *live = user;
    struct cli_live_viewer   *viewer = *state;
    (void)connection;
    if (viewer == NULL || how != MHD_REQUEST_TERMINATED_COMPLETED_OK) return;
    pthread_mutex_lock(&live->lock);
    viewer->was_told = true;
    pthread_cond_signal(&live->told);
    pthread_mutex_unlock(&live->lock);
}

enum MHD_Result cli_live_answer(void *user, struct MHD_Connection *connection, const char *path, const char *method,
                                const char *version, const char *body, size_t *n_body_bytes, void **state)
{
    struct cli_live *live = user;
    (void)version, (void)body, (void)n_body_bytes;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0) return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
    if (!is_token(live, MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token")))
        return refuse(connection, MHD_HTTP_FORBIDDEN, "the address that gradmesh train printed has a token; this one has not\n");
    if (strcmp(path, "/data.json") == 0) return answer_data(live, connection, state);
    if (strcmp(path, "/") != 0) return refuse(connection, MHD_HTTP_NOT_FOUND, "there is / and /data.json\n");
    return reply(connection, MHD_HTTP_OK, "text/html; charset=utf-8", live->page, live->page_bytes, MHD_RESPMEM_PERSISTENT);
}

/* ---- its life ------------------------------------------------------------------------------------ */

static gm_status make_page(struct cli_live *live, gm_error *error)
{
    char   folder[PATH_MAX];
    cJSON *data = cJSON_Parse("{\"live\":{\"every_ms\":1000},\"files\":[]}");
    if (data == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the page");
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(data, "live"), "every_ms"), EVERY_MS);
    cJSON_AddStringToObject(data, "version", gm_version());
    gm_status status = gmr_page_find_parts(NULL, folder, sizeof folder, error);
    if (status == GM_OK) status = gmr_page_make(folder, data, &live->page, &live->page_bytes, error);
    cJSON_Delete(data);
    return status;
}

static gm_status make_token(struct cli_live *live, gm_error *error)
{
    unsigned char bytes[CLI_LIVE_TOKEN_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return gmi_error_set_errno(error, errno, "cannot draw a token for --live");
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(live->token + 2 * i, 3, "%02x", bytes[i]);
    return GM_OK;
}

static gm_status listen_at(struct cli_live *live, int port, gm_error *error)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    errno = 0;
    live->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)port, NULL, NULL, cli_live_answer, live,
                                    MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT, CLI_LIVE_MOST_CONNECTIONS,
                                    MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_NOTIFY_COMPLETED, completed,
                                    live, MHD_OPTION_END);
    if (live->daemon != NULL) return GM_OK;
    return gmi_error_set_errno(error, errno, "--live cannot listen at 127.0.0.1:%d; leave the port out to get a free one", port);
}

/* The lock, and a condition that goes by the clock of deadlines. */
static void make_lock(struct cli_live *live)
{
    pthread_condattr_t by;
    pthread_mutex_init(&live->lock, NULL);
    pthread_condattr_init(&by);
    pthread_condattr_setclock(&by, CLOCK_MONOTONIC);
    pthread_cond_init(&live->told, &by);
    pthread_condattr_destroy(&by);
}

gm_status cli_live_start(struct cli_live **result, int port, gm_error *error)
{
    struct cli_live *live = gmi_alloc(1, sizeof *live);
    if (live == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for --live");
    make_lock(live);
    gm_status status = make_page(live, error);
    if (status == GM_OK) status = make_token(live, error);
    if (status == GM_OK) status = listen_at(live, port, error);
    if (status != GM_OK) {
        cli_live_stop(live);
        return status;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(live->daemon, MHD_DAEMON_INFO_BIND_PORT);
    fprintf(stderr, "live: http://127.0.0.1:%d/?token=%s\n", info != NULL ? info->port : port, live->token);
    *result = live;
    return GM_OK;
}

/* The lock is held. */
static bool is_looked_at(const struct cli_live *live, bool but_not_told)
{
    int64_t now_ns = gmi_now_ns();
    for (int i = 0; i < CLI_LIVE_MOST_CONNECTIONS; i++) {
        const struct cli_live_viewer *viewer = &live->viewers[i];
        if (viewer->asked_ns == 0 || now_ns - viewer->asked_ns > GRACE_MS * GMI_NS_PER_MS) continue;
        if (!but_not_told || !viewer->was_told) return true;
    }
    return false;
}

bool cli_live_is_looked_at(struct cli_live *live)
{
    if (live == NULL) return false;
    pthread_mutex_lock(&live->lock);
    bool is = is_looked_at(live, false);
    pthread_mutex_unlock(&live->lock);
    return is;
}

/* ---- what the training hands over ---------------------------------------------------------------- */

/* The lock is held. */
static void append_record(struct cli_live *live, const char *text)
{
    if (live->n_records == live->max_records) {
        size_t  max = 2 * live->max_records + 64;
        size_t *more = realloc(live->ends, max * sizeof *more);
        if (more == NULL) return;
        live->ends = more;
        live->max_records = max;
    }
    put(&live->records, ",");
    put(&live->records, text);
    if (!live->records.is_out_of_memory) live->ends[live->n_records++] = live->records.used_bytes;
}

void cli_live_add(struct cli_live *live, const cJSON *record)
{
    char *text = live != NULL && record != NULL ? cJSON_PrintUnformatted(record) : NULL;
    if (text == NULL) return;
    pthread_mutex_lock(&live->lock);
    append_record(live, text);
    pthread_mutex_unlock(&live->lock);
    cJSON_free(text);
}

void cli_live_show_trace(struct cli_live *live, const char *text)
{
    cJSON *trace = live != NULL && text != NULL ? cJSON_Parse(text) : NULL;
    size_t n_left;
    char  *thin = trace != NULL && gmr_thin_trace(trace, MOST_SPANS, &n_left) == GM_OK ? cJSON_PrintUnformatted(trace) : NULL;
    cJSON_Delete(trace);
    if (thin == NULL) return;
    pthread_mutex_lock(&live->lock);
    cJSON_free(live->trace);
    live->trace = thin;
    live->n_traces++;
    pthread_mutex_unlock(&live->lock);
}

/* ---- the end ------------------------------------------------------------------------------------- */

static void tell_the_end(struct cli_live *live)
{
    int64_t         until_ns = gmi_deadline_after_ms(GRACE_MS);
    struct timespec until = { .tv_sec = until_ns / GMI_NS_PER_S, .tv_nsec = until_ns % GMI_NS_PER_S };
    pthread_mutex_lock(&live->lock);
    live->is_over = true;
    int problem = 0;
    while (problem == 0 && is_looked_at(live, true)) problem = pthread_cond_timedwait(&live->told, &live->lock, &until);
    pthread_mutex_unlock(&live->lock);
}

void cli_live_stop(struct cli_live *live)
{
    if (live == NULL) return;
    if (live->daemon != NULL) {
        tell_the_end(live);
        MHD_stop_daemon(live->daemon);
    }
    pthread_cond_destroy(&live->told);
    pthread_mutex_destroy(&live->lock);
    gmi_buffer_fini(&live->records);
    free(live->ends);
    cJSON_free(live->trace);
    free(live->page);
    gmi_free(live);
}
