/* What kernels may use of the machine, under our own names. nvcc compiles them for a GPU; any C++ compiler compiles the
 * same kernels for the host (tests/support/cuda_host.cuh), where a block's threads are fibers. So what a kernel
 * computes is tested without a GPU.
 *
 * Kernels follow these rules:
 *   - one argument, a struct of kernel_args.h, named `a`; names begin with spry_; behind it stand the threads of a
 * block, at most, and how many blocks a multiprocessor has room for, at least;
 *   - a kernel may begin before those launched earlier are done: SPRY_KERNEL waits for them at once, a SPRY_KERNEL_PDL
 *     calls pdl_wait itself, before it ends and before it touches what they read or write; a SPRY_KERNEL_PDL_MANUAL
 * also calls pdl_launch_dependents itself, by which it lets the next kernel begin;
 *   - blocks have one dimension of threads; all threads of a block reach the same barriers, all lanes of a warp the
 * same exchanges;
 *   - no sum depends on the order in which threads run: no atomic additions of floats;
 *   - products and sums are contracted only where the source says fmaf, so a value has the same bits in every kernel
 *     that computes it the same way. */
#pragma once

#include <stdint.h>

#define SPRY_UNLIKELY(condition)                                                                                       \
    __builtin_expect(!!(condition), 0) /* code behind it stands apart from what mostly runs */

#ifdef __CUDACC__

#define SPRY_DEVICE static __device__ __forceinline__
#define SPRY_METHOD __device__ __forceinline__
#define SPRY_SMEM   __shared__
#define SPRY_SMEM_DYNAMIC(name, multiple)                                                                              \
    extern __shared__ __align__(multiple)                                                                              \
    unsigned char name[]
#define SPRY_NOINLINE      static __device__ __noinline__ /* a function that is called: its registers are its own */
#define SPRY_TABLE         static __device__ const
#define SPRY_PRAGMA(words) _Pragma(#words)
#define SPRY_UNROLL        SPRY_PRAGMA(unroll)
#define SPRY_UNROLL_BY(n)  SPRY_PRAGMA(unroll n)
#define SPRY_KERNEL_PDL_MANUAL(name, arguments, ...)                                                                   \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ arguments a)
#define SPRY_KERNEL_PDL(name, arguments, ...)                                                                          \
    static __device__ __forceinline__ void name##_body(const arguments &a);                                            \
    SPRY_KERNEL_PDL_MANUAL(name, arguments, __VA_ARGS__)                                                               \
    {                                                                                                                  \
        pdl_launch_dependents();                                                                                       \
        name##_body(a);                                                                                                \
    }                                                                                                                  \
    static __device__ __forceinline__ void name##_body(const arguments &a)

/* Beside what its launch asks for (SPRY_SMEM_DYNAMIC, the same in all functions of a kernel) a kernel has so many bytes
 * of shared memory. On the host it is checked that a block has room for both, and that nothing is written behind what
 * the launch asks for. */
SPRY_DEVICE void smem_check(size_t)
{
}

/* Lets the next kernel begin, as far as it gets before it needs what this one writes. */
static __device__ __forceinline__ void pdl_launch_dependents()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Waits until all kernels before this one are done. Every block does that before it ends. */
static __device__ __forceinline__ void pdl_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Waits for all threads of the block, or of the warp; what they wrote is seen then. */
SPRY_DEVICE void syncthreads()
{
    __syncthreads();
}

SPRY_DEVICE void syncwarp()
{
    __syncwarp();
}

/* Waits for `threads` threads of the block, whole warps, that wait with the same number, 1 to 15. */
SPRY_DEVICE void named_barrier_sync(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Is counted as one of them and goes on. */
SPRY_DEVICE void named_barrier_arrive(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Waits for all threads of the blocks of a cluster, which are those of one blockIdx.y and z; what they wrote to memory
 * is seen then. On the host only SPRY_SMEM_DYNAMIC is each block's own across it. */
SPRY_DEVICE void cluster_sync()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* The same, but only what they wrote to SPRY_SMEM_DYNAMIC is seen then, which takes less time. */
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

/* What lies at the same place in SPRY_SMEM_DYNAMIC of block `rank` of the cluster. */
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

/* The value of another lane: of lane `lane`, or of the one whose number differs in the bits of `mask`. */
template <class T> SPRY_DEVICE T warp_shfl(T value, int lane)
{
    return __shfl_sync(0xffffffffu, value, lane);
}

template <class T> SPRY_DEVICE T warp_shfl_xor(T value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

/* The largest of all lanes, and the sum; every lane gets it. */
SPRY_DEVICE uint32_t warp_max_u32(uint32_t value)
{
    return __reduce_max_sync(0xffffffffu, value);
}

SPRY_DEVICE int32_t warp_sum_i32(int32_t value)
{
    return __reduce_add_sync(0xffffffffu, value);
}

/* Whether it is so in all lanes. */
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

/* Starts to copy 16 bytes to shared memory; cp_async_wait_all waits for those of the thread, a barrier for all. */
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

/* Copies so far are a batch; waits for all batches of the thread but the last so many. */
SPRY_DEVICE void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int BATCHES> SPRY_DEVICE void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(BATCHES) : "memory");
}

/* ---- copies that a barrier in shared memory counts -----------------------------------------------------------------
 */

/* A barrier passes its phases 0, 1, 0, ... each time that so many threads have arrived and the bytes that were expected
 * are there. It is made by one thread; others use it behind fence_mbarrier_init and a barrier of the block. */
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

/* Arrives, and so many bytes are expected before the phase passes. */
SPRY_DEVICE void mbarrier_arrive_expect_tx(mbarrier *b, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(b)),
                 "r"(bytes)
                 : "memory");
#endif
}

/* Until a phase, 0 or 1, has passed; what was copied and written before is seen then. */
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

/* Starts to copy bytes, a multiple of 16, to shared memory; the barrier counts them. One thread. */
SPRY_DEVICE void cp_async_bulk(void *shared, const void *from, uint32_t bytes, mbarrier *b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(from), "r"(bytes), "r"((uint32_t)__cvta_generic_to_shared(b))
                 : "memory");
#endif
}

/* Starts to copy the box of a page that a map of memory has from a row on; the barrier counts its bytes. `shared`: a
 * multiple of 512. One thread. */
SPRY_DEVICE void cp_async_bulk_tensor(void *shared, const void *map, uint32_t row, uint32_t page, mbarrier *b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
                 "%2, %4}], [%5];" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(map), "r"(0), "r"(row), "r"(page), "r"((uint32_t)__cvta_generic_to_shared(b))
                 : "memory");
#endif
}

/* Asks for a line of memory that will be loaded soon. */
SPRY_DEVICE void prefetch_l2(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

/* Two floats as bf16 in one word, the first below. */
SPRY_DEVICE uint32_t pack_bf16x2(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

/* a * b + c of both bf16 of each word. */
SPRY_DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t bits;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(bits) : "r"(a), "r"(b), "r"(c));
    return bits;
}

/* The same as halves. */
SPRY_DEVICE uint32_t pack_f16x2(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

/* 2 to the power of x, to 2^-22 of it; 0 of -INFINITY. */
SPRY_DEVICE float ex2_approx(float x)
{
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

/* 1 / x, to 2^-23 of it. */
SPRY_DEVICE float rcp_approx(float x)
{
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

/* 1 / sqrt(x), to 2^-22 of it. */
SPRY_DEVICE float rsqrt_approx(float x)
{
    float value;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

/* Adds to a counter that all threads see; returns what it was. Integers only: their sum has no order. */
SPRY_DEVICE uint32_t atomic_add(uint32_t *counter, uint32_t n)
{
    return atomicAdd(counter, n);
}

SPRY_DEVICE void atomic_add_u64(uint64_t *counter, uint64_t n)
{
    atomicAdd((unsigned long long *)counter, (unsigned long long)n);
}

/* ---- counters of a grid whose blocks all run at once ---------------------------------------------------------------
 */

/* Adds to a counter. A thread that waits for it sees what this one wrote, and what others wrote before a barrier that
 * it passed. */
SPRY_DEVICE void counter_add(uint32_t *counter, uint32_t n)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(n) : "memory");
}

/* Until a counter is `n` above `base`; it may pass the largest number. The first thread looks, so a barrier of the
 * block has to follow. */
SPRY_DEVICE void counter_wait(uint32_t *counter, uint32_t base, uint32_t n)
{
    uint32_t value = base;
    while (threadIdx.x == 0 && value - base < n)
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
}

/* Adds one, as counter_add does, and returns what the counter was; what those wrote that added before is seen then. */
SPRY_DEVICE uint32_t counter_fetch_increment(uint32_t *counter)
{
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

/* c[16, 8] += a[16, 16] * b[16, 8] in bf16, each lane with its part: rows g = lane / 4 and g + 8, columns 2t and 2t + 1
 * of t = lane % 4 in c; a: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..); b: (2t.., g), (2t + 8.., g). */
SPRY_DEVICE void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The same in f16. */
SPRY_DEVICE void mma_f16(float c[4], uint4 a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* Four blocks of 8 by 8 halves from shared memory, turned: lane i says where row i % 8 of block i / 8 lies, 16 bytes,
 * and gets of each block numbers (2t, g) and (2t + 1, g), as b0 and b1 of mma_f16 want them. */
SPRY_DEVICE void ldmatrix_trans(uint32_t out[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}

/* The lower, or upper, 16 bits of both words: the first's below. */
SPRY_DEVICE uint32_t lower_halves(uint32_t first, uint32_t second)
{
    return __byte_perm(first, second, 0x5410);
}

SPRY_DEVICE uint32_t upper_halves(uint32_t first, uint32_t second)
{
    return __byte_perm(first, second, 0x7632);
}

/* Four bytes of both words, by number: those of `first` are 0 to 3; four bits of `which` for each. */
SPRY_DEVICE uint32_t byte_perm(uint32_t first, uint32_t second, uint32_t which)
{
    return __byte_perm(first, second, which);
}

/* c[16, 8] += a[16, 32] * b[32, 8] in signed bytes. a: (g, 4t..), (g + 8, 4t..), (g, 4t + 16..), (g + 8, 4t + 16..);
 * b: (4t.., g), (4t + 16.., g). */
SPRY_DEVICE void mma_s8(int32_t c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The same for 16 of them: a0 (g, 4t..), a1 (g + 8, 4t..), b (4t.., g). */
SPRY_DEVICE void mma_s8_k16(int32_t c[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
}

/* The four warps that call it together have so many registers from here on, fewer or more than the kernel began with.
 */
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

/* ---- matrix instructions of four warps ----------------------------------------------------------------------------
 */

/* Whatever uses the value from here on uses it as it is now. */
SPRY_DEVICE void fence_accumulator(float &value)
{
    asm volatile("" : "+f"(value)::"memory");
}

/* The operand of an instruction that may still run stays where it is until here. */
SPRY_DEVICE void fence_operand(uint32_t word)
{
    asm volatile("" ::"r"(word) : "memory");
}

#define WGMMA_REGS(kind, c, g) kind(c[g][0]), kind(c[g][1]), kind(c[g][2]), kind(c[g][3])
#define WGMMA_REGS_4(kind, c, g)                                                                                       \
    WGMMA_REGS(kind, c, g), WGMMA_REGS(kind, c, g + 1), WGMMA_REGS(kind, c, g + 2), WGMMA_REGS(kind, c, g + 3)
#define WGMMA_REGS_8(kind, c)  WGMMA_REGS_4(kind, c, 0), WGMMA_REGS_4(kind, c, 4)
#define WGMMA_REGS_16(kind, c) WGMMA_REGS_8(kind, c), WGMMA_REGS_4(kind, c, 8), WGMMA_REGS_4(kind, c, 12)

/* c[64, n] += a[64, 16] * b[16, n], or = with `fresh`, n = 8 GROUPS = 64 or 128: each warp has 16 rows of a and c, its
 * lanes as in mma_bf16, GROUPS times 8 columns. b is in shared memory, in pieces of 8 columns by 16 bytes: those of the
 * next inputs follow, those of the next 8 columns are group_bytes apart. The four warps begin with wgmma_fence; c and a
 * are in use until wgmma_wait_all. */
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

/* The right side of wgmma_f16 in shared memory: an input has a line of 64 bytes, 32 columns, whose pieces of 16 bytes
 * are permuted (swizzle_64b). The lines of the next 8 inputs are input_bytes further on, those of the next 32 columns
 * column_bytes. Lines of 8 inputs begin at a multiple of 512 bytes. */
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

    /* So many bytes further on. */
    SPRY_METHOD swizzled_matrix advance(uint32_t bytes) const
    {
        return swizzled_matrix(at + (bytes >> 4));
    }
};

/* The same in f16 for n = 64, 96 or 128. */
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

/* What was begun runs from here on by itself. */
SPRY_DEVICE void wgmma_commit()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Waits for all that was run but the last so many; c is what they gave. */
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

/* What the thread wrote to shared memory, copied there, or saw there behind a barrier, matrix instructions of four
 * warps see behind the next barrier. */
SPRY_DEVICE void fence_proxy_async()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#else
#include "support/cuda_host.cuh"
#endif

/* Where a piece of 16 bytes of a line of swizzled_matrix lies. */
SPRY_DEVICE uint32_t swizzle_64b(uint32_t line, uint32_t piece)
{
    return line * 64 + (piece ^ line / 2 % 4) * 16;
}

/* A kernel that needs what those before it wrote. */
#define SPRY_KERNEL(name, arguments, ...)                                                                              \
    SPRY_DEVICE void name##_work(const arguments &a);                                                                  \
    SPRY_KERNEL_PDL(name, arguments, __VA_ARGS__)                                                                      \
    {                                                                                                                  \
        pdl_wait();                                                                                                    \
        name##_work(a);                                                                                                \
    }                                                                                                                  \
    SPRY_DEVICE void name##_work(const arguments &a)

/* Sum and maximum over the lanes of a warp, in one fixed tree; every lane gets the result. */
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

/* The sum over a block, in one fixed order for a number of threads; every thread gets it. `room`: [WARPS_MAX]. */
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

/* bf16 by rounding to nearest, ties to even; a NaN stays one. */
SPRY_DEVICE uint32_t bf16_bits(float value)
{
    uint32_t bits = bits_of_float(value);
    return value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

SPRY_DEVICE float float_of_bf16(uint32_t bits)
{
    return float_of_bits(bits << 16);
}

/* Two floats as bf16 in one word, and what that leaves of them. */
SPRY_DEVICE uint32_t split_bf16x2(float *low, float *high)
{
    uint32_t bits = pack_bf16x2(*low, *high);
    *low -= float_of_bits(bits << 16);
    *high -= float_of_bits(bits & 0xffff0000u);
    return bits;
}

/* 1 / rms of n values whose squares add up to `squares`. */
SPRY_DEVICE float inverse_rms(float squares, uint32_t n, float eps)
{
    return rsqrt_approx(squares * rcp_approx((float)n) + eps);
}
