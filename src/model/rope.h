/* From a rope description to angles. */
#ifndef SPRY_MODEL_ROPE_H
#define SPRY_MODEL_ROPE_H

#include "model/config.h"

/* Radians a position turns each pair by, [rope_dim / 2], in sessions of up to `session` tokens; returns what cos and
 * sin are multiplied by. */
float spry_rope_frequencies(float *frequencies, const spry_rope *rope, size_t rope_dim, uint32_t session);

/* cos and sin of one position, [n_pairs] each. */
void spry_rope_angles(float *cosine, float *sine, const float *frequencies, float magnitude, size_t n_pairs,
                      uint32_t position);

#endif
