/* buffer.h - a growable byte buffer to write messages into, and a reader that cannot run past the end. */
#ifndef GMI_BUFFER_H
#define GMI_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gmi_buffer {
    uint8_t *bytes;
    size_t   used_bytes, cap_bytes;
    bool     is_out_of_memory; /* sticky: some append was lost */
};

void gmi_buffer_append(struct gmi_buffer *b, const void *bytes, size_t n_bytes);
void gmi_buffer_put_u16(struct gmi_buffer *b, uint16_t v);
void gmi_buffer_put_u32(struct gmi_buffer *b, uint32_t v);
void gmi_buffer_put_u64(struct gmi_buffer *b, uint64_t v);
void gmi_buffer_put_text(struct gmi_buffer *b, const char *text); /* u32 length, then the bytes */
/* Removes bytes from the front. */
void gmi_buffer_consume(struct gmi_buffer *b, size_t n_bytes);
void gmi_buffer_fini(struct gmi_buffer *b);

struct gmi_reader {
    const uint8_t *bytes;
    size_t         left_bytes;
    bool           is_short; /* sticky: something was asked for that is not there */
};

const uint8_t *gmi_reader_take(struct gmi_reader *r, size_t n_bytes); /* NULL when short */
uint16_t       gmi_reader_u16(struct gmi_reader *r);                  /* 0 when short */
uint32_t       gmi_reader_u32(struct gmi_reader *r);
uint64_t       gmi_reader_u64(struct gmi_reader *r);
/* Copies a text into `into` (cut to fit, zero-terminated). */
void gmi_reader_text(struct gmi_reader *r, char *into, size_t into_bytes);

#endif
