/* One rank's part of a model: its share of the matrices as views of the whole ones, its heads, pages for the keys and
 * values of these heads, and the CPU device that computes with them. */
#ifndef SPRY_DEVICE_RANKS_RANK_PART_H
#define SPRY_DEVICE_RANKS_RANK_PART_H

#include "device/cpu/cpu_device.h"
#include "model/model.h"

typedef struct spry_rank_part {
    spry_team team;
    spry_config config; /* the model's config with this rank's heads */
    spry_weights weights;
    spry_kv_pool pool; /* layout of its share of a page, and turns (page rotations) */
    spry_arena arena;
    const spry_kv_pool *outside; /* layout of complete pages */
    spry_cpu_device cpu;
} spry_rank_part;

/* `setup` describes the whole model and is borrowed while the part is open. The part must not move. */
spry_status spry_rank_part_open(spry_rank_part *part, const spry_device_setup *setup, spry_error *error);
void spry_rank_part_close(spry_rank_part *part);

/* Bytes of each rank's share of a page; returns their sum. */
size_t spry_rank_page_bytes(size_t *bytes, const spry_rank_part *part);

/* Copies a rank's keys and values from a complete page; the next function copies them into one. */
void spry_rank_page_take(void *own, const spry_rank_part *part, const void *whole);
void spry_rank_page_put(void *whole, const spry_rank_part *part, size_t rank, const void *own);

/* What ranks need to open their parts of a model: where the model is, and the settings that must be equal. */

/* For rank 0: tells the other ranks to open their parts. Call it between lock and unlock; spry_ranks_agree follows. */
spry_status spry_rank_send_open(uint32_t device, const spry_device_setup *setup, spry_error *error);

/* A model that a rank other than 0 has opened. */
typedef struct spry_rank_model {
    void *data; /* NULL, or the file, received from rank 0 */
    spry_model *model;
    spry_threads *threads;
    spry_kv_pool pool; /* layout of complete pages */
    spry_rank_part part;
    bool open;
} spry_rank_model;

spry_status spry_rank_model_open(spry_rank_model *own, const spry_buffer *message, spry_error *error);
void spry_rank_model_close(spry_rank_model *own);

#endif
