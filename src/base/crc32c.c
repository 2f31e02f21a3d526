#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base/bytes.h"

enum { SLICES = 8, REFLECTED_POLYNOMIAL = 0x82F63B78 };

/* tables[k][b]: what byte b does to the checksum when k more bytes follow it. */
static uint32_t       tables[SLICES][256];
static pthread_once_t is_filled = PTHREAD_ONCE_INIT;

static void fill_tables(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? (uint32_t)REFLECTED_POLYNOMIAL : 0);
        tables[0][b] = crc;
    }
    for (int k = 1; k < SLICES; k++) {
        for (int b = 0; b < 256; b++) tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 255];
    }
}

uint32_t gmi_crc32c_by_table(uint32_t crc, const void *bytes, size_t n_bytes)
{
    const uint8_t *at = bytes;
    pthread_once(&is_filled, fill_tables);
    crc = ~crc;
    for (; n_bytes >= SLICES; n_bytes -= SLICES, at += SLICES) {
        uint32_t low = gmi_get_u32(at) ^ crc, high = gmi_get_u32(at + 4);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^ tables[4][low >> 24] ^
              tables[3][high & 255] ^ tables[2][high >> 8 & 255] ^ tables[1][high >> 16 & 255] ^ tables[0][high >> 24];
    }
    for (; n_bytes > 0; n_bytes--) crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 255];
    return ~crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>

/* The instruction takes three cycles, and one can begin in each: three streams side by side. Their checksums are joined as the
 * tables say what a checksum becomes when so many zeros follow. */
enum { STREAM_BYTES = 1024 };

static uint32_t       after_stream[4][256]; /* [k][b]: byte k of a checksum is b, and STREAM_BYTES zeros follow */
static pthread_once_t is_joined = PTHREAD_ONCE_INIT;

static uint32_t with_zeros_behind(uint32_t crc)
{
    for (int i = 0; i < STREAM_BYTES; i++) crc = crc >> 8 ^ tables[0][crc & 255];
    return crc;
}

static void fill_joints(void)
{
    pthread_once(&is_filled, fill_tables);
    for (int k = 0; k < 4; k++) {
        for (uint32_t b = 0; b < 256; b++) after_stream[k][b] = with_zeros_behind(b << 8 * k);
    }
}

static uint32_t behind_a_stream(uint32_t crc)
{
    return after_stream[0][crc & 255] ^ after_stream[1][crc >> 8 & 255] ^ after_stream[2][crc >> 16 & 255] ^ after_stream[3][crc >> 24];
}

static uint64_t word_at(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t start, const uint8_t *at, size_t n_bytes)
{
    uint64_t crc = ~start;
    for (; n_bytes >= 3 * STREAM_BYTES; n_bytes -= 3 * STREAM_BYTES, at += 3 * STREAM_BYTES) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < STREAM_BYTES; i += 8) {
            crc = _mm_crc32_u64(crc, word_at(at + i));
            second = _mm_crc32_u64(second, word_at(at + STREAM_BYTES + i));
            third = _mm_crc32_u64(third, word_at(at + 2 * STREAM_BYTES + i));
        }
        crc = behind_a_stream(behind_a_stream((uint32_t)crc) ^ (uint32_t)second) ^ (uint32_t)third;
    }
    for (; n_bytes >= 8; n_bytes -= 8, at += 8) crc = _mm_crc32_u64(crc, word_at(at));
    uint32_t rest = (uint32_t)crc;
    for (; n_bytes > 0; n_bytes--) rest = _mm_crc32_u8(rest, *at++);
    return ~rest;
}

uint32_t gmi_crc32c(uint32_t crc, const void *bytes, size_t n_bytes)
{
    if (!__builtin_cpu_supports("sse4.2")) return gmi_crc32c_by_table(crc, bytes, n_bytes);
    pthread_once(&is_joined, fill_joints);
    return by_instruction(crc, bytes, n_bytes);
}
#else
uint32_t gmi_crc32c(uint32_t crc, const void *bytes, size_t n_bytes) { return gmi_crc32c_by_table(crc, bytes, n_bytes); }
#endif
