/* Any bytes as a page of the disk cache, with a head whose checksum is right: the page that is wanted, or none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <xxhash.h>

#include "kv/kv_disk_file.h"
#include "support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAGE_BYTES = 600, CHECKED = SPRY_KV_FILE_HEAD - 8 };

static scratch place;
static spry_directory directory;
static int32_t tokens[32];
static const spry_kv_key fingerprint = {1, 2};
static const spry_kv_disk_page page = {.key = {3, 4}, .parent = {5, 6}, .tokens = tokens};

static void leave(void)
{
    spry_directory_close(&directory);
    scratch_deinit(&place);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static spry_kv_file_scratch frame;
    static uint8_t bytes[1 << 16];
    char name[SPRY_KV_FILE_NAME];
    unsigned char out[PAGE_BYTES];
    spry_error error;
    spry_kv_file_cost cost;
    if (!place.folder[0]) {
        scratch_init(&place);
        if (spry_directory_open(&directory, place.folder, &error) != SPRY_OK)
            abort();
        atexit(leave);
    }
    size = size < sizeof bytes ? size : sizeof bytes;
    memcpy(bytes, data, size);
    if (size >= SPRY_KV_FILE_HEAD) {
        uint64_t sum = XXH3_64bits(bytes, CHECKED);
        memcpy(bytes + CHECKED, &sum, sizeof sum);
    }
    spry_kv_file_name(name, &(spry_kv_file_id){fingerprint, page.key});
    scratch_write(&place, name, bytes, size);
    (void)spry_kv_file_read(&directory, fingerprint, &page, out, PAGE_BYTES, &frame, &cost);
    spry_kv_file_scratch_deinit(&frame);
    frame = (spry_kv_file_scratch){0};
    return 0;
}
