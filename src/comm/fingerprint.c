#include "comm/fingerprint.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

struct span {
    const char *at;
    size_t      bytes;
};

/* Cuts the first line off `rest`. False when nothing is left. */
static bool next_line(struct span *rest, struct span *key, struct span *value)
{
    while (rest->bytes > 0) {
        const char *end = memchr(rest->at, '\n', rest->bytes);
        size_t      line_bytes = end ? (size_t)(end - rest->at) : rest->bytes;
        const char *equals = memchr(rest->at, '=', line_bytes);
        *key = (struct span){ rest->at, equals ? (size_t)(equals - rest->at) : line_bytes };
        *value = (struct span){ equals ? equals + 1 : "", equals ? line_bytes - key->bytes - 1 : 0 };
        size_t used = gmi_min_size(line_bytes + 1, rest->bytes);
        rest->at += used;
        rest->bytes -= used;
        if (line_bytes > 0) return true;
    }
    return false;
}

static bool same(struct span a, struct span b) { return a.bytes == b.bytes && memcmp(a.at, b.at, a.bytes) == 0; }

static bool has_line(struct span text, struct span key, struct span value)
{
    struct span k, v;
    while (next_line(&text, &k, &v)) {
        if (same(k, key) && same(v, value)) return true;
    }
    return false;
}

static bool look_up(struct span text, struct span key, struct span *value)
{
    struct span k;
    while (next_line(&text, &k, value)) {
        if (same(k, key)) return true;
    }
    return false;
}

/* The first line of `a` that `b` does not have alike. A key may be there more than once. */
static bool find_difference(struct span a, struct span b, struct span *key, struct span *in_a, struct span *in_b,
                            bool *is_in_b)
{
    while (next_line(&a, key, in_a)) {
        if (has_line(b, *key, *in_a)) continue;
        *is_in_b = look_up(b, *key, in_b);
        return true;
    }
    return false;
}

static int shown(struct span s) { return (int)gmi_min_size(s.bytes, 60); }

bool gmi_fingerprint_differs(const char *own, int own_rank, const char *theirs, size_t theirs_bytes,
                             int their_rank, char *text, size_t text_bytes)
{
    struct span ours = { own, strlen(own) }, other = { theirs, theirs_bytes }, key, x, y;
    bool        is_in_other;
    if (!find_difference(ours, other, &key, &x, &y, &is_in_other)) {
        if (!find_difference(other, ours, &key, &x, &y, &is_in_other)) return false;
        int swap = own_rank;
        own_rank = their_rank;
        their_rank = swap;
    }
    if (is_in_other) {
        snprintf(text, text_bytes, "setting '%.*s' differs: rank %d has '%.*s', rank %d has '%.*s'", shown(key),
                 key.at, own_rank, shown(x), x.at, their_rank, shown(y), y.at);
    } else {
        snprintf(text, text_bytes, "setting '%.*s' differs: rank %d has '%.*s', rank %d does not have it", shown(key),
                 key.at, own_rank, shown(x), x.at, their_rank);
    }
    return true;
}
