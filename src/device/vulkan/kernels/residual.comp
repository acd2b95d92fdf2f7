/* x += y * scale; y is normalised first, or the sum afterwards; then x *= sum_scale. Grid: rows. */
#version 450
layout(local_size_x = 256) in;
#include "common.glsl"
#include "reduce.glsl"
ARGUMENTS(spry_residual_args);

void main()
{
    spry_residual_args a = args.a;
    uint64_t x = row_at(a.x, gl_WorkGroupID.x, a.n), y = row_at(a.y, gl_WorkGroupID.x, a.n);
    bool first = a.weight != 0 && a.of_sum == 0, last = a.weight != 0 && a.of_sum != 0;
    vec2 norm = vec2(0, 1);
    if (first)
        norm = norm_of(y, a.n, a.eps, a.centre != 0);
    for (uint i = gl_LocalInvocationID.x; i < a.n; i += gl_WorkGroupSize.x) {
        float value = first ? normalised(float_at(y, i), norm, a.weight, a.bias, i) : float_at(y, i);
        precise float sum = float_at(x, i) + (a.scale == 1 ? value : value * a.scale);
        Floats(x).v[i] = sum;
    }
    if (last)
        norm = norm_of(x, a.n, a.eps, a.centre != 0); /* a thread reads only what it has written itself */
    for (uint i = gl_LocalInvocationID.x; last && i < a.n; i += gl_WorkGroupSize.x)
        Floats(x).v[i] = normalised(float_at(x, i), norm, a.weight, a.bias, i);
    for (uint i = gl_LocalInvocationID.x; a.sum_scale != 0 && i < a.n; i += gl_WorkGroupSize.x)
        Floats(x).v[i] *= a.sum_scale;
}
