/* ahead.h - asking for memory before it is needed: a hint that changes nothing but the time.
 *
 * For what the processor does not fetch ahead by itself well enough: lines that another core has, and those behind the edge
 * of a page. No address is wrong, so a loop may ask beyond its end; but what it asks for there is taken from somebody. */
#ifndef GMI_AHEAD_H
#define GMI_AHEAD_H

enum { GMI_LINE_BYTES = 64 };

static inline void gmi_expect_read(const void *at) { __builtin_prefetch(at); }

/* To be written: another core that has the line gives it up now, not when the write has come to it. */
static inline void gmi_expect_write(const void *at)
{
#if defined(__x86_64__)
    /* Compilers want to be told that the processor has this one. Where it has not, it does nothing. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

#endif
