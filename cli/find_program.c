#include "cli/find_program.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_in_path(const char *name)
{
    const char *path = getenv("PATH");
    char        file[PATH_MAX];
    for (const char *at = path != NULL ? path : "/usr/bin:/bin"; *at != '\0';) {
        size_t length = strcspn(at, ":");
        if ((size_t)snprintf(file, sizeof file, "%.*s/%s", (int)length, at, name) < sizeof file && access(file, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

const char *cli_find_program(const char *const *names)
{
    for (; *names != NULL; names++)
        if (is_in_path(*names)) return *names;
    return NULL;
}

const char *cli_find_browser(void)
{
    static const char *const names[] = { "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", NULL };
    return cli_find_program(names);
}
