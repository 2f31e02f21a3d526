/* Requests to the page of --live, as they come over its connection: one byte of flags (1: the training is over; 2: in two parts),
 * then what is sent; "TOKEN" in it stands for the token. */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "cli/live.h"
#include "cli/live_parts.h"
#include "net/socket.h"
#include "tests/fuzz/targets.h"

enum { REQUEST_BYTES = 8192, ANSWER_BYTES = 4096, MOST_TURNS = 12 };

static const char token[] = "0123456789abcdef0123456789abcdef";
static char       page[] = "<p>the page</p>";

static void add_record(struct cli_live *live, const char *event)
{
    cJSON *record = cJSON_CreateObject();
    cJSON_AddStringToObject(record, "event", event);
    cli_live_add(live, record);
    cJSON_Delete(record);
}

/* A server without a thread and without a port. */
static struct cli_live *the_server(void)
{
    static struct cli_live live = { .lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER };
    if (live.daemon == NULL) {
        live.daemon = MHD_start_daemon(MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, cli_live_answer, &live, MHD_OPTION_END);
        fuzz_check(live.daemon != NULL);
        memcpy(live.token, token, sizeof token);
        live.page = page;
        live.page_bytes = sizeof page - 1;
        add_record(&live, "start");
        add_record(&live, "step");
        cli_live_show_trace(&live, "{\"traceEvents\":[]}");
    }
    return &live;
}

static size_t with_token(const uint8_t *from, size_t n_bytes, char *into)
{
    size_t used = 0;
    for (size_t i = 0; i < n_bytes && used + sizeof token < REQUEST_BYTES;) {
        bool is_token = n_bytes - i >= 5 && memcmp(from + i, "TOKEN", 5) == 0;
        memcpy(into + used, is_token ? token : (const char *)from + i, is_token ? sizeof token - 1 : 1);
        used += is_token ? sizeof token - 1 : 1;
        i += is_token ? 5 : 1;
    }
    return used;
}

/* Without the token nobody sees the page or the log. */
static void check_answer(const char *request, size_t n_request, const char *answer, size_t n_answer)
{
    bool is_told = memmem(answer, n_answer, page, sizeof page - 1) != NULL || memmem(answer, n_answer, "\"files\"", 7) != NULL;
    if (is_told) fuzz_check(memmem(request, n_request, token, sizeof token - 1) != NULL);
}

void fuzz_live(const uint8_t *bytes, size_t n_bytes)
{
    static char        request[REQUEST_BYTES], answer[ANSWER_BYTES];
    struct fuzz_input  in = { bytes, n_bytes };
    struct cli_live   *live = the_server();
    struct sockaddr_un from = { .sun_family = AF_UNIX };
    uint8_t            flags = fuzz_u8(&in);
    int                ends[2];
    size_t             n = with_token(in.bytes, in.left_bytes, request), sent = flags & 2 ? n / 2 : n, n_answer = 0;
    live->is_over = flags & 1;
    fuzz_socket_pair(ends);
    fuzz_check(MHD_add_connection(live->daemon, ends[1], (struct sockaddr *)&from, sizeof from) == MHD_YES);
    fuzz_send(ends[0], request, sent);
    for (int i = 0; i < MOST_TURNS; i++) {
        fuzz_check(MHD_run(live->daemon) == MHD_YES);
        if (i == MOST_TURNS / 3) fuzz_send(ends[0], request + sent, n - sent);
        if (i == MOST_TURNS * 2 / 3) gmi_socket_finish_sending(ends[0]);
        ssize_t got = recv(ends[0], answer + n_answer, sizeof answer - n_answer, MSG_DONTWAIT);
        if (got > 0) n_answer += (size_t)got;
    }
    check_answer(request, n, answer, n_answer);
    gmi_socket_close(&ends[0]);
    for (int i = 0; i < 2; i++) fuzz_check(MHD_run(live->daemon) == MHD_YES);
}

void fuzz_live_seed(fuzz_keep_fn keep, void *user)
{
#define HTTP " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    static const char *const seeds[] = {
        "1GET /?token=TOKEN" HTTP "\r\n",
        "1GET /data.json?token=TOKEN" HTTP "\r\n",
        "0GET /data.json?token=TOKEN&viewer=7&from=1&trace=1" HTTP "\r\n",
        "0GET /data.json?token=TOKEN" HTTP "\r\nGET /x?token=TOKEN" HTTP "\r\n",
        "3GET /data.json?a=%41&token=TOKEN&token=" HTTP "Cookie: token=TOKEN\r\n\r\n",
        "2GET /data.json?token=TOKEN0" HTTP "\r\n",
        "1POST /?token=TOKEN" HTTP "Content-Length: 5\r\n\r\nhello",
        "1POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "1HEAD / HTTP/1.0\r\n\r\n",
        "1GET /..%2f..%2fetc/passwd?token" HTTP "Connection: close\r\n\r\n",
        "1\x16\x03\x01",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) keep(user, (const uint8_t *)seeds[i], strlen(seeds[i]));
}
