/* A tensor inside a mapped file: where its bytes are and what shape they have. Borrowed from the file's directory. */
#ifndef SPRY_FORMATS_TENSOR_H
#define SPRY_FORMATS_TENSOR_H

#include "base/dtype.h"
#include "base/view.h"

enum { SPRY_TENSOR_DIMS = 4 };

typedef struct spry_tensor {
    spry_view name;
    spry_dtype type;
    uint32_t n_dims;
    size_t dims[SPRY_TENSOR_DIMS]; /* slowest first, as Python writes shapes: [n_out, n_in]; unused ones are 1 */
    const unsigned char *data;     /* may be unaligned in safetensors files */
    size_t offset;                 /* of the data, from the beginning of its file */
    size_t bytes;
} spry_tensor;

#endif
