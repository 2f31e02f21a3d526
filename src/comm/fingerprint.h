/* fingerprint.h - comparing the callers' settings, "key=value" a line. */
#ifndef GMI_FINGERPRINT_H
#define GMI_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>

/* False when they agree (the order of lines does not matter). Else `text` names the first setting that
 * differs and both values, as a clause. `theirs` need not be zero-terminated. */
bool gmi_fingerprint_differs(const char *own, int own_rank, const char *theirs, size_t theirs_bytes,
                             int their_rank, char *text, size_t text_bytes);

#endif
