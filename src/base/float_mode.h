/* float_mode.h - the default floating-point mode for a while: rounding to nearest, subnormal numbers as they are.
 *
 * The arithmetic must not be inlined next to these calls: a compiler knows nothing of modes. */
#ifndef GMI_FLOAT_MODE_H
#define GMI_FLOAT_MODE_H

#include <stdint.h>

/* Sets the default mode of this thread; returns what to hand to gmi_float_mode_restore. */
static inline uint64_t gmi_float_mode_default(void)
{
#if defined(__x86_64__)
    uint32_t before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);
    return before;
#elif defined(__aarch64__)
    uint64_t before, zero = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(zero));
    return before;
#else
    return 0;
#endif
}

static inline void gmi_float_mode_restore(uint64_t before)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((uint32_t)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}

#endif
