/* Adds the pages of a decode row in order. Grid: (decode rows, heads). */
#version 450
#include "common.glsl"
#include "softmax.glsl"
layout(local_size_x = 128) in;
ARGUMENTS(spry_attend_args);

void main()
{
    uint n = args.a.kv.head_dim, row = Words(args.a.decode_rows).v[gl_WorkGroupID.x], head = gl_WorkGroupID.y;
    uint n_parts = Rows(args.a.rows).v[row].n_entries;
    uint64_t from = args.a.partial + (uint64_t(gl_WorkGroupID.x) * args.a.n_heads + head) * args.a.n_chunks *
                                         (n + SPRY_PARTIAL_HEADER) * 4;
    for (uint d = gl_LocalInvocationID.x; d < n; d += gl_WorkGroupSize.x) {
        running state = running(-INFINITY, 0);
        float sum = 0;
        for (uint p = 0; p < n_parts; p++) {
            uint64_t part = from + uint64_t(p) * (n + SPRY_PARTIAL_HEADER) * 4;
            vec2 factors = add_part(state, Floats(part).v[0], Floats(part).v[1]);
            sum = Floats(part).v[0] == -INFINITY ? sum : add_value(sum, Floats(part).v[SPRY_PARTIAL_HEADER + d], factors);
        }
        Floats(row_at(args.a.out_, row * args.a.n_heads + head, n)).v[d] =
            sum * final_scale(args.a.sinks, head, state);
    }
}
