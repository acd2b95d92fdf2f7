/* Products of quantised weights with one row. */
#include "device/cuda/kernels/products_one.cuh"

PRODUCTS_ONE(q4_0)
PRODUCTS_ONE(q4_1)
PRODUCTS_ONE(q5_0)
PRODUCTS_ONE(q5_1)
PRODUCTS_ONE(q8_0)
PRODUCTS_ONE(q4_k)
PRODUCTS_ONE(q5_k)
PRODUCTS_ONE(q6_k)
PRODUCTS_ONE(mxfp4)
