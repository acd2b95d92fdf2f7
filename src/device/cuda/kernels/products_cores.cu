/* Products for many rows with the matrix instructions of four warps, which GPUs of compute capability 9.0 have: a block
 * takes 4 tiles of weights, a warp each, and GROUPS groups of 8 rows (64 or 128 rows), a unit of 64 inputs at a time.
 * Weights and rows come through shared memory, STAGES units of which are there or on their way.
 *
 * Where blocks would be too few for the GPU, those of a cluster share the inputs: each has as many splits of them, and what they give
 * goes through memory.
 *
 * Of a gate and an `up` in floats a block takes two tiles each, and writes what they give gated, encoded for the product that follows.
 *
 * Each sum is the one of products.cuh, split after split. Integers have one sum anyway; of floats it is tested that the
 * instruction adds 16 products as that of one warp does. Rows behind the last are computed from whatever lies there, and not
 * written. */
#include "device/cuda/kernels/products.cuh"

enum { CORE_WARPS = 4 };

/* How a type's rows lie, and what is done with a unit of them; `meanwhile` is called while matrix instructions run. */
template <class F, int GROUPS> struct core_floats {
    enum { TERM = 1024, GROUP_BYTES = F::ACTS * TERM, SCALE_BYTES = 0, CHUNK = 128 };
    typedef unit_floats<F> weights;

    template <class M>
    static SPRY_METHOD void add(float acc[GROUPS][4], const weights &w, const unsigned char *rows, const unsigned char *, int,
                                bool fresh, M meanwhile)
    {
        float_words<F> words[4];
        SPRY_UNROLL
        for (int step = 0; step < 4; step++)
            split_floats(words[step], w.steps[step]);
        cores_begin();
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            SPRY_UNROLL
            for (int j = 0; j < F::ACTS; j++) {
                SPRY_UNROLL
                for (int i = 0; i < F::TERMS && i + j < F::ACTS; i++) {
                    multiply_cores_bf16<GROUPS>(acc, words[step].words[i], rows + j * TERM + step * 2 * CHUNK, GROUP_BYTES, fresh);
                    fresh = false;
                }
            }
        }
        cores_run();
        meanwhile();
        cores_end<GROUPS>(acc);
    }
};

template <class Q, int GROUPS> struct core_bytes {
    enum { GROUP_BYTES = 512, SCALE_BYTES = 128, CHUNK = 128 };
    typedef unit_quants<Q> weights;

    /* Four quants as signed bytes around 0, where their type has a middle. */
    static SPRY_METHOD uint32_t level(const unit_words<Q> &words, int i)
    {
        uint32_t word = quant_word<Q>(words, i), zero = Q::ZERO;
        return zero ? ((word | 0x80808080u) - zero * 0x01010101u) ^ 0x80808080u : word;
    }

    /* acc += scale * dots of a block, or of the half of one. */
    static SPRY_METHOD void add_dots(float acc[GROUPS][4], const int32_t dots[GROUPS][4], const unit_scales<Q> s[2],
                                     int number, const unsigned char *scales, int block, int lane)
    {
        SPRY_UNROLL
        for (int g = 0; g < GROUPS; g++) {
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

    template <class M>
    static SPRY_METHOD void add(float acc[GROUPS][4], const weights &w, const unsigned char *rows, const unsigned char *scales,
                                int lane, bool fresh, M meanwhile)
    {
        unit_scales<Q> s[2];
        decode_scales<Q>(s[0], w.raw[0]);
        decode_scales<Q>(s[1], w.raw[1]);
        SPRY_UNROLL
        for (int i = 0; i < GROUPS * 4; i++)
            acc[i / 4][i % 4] = fresh ? 0 : acc[i / 4][i % 4];
        SPRY_UNROLL
        for (int number = 0; number < 64 / Q::GROUP; number++) {
            int block = number * Q::GROUP / 32, half = number % (32 / Q::GROUP);
            uint32_t q[4] = {level(w.words, block * 4), level(w.words, block * 4 + 2), level(w.words, block * 4 + 1),
                             level(w.words, block * 4 + 3)};
            SPRY_UNROLL
            for (int i = 0; i < 4; i++)
                q[i] = Q::GROUP == 16 && i / 2 != half ? 0 : q[i];
            int32_t dots[GROUPS][4];
            cores_begin();
            multiply_cores_bytes<GROUPS>(dots, q, rows + block * 2 * CHUNK, GROUP_BYTES, true);
            cores_run();
            if (number == 0)
                meanwhile();
            cores_end<GROUPS>(dots);
            add_dots(acc, dots, s, number, scales, block, lane);
        }
    }
};

template <class T, int GROUPS, bool BYTES> struct core_of {
    typedef core_bytes<T, GROUPS> type;
};
template <class T, int GROUPS> struct core_of<T, GROUPS, false> {
    typedef core_floats<T, GROUPS> type;
};

/* The block's threads copy a unit of its rows. */
template <class C, int GROUPS, int THREADS>
SPRY_DEVICE void copy_core_rows(unsigned char *stage, const spry_acts &act, uint32_t group, uint32_t unit)
{
    enum { VALUES = GROUPS * C::GROUP_BYTES, SCALES = GROUPS * C::SCALE_BYTES, EACH = THREADS * 16 };
    uint64_t first = (uint64_t)unit * act.cores + group;
    const unsigned char *values = act.values + first * C::GROUP_BYTES;
    const unsigned char *scales = (const unsigned char *)act.scales + first * C::SCALE_BYTES;
    stage += threadIdx.x * 16;
    values += threadIdx.x * 16;
    scales += threadIdx.x * 16;
    SPRY_UNROLL
    for (int i = 0; i < VALUES; i += EACH)
        copy_ahead(stage + i, values + i);
    if (SCALES > 0 && (int)threadIdx.x * 16 < SCALES)
        copy_ahead(stage + VALUES, scales);
}

/* Sums of splits of a block that shares its inputs, [split, group] of four for each thread. The first block of a cluster adds its
 * splits up itself: what they give is split 0. */
template <int GROUPS, int THREADS> struct core_sums {
    float4 *at;

    SPRY_METHOD core_sums(const spry_product_args &a)
    {
        uint64_t block = (uint64_t)blockIdx.z * gridDim.y + blockIdx.y;
        at = (float4 *)a.sums + block * SPRY_PRODUCT_SPLITS * GROUPS * THREADS + threadIdx.x;
    }

    SPRY_METHOD void put(uint32_t split, const float sums[GROUPS][4]) const
    {
        SPRY_UNROLL
        for (int g = 0; g < GROUPS; g++) {
            float4 four = {sums[g][0], sums[g][1], sums[g][2], sums[g][3]};
            at[(split * GROUPS + (uint32_t)g) * THREADS] = four;
        }
    }

    SPRY_METHOD void add(float total[4], uint32_t split, uint32_t group) const
    {
        float4 four = at[(split * GROUPS + group) * THREADS];
        total[0] += four.x;
        total[1] += four.y;
        total[2] += four.z;
        total[3] += four.w;
    }
};

/* What a block goes through: units of its splits. */
template <class T, int WARPS, int GROUPS, int STAGES> struct core_units {
    enum { BYTES = (int)T::FORM == (int)SPRY_ACT_BYTES, THREADS = WARPS * WARP };
    typedef typename core_of<T, GROUPS, BYTES>::type C;
    typedef kept_units<T, STAGES, BYTES> kept;
    typedef core_sums<GROUPS, THREADS> shared_sums;
    enum { VALUES = GROUPS * C::GROUP_BYTES, ROWS = VALUES + GROUPS * C::SCALE_BYTES };
    unsigned char *rows; /* [STAGES] */
    kept weights;
    uint32_t unit, end, split;
    bool first, fresh; /* the first block of its cluster; the first unit of a split */
    float acc[GROUPS][4];

    SPRY_METHOD core_units(unsigned char *stages, const product_place &p)
    {
        uint32_t share = gridDim.x;
        rows = stages;
        weights.place(stages + STAGES * ROWS, threadIdx.x / WARP, p.lane);
        split = SPRY_PRODUCT_SPLITS * blockIdx.x / share;
        unit = split_begin(p, split);
        end = split_begin(p, SPRY_PRODUCT_SPLITS * (blockIdx.x + 1) / share);
        first = blockIdx.x == 0;
        fresh = true;
    }

    SPRY_METHOD void load(const product_place &p, uint32_t number)
    {
        if (number < end)
            weights.load(p, number % STAGES, number);
    }

    SPRY_METHOD void copy(const product_place &p, const spry_acts &act, uint32_t number) const
    {
        if (number < end)
            copy_core_rows<C, GROUPS, THREADS>(rows + number % STAGES * ROWS, act, p.group, number);
        copy_commit();
    }

    SPRY_METHOD void multiply(const product_place &p, const spry_acts &act)
    {
        copy_wait_but<STAGES - 2>();
        cores_publish();
        block_wait();
        const unsigned char *stage = rows + unit % STAGES * ROWS;
        C::add(acc, weights.get(unit % STAGES), stage, stage + VALUES, p.lane, fresh, [&] {
            load(p, unit + STAGES - 1);
            copy(p, act, unit + STAGES - 1);
        });
        fresh = false;
    }

    /* Adds all splits of the block up in `total`, or writes each to `sums`. Weights do not wait for the kernels before
     * this one; rows do. */
    SPRY_METHOD void add(float total[GROUPS][4], const shared_sums &sums, const product_place &p, const spry_acts &act)
    {
        SPRY_UNROLL
        for (uint32_t i = 0; i < STAGES - 1; i++)
            load(p, unit + i);
        grid_wait();
        SPRY_UNROLL
        for (uint32_t i = 0; i < STAGES - 1; i++)
            copy(p, act, unit + i);
        SPRY_UNROLL_BY(1)
        for (; unit < end; unit++) {
            multiply(p, act);
            while (split_begin(p, split + 1) <= unit)
                split++;
            if (split_begin(p, split + 1) != unit + 1)
                continue;
            fresh = true;
            SPRY_UNROLL
            for (int i = 0; first && i < GROUPS * 4; i++)
                total[i / 4][i % 4] += acc[i / 4][i % 4];
            if (!first)
                sums.put(split, acc);
        }
    }
};

/* Sums of the lane's two outputs for its rows before `end`; what they are added to is loaded for four groups at once. */
template <int GROUPS>
SPRY_DEVICE void write_core_sums(const spry_product_args &a, const spry_product_part &part, const product_place &p,
                                 const float (*total)[4], uint32_t end)
{
    enum { TOGETHER = 4 };
    uint32_t output = p.tile * SPRY_TILE_ROWS + (uint32_t)(p.lane / 4), row = p.group * SPRY_ACT_ROWS + (uint32_t)(p.lane % 4) * 2;
    const bool there[2] = {output < part.weight.n_out, output + 8 < part.weight.n_out};
    const float bias[2] = {part.bias && there[0] ? part.bias[output] : 0, part.bias && there[1] ? part.bias[output + 8] : 0};
    float *to = part.out + (uint64_t)row * part.stride + output;
    SPRY_UNROLL
    for (int first = 0; first < GROUPS; first += TOGETHER) {
        float base[TOGETHER][4];
        SPRY_UNROLL
        for (int k = 0; a.add && k < TOGETHER * 4; k++) {
            int i = k % 4, g = first + k / 4;
            base[k / 4][i] = there[i / 2] && row + (uint32_t)(g * 8 + i % 2) < end
                                 ? to[(uint64_t)(g * 8 + i % 2) * part.stride + i / 2 * 8]
                                 : 0;
        }
        SPRY_UNROLL
        for (int k = 0; k < TOGETHER * 4; k++) {
            int i = k % 4, g = first + k / 4;
            float sum = part.bias ? total[g][i] + bias[i / 2] : total[g][i];
            if (there[i / 2] && row + (uint32_t)(g * 8 + i % 2) < end)
                to[(uint64_t)(g * 8 + i % 2) * part.stride + i / 2 * 8] = a.add ? base[k / 4][i] + sum : sum;
        }
    }
}

/* Each block of a cluster takes some groups of rows, at most four, and adds up what all blocks gave. */
template <int GROUPS, int THREADS>
SPRY_DEVICE void write_shared_sums(const spry_product_args &a, const spry_product_part &part, product_place p,
                                   const core_sums<GROUPS, THREADS> &sums, bool there)
{
    enum { MOST = 4 };
    uint32_t share = gridDim.x, groups = GROUPS / share, from = blockIdx.x * groups;
    float total[MOST][4] = {};
    SPRY_UNROLL_BY(4)
    for (uint32_t split = 0; split < SPRY_PRODUCT_SPLITS; split++) {
        bool written = split ? split >= SPRY_PRODUCT_SPLITS / share && split_begin(p, split) < split_begin(p, split + 1) : true;
        SPRY_UNROLL
        for (uint32_t g = 0; g < MOST; g++)
            if (written && g < groups)
                sums.add(total[g], split, from + g);
    }
    p.group += from;
    uint32_t end = (p.group + groups) * SPRY_ACT_ROWS;
    if (there)
        write_core_sums<MOST>(a, part, p, total, end < a.n_rows ? end : a.n_rows);
}

/* What a gate and an `up` give, gated: a warp encodes 32 values of a row. `room`: [2, rows, GATED_WIDTH] floats. */
enum { GATED_WIDTH = WARP + 1 };

template <int GROUPS>
SPRY_DEVICE void write_core_gated(const spry_product_args &a, const spry_product_part &part, const product_place &p,
                                  const float (*total)[4], float *room)
{
    enum { ROWS = GROUPS * SPRY_ACT_ROWS };
    uint32_t warp = threadIdx.x / WARP, first = p.group * SPRY_ACT_ROWS;
    float *its = room + warp / 2 * ROWS * GATED_WIDTH + warp % 2 * SPRY_TILE_ROWS;
    block_wait(); /* for warps that multiply */
    SPRY_UNROLL
    for (int k = 0; k < GROUPS * 4; k++) {
        int i = k % 4, row = k / 4 * SPRY_ACT_ROWS + p.lane % 4 * 2 + i % 2, output = p.lane / 4 + i / 2 * 8;
        float sum = total[k / 4][i];
        its[row * GATED_WIDTH + output] = part.bias ? sum + sum_bias(part, p, p.lane, i, 0) : sum;
    }
    block_wait();
    SPRY_UNROLL_BY(2)
    for (uint32_t row = warp; row < ROWS && first + row < a.n_rows; row += CORE_WARPS) {
        const float *gate = room + row * GATED_WIDTH + p.lane, *up = gate + ROWS * GATED_WIDTH;
        write_forms(a.from.to, first + row, blockIdx.y, p.lane, gated(*gate, *up, a.from.gate));
    }
}

/* A grid of (blocks of a cluster, tiles by four, rows by 8 GROUPS). Blocks of 64 rows may share inputs: 1, 2, 4 or 8 of them. */
template <class T, int GROUPS, int STAGES, bool GATE> SPRY_DEVICE void multiply_cores(const spry_product_args &a)
{
    enum { SHARED = GROUPS == 8 && !GATE };
    typedef core_units<T, CORE_WARPS, GROUPS, STAGES> core;
    SPRY_SHARED_LARGE(stages, STAGES *(core::ROWS + CORE_WARPS * core::kept::UNIT));
    uint32_t warp = threadIdx.x / WARP, number = blockIdx.y * CORE_WARPS + warp;
    if (GATE)
        number = a.parts[warp / 2].first_tile + blockIdx.y * 2 + warp % 2;
    uint32_t tile = number < a.n_tiles ? number : a.n_tiles - 1;
    const spry_product_part &part = a.parts[GATE ? warp / 2 : product_part(a, tile)];
    product_place p = place_product(a, part, tile, blockIdx.z * GROUPS, 0);
    float total[GROUPS][4] = {};
    const typename core::shared_sums sums(a);
    core units(stages, p);
    units.add(total, sums, p, a.act);
    if (GATE) {
        write_core_gated<GROUPS>(a, part, p, total, (float *)stages);
    } else if (SHARED && gridDim.x > 1) {
        if (units.first)
            sums.put(0, total);
        cluster_wait();
        write_shared_sums(a, part, p, sums, number < a.n_tiles);
    } else if (number < a.n_tiles) {
        write_core_sums<GROUPS>(a, part, p, total, a.n_rows);
    }
}

#define PRODUCT_CORES(name, groups, stages)                                                                            \
    SPRY_KERNEL_EARLY(spry_product_##name##_cores_##groups, spry_product_args, CORE_WARPS *WARP)                       \
    {                                                                                                                  \
        multiply_cores<type_##name, groups, stages, false>(a);                                                         \
    }
#define GATE_CORES(name, groups, stages)                                                                               \
    SPRY_KERNEL_EARLY(spry_product_##name##_cores_gate_##groups, spry_product_args, CORE_WARPS *WARP)                  \
    {                                                                                                                  \
        multiply_cores<type_##name, groups, stages, true>(a);                                                          \
    }
#define PRODUCTS_CORES(name) PRODUCT_CORES(name, 8, 6) PRODUCT_CORES(name, 16, 4)
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
PRODUCTS_CORES(f16)
PRODUCTS_CORES(bf16)
GATE_CORES(f16, 8, 6)
GATE_CORES(f16, 16, 4)
GATE_CORES(bf16, 8, 6)
GATE_CORES(bf16, 16, 4)
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
