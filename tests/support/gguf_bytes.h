/* Building GGUF files in memory, right or wrong, part by part. Include after cmocka.h. */
#ifndef SPRY_TESTS_GGUF_BYTES_H
#define SPRY_TESTS_GGUF_BYTES_H

#include "base/buffer.h"
#include "formats/gguf.h"

enum { GGUF_BYTES_MAX = 1 << 24 };

static inline void gguf_bytes(spry_buffer *out, const void *data, size_t size)
{
    assert_true(spry_buffer_append(out, data, size));
}

static inline void gguf_u32(spry_buffer *out, uint32_t value)
{
    gguf_bytes(out, &value, sizeof value);
}

static inline void gguf_u64(spry_buffer *out, uint64_t value)
{
    gguf_bytes(out, &value, sizeof value);
}

static inline void gguf_string(spry_buffer *out, const char *text)
{
    gguf_u64(out, strlen(text));
    gguf_bytes(out, text, strlen(text));
}

/* Starts a file; also the buffer. */
static inline void gguf_begin(spry_buffer *out, uint32_t version, uint64_t n_tensors, uint64_t n_entries)
{
    spry_buffer_init(out, GGUF_BYTES_MAX);
    gguf_bytes(out, "GGUF", 4);
    gguf_u32(out, version);
    gguf_u64(out, n_tensors);
    gguf_u64(out, n_entries);
}

/* An entry's key and kind; its value follows. */
static inline void gguf_key(spry_buffer *out, const char *key, uint32_t kind)
{
    gguf_string(out, key);
    gguf_u32(out, kind);
}

static inline void gguf_array(spry_buffer *out, uint32_t kind, uint64_t count)
{
    gguf_u32(out, kind);
    gguf_u64(out, count);
}

/* A tensor's line in the directory; `dims` fastest first, as in the file. */
static inline void gguf_tensor(spry_buffer *out, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                               uint64_t offset)
{
    gguf_string(out, name);
    gguf_u32(out, n_dims);
    gguf_bytes(out, dims, n_dims * sizeof *dims);
    gguf_u32(out, type);
    gguf_u64(out, offset);
}

static inline void gguf_zeros(spry_buffer *out, size_t count)
{
    void *room = spry_buffer_extend(out, count);
    assert_non_null(room);
    memset(room, 0, count);
}

static inline void gguf_pad(spry_buffer *out, size_t alignment)
{
    gguf_zeros(out, (alignment - out->size % alignment) % alignment);
}

/* Reads everything a caller could reach, so that a wrong pointer is noticed. Returns a sum of what it saw. */
static inline uint64_t gguf_walk(const spry_gguf *gguf)
{
    uint64_t sum = 0, number;
    double real;
    spry_view text;
    for (size_t i = 0; i < spry_gguf_entry_count(gguf); i++) {
        const spry_gguf_entry *entry = spry_gguf_entry_at(gguf, i);
        assert_ptr_equal(spry_gguf_find_entry(gguf, entry->key), entry);
        for (size_t k = 0; k < entry->bytes; k++)
            sum += entry->data[k];
        if (spry_gguf_entry_string(entry, &text))
            for (size_t k = 0; k < text.size; k++)
                sum += (unsigned char)text.data[k];
        if (spry_gguf_entry_f64(entry, &real))
            sum += real > 0;
        spry_gguf_array array;
        if (!spry_gguf_entry_array(entry, &array))
            continue;
        for (size_t k = 0; k < array.count; k++) {
            if (spry_gguf_array_u64(&array, k, &number))
                sum += number;
            if (spry_gguf_array_f64(&array, k, &real))
                sum += real > 0;
        }
        size_t strings = 0;
        for (size_t cursor = 0; spry_gguf_array_string(&array, &cursor, &text); strings++)
            sum += text.size ? (unsigned char)text.data[text.size - 1] : 0;
        if (array.kind == SPRY_GGUF_STRING)
            assert_int_equal(strings, array.count);
    }
    for (size_t i = 0; i < spry_gguf_tensor_count(gguf); i++) {
        const spry_tensor *tensor = spry_gguf_tensor(gguf, i);
        assert_ptr_equal(spry_gguf_find_tensor(gguf, tensor->name), tensor);
        assert_true(tensor->bytes > 0 && tensor->bytes <= spry_gguf_size(gguf));
        sum += (uint64_t)tensor->data[0] + tensor->data[tensor->bytes - 1];
    }
    return sum;
}

#endif
