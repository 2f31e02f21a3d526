#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *cli_text(const struct cli_parsed *parsed)
{
    return parsed->wants_json && parsed->json_path == NULL ? stderr : stdout;
}

static bool put(FILE *file, const char *text)
{
    return fputs(text, file) >= 0 && fputc('\n', file) != EOF && fflush(file) == 0;
}

/* A regular file is written beside itself and renamed; a device or a pipe cannot be. */
static bool write_file(const char *path, const char *text)
{
    struct stat existing;
    bool is_special = stat(path, &existing) == 0 && !S_ISREG(existing.st_mode);
    char temporary[PATH_MAX];
    int n = snprintf(temporary, sizeof temporary, "%s.tmp.%d", path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return false;
    }
    const char *written = is_special ? path : temporary;
    FILE *file = fopen(written, is_special ? "we" : "wxe");
    if (file == NULL) return false;
    bool is_good = put(file, text);
    if (is_good && !is_special) is_good = fsync(fileno(file)) == 0;
    int saved_errno = errno;
    if (fclose(file) != 0 && is_good) {
        is_good = false;
        saved_errno = errno;
    }
    if (is_special) {
        errno = saved_errno;
        return is_good;
    }
    if (is_good && rename(temporary, path) == 0) return true;
    if (is_good) saved_errno = errno;
    unlink(temporary);
    errno = saved_errno;
    return false;
}

bool cli_write_json(const struct cli_parsed *parsed, const char *command_name, const cJSON *object)
{
    if (!parsed->wants_json) return true;
    char *text = object == NULL ? NULL : cJSON_PrintUnformatted(object);
    if (text == NULL) {
        fprintf(stderr, "gradmesh %s: no memory for the JSON result\n", command_name);
        return false;
    }
    const char *path = parsed->json_path;
    bool is_good = path == NULL ? put(stdout, text) : write_file(path, text);
    if (!is_good) {
        fprintf(stderr, "gradmesh %s: cannot write the JSON result to %s: %s\n", command_name,
                path == NULL ? "standard output" : path, strerror(errno));
    }
    free(text);
    return is_good;
}

bool cli_wants_colour(int fd)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    if (no_color != NULL && no_color[0] != '\0') return false;
    if (term == NULL || strcmp(term, "dumb") == 0) return false;
    return isatty(fd) == 1;
}
