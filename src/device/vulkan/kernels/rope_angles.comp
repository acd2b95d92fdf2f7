/* cos and sin of RoPE. Grid: rows, then rotations of pages; rotation 0 is none. An angle is reduced by whole turns in
 * two steps before the functions of the driver see it, which are inexact for large arguments. */
#version 450
#include "common.glsl"
layout(local_size_x = 128) in;
ARGUMENTS(spry_rope_angles_args);

float reduce_angle(float angle)
{
    const float turn = 6.28125, rest = 1.9353071795864769e-3; /* 2 pi; products with the first are exact */
    precise float turns = roundEven(angle * 0.15915494309189535);
    precise float left = angle - turns * turn;
    left = left - turns * rest;
    return left;
}

void main()
{
    spry_rope_angles_args a = args.a;
    bool is_row = gl_WorkGroupID.x < a.n_rows;
    uint rotation = is_row ? 0 : gl_WorkGroupID.x - a.n_rows + 1, own = is_row ? gl_WorkGroupID.x : rotation;
    int delta = is_row ? 0 : Ints(a.deltas).v[rotation];
    uint distance = is_row ? Rows(a.rows).v[gl_WorkGroupID.x].position : uint(abs(delta));
    uint64_t cosine = row_at(is_row ? a.cosine : a.rotation_cosine, own, a.n_pairs),
             sine = row_at(is_row ? a.sine : a.rotation_sine, own, a.n_pairs);
    float magnitude = is_row ? a.magnitude : 1;
    for (uint i = gl_LocalInvocationID.x; i < a.n_pairs; i += gl_WorkGroupSize.x) {
        precise float angle = float(distance) * float_at(a.frequencies, i);
        angle = reduce_angle(angle);
        Floats(cosine).v[i] = cos(angle) * magnitude;
        Floats(sine).v[i] = sin(angle) * (delta > 0 ? -magnitude : magnitude);
    }
}
