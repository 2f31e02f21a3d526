#include "train/bits_variant.h"

#include <stdatomic.h>
#include <string.h>

#include "train/bits.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The fastest first; the last one runs everywhere. With GMT_BITS_PLAIN it is the only one. */
static const struct gmt_bits_variant *const variants[] = {
#if defined(__x86_64__) && !defined(GMT_BITS_PLAIN)
    &gmt_bits_avx512,
    &gmt_bits_avx2,
#endif
    &gmt_bits_plain,
};
#define N_VARIANTS (sizeof variants / sizeof *variants)

static const struct gmt_bits_variant *_Atomic chosen;

const struct gmt_bits_variant *gmt_bits_chosen(void)
{
    const struct gmt_bits_variant *variant = atomic_load_explicit(&chosen, memory_order_relaxed);
    for (size_t v = 0; variant == NULL; v++)
        if (variants[v]->runs_here()) {
            variant = variants[v];
            atomic_store_explicit(&chosen, variant, memory_order_relaxed);
        }
    return variant;
}

const char *gmt_bits_variant(void)
{
    return gmt_bits_chosen()->name;
}

bool gmt_bits_use(const char *name)
{
    for (size_t v = 0; v < N_VARIANTS; v++)
        if (strcmp(variants[v]->name, name) == 0 && variants[v]->runs_here()) {
            atomic_store_explicit(&chosen, variants[v], memory_order_relaxed);
            return true;
        }
    return false;
}

bool gmt_bits_thread_mode_is_right(void)
{
#if defined(__x86_64__)
    const unsigned denormals_are_zero = 1u << 6, flush_to_zero = 1u << 15, rounding = 3u << 13;
    return (_mm_getcsr() & (denormals_are_zero | flush_to_zero | rounding)) == 0;
#else
    return true;
#endif
}
