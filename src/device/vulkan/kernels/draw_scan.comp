/* The best raw logit of each slice of a row. Grid: (slices, draws). */
#version 450
#include "common.glsl"
layout(local_size_x = 128) in;
ARGUMENTS(spry_draw_args);
#include "ranks.glsl"
#include "orders.glsl"

void main()
{
    uint n = args.a.n_vocab;
    uint64_t logits = row_at(args.a.logits, order_row(gl_WorkGroupID.y), n);
    uint each = (n + SPRY_DRAW_SLICES - 1) / SPRY_DRAW_SLICES, begin = gl_WorkGroupID.x * each, end = min(begin + each, n);
    uint64_t best = 0;
    for (uint i = begin + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
        float logit = float_at(logits, i);
        best = max(best, is_nan(logit) ? RANK_NAN : ranked(logit, i));
    }
    best = block_largest(best);
    if (gl_LocalInvocationID.x == 0)
        Longs(args.a.best).v[gl_WorkGroupID.y * SPRY_DRAW_SLICES + gl_WorkGroupID.x] = best;
}
