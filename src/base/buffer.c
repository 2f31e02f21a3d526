#include "base/buffer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"

void gmi_buffer_append(struct gmi_buffer *b, const void *bytes, size_t n_bytes)
{
    if (n_bytes == 0) return;
    if (b->used_bytes + n_bytes > b->cap_bytes) {
        size_t   cap = 2 * (b->used_bytes + n_bytes);
        uint8_t *more = gmi_alloc(cap, 1);
        if (more == NULL) {
            b->is_out_of_memory = true;
            return;
        }
        if (b->used_bytes > 0) memcpy(more, b->bytes, b->used_bytes);
        gmi_free(b->bytes);
        b->bytes = more;
        b->cap_bytes = cap;
    }
    memcpy(b->bytes + b->used_bytes, bytes, n_bytes);
    b->used_bytes += n_bytes;
}

void gmi_buffer_put_u16(struct gmi_buffer *b, uint16_t v)
{
    uint8_t w[2];
    gmi_put_u16(w, v);
    gmi_buffer_append(b, w, sizeof w);
}
void gmi_buffer_put_u32(struct gmi_buffer *b, uint32_t v)
{
    uint8_t w[4];
    gmi_put_u32(w, v);
    gmi_buffer_append(b, w, sizeof w);
}
void gmi_buffer_put_u64(struct gmi_buffer *b, uint64_t v)
{
    uint8_t w[8];
    gmi_put_u64(w, v);
    gmi_buffer_append(b, w, sizeof w);
}

void gmi_buffer_put_text(struct gmi_buffer *b, const char *text)
{
    size_t n_bytes = strlen(text);
    gmi_buffer_put_u32(b, (uint32_t)n_bytes);
    gmi_buffer_append(b, text, n_bytes);
}

void gmi_buffer_consume(struct gmi_buffer *b, size_t n_bytes)
{
    b->used_bytes -= n_bytes;
    if (b->used_bytes > 0) memmove(b->bytes, b->bytes + n_bytes, b->used_bytes);
}

void gmi_buffer_fini(struct gmi_buffer *b)
{
    gmi_free(b->bytes);
    *b = (struct gmi_buffer){ 0 };
}

const uint8_t *gmi_reader_take(struct gmi_reader *r, size_t n_bytes)
{
    if (r->is_short || n_bytes > r->left_bytes) {
        r->is_short = true;
        return NULL;
    }
    const uint8_t *at = r->bytes;
    r->bytes += n_bytes;
    r->left_bytes -= n_bytes;
    return at;
}

uint16_t gmi_reader_u16(struct gmi_reader *r)
{
    const uint8_t *w = gmi_reader_take(r, 2);
    return w ? gmi_get_u16(w) : 0;
}
uint32_t gmi_reader_u32(struct gmi_reader *r)
{
    const uint8_t *w = gmi_reader_take(r, 4);
    return w ? gmi_get_u32(w) : 0;
}
uint64_t gmi_reader_u64(struct gmi_reader *r)
{
    const uint8_t *w = gmi_reader_take(r, 8);
    return w ? gmi_get_u64(w) : 0;
}

void gmi_reader_text(struct gmi_reader *r, char *into, size_t into_bytes)
{
    size_t         n_bytes = gmi_reader_u32(r);
    const uint8_t *w = gmi_reader_take(r, n_bytes);
    size_t         kept = w ? gmi_min_size(n_bytes, into_bytes - 1) : 0;
    if (kept > 0) memcpy(into, w, kept);
    into[kept] = '\0';
}
