#include "cli/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/whole_file.h"

FILE *cli_text(const struct cli_parsed *parsed)
{
    return parsed->wants_json && parsed->json_path == NULL ? stderr : stdout;
}

static bool put(FILE *file, const char *text)
{
    return fputs(text, file) >= 0 && fputc('\n', file) != EOF && fflush(file) == 0;
}

static bool write_file(const char *path, const char *text)
{
    struct cli_whole_file whole;
    if (!cli_whole_open(&whole, path)) return false;
    return cli_whole_close(&whole, put(whole.file, text));
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
