/* Products of weights in floats of 16 and 32 bits; rows are sums of bf16. */
#include "device/cuda/kernels/products.cuh"

PRODUCTS_FEW(f16)
PRODUCTS_FEW(bf16)
PRODUCT_FEW_SMALL(f16)
PRODUCT_FEW_SMALL(bf16)
/* F32 is rare: no faster way for many rows. */
PRODUCTS_FEW(f32)
PRODUCTS_MANY(f32)
