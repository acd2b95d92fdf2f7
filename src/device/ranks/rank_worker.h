/* Ranks other than 0: they do what rank 0's devices tell them. */
#ifndef SPRY_DEVICE_RANKS_RANK_WORKER_H
#define SPRY_DEVICE_RANKS_RANK_WORKER_H

#include "base/error.h"

/* Returns when rank 0 has ended. */
spry_status spry_rank_worker_run(spry_error *error);

#endif
