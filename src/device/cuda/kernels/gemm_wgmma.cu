/* Products for many rows with the matrix instructions of four warps, as kernels (gemm_wgmma.cuh). */
#include "device/cuda/kernels/gemm_wgmma.cuh"

/* Beside two teams there are four more warps, two of which have nothing to do: registers are given to four at a time,
 * and together the warps cannot have more than the 168 a thread that a kernel of 384 threads begins with. */
template <class S> SPRY_DEVICE void gemm_wgmma(const spry_gemm_args &a)
{
    SPRY_SMEM_DYNAMIC(memory, 16);
    const gemm_smem<S> ring = {memory};
    ring.make();
    if (threadIdx.x < S::THREADS) {
        if (S::WARPGROUPS == 2)
            setmaxnreg_inc<232>();
        gemm_consumer<S>(ring, a).run();
    } else {
        if (S::WARPGROUPS == 2)
            setmaxnreg_dec<40>();
        if (threadIdx.x < S::THREADS + WARP)
            gemm_producer<S>(ring, a).run();
        else if (threadIdx.x < S::THREADS + 2 * WARP)
            make_norms(ring, a);
    }
}

/* Named by groups of rows, teams, and how many blocks a multiprocessor has room for. Quantised weights want more
 * registers than two blocks can have: one alone is faster than one of two, two are faster than one. */
#define GEMM_WGMMA(name, label, groups, warpgroups, blocks, gate)                                                      \
    SPRY_KERNEL_PDL(spry_gemm_##label##_##name##_##groups##_##warpgroups##_##blocks, spry_gemm_args,                   \
                    warpgroups == 1 ? WARPGROUP_THREADS + 2 * WARP : 3 * WARPGROUP_THREADS, blocks)                    \
    {                                                                                                                  \
        gemm_wgmma<wgmma_config<type_##name, groups, warpgroups, gate>>(a);                                            \
    }
#define GEMMS_WGMMA_FLOATS(name)                                                                                       \
    GEMM_WGMMA(name, wgmma, 8, 1, 2, false)                                                                            \
    GEMM_WGMMA(name, wgmma, 16, 2, 1, false) GEMM_WGMMA(name, wgmma_gate, 8, 1, 2, true)                               \
        GEMM_WGMMA(name, wgmma_gate, 16, 2, 1, true)
#define GEMMS_WGMMA_QUANTS(name)                                                                                       \
    GEMMS_WGMMA_FLOATS(name) GEMM_WGMMA(name, wgmma, 8, 1, 1, false) GEMM_WGMMA(name, wgmma_gate, 8, 1, 1, true)
GEMMS_WGMMA_FLOATS(f16)
GEMMS_WGMMA_FLOATS(bf16)
GEMMS_WGMMA_QUANTS(q4_0)
GEMMS_WGMMA_QUANTS(q4_1)
GEMMS_WGMMA_QUANTS(q5_0)
GEMMS_WGMMA_QUANTS(q5_1)
GEMMS_WGMMA_QUANTS(q8_0)
GEMMS_WGMMA_QUANTS(q4_k)
GEMMS_WGMMA_QUANTS(q5_k)
GEMMS_WGMMA_QUANTS(q6_k)
GEMMS_WGMMA_QUANTS(mxfp4)
