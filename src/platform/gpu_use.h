/* How busy NVIDIA GPUs are, from the management library. It is asked only where something else of the process, such as
 * the energy meter, has loaded and started it: loading it takes time and memory. */
#ifndef SPRY_PLATFORM_GPU_USE_H
#define SPRY_PLATFORM_GPU_USE_H

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

#endif
