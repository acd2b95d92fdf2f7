/* Nothing in a file is trusted: the head is accepted only if its checksum, the file's size and the requested page
 * agree, and the page only if its checksum does. */
#include "kv/kv_disk_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

#include "platform/clock.h"

enum { VERSION = 1, CODEC_RAW = 0, CODEC_ZSTD = 1, KEY_DIGITS = 32, MAGIC_BYTES = 8 };

enum { /* offsets in a head */
       AT_VERSION = 8,
       AT_CODEC = 12,
       AT_FINGERPRINT = 16,
       AT_KEY = 32,
       AT_PARENT = 48,
       AT_PAGE_BYTES = 64,
       AT_STORED_BYTES = 72,
       AT_PAGE_SUM = 80,
       AT_TOKENS = 96,
       AT_N_TOKENS = 224,
       AT_HEAD_SUM = 248,
};

static const char magic[MAGIC_BYTES] = {'s', 'p', 'r', 'y', '-', 'k', 'v', '\n'};

_Static_assert(AT_TOKENS + 4 * SPRY_PAGE_TOKENS == AT_N_TOKENS, "the tokens of a page fill their place");

typedef unsigned char head_bytes[SPRY_KV_FILE_HEAD];

/* ---- names ------------------------------------------------------------------------------------------------------ */

void spry_kv_file_name(char name[SPRY_KV_FILE_NAME], const spry_kv_file_id *id)
{
    snprintf(name, SPRY_KV_FILE_NAME, "%016" PRIx64 "%016" PRIx64 "-%016" PRIx64 "%016" PRIx64 ".page",
             id->fingerprint.high, id->fingerprint.low, id->key.high, id->key.low);
}

static bool parse_word(uint64_t *word, const char *digits)
{
    *word = 0;
    for (int i = 0; i < 16; i++) {
        char c = digits[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        *word = *word << 4 | (uint64_t)digit;
    }
    return true;
}

static bool parse_key(spry_kv_key *key, const char *digits)
{
    return parse_word(&key->high, digits) && parse_word(&key->low, digits + 16);
}

bool spry_kv_file_parse(spry_kv_file_id *id, const char *name)
{
    static const char ending[] = ".page";
    return strlen(name) == 2 * KEY_DIGITS + 1 + sizeof ending - 1 && parse_key(&id->fingerprint, name) &&
           name[KEY_DIGITS] == '-' && parse_key(&id->key, name + KEY_DIGITS + 1) &&
           strcmp(name + 2 * KEY_DIGITS + 1, ending) == 0;
}

/* ---- heads ------------------------------------------------------------------------------------------------------ */

static void put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static void put_u64(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static void put_key(unsigned char *at, spry_kv_key key)
{
    put_u64(at, key.low);
    put_u64(at + 8, key.high);
}

static uint64_t get_u64(const unsigned char *at)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* The complete head: writing stores it and reading compares with it, so that no field is forgotten on either side. */
static void make_head(head_bytes head, spry_kv_key fingerprint, const spry_kv_disk_page *page, size_t page_bytes,
                      uint64_t stored_bytes, spry_kv_key page_sum)
{
    memset(head, 0, SPRY_KV_FILE_HEAD);
    memcpy(head, magic, sizeof magic);
    put_u32(head + AT_VERSION, VERSION);
    put_u32(head + AT_CODEC, stored_bytes == page_bytes ? CODEC_RAW : CODEC_ZSTD);
    put_key(head + AT_FINGERPRINT, fingerprint);
    put_key(head + AT_KEY, page->key);
    put_key(head + AT_PARENT, page->parent);
    put_u64(head + AT_PAGE_BYTES, page_bytes);
    put_u64(head + AT_STORED_BYTES, stored_bytes);
    put_key(head + AT_PAGE_SUM, page_sum);
    for (size_t i = 0; i < SPRY_PAGE_TOKENS; i++)
        put_u32(head + AT_TOKENS + 4 * i, (uint32_t)page->tokens[i]);
    put_u32(head + AT_N_TOKENS, SPRY_PAGE_TOKENS);
    put_u64(head + AT_HEAD_SUM, XXH3_64bits(head, AT_HEAD_SUM));
}

static spry_kv_key sum_page(const void *bytes, size_t size)
{
    XXH128_hash_t sum = XXH3_128bits(bytes, size);
    return (spry_kv_key){sum.low64, sum.high64};
}

int spry_kv_file_write(const spry_directory *directory, spry_kv_key fingerprint, const spry_kv_disk_page *page,
                       const spry_kv_file_body *body)
{
    head_bytes head;
    const void *stored = body->packed ? body->packed : body->page;
    size_t stored_bytes = body->packed ? body->packed_bytes : body->page_bytes;
    make_head(head, fingerprint, page, body->page_bytes, stored_bytes, sum_page(body->page, body->page_bytes));
    char name[SPRY_KV_FILE_NAME];
    spry_kv_file_name(name, &(spry_kv_file_id){fingerprint, page->key});
    struct iovec pieces[] = {{head, sizeof head}, {(void *)(uintptr_t)stored, stored_bytes}};
    return spry_directory_write(directory, name, pieces, SPRY_COUNT(pieces));
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

void spry_kv_file_scratch_deinit(spry_kv_file_scratch *scratch)
{
    free(scratch->frame);
    ZSTD_freeDCtx(scratch->context);
    *scratch = (spry_kv_file_scratch){0};
}

static bool scratch_reserve(spry_kv_file_scratch *scratch, size_t bytes)
{
    if (!scratch->context)
        scratch->context = ZSTD_createDCtx();
    if (scratch->context && scratch->capacity < bytes) {
        free(scratch->frame);
        scratch->frame = malloc(bytes);
        scratch->capacity = scratch->frame ? bytes : 0;
    }
    return scratch->context && scratch->frame;
}

static spry_kv_file_result result_of(int failure)
{
    switch (failure) {
    case 0: return SPRY_KV_FILE_OK;
    case ENOENT: return SPRY_KV_FILE_ABSENT;
    case ENODATA: /* the file is too short */
    case EINVAL:  /* a folder, a pipe */
    case ELOOP:   /* a link */
    case EIO: return SPRY_KV_FILE_WRONG;
    default: return SPRY_KV_FILE_REFUSED;
    }
}

/* Reads the head and the bytes after it into `stored`. */
static spry_kv_file_result read_stored(const spry_opened *opened, head_bytes head, void *stored, size_t stored_bytes,
                                       spry_kv_file_cost *cost)
{
    struct iovec pieces[] = {{head, SPRY_KV_FILE_HEAD}, {stored, stored_bytes}};
    uint64_t start = spry_clock_ns();
    int failure = spry_opened_read(opened, pieces, SPRY_COUNT(pieces), 0);
    *cost = (spry_kv_file_cost){.stored_bytes = stored_bytes, .read_ns = spry_clock_ns() - start};
    return result_of(failure);
}

static bool unpack(void *bytes, size_t page_bytes, const spry_kv_file_scratch *scratch, spry_kv_file_cost *cost)
{
    uint64_t start = spry_clock_ns();
    size_t got = ZSTD_decompressDCtx(scratch->context, bytes, page_bytes, scratch->frame, cost->stored_bytes);
    cost->unpack_ns = spry_clock_ns() - start;
    return !ZSTD_isError(got) && got == page_bytes;
}

static spry_kv_file_result read_opened(const spry_opened *opened, spry_kv_key fingerprint,
                                       const spry_kv_disk_page *page, void *bytes, size_t page_bytes,
                                       spry_kv_file_scratch *scratch, spry_kv_file_cost *cost)
{
    if (opened->size <= SPRY_KV_FILE_HEAD || opened->size - SPRY_KV_FILE_HEAD > page_bytes)
        return SPRY_KV_FILE_WRONG;
    size_t stored_bytes = (size_t)opened->size - SPRY_KV_FILE_HEAD;
    bool packed = stored_bytes < page_bytes;
    if (packed && !scratch_reserve(scratch, page_bytes))
        return SPRY_KV_FILE_REFUSED;
    head_bytes head, expected;
    spry_kv_file_result result = read_stored(opened, head, packed ? scratch->frame : bytes, stored_bytes, cost);
    if (result != SPRY_KV_FILE_OK)
        return result;
    spry_kv_key sum = {get_u64(head + AT_PAGE_SUM), get_u64(head + AT_PAGE_SUM + 8)};
    make_head(expected, fingerprint, page, page_bytes, stored_bytes, sum);
    if (memcmp(head, expected, sizeof head) != 0 || (packed && !unpack(bytes, page_bytes, scratch, cost)) ||
        !spry_kv_key_equal(sum, sum_page(bytes, page_bytes)))
        return SPRY_KV_FILE_WRONG;
    return SPRY_KV_FILE_OK;
}

spry_kv_file_result spry_kv_file_read(const spry_directory *directory, spry_kv_key fingerprint,
                                      const spry_kv_disk_page *page, void *bytes, size_t page_bytes,
                                      spry_kv_file_scratch *scratch, spry_kv_file_cost *cost)
{
    char name[SPRY_KV_FILE_NAME];
    spry_kv_file_name(name, &(spry_kv_file_id){fingerprint, page->key});
    *cost = (spry_kv_file_cost){0};
    spry_opened opened;
    int failure = spry_opened_open(&opened, directory, name);
    if (failure)
        return result_of(failure);
    spry_kv_file_result result = read_opened(&opened, fingerprint, page, bytes, page_bytes, scratch, cost);
    spry_opened_close(&opened);
    return result;
}
