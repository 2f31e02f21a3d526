/* clock.h - monotonic time in nanoseconds, and deadlines. Wall-clock time is never used for waiting. */
#ifndef GMI_CLOCK_H
#define GMI_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define GMI_NS_PER_MS INT64_C(1000000)
#define GMI_NS_PER_S INT64_C(1000000000)
#define GMI_NEVER INT64_MAX /* the deadline that does not come */

/* Who wakes so much later than he wanted was stopped, suspended with his machine, or got no core: he cannot know what others
 * did meanwhile, and counts anew. */
enum { GMI_OVERSLEPT_MS = 1200 };

int64_t gmi_now_ns(void);

/* The moment `timeout_ms` from now; GMI_NEVER for 0 or less. */
int64_t gmi_deadline_after_ms(int64_t timeout_ms);

bool gmi_deadline_passed(int64_t deadline_ns);

/* What is left, rounded up, for poll(): -1 for GMI_NEVER, 0 when passed. */
int gmi_deadline_poll_ms(int64_t deadline_ns);

#endif
