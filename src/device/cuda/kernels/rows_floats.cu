/* Products of weights in floats of 16 bits with rows that are normalised on the way. */
#include "device/cuda/kernels/products_rows.cuh"

PRODUCTS_ROWS(f16)
PRODUCTS_ROWS(bf16)
