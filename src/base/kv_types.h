/* The types of keys and values in pages, X(name, TYPE), for C and CUDA. The flag --kv-type, the engine's check, the
 * GPU's kernels and the tests of attention follow from this list. */
#ifndef SPRY_BASE_KV_TYPES_H
#define SPRY_BASE_KV_TYPES_H

#define SPRY_KV_TYPES(X) X(f16, F16) X(q8_0, Q8_0) X(f32, F32)

#endif
