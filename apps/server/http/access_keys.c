/* A given key is compared with every key, each time over the same number of bytes. */
#include "server/http/access_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/number.h"
#include "platform/file.h"
#include "platform/memory.h"

enum { FILE_BYTES_MAX = 1 << 20 };
#define MINUTE_NS 60e9

static const char blanks[] = " \t\r\n";

/* The part of a line before the first blank; *line becomes the rest. */
static spry_view take_word(spry_view *line)
{
    size_t size = 0;
    while (size < line->size && !memchr(blanks, line->data[size], sizeof blanks - 1))
        size++;
    spry_view word = {line->data, size};
    *line = spry_view_trim((spry_view){line->data + size, line->size - size}, blanks);
    return word;
}

/* name=TEXT, requests=N, tokens=N, concurrent=N or admin. */
static bool read_setting(spry_access_key *key, spry_view word)
{
    const struct {
        spry_view name;
        uint32_t *value;
    } numbers[] = {{SPRY_VIEW("requests="), &key->rates.requests},
                   {SPRY_VIEW("tokens="), &key->rates.tokens},
                   {SPRY_VIEW("concurrent="), &key->rates.concurrent}};
    const spry_view name = SPRY_VIEW("name=");
    if (spry_view_is(word, "admin"))
        return key->admin = true;
    if (word.size > name.size && memcmp(word.data, name.data, name.size) == 0) {
        snprintf(key->name, sizeof key->name, "%.*s", (int)(word.size - name.size), word.data + name.size);
        return true;
    }
    for (size_t i = 0; i < SPRY_COUNT(numbers); i++) {
        size_t size = numbers[i].name.size;
        uint64_t value;
        if (word.size <= size || memcmp(word.data, numbers[i].name.data, size) != 0)
            continue;
        if (!spry_number_u64(&value, (spry_view){word.data + size, word.size - size}) || value > UINT32_MAX)
            return false;
        *numbers[i].value = (uint32_t)value;
        return true;
    }
    return false;
}

static void wipe(spry_access_key *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i].text)
            spry_memory_wipe(keys[i].text, SPRY_ACCESS_KEY_BYTES + 1);
        free(keys[i].text);
        keys[i].text = NULL;
    }
}

static spry_status add_key(spry_access_key *key, spry_view text, const spry_key_rates *usual, spry_error *error)
{
    *key = (spry_access_key){.text = calloc(1, SPRY_ACCESS_KEY_BYTES + 1), .size = text.size, .rates = *usual};
    if (!key->text)
        return spry_fail_memory(error, "the keys", SPRY_ACCESS_KEY_BYTES + 1);
    memcpy(key->text, text.data, text.size);
    return SPRY_OK;
}

static spry_status read_lines(spry_access_key *keys, size_t *count, spry_view rest, const char *path,
                              const spry_key_rates *usual, spry_error *error)
{
    size_t number = 0;
    while (rest.size) {
        const char *end = memchr(rest.data, '\n', rest.size);
        size_t size = end ? (size_t)(end - rest.data) : rest.size;
        spry_view line = spry_view_trim((spry_view){rest.data, size}, blanks);
        size_t step = end ? size + 1 : size;
        rest = (spry_view){rest.data + step, rest.size - step};
        number++;
        if (!line.size || line.data[0] == '#')
            continue;
        spry_view settings = line;
        line = take_word(&settings);
        if (line.size > SPRY_ACCESS_KEY_BYTES)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: a key is longer than %d bytes", path, SPRY_ACCESS_KEY_BYTES);
        if (*count == SPRY_ACCESS_KEYS_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: more than %d keys", path, SPRY_ACCESS_KEYS_MAX);
        spry_access_key *key = &keys[(*count)++];
        spry_status status = add_key(key, line, usual, error);
        while (!status && settings.size)
            if (!read_setting(key, take_word(&settings)))
                status = spry_fail(error, SPRY_ERR_FORMAT,
                                   "%s, line %zu: after a key only name=TEXT, requests=N, tokens=N, concurrent=N and "
                                   "admin are allowed",
                                   path, number);
        if (status)
            return status;
    }
    if (!*count)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: no key found; write one per line", path);
    return SPRY_OK;
}

/* Under the lock: the keys of the file become the keys that are known; those of `read` that are new are moved. */
static spry_status take_over(spry_access_keys *keys, spry_access_key *read, size_t n_read, const char *path,
                             spry_error *error)
{
    size_t count = keys->count, fresh = 0, known[SPRY_ACCESS_KEYS_MAX];
    for (size_t i = 0; i < n_read; i++) {
        known[i] = 0;
        while (known[i] < count && strcmp(keys->keys[known[i]].text, read[i].text) != 0)
            known[i]++;
        fresh += known[i] == count;
    }
    if (count + fresh > SPRY_ACCESS_KEYS_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: more than %d keys since the server was started", path,
                         SPRY_ACCESS_KEYS_MAX);
    for (size_t i = 0; i < count; i++)
        keys->keys[i].gone = true;
    for (size_t i = 0; i < n_read; i++) {
        spry_access_key *key = &keys->keys[known[i] < count ? known[i] : keys->count];
        char *text = known[i] < count ? key->text : read[i].text;
        if (known[i] == count) {
            read[i].text = NULL;
            keys->count++;
        }
        *key = read[i];
        key->text = text;
    }
    return SPRY_OK;
}

spry_status spry_access_keys_read(spry_access_keys *keys, const char *path, const spry_key_rates *rates,
                                  spry_error *error)
{
    spry_buffer file;
    size_t count = 0;
    spry_access_key *read = calloc(SPRY_ACCESS_KEYS_MAX, sizeof *read);
    spry_buffer_init(&file, FILE_BYTES_MAX);
    /* All memory at once: a buffer that grows leaves copies of keys in freed memory. */
    if (!read || !spry_buffer_extend(&file, FILE_BYTES_MAX)) {
        free(read);
        return spry_fail_memory(error, "the keys", FILE_BYTES_MAX);
    }
    spry_buffer_clear(&file);
    spry_status status = spry_file_read(&file, path, error);
    if (status == SPRY_OK)
        status = read_lines(read, &count, spry_buffer_view(&file), path, rates, error);
    if (status == SPRY_OK) {
        pthread_rwlock_wrlock(&keys->lock);
        status = take_over(keys, read, count, path, error);
        pthread_rwlock_unlock(&keys->lock);
    }
    wipe(read, count);
    free(read);
    spry_memory_wipe(file.data, file.capacity);
    spry_buffer_deinit(&file);
    return status;
}

spry_status spry_access_keys_init(spry_access_keys *keys, const char *path, const spry_key_rates *rates,
                                  spry_error *error)
{
    atomic_init(&keys->count, 0);
    keys->keys = NULL;
    pthread_rwlock_init(&keys->lock, NULL);
    if (!path)
        return SPRY_OK;
    keys->keys = calloc(SPRY_ACCESS_KEYS_MAX, sizeof *keys->keys);
    if (!keys->keys)
        return spry_fail_memory(error, "the keys", SPRY_ACCESS_KEYS_MAX * sizeof *keys->keys);
    return spry_access_keys_read(keys, path, rates, error);
}

void spry_access_keys_deinit(spry_access_keys *keys)
{
    wipe(keys->keys, keys->keys ? keys->count : 0);
    free(keys->keys);
    keys->keys = NULL;
    keys->count = 0;
    pthread_rwlock_destroy(&keys->lock);
}

static bool same(spry_view key, spry_view given)
{
    size_t different = key.size ^ given.size;
    for (size_t i = 0; i < SPRY_ACCESS_KEY_BYTES; i++) {
        unsigned char a = (unsigned char)(i < key.size ? key.data[i] : 0);
        unsigned char b = (unsigned char)(i < given.size ? given.data[i] : 0);
        different |= (size_t)(a ^ b);
    }
    return different == 0;
}

int spry_access_keys_find(spry_access_keys *keys, spry_access_key *key, spry_view given)
{
    int found = -1;
    pthread_rwlock_rdlock(&keys->lock);
    for (size_t i = 0; i < keys->count; i++)
        if (same((spry_view){keys->keys[i].text, keys->keys[i].size}, given) && !keys->keys[i].gone)
            found = (int)i;
    if (found >= 0)
        *key = keys->keys[found];
    pthread_rwlock_unlock(&keys->lock);
    return found;
}

void spry_access_keys_name(spry_access_keys *keys, char name[SPRY_KEY_NAME_BYTES], size_t index)
{
    pthread_rwlock_rdlock(&keys->lock);
    memcpy(name, keys->keys[index].name, SPRY_KEY_NAME_BYTES);
    pthread_rwlock_unlock(&keys->lock);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

bool spry_key_limits_init(spry_key_limits *limits, size_t count)
{
    *limits = (spry_key_limits){.count = count, .use = calloc(count, sizeof *limits->use)};
    pthread_mutex_init(&limits->lock, NULL);
    return limits->use != NULL;
}

void spry_key_limits_deinit(spry_key_limits *limits)
{
    free(limits->use);
    limits->use = NULL;
    pthread_mutex_destroy(&limits->lock);
}

static double refilled(double used, uint32_t rate, double minutes)
{
    double left = used - rate * minutes;
    return rate && left > 0 ? left : 0;
}

/* Seconds until `used` has fallen to `most`, at least 1. */
static uint32_t seconds_until(double used, double most, uint32_t rate)
{
    double seconds = ceil((used - most) / rate * 60);
    return seconds > 1 ? (uint32_t)(seconds < 1e9 ? seconds : 1e9) : 1;
}

/* Under the lock. */
static const char *refusal(const spry_key_use *use, const spry_key_rates *rates, uint32_t *retry_s)
{
    *retry_s = 1;
    if (rates->concurrent && use->open >= rates->concurrent)
        return "requests at a time";
    if (rates->requests && use->requests > rates->requests - 1) {
        *retry_s = seconds_until(use->requests, rates->requests - 1.0, rates->requests);
        return "requests a minute";
    }
    if (rates->tokens && use->tokens >= rates->tokens) {
        *retry_s = seconds_until(use->tokens, rates->tokens, rates->tokens);
        return "tokens a minute";
    }
    return NULL;
}

const char *spry_key_limits_begin(spry_key_limits *limits, size_t key, const spry_key_rates *rates, uint64_t now_ns,
                                  uint32_t *retry_s)
{
    spry_key_use *use = &limits->use[key];
    pthread_mutex_lock(&limits->lock);
    double minutes = now_ns > use->at_ns ? (double)(now_ns - use->at_ns) / MINUTE_NS : 0;
    use->requests = refilled(use->requests, rates->requests, minutes);
    use->tokens = refilled(use->tokens, rates->tokens, minutes);
    use->at_ns = now_ns > use->at_ns ? now_ns : use->at_ns;
    const char *limit = refusal(use, rates, retry_s);
    if (!limit) {
        use->requests++;
        use->open++;
    }
    pthread_mutex_unlock(&limits->lock);
    return limit;
}

void spry_key_limits_end(spry_key_limits *limits, size_t key)
{
    pthread_mutex_lock(&limits->lock);
    limits->use[key].open--;
    pthread_mutex_unlock(&limits->lock);
}

void spry_key_limits_charge(spry_key_limits *limits, size_t key, size_t tokens)
{
    pthread_mutex_lock(&limits->lock);
    limits->use[key].tokens += (double)tokens;
    pthread_mutex_unlock(&limits->lock);
}
