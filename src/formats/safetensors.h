/* Reading Hugging Face weights: one model.safetensors, or the shards that model.safetensors.index.json names. Mapped
 * and hostile: header length, JSON, dtypes, shapes, offsets, overlaps and total size are checked before use. */
#ifndef SPRY_FORMATS_SAFETENSORS_H
#define SPRY_FORMATS_SAFETENSORS_H

#include "base/error.h"
#include "formats/tensor.h"

typedef struct spry_safetensors spry_safetensors;

/* `path`: a .safetensors file, or a folder holding one or an index. */
spry_status spry_safetensors_open(spry_safetensors **out, const char *path, spry_error *error);
void spry_safetensors_close(spry_safetensors *files);

size_t spry_safetensors_count(const spry_safetensors *files);
const spry_tensor *spry_safetensors_tensor(const spry_safetensors *files, size_t index);
const spry_tensor *spry_safetensors_find(const spry_safetensors *files, spry_view name); /* NULL: none */

#endif
