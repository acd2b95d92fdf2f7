/* What the kernel of Whisper's own is given (kernel_args.h). */
#ifndef SPRY_DEVICE_CUDA_WHISPER_ARGS_H
#define SPRY_DEVICE_CUDA_WHISPER_ARGS_H

#include "device/cuda/kernel_args.h"

/* x = x, or its activation, plus the row's position: a block for a row. */
typedef struct spry_positions_args {
    SPRY_AT(float) x;                  /* [rows, n] */
    SPRY_AT(const float) positions;    /* [positions, n] */
    SPRY_AT(const spry_step_row) rows; /* whose positions count; NULL: a row's number does */
    uint32_t n;
    uint32_t activated; /* by spry_gate `gate` */
    uint32_t gate;
} spry_positions_args;

#endif
