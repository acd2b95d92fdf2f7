/* Products of weights in floats of 16 bits with one row. */
#include "device/cuda/kernels/products_one.cuh"

PRODUCTS_ONE(f16)
PRODUCTS_ONE(bf16)
