/* One file of a known size, downloaded in chunks, several at once, and its SHA-256 checksum (FIPS 180-4). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/map.h"
#include "base/number.h"
#include "platform/clock.h"
#include "pull/pull_http.h"
#include "pull/pull_state.h"

enum { SHA256_TEXT = 65 }; /* hexadecimal digits and the end */

typedef struct sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    unsigned char block[64];
} sha256;

/* ---- SHA-256 ----------------------------------------------------------------------------------------------------- */

/* The constants are the first 32 bits of the fractional parts of cube and square roots of primes. */

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static uint32_t word_at(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void add_block(uint32_t state[8], const unsigned char block[64])
{
    uint32_t w[64], s[8];
    for (size_t i = 0; i < 16; i++)
        w[i] = word_at(block + 4 * i);
    for (size_t i = 16; i < 64; i++) {
        uint32_t small = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t large = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + small + w[i - 7] + large;
    }
    memcpy(s, state, sizeof s);
    for (size_t i = 0; i < 64; i++) {
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + choice + constants[i] + w[i];
        uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (size_t i = 0; i < 8; i++)
        state[i] += s[i];
}

static void sha256_init(sha256 *hash)
{
    *hash = (sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static void sha256_add(sha256 *hash, const void *data, size_t size)
{
    const unsigned char *p = data;
    while (size) {
        size_t used = hash->size % 64, n = 64 - used < size ? 64 - used : size;
        if (n == 64) {
            add_block(hash->state, p);
        } else {
            memcpy(hash->block + used, p, n);
            if (used + n == 64)
                add_block(hash->state, hash->block);
        }
        hash->size += n;
        p += n;
        size -= n;
    }
}

/* The digest in lower case. The hash must be initialised again before its next use. */
static void sha256_text(char text[SHA256_TEXT], sha256 *hash)
{
    static const unsigned char padding[64] = {0x80};
    unsigned char length[8];
    uint64_t bits = hash->size * 8;
    size_t used = hash->size % 64;
    for (size_t i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> 8 * (7 - i));
    sha256_add(hash, padding, used < 56 ? 56 - used : 120 - used);
    sha256_add(hash, length, sizeof length);
    for (size_t i = 0; i < 8; i++)
        snprintf(text + 8 * i, 9, "%08x", (unsigned)hash->state[i]);
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* Slots: transfers of one chunk each, driven by one thread with curl_multi. Servers that ignore ranges are asked for
 * the whole file, with one transfer. */

enum {
    SLOTS = 4,
    CHUNK_LEAST = 1 << 18,
    CHUNK_MOST = 16 << 20,
    CHUNKS_A_SLOT = 4, /* for small files */
    TRIES = 6,         /* consecutive ones without progress */
    POLL_MS = 50,
    RECORD_BYTES = 1 << 22,
    BLOCK_BYTES = 1 << 20,
};

typedef struct fetch fetch;

typedef struct slot {
    fetch *fetch;
    CURL *curl; /* NULL: idle */
    struct curl_slist *headers;
    bool taken; /* has a chunk */
    size_t chunk;
    uint64_t at, end; /* bytes of the file that are still to come */
    bool begun;       /* the head of the answer was read */
    int tries;
    uint64_t wait_until_ns;
    char reason[CURL_ERROR_SIZE];
} slot;

struct fetch {
    spry_model_pull *pull;
    const spry_directory *folder;
    const char *part;
    const spry_remote_file *file;
    int descriptor;
    uint64_t chunk_bytes;
    size_t n_chunks, n_done;
    char *states; /* [n_chunks]: '.', '+' taken, '#' there */
    slot slots[SLOTS];
    size_t n_slots;
    CURLM *multi;
    bool no_ranges; /* the server ignores them: one transfer, always from the beginning */
    bool restart;   /* `no_ranges` has just been set */
    spry_status status;
    spry_error *error;
};

/* ---- the record -------------------------------------------------------------------------------------------------- */

static int print_head(char out[128], const fetch *f)
{
    uint64_t url = spry_hash_bytes(f->file->url, strlen(f->file->url), 0);
    return snprintf(out, 128, "%016" PRIx64 " %.64s %" PRIu64 " %" PRIu64 "\n", url,
                    f->file->sha256 ? f->file->sha256 : "-", f->file->size, f->chunk_bytes);
}

static void record_name(char out[SPRY_PULL_NAME_BYTES], const fetch *f)
{
    snprintf(out, SPRY_PULL_NAME_BYTES, "%s.from", f->part);
}

/* A failure only means that the next pull loads more, so it is ignored. */
static void write_record(const fetch *f)
{
    char name[SPRY_PULL_NAME_BYTES], head[128];
    record_name(name, f);
    struct iovec pieces[] = {{head, (size_t)print_head(head, f)}, {f->states, f->n_chunks}};
    spry_directory_write(f->folder, name, pieces, 2);
}

static void remove_record(const fetch *f)
{
    char name[SPRY_PULL_NAME_BYTES];
    record_name(name, f);
    spry_directory_remove(f->folder, name);
}

static uint64_t chunk_size(const fetch *f, size_t chunk)
{
    uint64_t begin = chunk * f->chunk_bytes, left = f->file->size - begin;
    return left < f->chunk_bytes ? left : f->chunk_bytes;
}

/* Which chunks an earlier pull has loaded. */
static void read_record(fetch *f)
{
    char name[SPRY_PULL_NAME_BYTES], head[128], same[128];
    spry_opened file;
    size_t size = (size_t)print_head(head, f);
    record_name(name, f);
    if (!f->file->sha256 || spry_opened_open(&file, f->folder, name) != 0)
        return;
    struct iovec pieces[] = {{same, size}, {f->states, f->n_chunks}};
    bool read = file.size == size + f->n_chunks && spry_opened_read(&file, pieces, 2, 0) == 0;
    bool good = read && memcmp(head, same, size) == 0;
    for (size_t i = 0; i < f->n_chunks; i++) {
        f->states[i] = good && f->states[i] == '#' ? '#' : '.';
        if (f->states[i] == '#') {
            f->n_done++;
            f->pull->done += chunk_size(f, i);
        }
    }
    spry_opened_close(&file);
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static void fail(fetch *f, spry_status status)
{
    if (f->status == SPRY_OK)
        f->status = status;
}

/* "bytes 100-199/200" must begin where it was asked to. */
static bool range_begins_at(CURL *curl, uint64_t at)
{
    const char *range = spry_http_header(curl, "Content-Range");
    const char *dash = range ? strchr(range, '-') : NULL;
    uint64_t begin;
    return dash && strncasecmp(range, "bytes ", 6) == 0 &&
           spry_number_u64(&begin, (spry_view){range + 6, (size_t)(dash - range - 6)}) && begin == at;
}

/* False: the transfer ends here. */
static bool read_head(slot *s)
{
    fetch *f = s->fetch;
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (f->no_ranges ? status == 200 : status == 206 && range_begins_at(s->curl, s->at))
        return true;
    if (!f->no_ranges && (status == 200 || status == 206 || status == 416))
        f->restart = true;
    return false;
}

static size_t on_data(char *data, size_t one, size_t size, void *user)
{
    slot *s = user;
    fetch *f = s->fetch;
    (void)one;
    if (!s->begun) {
        s->begun = true;
        if (!read_head(s))
            return 0;
    }
    if (size > s->end - s->at) {
        fail(f,
             spry_fail(f->error, SPRY_ERR_FORMAT, "%.200s: the server sent more bytes than announced", f->file->name));
        return 0;
    }
    for (size_t written = 0; written < size;) {
        ssize_t n = pwrite(f->descriptor, data + written, size - written, (off_t)(s->at + written));
        if (n < 0 && errno != EINTR) {
            fail(f, spry_fail(f->error, SPRY_ERR_FILE, "cannot write '%.150s' in the models folder: %s", f->part,
                              strerror(errno)));
            return 0;
        }
        written += n > 0 ? (size_t)n : 0;
    }
    s->at += size;
    s->tries = 0;
    f->pull->done += size;
    return size;
}

/* Takes a chunk that is still to be loaded; false: there is none. */
static bool take_chunk(slot *s)
{
    fetch *f = s->fetch;
    const char *open = memchr(f->states, '.', f->n_chunks);
    if (!open)
        return false;
    s->chunk = (size_t)(open - f->states);
    s->at = s->chunk * f->chunk_bytes;
    s->end = s->at + chunk_size(f, s->chunk);
    s->taken = true;
    s->tries = 0;
    f->states[s->chunk] = '+';
    return true;
}

static void start(slot *s)
{
    fetch *f = s->fetch;
    char range[64];
    if (f->no_ranges && s->at) {
        f->pull->done -= s->at;
        s->at = 0;
    }
    s->curl = curl_easy_init();
    s->begun = false;
    s->reason[0] = '\0';
    if (!s->curl) {
        fail(f, spry_fail_memory(f->error, "a download", 0));
        return;
    }
    spry_http_prepare(s->curl, &s->headers, f->file->url, f->file->bearer);
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, s->at, s->end - 1);
    if (!f->no_ranges)
        curl_easy_setopt(s->curl, CURLOPT_RANGE, range);
    curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, s->reason);
    curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->curl, CURLOPT_PRIVATE, s);
    curl_multi_add_handle(f->multi, s->curl);
}

static void stop(slot *s)
{
    if (s->curl) {
        curl_multi_remove_handle(s->fetch->multi, s->curl);
        curl_easy_cleanup(s->curl);
    }
    curl_slist_free_all(s->headers);
    s->curl = NULL;
    s->headers = NULL;
}

static void on_chunk(slot *s)
{
    fetch *f = s->fetch;
    f->states[s->chunk] = '#';
    f->n_done++;
    s->taken = false;
    write_record(f);
}

/* A transfer has ended: its chunk is there, or it is tried again, or the pull fails. */
static void judge(slot *s, CURLcode code)
{
    fetch *f = s->fetch;
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && !s->begun) {
        s->begun = true;
        read_head(s);
    }
    bool refused = s->begun && status != 200 && status != 206;
    bool again = refused ? spry_http_status_passes(status) : code == CURLE_OK || spry_http_passes(code);
    uint64_t wait_ms = spry_http_wait_ms(s->curl, s->tries);
    if (f->status != SPRY_OK || f->restart) {
        stop(s);
    } else if (s->at == s->end) {
        stop(s);
        on_chunk(s);
    } else if (again && ++s->tries < TRIES) {
        stop(s);
        s->wait_until_ns = spry_clock_ns() + wait_ms * 1000000;
    } else if (refused) {
        fail(f, spry_http_refused(f->file->name, status, f->file->bearer, f->error));
    } else {
        fail(f, spry_fail(f->error, SPRY_ERR_FILE, "%.200s: %s", f->file->name,
                          s->reason[0]       ? s->reason
                          : code == CURLE_OK ? "the connection ends early"
                                             : curl_easy_strerror(code)));
    }
}

static void start_idle(fetch *f)
{
    uint64_t now = spry_clock_ns();
    for (size_t i = 0; i < f->n_slots && f->status == SPRY_OK; i++) {
        slot *s = &f->slots[i];
        if (!s->curl && (s->taken || take_chunk(s)) && s->wait_until_ns <= now)
            start(s);
    }
}

/* The server sends whole files only. */
static void begin_anew(fetch *f)
{
    for (size_t i = 0; i < SLOTS; i++) {
        stop(&f->slots[i]);
        if (f->slots[i].taken)
            f->pull->done -= f->slots[i].at - f->slots[i].chunk * f->chunk_bytes;
        f->slots[i].taken = false;
    }
    for (size_t i = 0; i < f->n_chunks; i++)
        if (f->states[i] == '#')
            f->pull->done -= chunk_size(f, i);
    f->no_ranges = true;
    f->restart = false;
    f->n_done = 0;
    f->n_slots = f->n_chunks = 1;
    f->chunk_bytes = f->file->size;
    f->states[0] = '.';
}

static void transfer(fetch *f)
{
    while (f->status == SPRY_OK && f->n_done < f->n_chunks) {
        int running, left;
        CURLMsg *message;
        start_idle(f);
        curl_multi_perform(f->multi, &running);
        while (f->status == SPRY_OK && (message = curl_multi_info_read(f->multi, &left)))
            if (message->msg == CURLMSG_DONE) {
                slot *s = NULL;
                CURLcode code = message->data.result;
                curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&s);
                judge(s, code);
            }
        if (f->restart && f->status == SPRY_OK)
            begin_anew(f);
        fail(f, spry_pull_report(f->pull, f->status == SPRY_OK ? f->error : NULL));
        if (f->status == SPRY_OK && f->n_done < f->n_chunks)
            curl_multi_poll(f->multi, NULL, 0, POLL_MS, NULL);
    }
    for (size_t i = 0; i < SLOTS; i++)
        stop(&f->slots[i]);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void check_digest(fetch *f)
{
    char text[SHA256_TEXT];
    sha256 hash;
    unsigned char *block = malloc(BLOCK_BYTES);
    if (!block) {
        fail(f, spry_fail_memory(f->error, "a checksum", BLOCK_BYTES));
        return;
    }
    sha256_init(&hash);
    for (uint64_t at = 0; at < f->file->size && f->status == SPRY_OK;) {
        ssize_t n = pread(f->descriptor, block, BLOCK_BYTES, (off_t)at);
        if (n <= 0)
            fail(f, spry_fail(f->error, SPRY_ERR_FILE, "cannot read '%.150s': %s", f->part, strerror(errno)));
        else
            sha256_add(&hash, block, (size_t)n);
        at += n > 0 ? (uint64_t)n : 0;
        fail(f, spry_pull_report(f->pull, f->status == SPRY_OK ? f->error : NULL));
    }
    free(block);
    sha256_text(text, &hash);
    if (f->status != SPRY_OK || strcmp(text, f->file->sha256) == 0)
        return;
    fail(f, spry_fail(f->error, SPRY_ERR_FORMAT,
                      "%.200s: the downloaded file is damaged: its SHA-256 is %s, the hub says %s; it was removed",
                      f->file->name, text, f->file->sha256));
    remove_record(f);
    spry_directory_remove(f->folder, f->part);
}

static void finish(fetch *f)
{
    if (f->status == SPRY_OK && ftruncate(f->descriptor, (off_t)f->file->size) != 0)
        fail(f, spry_fail(f->error, SPRY_ERR_FILE, "cannot write '%.150s': %s", f->part, strerror(errno)));
    if (f->status == SPRY_OK && f->file->sha256)
        check_digest(f);
    if (f->status == SPRY_OK && fsync(f->descriptor) != 0)
        fail(f, spry_fail(f->error, SPRY_ERR_FILE, "cannot write '%.150s': %s", f->part, strerror(errno)));
    if (f->status == SPRY_OK)
        remove_record(f);
}

static void choose_chunks(fetch *f)
{
    uint64_t size = f->file->size, chunk = size / (SLOTS * CHUNKS_A_SLOT) + 1;
    chunk = chunk < CHUNK_LEAST ? CHUNK_LEAST : chunk > CHUNK_MOST ? CHUNK_MOST : chunk;
    while (size / chunk >= RECORD_BYTES)
        chunk *= 2;
    f->chunk_bytes = chunk;
    f->n_chunks = (size_t)((size + chunk - 1) / chunk);
    f->n_slots = SLOTS;
    for (size_t i = 0; i < SLOTS; i++)
        f->slots[i].fetch = f;
}

spry_status spry_pull_ranges(spry_model_pull *pull, const spry_directory *folder, const char *part,
                             const spry_remote_file *file, spry_error *error)
{
    fetch f = {.pull = pull, .folder = folder, .part = part, .file = file, .error = error};
    spry_http_init();
    choose_chunks(&f);
    f.descriptor = openat(folder->descriptor, part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    f.states = malloc(f.n_chunks + 1);
    f.multi = curl_multi_init();
    if (f.descriptor < 0)
        fail(&f,
             spry_fail(error, SPRY_ERR_FILE, "cannot make '%.150s' in the models folder: %s", part, strerror(errno)));
    else if (!f.states || !f.multi)
        fail(&f, spry_fail_memory(error, "a download", f.n_chunks));
    if (f.status == SPRY_OK) {
        memset(f.states, '.', f.n_chunks + 1);
        read_record(&f);
        transfer(&f);
        finish(&f);
    }
    curl_multi_cleanup(f.multi);
    free(f.states);
    if (f.descriptor >= 0)
        close(f.descriptor);
    return f.status;
}
