/* find_program.h - programs of this machine that a command uses where they are there. */
#ifndef CLI_FIND_PROGRAM_H
#define CLI_FIND_PROGRAM_H

/* The first of these names (ended by NULL) that is a program in PATH, or NULL. */
const char *cli_find_program(const char *const *names);

/* Chromium under one of its names, or NULL. */
const char *cli_find_browser(void);

#endif
