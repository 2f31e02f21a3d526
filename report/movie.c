#include "report/movie.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "report/page.h"

/* ---- ffmpeg: frames in, a film out --------------------------------------------------------------- */

static const struct format {
    const char *ending, *name;
    const char *options[12];
} formats[] = {
    { ".mp4", "mp4", { "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "22", "-preset", "slow", NULL } },
    { ".webm", "webm", { "-c:v", "libvpx-vp9", "-pix_fmt", "yuv420p", "-crf", "34", "-b:v", "0", NULL } },
    { ".gif", "gif", { "-vf", "split[a][b];[a]palettegen=max_colors=48:stats_mode=full[p];[b][p]paletteuse=dither=none:diff_mode=rectangle",
                       "-loop", "0", NULL } },
};

static const struct format *format_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot != NULL && i < sizeof formats / sizeof formats[0]; i++)
        if (strcasecmp(dot, formats[i].ending) == 0) return &formats[i];
    return NULL;
}

bool gmr_movie_knows(const char *path) { return format_of(path) != NULL; }

static void run_ffmpeg(const struct format *format, int frames_per_s, int in_fd, const char *out)
{
    char        rate[16];
    const char *arguments[32] = { "ffmpeg", "-loglevel", "error", "-y", "-f", "image2pipe", "-c:v", "png", "-framerate", rate,
                                  "-i", "-" };
    size_t      n = 12;
    snprintf(rate, sizeof rate, "%d", frames_per_s);
    for (size_t i = 0; format->options[i] != NULL; i++) arguments[n++] = format->options[i];
    arguments[n++] = "-f";
    arguments[n++] = format->name;
    arguments[n++] = out;
    dup2(in_fd, 0);
    execvp("ffmpeg", (char *const *)(uintptr_t)arguments);
    _exit(127);
}

/* The pid, or -1. Frames go into *to_fd. */
static pid_t start_ffmpeg(const struct format *format, int frames_per_s, const char *out, int *to_fd)
{
    int to[2];
    if (pipe2(to, O_CLOEXEC) != 0) return -1;
    pid_t pid = fork();
    if (pid == 0) run_ffmpeg(format, frames_per_s, to[0], out);
    close(to[0]);
    *to_fd = to[1];
    if (pid < 0) close(to[1]);
    return pid;
}

static bool write_all(int fd, const unsigned char *bytes, size_t n_bytes)
{
    for (size_t done = 0; done < n_bytes;) {
        ssize_t put = write(fd, bytes + done, n_bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

/* ---- frames -------------------------------------------------------------------------------------- */

static gm_status set_window(struct gmr_browser *browser, int width, int height, gm_error *error)
{
    cJSON *parameters = cJSON_CreateObject();
    cJSON_AddNumberToObject(parameters, "width", width);
    cJSON_AddNumberToObject(parameters, "height", height);
    cJSON_AddNumberToObject(parameters, "deviceScaleFactor", 1);
    cJSON_AddBoolToObject(parameters, "mobile", false);
    cJSON *result = gmr_browser_command(browser, "Emulation.setDeviceMetricsOverride", parameters, error);
    cJSON_Delete(result);
    return result != NULL ? GM_OK : GM_ERR_SYSTEM;
}

/* Opens the page as a film's stage, in a window as high as the animation. */
static gm_status open_stage(struct gmr_browser *browser, const char *page, const struct gmr_movie *movie, gm_error *error)
{
    gm_status status = gmr_browser_open(browser, page, "#movie", error);
    if (status == GM_OK) status = set_window(browser, movie->width, 900, error);
    if (status != GM_OK) return status;
    cJSON *height = gmr_browser_evaluate(browser, movie->is_dark ? "gm.film.begin('dark')" : "gm.film.begin('light')", error);
    if (height == NULL) return GM_ERR_SYSTEM;
    if (cJSON_IsNumber(height)) status = set_window(browser, movie->width, (int)height->valuedouble, error);
    else
        status = gmi_error_set(error, GM_ERR_STATE,
                               "there is no recorded all-reduce to play: gradmesh bench all_reduce -n 4 --sizes 256K --algo "
                               "ring --trace FILE records one");
    cJSON_Delete(height);
    return status;
}

static gm_status film(struct gmr_browser *browser, const struct gmr_movie *movie, int to_fd, int *n_frames, gm_error *error)
{
    int            n_moving = (int)ceil(movie->play_s * movie->frames_per_s), n_still = 2 * movie->frames_per_s;
    unsigned char *png = NULL;
    size_t         n_bytes = 0;
    gm_status      status = GM_OK;
    for (int i = 0; i < n_moving + n_still && status == GM_OK; i++) {
        if (i <= n_moving) {
            char expression[64];
            snprintf(expression, sizeof expression, "gm.film.show(%.6f)", (double)i / n_moving);
            cJSON *shown = gmr_browser_evaluate(browser, expression, error);
            status = shown != NULL ? GM_OK : GM_ERR_SYSTEM;
            cJSON_Delete(shown);
            free(png);
            png = NULL;
            if (status == GM_OK) status = gmr_browser_picture(browser, &png, &n_bytes, error);
        }
        if (status == GM_OK && !write_all(to_fd, png, n_bytes))
            status = gmi_error_set(error, GM_ERR_SYSTEM, "ffmpeg ended before all frames were there");
        *n_frames = i + 1;
    }
    free(png);
    return status;
}

gm_status gmr_movie_make(struct gmr_browser *browser, const char *page, const struct gmr_movie *movie, int *n_frames,
                         gm_error *error)
{
    const struct format     *format = format_of(movie->path);
    char                     temporary[PATH_MAX];
    int                      to_fd;
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp.%d", movie->path, (int)getpid()) >= sizeof temporary)
        return gmi_error_set(error, GM_ERR_ARG, "the file name %s is too long", movie->path);
    gm_status status = open_stage(browser, page, movie, error);
    if (status != GM_OK) return status;
    pid_t pid = start_ffmpeg(format, movie->frames_per_s, temporary, &to_fd);
    if (pid < 0) return gmi_error_set_errno(error, errno, "cannot start ffmpeg");
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    status = film(browser, movie, to_fd, n_frames, error);
    signal(SIGPIPE, before);
    close(to_fd);
    int ended = 0;
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) {}
    if (status == GM_OK && !(WIFEXITED(ended) && WEXITSTATUS(ended) == 0))
        status = gmi_error_set(error, GM_ERR_SYSTEM, "ffmpeg could not write %s", movie->path);
    if (status == GM_OK && rename(temporary, movie->path) != 0)
        status = gmi_error_set_errno(error, errno, "cannot write %s", movie->path);
    if (status != GM_OK) unlink(temporary);
    return status;
}

/* ---- SVG ----------------------------------------------------------------------------------------- */

gm_status gmr_svg_write(struct gmr_browser *browser, const char *page, const char *directory, bool is_dark, int *n_files,
                        gm_error *error)
{
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) return gmi_error_set_errno(error, errno, "cannot make %s", directory);
    gm_status status = gmr_browser_open(browser, page, "", error);
    if (status == GM_OK) status = set_window(browser, 1180, 900, error);
    if (status != GM_OK) return status;
    cJSON *list = gmr_browser_evaluate(browser, is_dark ? "gm.film.pictures('dark')" : "gm.film.pictures('light')", error), *one;
    if (list == NULL) return GM_ERR_SYSTEM;
    *n_files = 0;
    cJSON_ArrayForEach(one, list)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(one, "name"));
        const char *svg = cJSON_GetStringValue(cJSON_GetObjectItem(one, "svg"));
        char        path[PATH_MAX];
        if (name == NULL || svg == NULL || strchr(name, '/') != NULL) continue;
        snprintf(path, sizeof path, "%s/%s.svg", directory, name);
        status = gmr_write_file(path, svg, strlen(svg), error);
        if (status != GM_OK) break;
        (*n_files)++;
    }
    cJSON_Delete(list);
    return status;
}
