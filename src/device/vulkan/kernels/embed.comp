/* One row of a table for each row of the step. Grid: rows. */
#version 450
#include "common.glsl"
#include "weights.glsl"
layout(local_size_x = 256) in;
ARGUMENTS(spry_embed_args);

void main()
{
    spry_embed_args a = args.a;
    uint64_t x = row_at(a.x, gl_WorkGroupID.x, a.n);
    spry_step_row row = Rows(a.rows).v[gl_WorkGroupID.x];
    uint number = a.by == SPRY_EMBED_TOKEN ? uint(row.token) : a.by == SPRY_EMBED_POSITION ? row.position : row.type;
    number += a.offset;
    number = number < a.weight.n_out ? number : 0;
    for (uint i = gl_LocalInvocationID.x; i < a.n; i += gl_WorkGroupSize.x) {
        precise float value = weight_at(a.weight, number, i) * a.scale;
        Floats(x).v[i] = a.add != 0 ? float_at(x, i) + value : value;
    }
}
