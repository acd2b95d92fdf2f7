/* Assigns (row, expert) pairs to slots, grouped by expert in multiples of `align`, in order of rows; a thread counts
 * and fills the slots of an expert. The first workgroup does this for all experts. */
#version 450
#include "common.glsl"
layout(local_size_x = 256) in;
ARGUMENTS(spry_moe_group_args);

const uint EXPERTS_MAX = 1024;
shared uint begin[EXPERTS_MAX + 1];

void main()
{
    spry_moe_group_args a = args.a;
    if (gl_WorkGroupID.x > 0)
        return;
    uint n_pairs = a.n_rows * a.n_used, thread = gl_LocalInvocationID.x, threads = gl_WorkGroupSize.x;
    for (uint i = thread; i < a.n_slots; i += threads)
        Ints(a.source).v[i] = -1;
    for (uint i = thread; i < a.n_slots / a.align; i += threads)
        Ints(a.experts).v[i] = -1;
    for (uint e = thread; e < a.n_experts; e += threads) {
        uint count = 0;
        for (uint i = 0; i < n_pairs; i++)
            count += Words(a.chosen).v[i] == e ? 1 : 0;
        begin[e + 1] = (count + a.align - 1) / a.align * a.align;
    }
    barrier();
    if (thread == 0) {
        begin[0] = 0;
        for (uint e = 0; e < a.n_experts; e++)
            begin[e + 1] += begin[e];
    }
    memoryBarrierBuffer();
    barrier();
    for (uint e = thread; e < a.n_experts; e += threads) {
        uint slot = begin[e];
        for (uint i = 0; i < n_pairs; i++)
            if (Words(a.chosen).v[i] == e) {
                Ints(a.source).v[slot] = int(i / a.n_used);
                Words(a.slot).v[i] = slot++;
            }
        for (uint i = begin[e] / a.align; i < begin[e + 1] / a.align; i++)
            Ints(a.experts).v[i] = int(e);
    }
}
