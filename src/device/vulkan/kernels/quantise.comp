/* Rows as the inputs of products (products.glsl): normalised, gated or as they are. With an RMS norm without a bias rows
 * are multiplied by its weights, and 1 / rms is stored for the sums of the product. Grid: rows. */
#version 450
layout(local_size_x = 256) in;
#include "common.glsl"
#include "reduce.glsl"
#include "gates.glsl"
ARGUMENTS(spry_quantise_args);

float value_at(uint64_t in_row, uint64_t up_row, uint i, vec2 norm, bool first)
{
    float value = float_at(in_row, i);
    if (args.a.up != 0 || args.a.ungated != 0)
        return gated(value, args.a.up != 0 ? float_at(up_row, i) : 1, args.a.gate);
    if (first)
        return normalised(value, norm, args.a.weight, args.a.bias, i);
    precise float scaled = args.a.weight != 0 ? value * float_at(args.a.weight, i) : value;
    return scaled;
}

void store_floats(uint format, uint row, uint i, const float v[4])
{
    spry_activations to = args.a.to[format];
    uint64_t at = uint64_t(row) * to.n_units * 64 + i;
    [[unroll]] for (uint k = 0; k < 4; k++)
        if (format == SPRY_ACT_BF16)
            Shorts(to.values + (at + k) * 2).v[0] = uint16_t(bf16_bits(v[k]));
        else
            Floats(to.values + (at + k) * 4).v[0] = v[k];
}

void main()
{
    uint row = gl_WorkGroupID.x, n = args.a.n;
    int from = args.a.source != 0 ? Ints(args.a.source).v[row] : int(row);
    if (from < 0)
        return;
    uint64_t in_row = row_at(args.a.in_, from, args.a.in_stride), up_row = row_at(args.a.up, from, args.a.in_stride);
    bool first = args.a.weight == 0 || args.a.centre != 0 || args.a.bias != 0;
    vec2 norm = vec2(0, 1);
    if (args.a.weight != 0)
        norm = norm_of(in_row, n, args.a.eps, args.a.centre != 0);
    for (uint format = 0; format < SPRY_ACT_FORMATS; format++)
        if (gl_LocalInvocationID.x == 0 && args.a.to[format].norms != 0)
            Floats(args.a.to[format].norms).v[row] = norm.y;
    uint padded = (n + 63) / 64 * 64;
    for (uint begin = 0; begin < padded; begin += 4 * gl_WorkGroupSize.x) {
        uint i = begin + 4 * gl_LocalInvocationID.x;
        float v[4];
        [[unroll]] for (uint k = 0; k < 4; k++)
            v[k] = i + k < n ? value_at(in_row, up_row, i + k, norm, first) : 0;
        if (i >= padded)
            continue;
        for (uint format = 0; format < SPRY_ACT_FORMATS; format++)
            if (args.a.to[format].values != 0)
                store_floats(format, row, i, v);
        [[unroll]] for (uint k = 0; k < 4; k++)
            if (args.a.plain != 0 && i + k < n)
                Floats(args.a.plain + uint64_t(row) * n * 4).v[i + k] = first ? v[k] : v[k] * norm.y;
    }
}
