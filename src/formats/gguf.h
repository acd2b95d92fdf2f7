/* Reads GGUF v2 and v3 (little-endian). The file is mapped and untrusted: every count, length, offset, type and
 * dimension is checked before use; tensors must be inside the file and not overlap. Views and tensors point into the
 * mapping. */
#ifndef SPRY_FORMATS_GGUF_H
#define SPRY_FORMATS_GGUF_H

#include <stdbool.h>

#include "base/error.h"
#include "formats/tensor.h"

typedef struct spry_gguf spry_gguf;

typedef enum spry_gguf_kind {
    SPRY_GGUF_U8 = 0,
    SPRY_GGUF_I8,
    SPRY_GGUF_U16,
    SPRY_GGUF_I16,
    SPRY_GGUF_U32,
    SPRY_GGUF_I32,
    SPRY_GGUF_F32,
    SPRY_GGUF_BOOL,
    SPRY_GGUF_STRING,
    SPRY_GGUF_ARRAY,
    SPRY_GGUF_U64,
    SPRY_GGUF_I64,
    SPRY_GGUF_F64,
} spry_gguf_kind;

/* The elements are contiguous from `data`; a string is a length (u64) and its bytes. */
typedef struct spry_gguf_array {
    spry_gguf_kind kind;
    size_t count;
    const unsigned char *data;
    size_t bytes; /* bytes of all elements */
} spry_gguf_array;

typedef struct spry_gguf_entry {
    spry_view key;
    spry_gguf_kind kind;
    const unsigned char *data; /* the value's bytes, unaligned */
    size_t bytes;
} spry_gguf_entry;

const char *spry_gguf_kind_name(spry_gguf_kind kind); /* "u32" */
size_t spry_gguf_kind_bytes(spry_gguf_kind kind);     /* bytes of one value; 0 for strings, arrays and unknown kinds */

/* Opens a file and keeps it mapped until close. Messages contain the path. The first part of a split file
 * (NAME-00001-of-0000N.gguf) opens all of them: metadata of the first, tensors of all. */
spry_status spry_gguf_open(spry_gguf **out, const char *path, spry_error *error);

/* Opens GGUF data in memory that outlives the result; `name` replaces the path in messages. */
spry_status spry_gguf_open_memory(spry_gguf **out, const void *data, size_t size, const char *name, spry_error *error);
void spry_gguf_close(spry_gguf *gguf);

const char *spry_gguf_name(const spry_gguf *gguf);
uint32_t spry_gguf_version(const spry_gguf *gguf);
size_t spry_gguf_size(const spry_gguf *gguf);   /* bytes of the file, or of all parts */
bool spry_gguf_is_split(const spry_gguf *gguf); /* several files */

/* By index, in file order: NULL past the end. */
size_t spry_gguf_tensor_count(const spry_gguf *gguf);
const spry_tensor *spry_gguf_tensor(const spry_gguf *gguf, size_t index);
const spry_tensor *spry_gguf_find_tensor(const spry_gguf *gguf, spry_view name); /* NULL: none */

size_t spry_gguf_entry_count(const spry_gguf *gguf);
const spry_gguf_entry *spry_gguf_entry_at(const spry_gguf *gguf, size_t index);
const spry_gguf_entry *spry_gguf_find_entry(const spry_gguf *gguf, spry_view key); /* NULL: none */

/* The value of an entry, which may be NULL. False when it is missing, of another kind or out of range. u64 accepts any
 * integer kind, f64 any number kind. */
bool spry_gguf_entry_u64(const spry_gguf_entry *entry, uint64_t *value);
bool spry_gguf_entry_f64(const spry_gguf_entry *entry, double *value);
bool spry_gguf_entry_bool(const spry_gguf_entry *entry, bool *value);
bool spry_gguf_entry_string(const spry_gguf_entry *entry, spry_view *value);
bool spry_gguf_entry_array(const spry_gguf_entry *entry, spry_gguf_array *value);

/* Like spry_gguf_entry_*, by zero-terminated key. */
bool spry_gguf_get_u64(const spry_gguf *gguf, const char *key, uint64_t *value);
bool spry_gguf_get_f64(const spry_gguf *gguf, const char *key, double *value);
bool spry_gguf_get_bool(const spry_gguf *gguf, const char *key, bool *value);
bool spry_gguf_get_string(const spry_gguf *gguf, const char *key, spry_view *value);
bool spry_gguf_get_array(const spry_gguf *gguf, const char *key, spry_gguf_array *value);

/* Elements of an array; false past the end and for other kinds. Numbers are read by index, strings with a cursor that
 * starts at 0. */
bool spry_gguf_array_f64(const spry_gguf_array *array, size_t index, double *value);
bool spry_gguf_array_u64(const spry_gguf_array *array, size_t index, uint64_t *value); /* integer or bool elements */
bool spry_gguf_array_string(const spry_gguf_array *array, size_t *cursor, spry_view *value);

#endif
