/* Decodes GGUF metadata values that gguf.c has already checked. Bytes in the file are unaligned and little-endian, so
 * every number is read with memcpy. */
#include <string.h>

#include "base/compiler.h"
#include "formats/gguf.h"

/* An array's value starts with the kind of its elements (u32) and their number (u64). */
enum { ARRAY_HEAD_BYTES = 12, STRING_HEAD_BYTES = 8 };

static const struct {
    const char *name;
    size_t bytes;
} kinds[] = {
    [SPRY_GGUF_U8] = {"u8", 1},       [SPRY_GGUF_I8] = {"i8", 1},     [SPRY_GGUF_U16] = {"u16", 2},
    [SPRY_GGUF_I16] = {"i16", 2},     [SPRY_GGUF_U32] = {"u32", 4},   [SPRY_GGUF_I32] = {"i32", 4},
    [SPRY_GGUF_F32] = {"f32", 4},     [SPRY_GGUF_BOOL] = {"bool", 1}, [SPRY_GGUF_STRING] = {"string", 0},
    [SPRY_GGUF_ARRAY] = {"array", 0}, [SPRY_GGUF_U64] = {"u64", 8},   [SPRY_GGUF_I64] = {"i64", 8},
    [SPRY_GGUF_F64] = {"f64", 8},
};

const char *spry_gguf_kind_name(spry_gguf_kind kind)
{
    return (size_t)kind < SPRY_COUNT(kinds) ? kinds[kind].name : "unknown";
}

size_t spry_gguf_kind_bytes(spry_gguf_kind kind)
{
    return (size_t)kind < SPRY_COUNT(kinds) ? kinds[kind].bytes : 0;
}

static uint64_t load_unsigned(const unsigned char *data, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)data[i] << (8 * i);
    return value;
}

/* Sign-extends a two's complement number of `bytes` bytes. */
static int64_t load_signed(const unsigned char *data, size_t bytes)
{
    uint64_t value = load_unsigned(data, bytes), sign = (uint64_t)1 << (8 * bytes - 1);
    return value & sign ? -(int64_t)(sign - 1 - (value & (sign - 1))) - 1 : (int64_t)value;
}

static bool decode_u64(uint64_t *value, spry_gguf_kind kind, const unsigned char *data)
{
    size_t bytes = spry_gguf_kind_bytes(kind);
    switch (kind) {
    case SPRY_GGUF_U8:
    case SPRY_GGUF_U16:
    case SPRY_GGUF_U32:
    case SPRY_GGUF_U64: *value = load_unsigned(data, bytes); return true;
    case SPRY_GGUF_I8:
    case SPRY_GGUF_I16:
    case SPRY_GGUF_I32:
    case SPRY_GGUF_I64: {
        int64_t number = load_signed(data, bytes);
        if (number < 0)
            return false;
        *value = (uint64_t)number;
        return true;
    }
    default: return false;
    }
}

static bool decode_f64(double *value, spry_gguf_kind kind, const unsigned char *data)
{
    uint64_t natural;
    float single;
    switch (kind) {
    case SPRY_GGUF_F32:
        memcpy(&single, data, sizeof single);
        *value = single;
        return true;
    case SPRY_GGUF_F64: memcpy(value, data, sizeof *value); return true;
    case SPRY_GGUF_I8:
    case SPRY_GGUF_I16:
    case SPRY_GGUF_I32:
    case SPRY_GGUF_I64: *value = (double)load_signed(data, spry_gguf_kind_bytes(kind)); return true;
    default:
        if (!decode_u64(&natural, kind, data))
            return false;
        *value = (double)natural;
        return true;
    }
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

bool spry_gguf_entry_u64(const spry_gguf_entry *entry, uint64_t *value)
{
    return entry && decode_u64(value, entry->kind, entry->data);
}

bool spry_gguf_entry_f64(const spry_gguf_entry *entry, double *value)
{
    return entry && decode_f64(value, entry->kind, entry->data);
}

bool spry_gguf_entry_bool(const spry_gguf_entry *entry, bool *value)
{
    if (!entry || entry->kind != SPRY_GGUF_BOOL)
        return false;
    *value = entry->data[0] != 0;
    return true;
}

bool spry_gguf_entry_string(const spry_gguf_entry *entry, spry_view *value)
{
    if (!entry || entry->kind != SPRY_GGUF_STRING)
        return false;
    *value = (spry_view){(const char *)entry->data + STRING_HEAD_BYTES, entry->bytes - STRING_HEAD_BYTES};
    return true;
}

bool spry_gguf_entry_array(const spry_gguf_entry *entry, spry_gguf_array *value)
{
    if (!entry || entry->kind != SPRY_GGUF_ARRAY)
        return false;
    *value = (spry_gguf_array){
        .kind = (spry_gguf_kind)load_unsigned(entry->data, 4),
        .count = (size_t)load_unsigned(entry->data + 4, 8),
        .data = entry->data + ARRAY_HEAD_BYTES,
        .bytes = entry->bytes - ARRAY_HEAD_BYTES,
    };
    return true;
}

static const spry_gguf_entry *find(const spry_gguf *gguf, const char *key)
{
    return spry_gguf_find_entry(gguf, spry_view_of(key));
}

bool spry_gguf_get_u64(const spry_gguf *gguf, const char *key, uint64_t *value)
{
    return spry_gguf_entry_u64(find(gguf, key), value);
}

bool spry_gguf_get_f64(const spry_gguf *gguf, const char *key, double *value)
{
    return spry_gguf_entry_f64(find(gguf, key), value);
}

bool spry_gguf_get_bool(const spry_gguf *gguf, const char *key, bool *value)
{
    return spry_gguf_entry_bool(find(gguf, key), value);
}

bool spry_gguf_get_string(const spry_gguf *gguf, const char *key, spry_view *value)
{
    return spry_gguf_entry_string(find(gguf, key), value);
}

bool spry_gguf_get_array(const spry_gguf *gguf, const char *key, spry_gguf_array *value)
{
    return spry_gguf_entry_array(find(gguf, key), value);
}

/* ---- arrays ----------------------------------------------------------------------------------------------------- */

static const unsigned char *element(const spry_gguf_array *array, size_t index)
{
    size_t bytes = spry_gguf_kind_bytes(array->kind);
    return bytes && index < array->count ? array->data + index * bytes : NULL;
}

bool spry_gguf_array_f64(const spry_gguf_array *array, size_t index, double *value)
{
    const unsigned char *data = element(array, index);
    return data && decode_f64(value, array->kind, data);
}

bool spry_gguf_array_u64(const spry_gguf_array *array, size_t index, uint64_t *value)
{
    const unsigned char *data = element(array, index);
    return data && decode_u64(value, array->kind == SPRY_GGUF_BOOL ? SPRY_GGUF_U8 : array->kind, data);
}

bool spry_gguf_array_string(const spry_gguf_array *array, size_t *cursor, spry_view *value)
{
    if (array->kind != SPRY_GGUF_STRING || *cursor >= array->bytes)
        return false;
    const unsigned char *data = array->data + *cursor;
    *value = (spry_view){(const char *)data + STRING_HEAD_BYTES, (size_t)load_unsigned(data, STRING_HEAD_BYTES)};
    *cursor += STRING_HEAD_BYTES + value->size;
    return true;
}
