/* fuzz.h - the places where bytes from outside come in, each as one function that eats any bytes.
 *
 *     targets.c            the table: a new target is a file target_x.c and a row there
 *     main.c               under clang's libFuzzer: make fuzz
 *     replay_test.c        without it, in make test: all seeds, bent in many ways, and corpus/NAME/
 *
 * A target must not depend on what came before, must not wait, and must bring a fault to light by a
 * crash: a sanitizer's, or fuzz_check's. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Takes one seed: an input that leads far into the target, from which others are bred. */
typedef void (*fuzz_keep_fn)(void *user, const uint8_t *bytes, size_t n_bytes);

struct fuzz_target {
    const char *name, *what;
    void (*run)(const uint8_t *bytes, size_t n_bytes);
    void (*seed)(fuzz_keep_fn keep, void *user); /* calls keep for each seed */
};

/* All of them; the name of the last is NULL. */
extern const struct fuzz_target fuzz_targets[];
const struct fuzz_target       *fuzz_target_find(const char *name);

#define fuzz_check(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

/* ---- taking an input apart ---------------------------------------------------------------------- */

struct fuzz_input {
    const uint8_t *bytes;
    size_t         left_bytes;
};

uint8_t  fuzz_u8(struct fuzz_input *in); /* 0 when there is nothing left */
uint16_t fuzz_u16(struct fuzz_input *in);
/* At most this many bytes; *n_bytes says how many there are. */
const uint8_t *fuzz_take(struct fuzz_input *in, size_t want_bytes, size_t *n_bytes);
/* At most text_bytes - 1 of what is left up to a newline, zero-terminated, no zero inside. False: nothing left. */
bool fuzz_line(struct fuzz_input *in, char *text, size_t text_bytes);

/* ---- for targets that read descriptors ------------------------------------------------------------ */

/* A connected pair, non-blocking. */
void fuzz_socket_pair(int ends[2]);
void fuzz_send(int fd, const void *bytes, size_t n_bytes); /* as much as fits */
size_t fuzz_drain(int fd); /* reads all that is there, returns how much */

/* A regular file with these bytes; the same one each time for one slot. Its path is in `path`. */
enum { FUZZ_FILES = 2, FUZZ_PATH_BYTES = 32 };
void fuzz_file(int slot, const uint8_t *bytes, size_t n_bytes, char path[FUZZ_PATH_BYTES]);

#endif
