/* The primitives that kernels are written with: thin names over CUDA C++ and PTX (mma, wgmma, cp.async, TMA bulk
 * copies, mbarriers, programmatic dependent launch). nvcc compiles them for a GPU. Any C++ compiler compiles the same
 * kernels for the host: there the header that the macro SPRY_CUDA_EMULATION names defines the same functions, with the
 * threads of a block as fibers, so that a kernel's results are tested without a GPU.
 *
 * Rules for kernels:
 *   - A kernel has one argument, a struct of kernel_args.h, named `a`. Its name begins with spry_. Its threads are in
 *     kernel_list.h. The macro's last argument, if any, is the minimum number of blocks per SM (launch bounds).
 *   - Programmatic dependent launch (PDL): a kernel may start before the kernels launched earlier have finished.
 *     SPRY_KERNEL waits for them first. SPRY_KERNEL_PDL calls pdl_wait itself, before it reads what they write, writes
 *     what they read, or returns. SPRY_KERNEL_PDL_MANUAL also calls pdl_launch_dependents itself, which lets the next
 *     kernel start.
 *   - Blocks are one-dimensional. All threads of a block meet at each barrier, all lanes of a warp at each shuffle.
 *   - No sum depends on the order in which threads run: there are no atomic additions of floats.
 *   - A product and a sum are contracted only where the source says fmaf, so a value has the same bits in every kernel
 *     that computes it the same way. */
#pragma once

#include <stdint.h>

#include "device/cuda/kernel_list.h"

#define SPRY_UNLIKELY(condition) __builtin_expect(!!(condition), 0) /* keeps the unlikely code out of line */

#ifdef __CUDACC__

#define SPRY_DEVICE      static __device__ __forceinline__
#define SPRY_METHOD      __device__ __forceinline__
#define SPRY_SMEM        __shared__
#define SPRY_GRIDS_PLACE __device__ /* the tables of kernels/grids.h */
#define SPRY_SMEM_DYNAMIC(name, multiple)                                                                              \
    extern __shared__ __align__(multiple)                                                                              \
    unsigned char name[]
#define SPRY_NOINLINE      static __device__ __noinline__ /* a real call: the callee has its own registers */
#define SPRY_PRAGMA(words) _Pragma(#words)
#define SPRY_UNROLL        SPRY_PRAGMA(unroll)
#define SPRY_UNROLL_BY(n)  SPRY_PRAGMA(unroll n)
#define SPRY_KERNEL_PDL_MANUAL(name, arguments, ...)                                                                   \
    extern "C" __global__ void __launch_bounds__(name##_threads, ##__VA_ARGS__)                                        \
        name(const __grid_constant__ arguments a)
#define SPRY_KERNEL_PDL(name, arguments, ...)                                                                          \
    static __device__ __forceinline__ void name##_body(const arguments &a);                                            \
    SPRY_KERNEL_PDL_MANUAL(name, arguments, ##__VA_ARGS__)                                                             \
    {                                                                                                                  \
        pdl_launch_dependents();                                                                                       \
        name##_body(a);                                                                                                \
    }                                                                                                                  \
    static __device__ __forceinline__ void name##_body(const arguments &a)

/* Declares the bytes of static shared memory of a kernel. Dynamic shared memory is SPRY_SMEM_DYNAMIC, one symbol in all
 * functions of a kernel. The host emulation checks that both fit into a block, and that nothing is written past the
 * dynamic part. */
SPRY_DEVICE void smem_check(size_t)
{
}

/* griddepcontrol.launch_dependents: the next kernel may start; it waits in pdl_wait for the results of this one. */
static __device__ __forceinline__ void pdl_launch_dependents()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* griddepcontrol.wait: returns when all earlier kernels have finished. Every block calls it before it returns. */
static __device__ __forceinline__ void pdl_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Barrier of the block, or of the warp; earlier writes of the other threads are visible after it. */
SPRY_DEVICE void syncthreads()
{
    __syncthreads();
}

SPRY_DEVICE void syncwarp()
{
    __syncwarp();
}

/* Named barrier: `threads` threads of the block, whole warps, wait for each other. `number`: 1 to 15. */
SPRY_DEVICE void named_barrier_sync(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Arrives at a named barrier without waiting. */
SPRY_DEVICE void named_barrier_arrive(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Barrier of all threads of a cluster, which is the blocks of one blockIdx.y and z; earlier writes to global memory are
 * visible after it. In the host emulation only SPRY_SMEM_DYNAMIC is private to a block across this barrier. */
SPRY_DEVICE void cluster_sync()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* A cheaper cluster barrier: only writes to SPRY_SMEM_DYNAMIC are visible after it. */
SPRY_DEVICE void cluster_sync_smem()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.release.sync_restrict::shared::cta.cluster;\n\t"
                 "barrier.cluster.arrive.relaxed.aligned;\n\t"
                 "barrier.cluster.wait.aligned;\n\t"
                 "fence.acquire.sync_restrict::shared::cluster.cluster;" ::
                     : "memory");
#endif
}

/* Distributed shared memory: loads from the same offset of SPRY_SMEM_DYNAMIC in block `rank` of the cluster. */
SPRY_DEVICE float4 dsmem_load(const float4 *own, uint32_t rank)
{
    float4 four = {0, 0, 0, 0};
#if __CUDA_ARCH__ >= 900
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"((uint32_t)__cvta_generic_to_shared(own)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "r"(at)
                 : "memory");
#endif
    return four;
}

/* Warp shuffles: the value of lane `lane`, or of the lane whose number differs in the bits of `mask`. */
template <class T> SPRY_DEVICE T warp_shfl(T value, int lane)
{
    return __shfl_sync(0xffffffffu, value, lane);
}

template <class T> SPRY_DEVICE T warp_shfl_xor(T value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

/* Maximum and sum over the lanes; every lane gets the result. */
SPRY_DEVICE uint32_t warp_max_u32(uint32_t value)
{
    return __reduce_max_sync(0xffffffffu, value);
}

SPRY_DEVICE int32_t warp_sum_i32(int32_t value)
{
    return __reduce_add_sync(0xffffffffu, value);
}

/* True when the condition holds in all lanes. */
SPRY_DEVICE bool warp_all(bool so)
{
    return __all_sync(0xffffffffu, so);
}

SPRY_DEVICE float float_of_half(uint16_t half)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

SPRY_DEVICE uint16_t half_of_float(float value)
{
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

SPRY_DEVICE float float_of_bits(uint32_t bits)
{
    return __uint_as_float(bits);
}

SPRY_DEVICE uint32_t bits_of_float(float value)
{
    return __float_as_uint(value);
}

/* cp.async: starts a copy of 16 bytes from global to shared memory. cp_async_wait_all waits for the copies of this
 * thread; a barrier is needed to see the values of other threads. */
SPRY_DEVICE void cp_async(void *shared, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(from)
                 : "memory");
}

SPRY_DEVICE void cp_async_wait_all()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Closes a group of cp.async copies; cp_async_wait_group waits until at most BATCHES groups of this thread are pending.
 */
SPRY_DEVICE void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int BATCHES> SPRY_DEVICE void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(BATCHES) : "memory");
}

/* Addresses in shared memory as the instructions take them. An inner loop that keeps these in registers has a third
 * fewer instructions than one whose addresses the compiler makes from pointers. */
typedef uint32_t smem_address;

SPRY_DEVICE smem_address smem_address_of(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

SPRY_DEVICE void smem_cp_async(smem_address shared, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}

SPRY_DEVICE uint32_t smem_load(smem_address at)
{
    uint32_t word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
    return word;
}

SPRY_DEVICE uint2 smem_load_2(smem_address at)
{
    uint2 words;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "r"(at) : "memory");
    return words;
}

SPRY_DEVICE uint4 smem_load_4(smem_address at)
{
    uint4 words;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(at)
                 : "memory");
    return words;
}

/* ---- mbarrier and bulk copies (TMA) ------------------------------------------------------------------------------ */

/* An mbarrier's phase has parity 0, 1, 0, ... A phase completes when `arrivals` threads have arrived and all expected
 * bytes have been copied. One thread initialises it; the other threads use it after fence_mbarrier_init and a block
 * barrier. */
typedef uint64_t mbarrier;

SPRY_DEVICE void mbarrier_init(mbarrier *b, uint32_t arrivals)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(b)), "r"(arrivals)
                 : "memory");
#endif
}

SPRY_DEVICE void fence_mbarrier_init()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

SPRY_DEVICE void mbarrier_arrive(mbarrier *b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(b)) : "memory");
#endif
}

/* Arrives, and adds `bytes` to the bytes that the phase expects. */
SPRY_DEVICE void mbarrier_arrive_expect_tx(mbarrier *b, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(b)),
                 "r"(bytes)
                 : "memory");
#endif
}

/* Waits until the phase of parity `phase` has completed; bytes copied and written before that are visible then. */
SPRY_DEVICE void mbarrier_wait(mbarrier *b, uint32_t phase)
{
#if __CUDA_ARCH__ >= 900
    uint32_t passed = 0;
    while (!passed)
        asm volatile(
            "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(passed)
            : "r"((uint32_t)__cvta_generic_to_shared(b)), "r"(phase)
            : "memory");
#endif
}

/* cp.async.bulk: starts a copy of `bytes`, a multiple of 16, to shared memory; completion is counted by the mbarrier.
 * Called by one thread. */
SPRY_DEVICE void cp_async_bulk(void *shared, const void *from, uint32_t bytes, mbarrier *b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(from), "r"(bytes), "r"((uint32_t)__cvta_generic_to_shared(b))
                 : "memory");
#endif
}

/* cp.async.bulk.tensor: starts a TMA copy of the box of a KV page that begins at `row`, as the tensor map describes it.
 * `shared` is a multiple of 512. Called by one thread. */
SPRY_DEVICE void cp_async_bulk_tensor(void *shared, const void *map, uint32_t row, uint32_t page, mbarrier *b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
                 "%2, %4}], [%5];" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(map), "r"(0), "r"(row), "r"(page), "r"((uint32_t)__cvta_generic_to_shared(b))
                 : "memory");
#endif
}

/* Prefetches a cache line into L2. */
SPRY_DEVICE void prefetch_l2(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

/* Packs two floats as bf16; `low` is in the lower half of the word. */
SPRY_DEVICE uint32_t pack_bf16x2(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

/* a * b + c for both bf16 of each word. */
SPRY_DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t bits;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(bits) : "r"(a), "r"(b), "r"(c));
    return bits;
}

/* Packs two floats as f16; `low` is in the lower half of the word. */
SPRY_DEVICE uint32_t pack_f16x2(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

/* 2^x with a relative error of 2^-22; 0 for -INFINITY. */
SPRY_DEVICE float ex2_approx(float x)
{
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

/* 1 / x with a relative error of 2^-23. */
SPRY_DEVICE float rcp_approx(float x)
{
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

/* 1 / sqrt(x) with a relative error of 2^-22. */
SPRY_DEVICE float rsqrt_approx(float x)
{
    float value;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

/* Atomic addition; returns the old value. Integers only, because their sum does not depend on the order. */
SPRY_DEVICE uint32_t atomic_add(uint32_t *counter, uint32_t n)
{
    return atomicAdd(counter, n);
}

SPRY_DEVICE void atomic_add_u64(uint64_t *counter, uint64_t n)
{
    atomicAdd((unsigned long long *)counter, (unsigned long long)n);
}

/* mma.m16n8k16: c[16, 8] += a[16, 16] * b[16, 8] in bf16. With g = lane / 4 and t = lane % 4 a lane holds rows g and g
 * + 8, columns 2t and 2t + 1 of c; (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..) of a; (2t.., g), (2t
 * + 8.., g) of b. */
SPRY_DEVICE void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* mma_bf16 in f16. */
SPRY_DEVICE void mma_f16(float c[4], uint4 a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* ldmatrix.x4.trans: four 8x8 matrices of f16 from shared memory, transposed. Lane i gives the address of row i % 8 of
 * matrix i / 8, 16 bytes, and gets elements (2t, g) and (2t + 1, g) of each matrix: the b0 and b1 of mma_f16. */
SPRY_DEVICE void ldmatrix_trans(uint32_t out[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}

/* The lower, or upper, 16 bits of both words; the bits of `first` become the lower half. */
SPRY_DEVICE uint32_t lower_halves(uint32_t first, uint32_t second)
{
    return __byte_perm(first, second, 0x5410);
}

SPRY_DEVICE uint32_t upper_halves(uint32_t first, uint32_t second)
{
    return __byte_perm(first, second, 0x7632);
}

/* Selects four of the eight bytes of both words: bytes of `first` have numbers 0 to 3, and four bits of `which` select
 * one. */
SPRY_DEVICE uint32_t byte_perm(uint32_t first, uint32_t second, uint32_t which)
{
    return __byte_perm(first, second, which);
}

/* (word & MASK) | bits, in one instruction. */
template <uint32_t MASK> SPRY_DEVICE uint32_t and_or(uint32_t word, uint32_t bits)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "n"(MASK), "r"(bits));
    return out;
}

/* setmaxnreg: from here on each thread of the calling warpgroup has N registers, fewer or more than at launch. */
template <int N> SPRY_DEVICE void setmaxnreg_dec()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

template <int N> SPRY_DEVICE void setmaxnreg_inc()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* ---- wgmma ------------------------------------------------------------------------------------------------------- */

/* Keeps the compiler from moving uses of an accumulator across this point. */
SPRY_DEVICE void fence_accumulator(float &value)
{
    asm volatile("" : "+f"(value)::"memory");
}

/* Keeps the operand of a wgmma that may still run in its register until this point. */
SPRY_DEVICE void fence_operand(uint32_t word)
{
    asm volatile("" ::"r"(word) : "memory");
}

#define WGMMA_REGS(kind, c, g) kind(c[g][0]), kind(c[g][1]), kind(c[g][2]), kind(c[g][3])
#define WGMMA_REGS_4(kind, c, g)                                                                                       \
    WGMMA_REGS(kind, c, g), WGMMA_REGS(kind, c, g + 1), WGMMA_REGS(kind, c, g + 2), WGMMA_REGS(kind, c, g + 3)
#define WGMMA_REGS_8(kind, c)  WGMMA_REGS_4(kind, c, 0), WGMMA_REGS_4(kind, c, 4)
#define WGMMA_REGS_16(kind, c) WGMMA_REGS_8(kind, c), WGMMA_REGS_4(kind, c, 8), WGMMA_REGS_4(kind, c, 12)

/* wgmma.m64nNk16 in bf16: c[64, n] += a[64, 16] * b[16, n], or = with `fresh`, n = 8 GROUPS = 64 or 128. Each warp of
 * the warpgroup has 16 rows of a and c in registers, laid out as in mma_bf16, GROUPS times 8 columns. b is in shared
 * memory without swizzle, in core matrices of 8 columns by 16 bytes: the next inputs follow, the next 8 columns are
 * group_bytes apart. Call wgmma_fence first; c and a are in use until wgmma_wait_all. */
SPRY_DEVICE uint64_t wgmma_descriptor(const void *b, uint32_t group_bytes)
{
    uint64_t address = (uint32_t)__cvta_generic_to_shared(b);
    return (address & 0x3ffff) >> 4 | (uint64_t)(128 >> 4) << 16 | (uint64_t)(group_bytes >> 4) << 32;
}

template <int GROUPS>
SPRY_DEVICE void wgmma_bf16(float (*c)[4], const uint32_t a[4], const void *b, uint32_t group_bytes, bool fresh)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (GROUPS == 8)
        asm volatile(
            "{\n\t.reg .pred p;\n\tsetp.eq.b32 p, %37, 0;\n\t"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
            "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n\t}"
            : WGMMA_REGS_8("+f", c)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_descriptor(b, group_bytes)), "r"((int)fresh)
            : "memory");
    if (GROUPS == 16)
        asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.b32 p, %69, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                     "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, "
                     "%29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                     "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n\t}"
                     : WGMMA_REGS_16("+f", c)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_descriptor(b, group_bytes)),
                       "r"((int)fresh)
                     : "memory");
#endif
}

/* Descriptor of operand B of wgmma_f16: a matrix in shared memory with 64-byte swizzle. An input has a line of 64
 * bytes, which is 32 columns; its pieces of 16 bytes are permuted by swizzle_64b. The next 8 inputs are input_bytes
 * away, the next 32 columns column_bytes. Lines of 8 inputs begin at a multiple of 512 bytes. */
struct swizzled_matrix {
    uint64_t at;

    SPRY_METHOD swizzled_matrix(const void *b, uint32_t input_bytes, uint32_t column_bytes)
        : at((uint64_t)((uint32_t)__cvta_generic_to_shared(b) >> 4) | (uint64_t)(column_bytes >> 4) << 16 |
             (uint64_t)(input_bytes >> 4) << 32 | (uint64_t)2 << 62)
    {
    }

    SPRY_METHOD swizzled_matrix(uint64_t moved) : at(moved)
    {
    }

    /* The descriptor moved by `bytes`. */
    SPRY_METHOD swizzled_matrix advance(uint32_t bytes) const
    {
        return swizzled_matrix(at + (bytes >> 4));
    }
};

/* wgmma.m64nNk16 in f16 for n = 64, 96 or 128; b is column-major and swizzled. */
template <int GROUPS> SPRY_DEVICE void wgmma_f16(float (*c)[4], const uint32_t a[4], swizzled_matrix b, bool fresh)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (GROUPS == 8)
        asm volatile(
            "{\n\t.reg .pred p;\n\tsetp.eq.b32 p, %37, 0;\n\t"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
            "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n\t}"
            : WGMMA_REGS_8("+f", c)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.at), "r"((int)fresh)
            : "memory");
    if (GROUPS == 12)
        asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.b32 p, %53, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
                     "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
                     "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
                     "{%48, %49, %50, %51}, %52, p, 1, 1, 1;\n\t}"
                     : WGMMA_REGS_8("+f", c), WGMMA_REGS_4("+f", c, 8)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.at), "r"((int)fresh)
                     : "memory");
    if (GROUPS == 16)
        asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.b32 p, %69, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                     "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, "
                     "%29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                     "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n\t}"
                     : WGMMA_REGS_16("+f", c)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.at), "r"((int)fresh)
                     : "memory");
#endif
}

SPRY_DEVICE void wgmma_fence()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* Closes a group of wgmma instructions, which run asynchronously from here on. */
SPRY_DEVICE void wgmma_commit()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Waits until at most BATCHES groups are pending; c holds the results of the finished ones. */
template <int BATCHES, int GROUPS, class C> SPRY_DEVICE void wgmma_wait(C (*c)[4])
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BATCHES) : "memory");
    SPRY_UNROLL
    for (int i = 0; i < GROUPS * 4; i++)
        fence_accumulator(c[i / 4][i % 4]);
#endif
}

template <int GROUPS, class C> SPRY_DEVICE void wgmma_wait_all(C (*c)[4])
{
    wgmma_wait<0, GROUPS>(c);
}

/* fence.proxy.async: writes and cp.async copies of this thread to shared memory, and data it has seen there after a
 * barrier, are visible to wgmma and TMA after the next barrier. */
SPRY_DEVICE void fence_proxy_async()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#else
#include SPRY_CUDA_EMULATION
#endif

/* Offset of a 16-byte piece of a line with 64-byte swizzle (swizzled_matrix). */
SPRY_DEVICE uint32_t swizzle_64b(uint32_t line, uint32_t piece)
{
    return line * 64 + (piece ^ line / 2 % 4) * 16;
}

/* A kernel that waits for all earlier kernels before anything else. */
#define SPRY_KERNEL(name, arguments, ...)                                                                              \
    SPRY_DEVICE void name##_work(const arguments &a);                                                                  \
    SPRY_KERNEL_PDL(name, arguments, ##__VA_ARGS__)                                                                    \
    {                                                                                                                  \
        pdl_wait();                                                                                                    \
        name##_work(a);                                                                                                \
    }                                                                                                                  \
    SPRY_DEVICE void name##_work(const arguments &a)

/* Sum and maximum over the lanes of a warp by a butterfly of fixed order; every lane gets the result. */
template <class T> SPRY_DEVICE T warp_sum(T value)
{
    SPRY_UNROLL
    for (int mask = 16; mask > 0; mask /= 2)
        value += warp_shfl_xor(value, mask);
    return value;
}

SPRY_DEVICE float warp_max(float value)
{
    SPRY_UNROLL
    for (int mask = 16; mask > 0; mask /= 2)
        value = fmaxf(value, warp_shfl_xor(value, mask));
    return value;
}

enum { WARP = 32, WARPS_MAX = 32 };

/* Sum over a block in one fixed order for a given number of threads; every thread gets it. `smem`: [WARPS_MAX]. */
template <class T> SPRY_DEVICE T block_sum(T value, T *smem)
{
    int warps = (int)blockDim.x / WARP;
    value = warp_sum(value);
    syncthreads();
    if (threadIdx.x % WARP == 0)
        smem[threadIdx.x / WARP] = value;
    syncthreads();
    T sum = smem[0];
    for (int i = 1; i < warps; i++)
        sum += smem[i];
    return sum;
}

SPRY_DEVICE float block_max(float value, float *smem)
{
    int warps = (int)blockDim.x / WARP;
    value = warp_max(value);
    syncthreads();
    if (threadIdx.x % WARP == 0)
        smem[threadIdx.x / WARP] = value;
    syncthreads();
    float max = smem[0];
    for (int i = 1; i < warps; i++)
        max = fmaxf(max, smem[i]);
    return max;
}

/* Rounds to bf16, ties to even; a NaN stays a NaN. */
SPRY_DEVICE uint32_t bf16_bits(float value)
{
    uint32_t bits = bits_of_float(value);
    return value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

SPRY_DEVICE float float_of_bf16(uint32_t bits)
{
    return float_of_bits(bits << 16);
}

/* Packs two floats as bf16 and subtracts the packed values: *low and *high become the remainders. */
SPRY_DEVICE uint32_t split_bf16x2(float *low, float *high)
{
    uint32_t bits = pack_bf16x2(*low, *high);
    *low -= float_of_bits(bits << 16);
    *high -= float_of_bits(bits & 0xffff0000u);
    return bits;
}

/* 1 / rms of n values whose squares have the sum `squares`. */
SPRY_DEVICE float inverse_rms(float squares, uint32_t n, float eps)
{
    return rsqrt_approx(squares * rcp_approx((float)n) + eps);
}
