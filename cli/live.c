#include "cli/live.h"

#include <arpa/inet.h>
#include <errno.h>
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

enum { EVERY_MS = 1000, MOST_CONNECTIONS = 16, IDLE_S = 10, GRACE_MS = 3000, NAP_MS = 20 };

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

static bool has_end(const cJSON *records)
{
    const cJSON *event = cJSON_GetObjectItem(cJSON_GetArrayItem(records, cJSON_GetArraySize(records) - 1), "event");
    return cJSON_IsString(event) && strcmp(event->valuestring, "end") == 0;
}

/* A log in memory has a number for a name. */
static void name_it(struct gmr_record *record)
{
    char *name = gmi_strdup("training");
    if (name == NULL) return;
    gmi_free(record->name);
    record->name = name;
}

/* What the log holds so far, for the page; to be freed with free(). NULL: no memory. */
static char *data_text(struct cli_live *live, bool *is_end)
{
    struct gmr_record record;
    gm_error          error; /* a log without a line is none yet */
    gmi_error_clear(&error);
    bool   is_there = gmr_record_read(&record, live->log_path, &error) == GM_OK;
    *is_end = is_there && has_end(record.data);
    if (is_there) name_it(&record);
    cJSON *data = gmr_page_data(is_there ? &record : NULL, is_there ? 1 : 0);
    if (is_there) gmr_record_fini(&record);
    cJSON_DeleteItemFromObject(data, "made_at"); /* so that the same data are the same bytes */
    char *text = data != NULL ? cJSON_PrintUnformatted(data) : NULL;
    cJSON_Delete(data);
    return text;
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

static enum MHD_Result answer_data(struct cli_live *live, struct MHD_Connection *connection)
{
    bool  is_end;
    char *text = data_text(live, &is_end);
    live->asked_ns = gmi_now_ns();
    if (text == NULL) return refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory\n");
    enum MHD_Result result = reply(connection, MHD_HTTP_OK, "application/json", text, strlen(text), MHD_RESPMEM_MUST_FREE);
    if (is_end) live->was_end_told = true;
    return result;
}

enum MHD_Result cli_live_answer(void *user, struct MHD_Connection *connection, const char *path, const char *method,
                                const char *version, const char *body, size_t *n_body_bytes, void **state)
{
    struct cli_live *live = user;
    (void)version, (void)body, (void)n_body_bytes, (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0) return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
    if (!is_token(live, MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token")))
        return refuse(connection, MHD_HTTP_FORBIDDEN, "the address that gradmesh train printed has a token; this one has not\n");
    if (strcmp(path, "/data.json") == 0) return answer_data(live, connection);
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
                                    MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT, MOST_CONNECTIONS,
                                    MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_END);
    if (live->daemon != NULL) return GM_OK;
    return gmi_error_set_errno(error, errno, "--live cannot listen at 127.0.0.1:%d; leave the port out to get a free one", port);
}

gm_status cli_live_start(struct cli_live **result, int port, const char *log_path, gm_error *error)
{
    struct cli_live *live = gmi_alloc(1, sizeof *live);
    if (live == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for --live");
    snprintf(live->log_path, sizeof live->log_path, "%s", log_path);
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

static bool is_looked_at(const struct cli_live *live)
{
    int64_t asked_ns = live->asked_ns;
    return asked_ns != 0 && gmi_now_ns() - asked_ns < GRACE_MS * GMI_NS_PER_MS;
}

void cli_live_stop(struct cli_live *live)
{
    if (live == NULL) return;
    int64_t until_ns = gmi_deadline_after_ms(GRACE_MS);
    while (live->daemon != NULL && is_looked_at(live) && !live->was_end_told && !gmi_deadline_passed(until_ns))
        nanosleep(&(struct timespec){ .tv_nsec = NAP_MS * GMI_NS_PER_MS }, NULL);
    if (live->daemon != NULL) MHD_stop_daemon(live->daemon);
    free(live->page);
    gmi_free(live);
}
