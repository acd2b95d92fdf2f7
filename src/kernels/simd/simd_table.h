/* Initialisers for the entries of simd_vector.h, simd_floats.h, simd_f8.h, simd_integers.h and simd_attend.h. Include
 * it directly before the table: from here on the compiler does not warn when an entry is initialised twice, first with
 * the plain kernel. */
#define SIMD_INTEGER(NAME, ...) .matmul[SPRY_##NAME] = {.integer = true, .group = GROUP, .run = OP(matmul_##NAME)},
#define SIMD_FLOAT(NAME, ...)   .matmul[SPRY_##NAME] = {.group = FLOAT_GROUP, .run = OP(matmul_##NAME)},
#define SIMD_OPS(isa)                                                                                                  \
    .rms_norm = isa##_rms_norm, .layer_norm = isa##_layer_norm, .attend = isa##_attend,                                \
    .attend_join = isa##_attend_join, .add = isa##_add, .add_scaled = isa##_add_scaled, .scale = isa##_scale,          \
    .weigh = isa##_weigh, .softcap = isa##_softcap, .recur = isa##_recur, .gate[SPRY_GATE_SILU] = isa##_gate_silu,     \
    .gate[SPRY_GATE_GELU_TANH] = isa##_gate_gelu_tanh, .gate[SPRY_GATE_GELU] = isa##_gate_gelu,                        \
    .gate[SPRY_GATE_CLAMPED] = isa##_gate_clamped, .gate[SPRY_GATE_RELU_SQUARED] = isa##_gate_relu_squared,            \
    SPRY_DTYPES_FLOAT(SIMD_FLOAT) SPRY_DTYPES_BLOCK(SIMD_INTEGER).matmul[SPRY_F8] = {.run = isa##_matmul_F8},          \
    .encode_act = isa##_encode_act, .encode[SPRY_F16] = isa##_encode_f16

#if defined(__clang__)
#pragma clang diagnostic ignored "-Winitializer-overrides"
#elif defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
