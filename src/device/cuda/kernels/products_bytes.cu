/* Products of quantised weights; rows are bytes. */
#include "device/cuda/kernels/products.cuh"

PRODUCTS(q4_0)
PRODUCTS(q4_1)
PRODUCTS(q5_0)
PRODUCTS(q5_1)
PRODUCTS(q8_0)
PRODUCTS(q4_k)
PRODUCTS(q5_k)
PRODUCTS(q6_k)
PRODUCTS(mxfp4)
