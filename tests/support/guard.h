/* guard.h - buffers that end where the readable memory ends.
 *
 * One byte past the end, read or written, is a crash at once, in any build. What stands before the buffer
 * is looked at by guard_check. A guard can be made again with another size; the memory is reused. */
#ifndef GUARD_H
#define GUARD_H

#include <stddef.h>
#include <stdint.h>

struct guard {
    uint8_t *bytes; /* the buffer; a buffer of no bytes is one that must not be touched */
    size_t   n_bytes;
    uint8_t *map;
    size_t   map_bytes; /* with the unreadable page at its end */
};

/* A zeroed guard may be made; so may one that was made before. The bytes are 0xcd. */
void guard_make(struct guard *g, size_t n_bytes);

/* Like guard_make for memory whose contents do not matter and that is large: bytes are not set. */
void guard_make_raw(struct guard *g, size_t n_bytes);

/* Fails the test if something was written before the buffer. */
void guard_check(const struct guard *g);
void guard_fini(struct guard *g);

#endif
