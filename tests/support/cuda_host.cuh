/* Kernels on the host: the functions of primitives.cuh in plain C++. The threads of a block are fibers, which run one
 * after another until each waits at a barrier or in a shuffle. Blocks run one after another; the blocks of a cluster
 * run in turns from one cluster barrier to the next. Bulk copies are made when their mbarrier is waited for; until then
 * the destination holds NaNs. A barrier that not all threads reach, and a copy that all threads wait for, end the
 * program with a message. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/half.h"

#define SPRY_DEVICE static inline
#define SPRY_METHOD inline
#define SPRY_SMEM   static
#define SPRY_GRIDS_PLACE
#define SPRY_SMEM_DYNAMIC(name, multiple) unsigned char *name = cuda_host_shared()
#define SPRY_NOINLINE                     static
#define SPRY_UNROLL
#define SPRY_UNROLL_BY(n)

struct cuda_host_index {
    unsigned x, y, z;
};
extern cuda_host_index threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

/* A kernel registers itself under its name when the program starts. */
struct cuda_host_kernel {
    const char *name;
    void (*run)(const void *arguments);
    unsigned max_threads;
    size_t arguments;
    const cuda_host_kernel *next;
    cuda_host_kernel(const char *name, void (*run)(const void *), size_t arguments, unsigned max_threads,
                     unsigned blocks = 1);
};

#define SPRY_KERNEL_PDL(name, arguments, ...)                                                                          \
    static void name(const arguments &a);                                                                              \
    static void name##_run(const void *given)                                                                          \
    {                                                                                                                  \
        name(*static_cast<const arguments *>(given));                                                                  \
    }                                                                                                                  \
    static cuda_host_kernel name##_kernel(#name, name##_run, sizeof(arguments), name##_threads, ##__VA_ARGS__);        \
    static void name(const arguments &a)

#define SPRY_KERNEL_PDL_MANUAL SPRY_KERNEL_PDL

void cuda_host_grid_wait();

/* Kernels run one after the other, so nothing is to be done. */
SPRY_DEVICE void pdl_launch_dependents()
{
}

SPRY_DEVICE void pdl_wait()
{
    cuda_host_grid_wait();
}

void cuda_host_shared_check(size_t bytes);

SPRY_DEVICE void smem_check(size_t bytes)
{
    cuda_host_shared_check(bytes);
}

void cuda_host_block_wait();
void cuda_host_cluster_wait();

/* The block's dynamic shared memory; blocks that run at the same time have their own. */
unsigned char *cuda_host_shared();
/* Stores `size` bytes for the other lanes of the warp, waits for all lanes, and returns the address of lane 0's bytes;
 * lanes are CUDA_HOST_SLOT bytes apart. */
enum { CUDA_HOST_SLOT = 64 };
const unsigned char *cuda_host_exchange(const void *bytes, size_t size);

SPRY_DEVICE void syncthreads()
{
    cuda_host_block_wait();
}

SPRY_DEVICE void cluster_sync()
{
    cuda_host_cluster_wait();
}

SPRY_DEVICE void cluster_sync_smem()
{
    cuda_host_cluster_wait();
}

float4 dsmem_load(const float4 *own, uint32_t rank);
void named_barrier_sync(int number, int threads);
void named_barrier_arrive(int number, int threads);

typedef uint64_t mbarrier;
void mbarrier_init(mbarrier *b, uint32_t arrivals);
void mbarrier_arrive(mbarrier *b);
void mbarrier_arrive_expect_tx(mbarrier *b, uint32_t bytes);
void mbarrier_wait(mbarrier *b, uint32_t phase);
void cp_async_bulk(void *shared, const void *from, uint32_t bytes, mbarrier *b);
void cp_async_bulk_tensor(void *shared, const void *map, uint32_t row, uint32_t page, mbarrier *b);

SPRY_DEVICE void fence_mbarrier_init()
{
}

SPRY_DEVICE void syncwarp()
{
    cuda_host_exchange("", 0);
}

template <class T> SPRY_DEVICE T warp_shfl(T value, int lane)
{
    memcpy(&value, cuda_host_exchange(&value, sizeof value) + lane * CUDA_HOST_SLOT, sizeof value);
    return value;
}

template <class T> SPRY_DEVICE T warp_shfl_xor(T value, int mask)
{
    return warp_shfl(value, (int)(threadIdx.x % 32) ^ mask);
}

SPRY_DEVICE uint32_t warp_max_u32(uint32_t value)
{
    const unsigned char *all = cuda_host_exchange(&value, sizeof value);
    for (int lane = 0; lane < 32; lane++) {
        uint32_t other;
        memcpy(&other, all + lane * CUDA_HOST_SLOT, sizeof other);
        value = other > value ? other : value;
    }
    return value;
}

SPRY_DEVICE int32_t warp_sum_i32(int32_t value)
{
    const unsigned char *all = cuda_host_exchange(&value, sizeof value);
    int32_t sum = 0;
    for (int lane = 0; lane < 32; lane++) {
        memcpy(&value, all + lane * CUDA_HOST_SLOT, sizeof value);
        sum += value;
    }
    return sum;
}

SPRY_DEVICE bool warp_all(bool so)
{
    const unsigned char *all = cuda_host_exchange(&so, sizeof so);
    for (int lane = 0; lane < 32; lane++)
        so = so && all[lane * CUDA_HOST_SLOT];
    return so;
}

SPRY_DEVICE float float_of_half(uint16_t half)
{
    return spry_f16_decode(half);
}

SPRY_DEVICE uint16_t half_of_float(float value)
{
    return spry_f16_encode(value);
}

SPRY_DEVICE float float_of_bits(uint32_t bits)
{
    return spry_float_of_bits(bits);
}

SPRY_DEVICE uint32_t bits_of_float(float value)
{
    return spry_float_bits(value);
}

SPRY_DEVICE void cp_async(void *shared, const void *from)
{
    memcpy(shared, from, 16);
}

typedef unsigned char *smem_address;

SPRY_DEVICE smem_address smem_address_of(const void *shared)
{
    return (unsigned char *)const_cast<void *>(shared);
}

SPRY_DEVICE void smem_cp_async(smem_address shared, const void *from)
{
    memcpy(shared, from, 16);
}

SPRY_DEVICE uint32_t smem_load(smem_address at)
{
    return *(const uint32_t *)at;
}

SPRY_DEVICE uint2 smem_load_2(smem_address at)
{
    return *(const uint2 *)at;
}

SPRY_DEVICE uint4 smem_load_4(smem_address at)
{
    return *(const uint4 *)at;
}

SPRY_DEVICE void cp_async_wait_all()
{
}

SPRY_DEVICE void prefetch_l2(const void *)
{
}

SPRY_DEVICE uint32_t pack_bf16x2(float low, float high)
{
    return spry_bf16_encode(low) | (uint32_t)spry_bf16_encode(high) << 16;
}

uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c);

SPRY_DEVICE uint32_t pack_f16x2(float low, float high)
{
    return spry_f16_encode(low) | (uint32_t)spry_f16_encode(high) << 16;
}

SPRY_DEVICE float ex2_approx(float x)
{
    return exp2f(x);
}

SPRY_DEVICE float rcp_approx(float x)
{
    return 1 / x;
}

SPRY_DEVICE float rsqrt_approx(float x)
{
    return 1 / sqrtf(x);
}

SPRY_DEVICE uint32_t atomic_add(uint32_t *counter, uint32_t n)
{
    uint32_t before = *counter;
    *counter += n;
    return before;
}

SPRY_DEVICE void atomic_add_u64(uint64_t *counter, uint64_t n)
{
    *counter += n;
}

SPRY_DEVICE uint32_t lower_halves(uint32_t first, uint32_t second)
{
    return (first & 0xffff) | second << 16;
}

SPRY_DEVICE uint32_t upper_halves(uint32_t first, uint32_t second)
{
    return first >> 16 | (second & 0xffff0000);
}

SPRY_DEVICE uint32_t byte_perm(uint32_t first, uint32_t second, uint32_t which)
{
    uint64_t both = first | (uint64_t)second << 32;
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes |= (uint32_t)(both >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
    return bytes;
}

template <uint32_t MASK> SPRY_DEVICE uint32_t and_or(uint32_t word, uint32_t bits)
{
    return (word & MASK) | bits;
}

SPRY_DEVICE void ldmatrix_trans(uint32_t out[4], const void *row)
{
    const unsigned char *slots = cuda_host_exchange(&row, sizeof row);
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t block = 0; block < 4; block++) {
        const uint16_t *rows[2];
        for (uint32_t i = 0; i < 2; i++)
            memcpy(&rows[i], slots + (block * 8 + lane % 4 * 2 + i) * CUDA_HOST_SLOT, sizeof rows[i]);
        out[block] = rows[0][lane / 4] | (uint32_t)rows[1][lane / 4] << 16;
    }
}

void mma_f16(float c[4], uint4 a, uint32_t b0, uint32_t b1);
void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1);

void wgmma_bf16(float (*c)[4], const uint32_t a[4], const void *b, uint32_t group_bytes, bool fresh, int groups);

template <int GROUPS>
SPRY_DEVICE void wgmma_bf16(float (*c)[4], const uint32_t a[4], const void *b, uint32_t group_bytes, bool fresh)
{
    wgmma_bf16(c, a, b, group_bytes, fresh, GROUPS);
}

template <int N> SPRY_DEVICE void setmaxnreg_dec()
{
}

template <int N> SPRY_DEVICE void setmaxnreg_inc()
{
}

SPRY_DEVICE void fence_operand(uint32_t)
{
}

SPRY_DEVICE void wgmma_fence()
{
}

SPRY_DEVICE void wgmma_commit()
{
}

struct swizzled_matrix {
    const unsigned char *at;
    size_t input_bytes, column_bytes;

    swizzled_matrix(const void *b, size_t inputs, size_t columns)
        : at(static_cast<const unsigned char *>(b)), input_bytes(inputs), column_bytes(columns)
    {
    }

    swizzled_matrix advance(size_t bytes) const
    {
        return swizzled_matrix(at + bytes, input_bytes, column_bytes);
    }
};

void wgmma_f16(float (*c)[4], const uint32_t a[4], const swizzled_matrix &b, bool fresh, int groups);

template <int GROUPS> SPRY_DEVICE void wgmma_f16(float (*c)[4], const uint32_t a[4], swizzled_matrix b, bool fresh)
{
    wgmma_f16(c, a, b, fresh, GROUPS);
}

template <int BATCHES, int GROUPS, class C> SPRY_DEVICE void wgmma_wait(C (*)[4])
{
}

template <int GROUPS, class C> SPRY_DEVICE void wgmma_wait_all(C (*)[4])
{
}

SPRY_DEVICE void fence_proxy_async()
{
}

SPRY_DEVICE void cp_async_commit()
{
}

template <int BATCHES> SPRY_DEVICE void cp_async_wait_group()
{
}
