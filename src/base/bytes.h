/* bytes.h - little-endian numbers in byte buffers at any alignment, and checked size arithmetic. */
#ifndef GMI_BYTES_H
#define GMI_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline void gmi_put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void gmi_put_u32(uint8_t *p, uint32_t v)
{
    gmi_put_u16(p, (uint16_t)v);
    gmi_put_u16(p + 2, (uint16_t)(v >> 16));
}
static inline void gmi_put_u64(uint8_t *p, uint64_t v)
{
    gmi_put_u32(p, (uint32_t)v);
    gmi_put_u32(p + 4, (uint32_t)(v >> 32));
}
static inline uint16_t gmi_get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t gmi_get_u32(const uint8_t *p)
{
    return gmi_get_u16(p) | (uint32_t)gmi_get_u16(p + 2) << 16;
}
static inline uint64_t gmi_get_u64(const uint8_t *p)
{
    return gmi_get_u32(p) | (uint64_t)gmi_get_u32(p + 4) << 32;
}

/* *product = a * b; false if it does not fit. */
static inline bool gmi_mul_sizes(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}
static inline bool gmi_add_sizes(size_t a, size_t b, size_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}
static inline size_t gmi_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t gmi_max_size(size_t a, size_t b) { return a > b ? a : b; }

#endif
