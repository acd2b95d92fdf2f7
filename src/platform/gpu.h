/* The machine's NVIDIA GPUs and their measured memory read bandwidth. Where there is no GPU or a call fails, there is a
 * message instead of a number; nothing here is an error. */
#ifndef SPRY_PLATFORM_GPU_H
#define SPRY_PLATFORM_GPU_H

#include "platform/cuda_driver.h"

enum { SPRY_GPUS_MAX = 16, SPRY_GPU_NAME = 96, SPRY_GPU_TEXT = 240 };

typedef struct spry_gpu {
    int index;                /* index in the driver */
    char name[SPRY_GPU_NAME]; /* printable ASCII */
    size_t bytes;             /* bytes of device memory */
    uint32_t compute_major, compute_minor;
    uint32_t multiprocessors;
    double clock_ghz;        /* clock of the multiprocessors; 0: not known */
    double read_gb_s;        /* 0: not measured */
    char why[SPRY_GPU_TEXT]; /* why it is not measured; "": not attempted */
} spry_gpu;

typedef struct spry_gpus {
    spry_cuda cuda;
    spry_gpu list[SPRY_GPUS_MAX];
    size_t count;
    char driver[48];         /* "580.95.05, CUDA 13.0" */
    char why[SPRY_GPU_TEXT]; /* why there are none */
} spry_gpus;

/* Loads the driver and lists the GPUs. `root` is prepended to /sys/module/nvidia/version. */
void spry_gpus_open(spry_gpus *gpus, const char *library, const char *root);
void spry_gpus_close(spry_gpus *gpus);

/* The part of spry_gpus_open after the driver is loaded. */
void spry_gpus_find(spry_gpus *gpus, const char *root);

/* Operations on 16-bit floats a second that its matrix instructions could do, by its multiprocessors and their clock;
 * 0: none that spry uses, or the clock is not known. A product is two operations. */
double spry_gpu_peak(const spry_gpu *gpu);

/* Sets read_gb_s or why for each GPU; takes a second at most. Uses half of a GPU's free memory, up to 4 GiB. */
void spry_gpus_measure(spry_gpus *gpus);

/* The PTX source of the measuring kernel. */
extern const char spry_gpu_read_ptx[];

/* How busy NVIDIA GPUs are, from the management library. It is asked only where something else of the process, such as
 * the energy meter, has loaded and started it: loading it takes time and memory. */

/* The functions that are used; each returns 0 or an error number. */
typedef struct spry_gpu_use_api {
    int (*device_count)(unsigned *count);
    int (*device_handle)(unsigned index, void **device);
    int (*device_use)(void *device, unsigned percent[2]); /* kernels run; memory is read or written */
} spry_gpu_use_api;

/* Percent of the last moments in which the busiest GPU ran kernels; NAN: not known. */
double spry_gpu_busy_percent(void);

/* The same by given functions. */
double spry_gpu_busy_of(const spry_gpu_use_api *api);

/* False where the system has no device file of a GPU. Asking GPU drivers then only costs memory and time: Vulkan's
 * drivers for CPUs take 60 MB. */
bool spry_gpu_is_likely(void);

#endif
