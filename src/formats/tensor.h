/* A tensor inside a mapped file: its bytes and shape. Borrowed from the file's directory. */
#ifndef SPRY_FORMATS_TENSOR_H
#define SPRY_FORMATS_TENSOR_H

#include "base/dtype.h"
#include "base/view.h"

enum { SPRY_TENSOR_DIMS = 4 };

typedef struct spry_tensor {
    spry_view name;
    spry_dtype type;
    uint32_t n_dims;
    size_t dims[SPRY_TENSOR_DIMS]; /* slowest first, as in Python shapes: [n_out, n_in]; unused dimensions are 1 */
    const unsigned char *data;     /* may be unaligned in safetensors files */
    size_t offset;                 /* where the data begins, from the start of the file */
    size_t bytes;
} spry_tensor;

#endif
