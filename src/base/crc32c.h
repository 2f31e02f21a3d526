/* crc32c.h - the checksum of Castagnoli (iSCSI, ext4): finds every change of up to three bits in a block of ours, and every burst
 * of up to 32 bits. */
#ifndef GMI_CRC32C_H
#define GMI_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of the bytes before, whose checksum is `crc` (0: there are none), and these. By the processor's instruction, if it has one. */
uint32_t gmi_crc32c(uint32_t crc, const void *bytes, size_t n_bytes);

/* The same by tables, anywhere. */
uint32_t gmi_crc32c_by_table(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
