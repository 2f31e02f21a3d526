#include "report/browser.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <openssl/evp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"

enum { CALL_LIMIT_S = 120, IN_FD = 3, OUT_FD = 4 };

struct gmr_browser {
    pid_t             pid;
    int               to_fd, from_fd;
    int               last_id;
    bool              is_loaded;
    char              profile[64];
    char             *session;
    struct gmi_buffer arrived;
    cJSON            *problems;
};

/* ---- start and stop ---------------------------------------------------------------------------- */

static void run_browser(const char *program, const char *profile, int in_fd, int out_fd)
{
    char data_dir[PATH_MAX];
    snprintf(data_dir, sizeof data_dir, "--user-data-dir=%s", profile);
    /* Root may not use the browser's own sandbox; what it opens is a page that we wrote. */
    const char *sandbox = geteuid() == 0 ? "--no-sandbox" : "--no-first-run";
    const char *arguments[] = { program, "--headless", sandbox, "--remote-debugging-pipe", data_dir, "--disable-gpu",
                                "--disable-quic", "--no-first-run", "--disable-background-networking",
                                "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                                "--hide-scrollbars", "--force-color-profile=srgb", "about:blank", NULL };
    int high_in = fcntl(in_fd, F_DUPFD, 10), high_out = fcntl(out_fd, F_DUPFD, 10);
    int nothing = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (nothing < 0 || dup2(high_in, IN_FD) < 0 || dup2(high_out, OUT_FD) < 0) _exit(127);
    for (int fd = 0; fd <= 2; fd++) dup2(nothing, fd);
    for (int fd = OUT_FD + 1; fd < 1024; fd++) close(fd);
    execvp(program, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

gm_status gmr_browser_start(struct gmr_browser **browser, const char *program, gm_error *error)
{
    *browser = NULL;
    struct gmr_browser *b = calloc(1, sizeof *b);
    int                 to[2], from[2];
    if (b == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the browser");
    b->problems = cJSON_CreateArray();
    snprintf(b->profile, sizeof b->profile, "/tmp/gradmesh-browser-XXXXXX");
    if (mkdtemp(b->profile) == NULL || pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
        gm_status status = gmi_error_set_errno(error, errno, "cannot start %s", program);
        gmr_browser_stop(b);
        return status;
    }
    b->pid = fork();
    if (b->pid == 0) run_browser(program, b->profile, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    b->to_fd = to[1];
    b->from_fd = from[0];
    if (b->pid < 0) {
        gm_status status = gmi_error_set_errno(error, errno, "cannot start %s", program);
        gmr_browser_stop(b);
        return status;
    }
    *browser = b;
    return GM_OK;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about, (void)kind, (void)where;
    return remove(path);
}

void gmr_browser_stop(struct gmr_browser *b)
{
    if (b == NULL) return;
    if (b->pid > 0) {
        kill(-b->pid, SIGKILL);
        kill(b->pid, SIGKILL);
        while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR) {}
        close(b->to_fd);
        close(b->from_fd);
    }
    /* Children of the browser may still write into it for a moment. */
    for (int i = 0; i < 50 && nftw(b->profile, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT; i++)
        poll(NULL, 0, 20);
    gmi_buffer_fini(&b->arrived);
    cJSON_Delete(b->problems);
    free(b->session);
    free(b);
}

/* ---- messages ---------------------------------------------------------------------------------- */

static const cJSON *field(const cJSON *object, const char *key) { return cJSON_GetObjectItemCaseSensitive(object, key); }
static const char  *text_of(const cJSON *object, const char *key) { return cJSON_GetStringValue(field(object, key)); }

static void add_problem(struct gmr_browser *b, const char *what, const char *text)
{
    char line[600];
    snprintf(line, sizeof line, "%s: %.500s", what, text != NULL ? text : "?");
    cJSON_AddItemToArray(b->problems, cJSON_CreateString(line));
}

static void take_event(struct gmr_browser *b, const char *method, const cJSON *message)
{
    const cJSON *parameters = field(message, "params");
    if (strcmp(method, "Page.loadEventFired") == 0) b->is_loaded = true;
    else if (strcmp(method, "Runtime.exceptionThrown") == 0) {
        const cJSON *details = field(parameters, "exceptionDetails");
        const char  *description = text_of(field(details, "exception"), "description");
        add_problem(b, "error", description != NULL ? description : text_of(details, "text"));
    } else if (strcmp(method, "Runtime.consoleAPICalled") == 0) {
        const char *kind = text_of(parameters, "type");
        bool        is_bad = kind != NULL && (strcmp(kind, "error") == 0 || strcmp(kind, "warning") == 0);
        if (is_bad) add_problem(b, kind, text_of(cJSON_GetArrayItem(field(parameters, "args"), 0), "value"));
    } else if (strcmp(method, "Log.entryAdded") == 0) {
        const cJSON *entry = field(parameters, "entry");
        if (text_of(entry, "level") != NULL && strcmp(text_of(entry, "level"), "error") == 0)
            add_problem(b, "log", text_of(entry, "text"));
    } else if (strcmp(method, "Network.requestWillBeSent") == 0) {
        const char *url = text_of(field(parameters, "request"), "url");
        if (url != NULL && strncmp(url, "file:", 5) != 0 && strncmp(url, "data:", 5) != 0) add_problem(b, "request", url);
    }
}

static gm_status gone(gm_error *error)
{
    return gmi_error_set(error, GM_ERR_SYSTEM, "the browser ended, or does not answer; does it start by itself?");
}

/* The next message, to be deleted; NULL: the browser is gone, or the deadline is over. */
static cJSON *receive(struct gmr_browser *b, int64_t deadline_ns)
{
    for (;;) {
        const uint8_t *end = b->arrived.used_bytes > 0 ? memchr(b->arrived.bytes, 0, b->arrived.used_bytes) : NULL;
        if (end != NULL) {
            size_t length = (size_t)(end - b->arrived.bytes);
            cJSON *message = cJSON_ParseWithLength((const char *)b->arrived.bytes, length);
            gmi_buffer_consume(&b->arrived, length + 1);
            return message;
        }
        static char   piece[1 << 16];
        int64_t       left_ns = deadline_ns - gmi_now_ns();
        struct pollfd waiting = { .fd = b->from_fd, .events = POLLIN };
        if (left_ns <= 0 || poll(&waiting, 1, (int)(left_ns / 1000000) + 1) < 0) return NULL;
        if (waiting.revents == 0) continue;
        ssize_t got = read(b->from_fd, piece, sizeof piece);
        if (got <= 0) return NULL;
        gmi_buffer_append(&b->arrived, piece, (size_t)got);
    }
}

static bool send_text(struct gmr_browser *b, const char *text)
{
    size_t length = strlen(text) + 1;
    for (size_t done = 0; done < length;) {
        ssize_t put = write(b->to_fd, text + done, length - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

/* The answer with this number; events on the way are taken. */
static cJSON *wait_for(struct gmr_browser *b, int id, int64_t deadline_ns)
{
    for (cJSON *message; (message = receive(b, deadline_ns)) != NULL; cJSON_Delete(message)) {
        const char *method = text_of(message, "method");
        if (method != NULL) take_event(b, method, message);
        else if (cJSON_GetNumberValue(field(message, "id")) == id) return message;
    }
    return NULL;
}

cJSON *gmr_browser_command(struct gmr_browser *b, const char *method, cJSON *parameters, gm_error *error)
{
    cJSON *message = cJSON_CreateObject();
    int    id = ++b->last_id;
    cJSON_AddNumberToObject(message, "id", id);
    cJSON_AddStringToObject(message, "method", method);
    if (b->session != NULL) cJSON_AddStringToObject(message, "sessionId", b->session);
    if (parameters != NULL) cJSON_AddItemToObject(message, "params", parameters);
    char *text = cJSON_PrintUnformatted(message);
    cJSON_Delete(message);
    bool is_sent = text != NULL && send_text(b, text);
    cJSON_free(text);
    cJSON *answer = is_sent ? wait_for(b, id, gmi_now_ns() + CALL_LIMIT_S * INT64_C(1000000000)) : NULL;
    cJSON *result = cJSON_DetachItemFromObjectCaseSensitive(answer, "result");
    if (answer == NULL) gone(error);
    else if (result == NULL)
        gmi_error_set(error, GM_ERR_SYSTEM, "the browser refuses %s: %.200s", method,
                      text_of(field(answer, "error"), "message") != NULL ? text_of(field(answer, "error"), "message") : "?");
    cJSON_Delete(answer);
    return result;
}

/* ---- pages ------------------------------------------------------------------------------------- */

static bool command(struct gmr_browser *b, const char *method, cJSON *parameters, gm_error *error)
{
    cJSON *result = gmr_browser_command(b, method, parameters, error);
    cJSON_Delete(result);
    return result != NULL;
}

static cJSON *one_text(const char *key, const char *value)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, key, value);
    return object;
}

/* A tab of our own; all later commands go to it. */
static bool attach(struct gmr_browser *b, gm_error *error)
{
    cJSON *target = gmr_browser_command(b, "Target.createTarget", one_text("url", "about:blank"), error);
    if (target == NULL) return false;
    cJSON *parameters = one_text("targetId", text_of(target, "targetId"));
    cJSON_AddBoolToObject(parameters, "flatten", true);
    cJSON_Delete(target);
    cJSON      *attached = gmr_browser_command(b, "Target.attachToTarget", parameters, error);
    const char *session = text_of(attached, "sessionId");
    b->session = session != NULL ? strdup(session) : NULL;
    cJSON_Delete(attached);
    return b->session != NULL && command(b, "Page.enable", NULL, error) && command(b, "Runtime.enable", NULL, error) &&
           command(b, "Log.enable", NULL, error) && command(b, "Network.enable", NULL, error);
}

/* "file:///a%20b.html" + fragment */
static void file_url(const char *path, const char *fragment, char *url, size_t url_bytes)
{
    size_t at = (size_t)snprintf(url, url_bytes, "file://");
    for (; *path != '\0' && at + 4 < url_bytes; path++) {
        bool is_plain = strchr("/.-_~", *path) != NULL || (*path >= '0' && *path <= '9') ||
                        ((*path | 32) >= 'a' && (*path | 32) <= 'z');
        at += (size_t)snprintf(url + at, url_bytes - at, is_plain ? "%c" : "%%%02X", (unsigned char)*path);
    }
    snprintf(url + at, url_bytes - at, "%s", fragment);
}

gm_status gmr_browser_open(struct gmr_browser *b, const char *path, const char *fragment, gm_error *error)
{
    char whole[PATH_MAX], url[3 * PATH_MAX];
    if (realpath(path, whole) == NULL) return gmi_error_set_errno(error, errno, "cannot open %s", path);
    if (b->session == NULL && !attach(b, error)) return GM_ERR_SYSTEM;
    file_url(whole, fragment, url, sizeof url);
    b->is_loaded = false;
    if (!command(b, "Page.navigate", one_text("url", "about:blank"), error)) return GM_ERR_SYSTEM;
    int64_t deadline_ns = gmi_now_ns() + CALL_LIMIT_S * INT64_C(1000000000);
    for (int round = 0; round < 2; round++) {
        if (round == 1 && !command(b, "Page.navigate", one_text("url", url), error)) return GM_ERR_SYSTEM;
        while (!b->is_loaded) {
            cJSON *message = receive(b, deadline_ns);
            if (message == NULL) return gone(error);
            if (text_of(message, "method") != NULL) take_event(b, text_of(message, "method"), message);
            cJSON_Delete(message);
        }
        if (round == 0) b->is_loaded = false;
    }
    return GM_OK;
}

cJSON *gmr_browser_evaluate(struct gmr_browser *b, const char *expression, gm_error *error)
{
    cJSON *parameters = one_text("expression", expression);
    cJSON_AddBoolToObject(parameters, "returnByValue", true);
    cJSON_AddBoolToObject(parameters, "awaitPromise", true);
    cJSON *result = gmr_browser_command(b, "Runtime.evaluate", parameters, error);
    if (result == NULL) return NULL;
    const cJSON *thrown = field(result, "exceptionDetails");
    cJSON       *value = cJSON_DetachItemFromObjectCaseSensitive(cJSON_GetObjectItem(result, "result"), "value");
    if (thrown != NULL) {
        gmi_error_set(error, GM_ERR_SYSTEM, "the page threw: %.200s", text_of(field(thrown, "exception"), "description"));
        cJSON_Delete(value);
        value = NULL;
    } else if (value == NULL) value = cJSON_CreateNull();
    cJSON_Delete(result);
    return value;
}

gm_status gmr_browser_picture(struct gmr_browser *b, unsigned char **png, size_t *n_bytes, gm_error *error)
{
    cJSON      *parameters = one_text("format", "png");
    cJSON_AddBoolToObject(parameters, "optimizeForSpeed", true);
    cJSON      *result = gmr_browser_command(b, "Page.captureScreenshot", parameters, error);
    const char *coded = text_of(result, "data");
    size_t      length = coded != NULL ? strlen(coded) : 0;
    *png = length > 0 && length % 4 == 0 ? malloc(length / 4 * 3 + 1) : NULL;
    int n = *png != NULL ? EVP_DecodeBlock(*png, (const unsigned char *)coded, (int)length) : -1;
    for (size_t i = 1; n > 0 && i <= 2 && coded[length - i] == '='; i++) n--;
    cJSON_Delete(result);
    *n_bytes = n > 0 ? (size_t)n : 0;
    if (n > 0) return GM_OK;
    free(*png);
    *png = NULL;
    return gmi_error_set(error, GM_ERR_SYSTEM, "the browser made no picture");
}

const cJSON *gmr_browser_problems(const struct gmr_browser *b) { return b->problems; }
