#include "base/clock.h"

#include <limits.h>
#include <time.h>

int64_t gmi_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * GMI_NS_PER_S + t.tv_nsec;
}

int64_t gmi_deadline_after_ms(int64_t timeout_ms)
{
    return timeout_ms <= 0 ? GMI_NEVER : gmi_now_ns() + timeout_ms * GMI_NS_PER_MS;
}

bool gmi_deadline_passed(int64_t deadline_ns)
{
    return deadline_ns != GMI_NEVER && gmi_now_ns() >= deadline_ns;
}

int gmi_deadline_poll_ms(int64_t deadline_ns)
{
    if (deadline_ns == GMI_NEVER) return -1;
    int64_t left_ns = deadline_ns - gmi_now_ns();
    if (left_ns <= 0) return 0;
    int64_t left_ms = (left_ns + GMI_NS_PER_MS - 1) / GMI_NS_PER_MS;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}
