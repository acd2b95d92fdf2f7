/* One page as a file. A head of 256 bytes, all numbers little-endian, then the page:
 *
 *     0  magic "spry-kv\n"       64  page bytes, u64           224  count of tokens, u32
 *     8  version, u32            72  stored bytes, u64         228  zeros
 *    12  codec, u32              80  XXH3-128 of the page      248  XXH3-64 of bytes 0 to 247
 *    16  fingerprint             96  tokens, 32 x i32          256  the page: as it is, or a zstd frame
 *    32  key
 *    48  parent's key
 *
 * The page's checksum is of its own bytes, not of the stored ones, so it also vouches for the decompression. A zstd
 * frame is always smaller than the page, so the size of a file tells where its bytes can be read to before its head is.
 */
#ifndef SPRY_KV_KV_DISK_FILE_H
#define SPRY_KV_KV_DISK_FILE_H

#include "kv/kv_disk.h"
#include "platform/directory.h"

enum {
    SPRY_KV_FILE_HEAD = 256,
    SPRY_KV_FILE_NAME = 80, /* room for a name: two keys in hexadecimal, and ".page" */
};

/* Identifies a file. Pages of different fingerprints never share a name. */
typedef struct spry_kv_file_id {
    spry_kv_key fingerprint, key;
} spry_kv_file_id;

void spry_kv_file_name(char name[SPRY_KV_FILE_NAME], const spry_kv_file_id *id);

/* False when `name` is not the name of a page file. */
bool spry_kv_file_parse(spry_kv_file_id *id, const char *name);

/* The stored bytes of a page: `packed`, or the page itself if that is NULL. */
typedef struct spry_kv_file_body {
    const void *page;
    size_t page_bytes;
    const void *packed; /* a zstd frame smaller than the page */
    size_t packed_bytes;
} spry_kv_file_body;

/* 0, or an error number without a file. */
int spry_kv_file_write(const spry_directory *directory, spry_kv_key fingerprint, const spry_kv_disk_page *page,
                       const spry_kv_file_body *body);

/* Memory for frames, reused between reads. */
typedef struct spry_kv_file_scratch {
    void *frame; /* [capacity] */
    size_t capacity;
    struct ZSTD_DCtx_s *context;
} spry_kv_file_scratch;

void spry_kv_file_scratch_deinit(spry_kv_file_scratch *scratch);

typedef enum spry_kv_file_result {
    SPRY_KV_FILE_OK,
    SPRY_KV_FILE_ABSENT,
    SPRY_KV_FILE_REFUSED, /* memory, descriptors or permissions prevent reading the file, which may be valid */
    SPRY_KV_FILE_WRONG,   /* not this page, or damaged */
} spry_kv_file_result;

/* The cost of a read, for choosing the codec. */
typedef struct spry_kv_file_cost {
    uint64_t stored_bytes, read_ns, unpack_ns;
} spry_kv_file_cost;

/* Reads a page into `bytes` [page_bytes] and verifies every field of the head. */
spry_kv_file_result spry_kv_file_read(const spry_directory *directory, spry_kv_key fingerprint,
                                      const spry_kv_disk_page *page, void *bytes, size_t page_bytes,
                                      spry_kv_file_scratch *scratch, spry_kv_file_cost *cost);

#endif
