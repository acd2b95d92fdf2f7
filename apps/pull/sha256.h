/* SHA-256 (FIPS 180-4), for checksums that hubs give. */
#ifndef SPRY_APPS_SHA256_H
#define SPRY_APPS_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SPRY_SHA256_TEXT = 65 }; /* hexadecimal digits and the end */

typedef struct spry_sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    unsigned char block[64];
} spry_sha256;

void spry_sha256_init(spry_sha256 *hash);
void spry_sha256_add(spry_sha256 *hash, const void *data, size_t size);
/* The digest in lower case. The hash must be initialised again before its next use. */
void spry_sha256_text(char text[SPRY_SHA256_TEXT], spry_sha256 *hash);

#endif
