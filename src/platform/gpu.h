/* The machine's NVIDIA GPUs: what they are, and how fast they read their own memory, measured. Where there is none, or
 * something fails, there is a sentence instead of a number; nothing here is an error. */
#ifndef SPRY_PLATFORM_GPU_H
#define SPRY_PLATFORM_GPU_H

#include "platform/cuda_driver.h"

enum { SPRY_GPUS_MAX = 16, SPRY_GPU_NAME = 96, SPRY_GPU_TEXT = 240 };

typedef struct spry_gpu {
    int index;                /* the driver's */
    char name[SPRY_GPU_NAME]; /* printable ASCII */
    size_t bytes;             /* of its memory */
    uint32_t compute_major, compute_minor;
    uint32_t multiprocessors;
    double read_gb_s;        /* 0: not measured */
    char why[SPRY_GPU_TEXT]; /* not; "" where nobody tried */
} spry_gpu;

typedef struct spry_gpus {
    spry_cuda cuda;
    spry_gpu list[SPRY_GPUS_MAX];
    size_t count;
    char driver[48];         /* "580.95.05, CUDA 13.0" */
    char why[SPRY_GPU_TEXT]; /* there are none */
} spry_gpus;

/* Loads the driver and finds them. `root` goes before /sys/module/nvidia/version. */
void spry_gpus_open(spry_gpus *gpus, const char *library, const char *root);
void spry_gpus_close(spry_gpus *gpus);

/* What opening does once the driver is loaded. */
void spry_gpus_find(spry_gpus *gpus, const char *root);

/* Fills read_gb_s or why of each, which takes a second at most. Half of a GPU's free memory is used, up to 4 GiB. */
void spry_gpus_measure(spry_gpus *gpus);

/* The program that reads, as the driver compiles it. */
extern const char spry_gpu_read_ptx[];

#endif
