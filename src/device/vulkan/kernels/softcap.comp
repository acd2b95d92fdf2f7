/* x = cap * tanh(x * scale / cap); cap 0: x * scale. Any grid. */
#version 450
#include "common.glsl"
layout(local_size_x = 256) in;
ARGUMENTS(spry_softcap_args);

void main()
{
    spry_softcap_args a = args.a;
    uint threads = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint64_t i = gl_GlobalInvocationID.x; i < a.n; i += threads) {
        float x = Floats(a.x + i * 4).v[0] * a.scale;
        Floats(a.x + i * 4).v[0] = a.cap != 0 ? a.cap * tanh(clamp(x / a.cap, -15.0, 15.0)) : x;
    }
}
