/* What ranks need to open their parts of a model: where it lies, and the settings that must be equal. */
#ifndef SPRY_DEVICE_RANKS_RANK_OPEN_H
#define SPRY_DEVICE_RANKS_RANK_OPEN_H

#include "device/ranks/rank_part.h"
#include "model/model.h"

/* Rank 0: tells the others to open their parts. Between lock and unlock; spry_ranks_agree follows. */
spry_status spry_rank_send_open(uint32_t device, const spry_device_setup *setup, spry_error *error);

/* A model that a rank other than 0 has opened. */
typedef struct spry_rank_model {
    void *data; /* NULL, or the file, received from rank 0 */
    spry_model *model;
    spry_threads *threads;
    spry_kv_pool pool; /* layout of whole pages */
    spry_rank_part part;
    bool open;
} spry_rank_model;

spry_status spry_rank_model_open(spry_rank_model *own, const spry_buffer *message, spry_error *error);
void spry_rank_model_close(spry_rank_model *own);

#endif
