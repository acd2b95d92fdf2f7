/* Runs kernels that were compiled for the host (cuda_host.cuh), for tests in C. */
#ifndef TESTS_CUDA_HOST_H
#define TESTS_CUDA_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The tensor map of the emulation: boxes of lines of 64 bytes, by rows, blocks and pages. */
typedef struct cuda_host_tensor_map {
    const unsigned char *memory;
    uint64_t sizes[4], strides[3];
    uint32_t box[4];
} cuda_host_tensor_map;

/* A kernel by its name; NULL: there is none. */
const void *cuda_host_find(const char *name);

/* Bytes of its arguments; maximum threads of its blocks. */
size_t cuda_host_arguments(const void *kernel);
unsigned cuda_host_max_threads(const void *kernel);

/* Number of kernels. */
size_t cuda_host_count(void);

/* Dynamic shared memory of the next launches, and the shared memory that is left for static arrays. A kernel that needs
 * more, or writes past its dynamic shared memory, ends the program with a message. */
extern size_t cuda_host_shared_asked, cuda_host_shared_left;

/* NULL, or called when all threads of a launch's first block wait for earlier kernels (pdl_wait). */
extern void (*cuda_host_at_wait)(void);

/* Independent blocks; the blocks of one y and z as a cluster; all blocks resident. */
typedef enum cuda_host_launch_kind { CUDA_HOST_BLOCKS, CUDA_HOST_CLUSTER } cuda_host_launch_kind;

/* Runs every block of a grid and returns when all are done. */
void cuda_host_launch(const void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads,
                      cuda_host_launch_kind way, const void *arguments);

#ifdef __cplusplus
}
#endif

#endif
