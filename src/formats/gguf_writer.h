/* Writes GGUF v3: first the metadata and the list of tensors, then the bytes of each tensor in the listed order. The
 * file appears under its name only when it is complete. */
#ifndef SPRY_FORMATS_GGUF_WRITER_H
#define SPRY_FORMATS_GGUF_WRITER_H

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/tensor.h"

typedef struct spry_gguf_writer spry_gguf_writer;

spry_status spry_gguf_writer_create(spry_gguf_writer **out, spry_error *error);
void spry_gguf_writer_destroy(spry_gguf_writer *writer); /* removes an unfinished file */

/* Metadata. Failures (memory, a size out of bounds, a duplicate key) are recorded and reported by _begin. */
void spry_gguf_writer_u32(spry_gguf_writer *writer, const char *key, uint32_t value);
void spry_gguf_writer_f32(spry_gguf_writer *writer, const char *key, float value);
void spry_gguf_writer_bool(spry_gguf_writer *writer, const char *key, bool value);
void spry_gguf_writer_string(spry_gguf_writer *writer, const char *key, spry_view value);
void spry_gguf_writer_strings(spry_gguf_writer *writer, const char *key, const spry_view *values, size_t count);
void spry_gguf_writer_f32s(spry_gguf_writer *writer, const char *key, const float *values, size_t count);
void spry_gguf_writer_u8s(spry_gguf_writer *writer, const char *key, const unsigned char *values, size_t count);
void spry_gguf_writer_i32s(spry_gguf_writer *writer, const char *key, const int32_t *values, size_t count);
/* Copies an entry of another file unchanged; skips general.alignment, which is always the default of 32 here. */
void spry_gguf_writer_entry(spry_gguf_writer *writer, const spry_gguf_entry *entry);

/* Lists a tensor (name, type, dims; data and bytes are ignored). Failures are recorded as above. */
void spry_gguf_writer_tensor(spry_gguf_writer *writer, const spry_tensor *tensor);

/* Writes the head of the file; then exactly the listed tensors follow, each in one or more _data calls. A call contains
 * bytes of one tensor; the writer adds padding. When any of the three functions fails, the unfinished file is
 * removed. */
spry_status spry_gguf_writer_begin(spry_gguf_writer *writer, const char *path, spry_error *error);
spry_status spry_gguf_writer_data(spry_gguf_writer *writer, const void *data, size_t size, spry_error *error);
/* Checks that every listed byte was written, then renames the file into place. */
spry_status spry_gguf_writer_finish(spry_gguf_writer *writer, spry_error *error);

#endif
