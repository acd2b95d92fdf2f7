/* What all kernels share: arguments (kernel_args.h, translated at build time), memory by address, sums over a
 * workgroup. The push constant is the address of the kernel's arguments.
 *
 * Bits: what is `precise` is never contracted, so that kernels which must agree round alike. Sums over a workgroup have
 * one order for a kernel and a device. */
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "kernel_args.glsl"

#define MEMORY(name, type, alignment)                                                                                  \
    layout(buffer_reference, scalar, buffer_reference_align = alignment) buffer name                                   \
    {                                                                                                                  \
        type v[];                                                                                                      \
    }
MEMORY(Floats, float, 4);
MEMORY(Ints, int32_t, 4);
MEMORY(Words, uint32_t, 4);
MEMORY(Pairs, uvec2, 8);
MEMORY(Quads, uvec4, 16);
MEMORY(FloatPairs, vec2, 8);
MEMORY(Halves, float16_t, 2);
MEMORY(Shorts, uint16_t, 2);
MEMORY(Bytes, uint8_t, 1);
MEMORY(SignedBytes, int8_t, 1);
MEMORY(Longs, uint64_t, 8);
MEMORY(Rows, spry_step_row, 4);
MEMORY(Entries, spry_step_entry, 4);

/* Bytes of spry_draw_result, whose doubles not every device knows. */
const uint RESULT_BYTES = 16 + 4 * SPRY_DRAW_TOP + 8 + 8 * SPRY_DRAW_TOP;

#define ARGUMENTS(type)                                                                                                \
    layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Arguments                             \
    {                                                                                                                  \
        type a;                                                                                                        \
    };                                                                                                                 \
    layout(push_constant) uniform Push                                                                                 \
    {                                                                                                                  \
        Arguments args;                                                                                                \
    }

const float INFINITY = 1.0 / 0.0;

/* Element i of floats at an address. */
float float_at(uint64_t address, uint i)
{
    return Floats(address).v[i];
}

/* The address of row i of rows of n floats. */
uint64_t row_at(uint64_t address, uint i, uint n)
{
    return address + uint64_t(i) * n * 4;
}

uint bf16_bits(float value)
{
    uint bits = floatBitsToUint(value);
    return isnan(value) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

float float_of_bf16(uint bits)
{
    return uintBitsToFloat(bits << 16);
}

float float_of_half(uint bits)
{
    return unpackHalf2x16(bits).x;
}

/* Rounds to nearest even, as IEEE does; packHalf2x16 may round otherwise. Too large values become infinite. */
uint half_bits(float value)
{
    uint bits = floatBitsToUint(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size >= 0x7f800000)
        return sign | (size > 0x7f800000 ? 0x7e00 : 0x7c00);
    if (size >= 0x38800000) { /* normal */
        uint rounded = size + 0xfff + (size >> 13 & 1);
        return sign | min((rounded - 0x38000000) >> 13, 0x7c00u);
    }
    precise float shifted = uintBitsToFloat(size) + 0.5; /* the unit in the last place of a subnormal half */
    return sign | (floatBitsToUint(shifted) - 0x3f000000);
}
