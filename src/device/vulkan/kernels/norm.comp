/* Normalises groups of a row in place. Grid: (rows, groups). */
#version 450
layout(local_size_x = 128) in;
#include "common.glsl"
#include "reduce.glsl"
ARGUMENTS(spry_norm_args);

void main()
{
    spry_norm_args a = args.a;
    uint64_t x = row_at(a.x, gl_WorkGroupID.x * a.n_groups + gl_WorkGroupID.y, a.n);
    uint64_t weight = a.weight != 0 ? a.weight + uint64_t(gl_WorkGroupID.y) * a.step * 4 : 0;
    vec2 norm = norm_of(x, a.n, a.eps, a.centre != 0);
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < a.n; i += gl_WorkGroupSize.x)
        Floats(x).v[i] = normalised(float_at(x, i), norm, weight, a.bias, i);
}
