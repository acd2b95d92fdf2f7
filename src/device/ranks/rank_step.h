/* A step as bytes: what ranks other than 0 need of it. */
#ifndef SPRY_DEVICE_RANKS_RANK_STEP_H
#define SPRY_DEVICE_RANKS_RANK_STEP_H

#include "base/buffer.h"
#include "device/device.h"

/* Appends segments, tables, tokens and turns; a failure shows in the buffer. */
void spry_rank_step_write(spry_buffer *out, const spry_segment *segments, size_t n_segments,
                          const spry_kv_turns *turns);

/* Segments that point into the message, and room for them. */
typedef struct spry_rank_step {
    spry_segment *segments;
    spry_kv_table *tables;
    size_t n_segments, capacity;
} spry_rank_step;

/* Sets the turns, too. False: memory is short. */
bool spry_rank_step_read(spry_rank_step *step, spry_kv_turns *turns, const spry_buffer *message);
void spry_rank_step_deinit(spry_rank_step *step);

#endif
