/* Copies drawn tokens into the rows of the next step. A thread per row. */
#version 450
#include "common.glsl"
#extension GL_EXT_shader_explicit_arithmetic_types_float64 : enable
layout(local_size_x = 128) in;
ARGUMENTS(spry_feed_args);

void main()
{
    spry_feed_args a = args.a;
    uint row = gl_GlobalInvocationID.x;
    if (row >= a.n_rows)
        return;
    Ints result = Ints(a.results + uint64_t(Words(a.drawn).v[row]) * RESULT_BYTES);
    int token = result.v[0];
    bool good = result.v[1] == SPRY_DRAW_OK && uint(token) < a.n_vocab;
    Rows(a.rows).v[row].token = good ? token : 0;
}
