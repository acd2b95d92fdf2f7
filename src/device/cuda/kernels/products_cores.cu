/* Products for many rows with the matrix instructions of four warps, as kernels (products_cores.cuh). */
#include "device/cuda/kernels/products_cores.cuh"

/* Beside two teams there are four more warps, two of which have nothing to do: registers are given to four at a time, and together the warps cannot have more
 * than the 168 a thread that a kernel of 384 threads begins with. */
template <class S> SPRY_DEVICE void multiply_cores(const spry_product_args &a)
{
    SPRY_SHARED_ASKED(memory, 16);
    const core_ring<S> ring = {memory};
    ring.make();
    if (threadIdx.x < S::THREADS) {
        if (S::TEAMS == 2)
            registers_more<232>();
        core_team<S>(ring, a).run();
    } else {
        if (S::TEAMS == 2)
            registers_fewer<40>();
        if (threadIdx.x < S::THREADS + WARP)
            core_copier<S>(ring, a).run();
        else if (threadIdx.x < S::THREADS + 2 * WARP)
            make_norms(ring, a);
    }
}

/* Named by groups of rows, teams, and how many blocks a multiprocessor has room for. Quantised weights want more registers than two blocks can have: one
 * alone is faster than one of two, two are faster than one. */
#define PRODUCT_CORES(name, label, groups, teams, blocks, gate)                                                        \
    SPRY_KERNEL_EARLY(spry_product_##name##_##label##_##groups##_##teams##_##blocks, spry_product_args,                \
                      teams == 1 ? TEAM_THREADS + 2 * WARP : 3 * TEAM_THREADS, blocks)                                 \
    {                                                                                                                  \
        multiply_cores<core_shape<type_##name, groups, teams, gate>>(a);                                               \
    }
#define PRODUCTS_FLOATS(name)                                                                                          \
    PRODUCT_CORES(name, cores, 8, 1, 2, false) PRODUCT_CORES(name, cores, 16, 2, 1, false)                             \
    PRODUCT_CORES(name, gates, 8, 1, 2, true) PRODUCT_CORES(name, gates, 16, 2, 1, true)
#define PRODUCTS_QUANTS(name)                                                                                          \
    PRODUCTS_FLOATS(name) PRODUCT_CORES(name, cores, 8, 1, 1, false) PRODUCT_CORES(name, gates, 8, 1, 1, true)
PRODUCTS_FLOATS(f16)
PRODUCTS_FLOATS(bf16)
PRODUCTS_QUANTS(q4_0)
PRODUCTS_QUANTS(q4_1)
PRODUCTS_QUANTS(q5_0)
PRODUCTS_QUANTS(q5_1)
PRODUCTS_QUANTS(q8_0)
PRODUCTS_QUANTS(q4_k)
PRODUCTS_QUANTS(q5_k)
PRODUCTS_QUANTS(q6_k)
PRODUCTS_QUANTS(mxfp4)
