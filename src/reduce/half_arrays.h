/* half_arrays.h - arrays of f16 and bf16 from and to f32, as fast as the machine can. */
#ifndef GMI_HALF_ARRAYS_H
#define GMI_HALF_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

/* Every way gives the same bits as half.h: exact, and to nearest with ties to even and the canonical NaN. (One
 * exception that nobody sees: a signalling NaN may become a quiet one on its way to f32.) */
struct gmi_half_format {
    void (*widen)(float *to, const uint16_t *from, size_t count);
    void (*narrow)(uint16_t *to, const float *from, size_t count);
};

const struct gmi_half_format *gmi_half_f16(void); /* by instructions, where this processor has them */
const struct gmi_half_format *gmi_half_bf16(void);

extern const struct gmi_half_format gmi_half_f16_plain; /* by half.h; for machines without, and for tests */

#endif
