/* output.h - where a command's text and its JSON go. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/args.h"

/* For text that people read: standard output, or standard error when that is the JSON object's. */
FILE *cli_text(const struct cli_parsed *parsed);

/* Writes the object where --json wants it, if it wants it at all. A file appears whole or not at
 * all. `object` stays the caller's; NULL means that there was no memory to build it. False: it
 * could not be written, which has been said on standard error. */
bool cli_write_json(const struct cli_parsed *parsed, const char *command_name, const cJSON *object);

/* Is this a terminal that wants colour? NO_COLOR and TERM=dumb say no. */
bool cli_wants_colour(int fd);

#endif
