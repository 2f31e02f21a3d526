/* failure.h - why a communicator has failed: the one cause that all ranks report.
 *
 * Whoever notices something first tells rank 0, rank 0 tells everybody. Each rank keeps the first cause
 * that it learns. */
#ifndef GMI_FAILURE_H
#define GMI_FAILURE_H

#include "base/buffer.h"
#include "coll/descriptor.h"
#include "net/socket.h"

struct gmi_failure {
    gm_status status;
    int       culprit;  /* -1: none */
    int       reporter; /* who noticed */
    uint64_t  op_seq;   /* in which collective of the reporter; 0: outside of one */
    int       sys_errno;
    char      cause[320]; /* "rank 2 (10.0.0.7:4100) is gone: ...": no more than a clause */
};

void gmi_failure_encode(const struct gmi_failure *f, struct gmi_buffer *b);
/* The cause goes into one line, wherever it comes from. */
void gmi_failure_make_one_line(struct gmi_failure *f);
bool gmi_failure_decode(struct gmi_failure *f, struct gmi_reader *r); /* false: bad bytes */

/* GM_ERR_MISMATCH: the ranks of the two descriptors call different things. `theirs` gets the blame. */
struct gmi_failure gmi_failure_of_mismatch(int reporter, const struct gmi_descriptor *theirs,
                                           const struct gmi_descriptor *ours);

/* Of a connection whose peer has not acknowledged for long: did small packets come through, and none of full size, and is
 * more than a small one under way? The path may carry less than both its ends believe. Then a clause for the cause,
 * "; small packets ..."; else "". */
enum { GMI_HINT_BYTES = 128 };
const char *gmi_hint_at_packet_size(const struct gmi_socket_fare *fare, char text[GMI_HINT_BYTES]);

#endif
