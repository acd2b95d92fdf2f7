/* The types of keys and values in pages, X(name, TYPE), for C and CUDA. The flag --kv-type, the engine's check, the
 * GPU's kernels and the tests of attention follow from these lists. GPUs have no kernels for the types of the second
 * one. */
#ifndef SPRY_BASE_KV_TYPES_H
#define SPRY_BASE_KV_TYPES_H

#define SPRY_KV_TYPES(X) X(f16, F16) X(q8_0, Q8_0) X(f32, F32)

#define SPRY_KV_TYPES_CPU(X) X(q4_0, Q4_0)
#define SPRY_KV_TYPES_ALL(X) SPRY_KV_TYPES(X) SPRY_KV_TYPES_CPU(X)

#endif
