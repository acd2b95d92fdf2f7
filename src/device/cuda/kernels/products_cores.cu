/* Products for many rows with the matrix instructions of four warps, which GPUs of compute capability 9.0 have: a block
 * takes 4 or 8 tiles of weights, a warp each, and 128 rows, a unit of 64 inputs at a time. Weights come straight from
 * memory into registers, rows through shared memory, where they travel while those before them are used.
 *
 * Each sum is the one of products.cuh, split after split. Integers have one sum anyway; of floats it is tested that the
 * instruction adds 16 products as that of one warp does. Rows behind the last are computed from whatever lies there, and not
 * written. */
#include "device/cuda/kernels/products.cuh"

enum { CORE_GROUPS = SPRY_CORES_ROWS / SPRY_ACT_ROWS, CORE_STAGES = 3 };

typedef float core_sums[CORE_GROUPS][4];

/* How a type's rows lie, and what is done with a unit of them. */
template <class F> struct core_floats {
    enum { GROUP_BYTES = 2048, SCALE_BYTES = 0, TERM = 1024, CHUNK = 128 };
    typedef unit_floats<F> weights;

    static SPRY_METHOD void add(core_sums acc, const weights &w, const unsigned char *rows, const unsigned char *, int,
                                bool fresh)
    {
        float_words<F> words[4];
        SPRY_UNROLL
        for (int step = 0; step < 4; step++)
            split_floats(words[step], w.steps[step]);
        cores_begin();
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            SPRY_UNROLL
            for (int j = 0; j < 2; j++) {
                SPRY_UNROLL
                for (int i = 0; i < F::TERMS && i + j < 2; i++) {
                    multiply_cores_bf16(acc, words[step].words[i], rows + j * TERM + step * 2 * CHUNK, GROUP_BYTES, fresh);
                    fresh = false;
                }
            }
        }
        cores_end(acc);
    }
};

template <class Q> struct core_bytes {
    enum { GROUP_BYTES = 512, SCALE_BYTES = 128, CHUNK = 128 };
    typedef unit_quants<Q> weights;

    /* Four quants as signed bytes around 0, where their type has a middle. */
    static SPRY_METHOD uint32_t level(const unit_words<Q> &words, int i)
    {
        uint32_t word = quant_word<Q>(words, i), zero = Q::ZERO;
        return zero ? ((word | 0x80808080u) - zero * 0x01010101u) ^ 0x80808080u : word;
    }

    /* acc += scale * dots of a block, or of the half of one. */
    static SPRY_METHOD void add_dots(core_sums acc, const int32_t dots[CORE_GROUPS][4], const unit_scales<Q> s[2],
                                     int number, const unsigned char *scales, int block, int lane)
    {
        SPRY_UNROLL
        for (int g = 0; g < CORE_GROUPS; g++) {
            const float2 *columns = (const float2 *)(scales + g * SCALE_BYTES) + block * SPRY_ACT_ROWS + lane % 4 * 2;
            SPRY_UNROLL
            for (int i = 0; i < 4; i++) {
                const float2 c = columns[i % 2];
                float dot = float_of_bits((uint32_t)(dots[g][i] + ROUND_BITS)) - ROUND_FLOAT;
                acc[g][i] = fmaf(dot, s[i / 2].scale[number] * c.x, acc[g][i]);
                if (Q::MIN)
                    acc[g][i] = fmaf(s[i / 2].min[number], c.x * c.y, acc[g][i]);
            }
        }
    }

    static SPRY_METHOD void add(core_sums acc, const weights &w, const unsigned char *rows, const unsigned char *scales,
                                int lane, bool fresh)
    {
        unit_scales<Q> s[2];
        decode_scales<Q>(s[0], w.raw[0]);
        decode_scales<Q>(s[1], w.raw[1]);
        SPRY_UNROLL
        for (int i = 0; i < CORE_GROUPS * 4; i++)
            acc[i / 4][i % 4] = fresh ? 0 : acc[i / 4][i % 4];
        SPRY_UNROLL
        for (int number = 0; number < 64 / Q::GROUP; number++) {
            int block = number * Q::GROUP / 32, half = number % (32 / Q::GROUP);
            uint32_t q[4] = {level(w.words, block * 4), level(w.words, block * 4 + 2), level(w.words, block * 4 + 1),
                             level(w.words, block * 4 + 3)};
            SPRY_UNROLL
            for (int i = 0; i < 4; i++)
                q[i] = Q::GROUP == 16 && i / 2 != half ? 0 : q[i];
            int32_t dots[CORE_GROUPS][4];
            cores_begin();
            multiply_cores_bytes(dots, q, rows + block * 2 * CHUNK, GROUP_BYTES, true);
            cores_end(dots);
            add_dots(acc, dots, s, number, scales, block, lane);
        }
    }
};

template <class T, bool BYTES> struct core_of {
    typedef core_bytes<T> type;
};
template <class T> struct core_of<T, false> {
    typedef core_floats<T> type;
};

/* The block's threads copy a unit of its rows. */
template <class C, int THREADS>
SPRY_DEVICE void copy_core_rows(unsigned char *stage, const spry_acts &act, uint32_t group, uint32_t unit)
{
    enum { VALUES = CORE_GROUPS * C::GROUP_BYTES, SCALES = CORE_GROUPS * C::SCALE_BYTES };
    uint64_t first = (uint64_t)unit * act.cores + group;
    const unsigned char *values = act.values + first * C::GROUP_BYTES;
    const unsigned char *scales = (const unsigned char *)act.scales + first * C::SCALE_BYTES;
    for (int i = (int)threadIdx.x * 16; i < (int)VALUES; i += THREADS * 16)
        copy_ahead(stage + i, values + i);
    for (int i = (int)threadIdx.x * 16; i < (int)SCALES; i += THREADS * 16)
        copy_ahead(stage + VALUES + i, scales + i);
}

template <class T, class C, int THREADS>
SPRY_DEVICE void add_core_units(core_sums total, unsigned char *stages, const product_place &p, const spry_acts &act)
{
    enum { VALUES = CORE_GROUPS * C::GROUP_BYTES, STAGE = VALUES + CORE_GROUPS * C::SCALE_BYTES };
    uint32_t n_units = p.weight.n_units, split = 0;
    bool fresh = true;
    core_sums acc = {};
    typename C::weights now, next;
    now.load(p, 0);
    for (uint32_t unit = 0; unit < CORE_STAGES - 1; unit++) {
        if (unit < n_units)
            copy_core_rows<C, THREADS>(stages + unit * STAGE, act, p.group, unit);
        copy_commit();
    }
    for (uint32_t unit = 0; unit < n_units; unit++) {
        copy_wait_but<CORE_STAGES - 2>();
        cores_publish();
        block_wait();
        uint32_t ahead = unit + CORE_STAGES - 1;
        if (ahead < n_units)
            copy_core_rows<C, THREADS>(stages + ahead % CORE_STAGES * STAGE, act, p.group, ahead);
        copy_commit();
        next.load(p, unit + 1 < n_units ? unit + 1 : unit);
        const unsigned char *stage = stages + unit % CORE_STAGES * STAGE;
        C::add(acc, now, stage, stage + VALUES, p.lane, fresh);
        fresh = false;
        now = next;
        while (split_begin(p, split + 1) <= unit)
            split++;
        if (split_begin(p, split + 1) != unit + 1)
            continue;
        SPRY_UNROLL
        for (int i = 0; i < CORE_GROUPS * 4; i++)
            total[i / 4][i % 4] += acc[i / 4][i % 4];
        fresh = true;
    }
}

/* A grid of (tiles by warps, rows by SPRY_CORES_ROWS). */
template <class T, int WARPS> SPRY_DEVICE void multiply_cores(const spry_product_args &a)
{
    typedef typename core_of<T, (int)T::FORM == (int)SPRY_ACT_BYTES>::type C;
    enum { STAGE = CORE_GROUPS * (C::GROUP_BYTES + C::SCALE_BYTES) };
    SPRY_SHARED_LARGE(stages, CORE_STAGES *STAGE);
    uint32_t number = blockIdx.x * WARPS + threadIdx.x / WARP, tile = number < a.n_tiles ? number : a.n_tiles - 1;
    const spry_product_part &part = a.parts[product_part(a, tile)];
    product_place p = place_product(a, part, tile, blockIdx.y * CORE_GROUPS, 0);
    core_sums total = {};
    add_core_units<T, C, WARPS * WARP>(total, stages, p, a.act);
    if (number >= a.n_tiles)
        return;
    SPRY_UNROLL
    for (int i = 0; i < CORE_GROUPS * 4; i++)
        write_sum(a, part, p, p.group + (uint32_t)(i / 4), p.lane, i % 4, total[i / 4][i % 4], 0);
}

#define PRODUCTS_CORES(name)                                                                                           \
    SPRY_KERNEL(spry_product_##name##_cores_4, spry_product_args, 4 * WARP)                                            \
    {                                                                                                                  \
        multiply_cores<type_##name, 4>(a);                                                                             \
    }                                                                                                                  \
    SPRY_KERNEL(spry_product_##name##_cores_8, spry_product_args, 8 * WARP)                                            \
    {                                                                                                                  \
        multiply_cores<type_##name, 8>(a);                                                                             \
    }
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
PRODUCTS_CORES(f16)
PRODUCTS_CORES(bf16)
PRODUCTS_CORES(q4_0)
PRODUCTS_CORES(q4_1)
PRODUCTS_CORES(q5_0)
PRODUCTS_CORES(q5_1)
PRODUCTS_CORES(q8_0)
PRODUCTS_CORES(q4_k)
PRODUCTS_CORES(q5_k)
PRODUCTS_CORES(q6_k)
PRODUCTS_CORES(mxfp4)
#else
/* An image without a kernel cannot be loaded. */
SPRY_KERNEL(spry_product_no_cores, spry_product_args, WARP)
{
    (void)a;
}
#endif
