/* Products of quantised weights with rows that are normalised on the way. */
#include "device/cuda/kernels/products_rows.cuh"

PRODUCTS_ROWS(q4_0)
PRODUCTS_ROWS(q4_1)
PRODUCTS_ROWS(q5_0)
PRODUCTS_ROWS(q5_1)
PRODUCTS_ROWS(q8_0)
PRODUCTS_ROWS(q4_k)
PRODUCTS_ROWS(q5_k)
PRODUCTS_ROWS(q6_k)
PRODUCTS_ROWS(mxfp4)
