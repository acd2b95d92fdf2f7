/* y[row] = sum of weight * out[slot], experts ascending, plus the shared expert, times `scale`. Grid: (rows,
 * n / 256). */
#version 450
#include "common.glsl"
layout(local_size_x = 256) in;
ARGUMENTS(spry_moe_combine_args);

void main()
{
    spry_moe_combine_args a = args.a;
    uint row = gl_WorkGroupID.x;
    Words slot = Words(row_at(a.slot, row, a.n_used));
    Floats weight = Floats(row_at(a.weight, row, a.n_used));
    uint i = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= a.n)
        return;
    precise float sum = 0;
    for (uint e = 0; e < a.n_used; e++)
        sum += (a.weight != 0 ? weight.v[e] : 1) * float_at(row_at(a.out_, slot.v[e], a.n), i);
    if (a.shared_ != 0)
        sum += (a.shared_gate != 0 ? 1 / (1 + exp(-float_at(a.shared_gate, row))) : 1) *
               float_at(row_at(a.shared_, row, a.n), i);
    Floats y = Floats(row_at(a.y, row, a.n));
    y.v[i] = (a.add != 0 ? y.v[i] : 0) + sum * a.scale;
}
