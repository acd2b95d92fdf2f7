/* Writing GGUF v3. First the metadata and the list of tensors, then each tensor's bytes in the listed order; the file
 * appears under its name only when it is whole. */
#ifndef SPRY_FORMATS_GGUF_WRITER_H
#define SPRY_FORMATS_GGUF_WRITER_H

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/tensor.h"

typedef struct spry_gguf_writer spry_gguf_writer;

spry_status spry_gguf_writer_create(spry_gguf_writer **out, spry_error *error);
void spry_gguf_writer_destroy(spry_gguf_writer *writer); /* removes an unfinished file */

/* Metadata. Failures (memory, a size out of bounds, a key given twice) are kept and reported by _begin. */
void spry_gguf_writer_u32(spry_gguf_writer *writer, const char *key, uint32_t value);
void spry_gguf_writer_f32(spry_gguf_writer *writer, const char *key, float value);
void spry_gguf_writer_bool(spry_gguf_writer *writer, const char *key, bool value);
void spry_gguf_writer_string(spry_gguf_writer *writer, const char *key, spry_view value);
void spry_gguf_writer_strings(spry_gguf_writer *writer, const char *key, const spry_view *values, size_t count);
void spry_gguf_writer_f32s(spry_gguf_writer *writer, const char *key, const float *values, size_t count);
void spry_gguf_writer_i32s(spry_gguf_writer *writer, const char *key, const int32_t *values, size_t count);
/* Copies an entry of another file as it is; passes over general.alignment, which here is always the default of 32. */
void spry_gguf_writer_entry(spry_gguf_writer *writer, const spry_gguf_entry *entry);

/* Lists a tensor (name, type, dims; its data and bytes are not looked at). Failures are kept as above. */
void spry_gguf_writer_tensor(spry_gguf_writer *writer, const spry_tensor *tensor);

/* Writes the head of the file; afterwards exactly the listed tensors follow, each in one or more _data calls. A call
 * holds bytes of one tensor; padding is added here. When any of the three fails, the unfinished file is removed. */
spry_status spry_gguf_writer_begin(spry_gguf_writer *writer, const char *path, spry_error *error);
spry_status spry_gguf_writer_data(spry_gguf_writer *writer, const void *data, size_t size, spry_error *error);
/* Checks that every listed byte was written, then renames the file into place. */
spry_status spry_gguf_writer_finish(spry_gguf_writer *writer, spry_error *error);

#endif
