/* Reads Hugging Face weights: one model.safetensors, or the shards named by model.safetensors.index.json. Files are
 * mapped and untrusted: header length, JSON, dtypes, shapes, offsets, overlaps and total size are checked before
 * use. */
#ifndef SPRY_FORMATS_SAFETENSORS_H
#define SPRY_FORMATS_SAFETENSORS_H

#include "base/error.h"
#include "formats/tensor.h"

typedef struct spry_safetensors spry_safetensors;

/* `path`: a .safetensors file, or a folder with model.safetensors, the index, or exactly one *.safetensors. F32, F16
 * and BF16 tensors are listed; 8-bit floats, bytes and 32-bit integers, which are parts of weights, too; other integer
 * and bool tensors are checked but not listed; other types are refused. */
spry_status spry_safetensors_open(spry_safetensors **out, const char *path, spry_error *error);

/* Opens one file in memory that outlives the result; `name` replaces the path in messages. */
spry_status spry_safetensors_open_memory(spry_safetensors **out, const void *data, size_t size, const char *name,
                                         spry_error *error);
void spry_safetensors_close(spry_safetensors *files);

size_t spry_safetensors_count(const spry_safetensors *files);
size_t spry_safetensors_files(const spry_safetensors *files);                            /* number of files */
const spry_tensor *spry_safetensors_tensor(const spry_safetensors *files, size_t index); /* NULL: past the end */
const spry_tensor *spry_safetensors_find(const spry_safetensors *files, spry_view name); /* NULL: none */

#endif
