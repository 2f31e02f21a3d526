/* whole_file.h - a file that appears whole or not at all: written beside its place, and renamed. A device or a pipe
 * cannot be, and is written as it comes. */
#ifndef CLI_WHOLE_FILE_H
#define CLI_WHOLE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

struct cli_whole_file {
    FILE       *file;
    const char *path; /* the caller's, until it is closed */
    bool        is_special;
    char        temporary[PATH_MAX];
};

/* False: errno says why. */
bool cli_whole_open(struct cli_whole_file *whole, const char *path);
/* Puts it in its place, or with is_good false (a write has failed) takes it away. False: errno says why. */
bool cli_whole_close(struct cli_whole_file *whole, bool is_good);

#endif
