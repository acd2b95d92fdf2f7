/* Products for many rows with the matrix instructions of four warps, which GPUs of compute capability 9.0 have. A block has one or two
 * teams of four warps, which multiply, and a warp that copies. Units of 64 inputs, of the block's rows and of each team's four tiles of
 * weights, go through a ring of stages in shared memory, from one item of the block (tiles and rows) to the next without a pause. A team takes
 * GROUPS groups of 8 rows, which are all rows of an item, and each of its warps one tile; what they give goes through shared memory, so that a warp
 * writes whole rows.
 *
 * Of a gate and an `up` half of the tiles are of each, and what they give is written gated, encoded for the product that follows.
 *
 * Where items are too few for the GPU, the blocks of a cluster share the splits of one: the first adds its own up, the others leave what each of theirs
 * gives in their shared memory, and then each block adds up, in order, and writes some of the rows.
 *
 * Each sum is the one of products.cuh, split after split. Bytes are multiplied as bf16, which have them exactly, so their sum is the one of
 * integers; of floats it is tested that the instruction adds 16 products as that of one warp does. Rows behind the last are computed from whatever
 * lies there, and not written. */
#pragma once

#include "device/cuda/kernels/products.cuh"

enum { TEAM_WARPS = 4, TEAM_THREADS = TEAM_WARPS * WARP, TEAM_TILES = SPRY_TILES_TOGETHER, TEAM_OUTPUTS = TEAM_TILES * SPRY_TILE_ROWS };

/* ---- weights ------------------------------------------------------------------------------------------------------ */

/* A unit of a team's tiles in shared memory, and what a warp takes of its own: as the instructions want it. BULK: bytes that are copied by one
 * thread, besides which all lanes of the copying warp arrive where there are other planes. `source`: N tiles, those of the team from SLOT on, unit after
 * unit. */
template <class F> struct core_floats {
    enum { GROUP_BYTES = SPRY_CORE_TERM * F::ACTS, TILE = F::LANE * 4 * WARP, BYTES = TEAM_TILES * TILE, BULK = BYTES, PLANES = false };
    float_words<F> steps[4];

    template <int N, int SLOT> struct source {
        const unsigned char *values;

        SPRY_METHOD void start(const spry_tiles &w, uint32_t tile, uint32_t unit)
        {
            values = tile_plane(w, 0, tile_unit(w, tile, unit), TILE);
        }

        SPRY_METHOD void copy(unsigned char *team, int lane, copy_barrier *full)
        {
            if (lane == 0)
                copy_bulk(team + SLOT * TILE, values, N * TILE, full);
            values += TEAM_TILES * TILE;
        }
    };

    SPRY_METHOD void load(const unsigned char *team, int slot, int lane)
    {
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            float_bits<F> bits;
            load_words(bits.words, team + slot * TILE + (step * WARP + lane) * 16, 4);
            split_floats(steps[step], bits);
        }
    }

    /* acc += what the unit gives, or = with `fresh`. */
    template <int GROUPS> SPRY_METHOD void add(float (*acc)[4], const unsigned char *rows, int, bool fresh) const
    {
        cores_begin();
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            SPRY_UNROLL
            for (int j = 0; j < F::ACTS; j++) {
                SPRY_UNROLL
                for (int i = 0; i < F::TERMS && i + j < F::ACTS; i++) {
                    multiply_cores_bf16<GROUPS>(acc, steps[step].words[i], rows + j * SPRY_CORE_TERM + step * 256, GROUP_BYTES, fresh);
                    fresh = false;
                }
            }
        }
        cores_run();
        cores_end<GROUPS>(acc);
        SPRY_UNROLL
        for (int i = 0; i < 4 * F::TERMS * 4; i++)
            keep_operand(steps[i / (F::TERMS * 4)].words[i / 4 % F::TERMS][i % 4]);
    }
};

template <class Q> struct core_quants {
    enum { GROUP_BYTES = SPRY_CORE_BYTES, VALUES = Q::LANE * WARP, HIGH = Q::HIGH * 4 * WARP, SCALES = Q::SCALE * SPRY_TILE_ROWS };
    enum { SUPER = Q::SUPER ? 4 * SPRY_TILE_ROWS : 0, BULK = TEAM_TILES * VALUES, PLANES = true };
    enum { SCALES_AT = BULK + TEAM_TILES * HIGH, SUPER_AT = SCALES_AT + TEAM_TILES * SCALES, BYTES = SUPER_AT + TEAM_TILES * SUPER };
    unit_words<Q> words;
    scale_words<Q> raw[2];

    /* By the lanes of the warp. */
    template <int N> static SPRY_METHOD void copy_plane(unsigned char *to, const unsigned char *from, int lane)
    {
        SPRY_UNROLL
        for (int i = 0; i < N; i += WARP * 16)
            if (i + lane * 16 < N)
                copy_ahead(to + i + lane * 16, from + i + lane * 16);
    }

    template <int N, int SLOT> struct source {
        const unsigned char *values, *high, *scales, *super;
        uint32_t unit;

        SPRY_METHOD void start(const spry_tiles &w, uint32_t tile, uint32_t first)
        {
            uint64_t number = tile_unit(w, tile, first);
            unit = first;
            values = tile_plane(w, 0, number, VALUES);
            high = tile_plane(w, w.high, number, HIGH);
            scales = tile_plane(w, w.scale, number, SCALES);
            super = tile_plane(w, w.super, tile_super(w, tile, first), SUPER);
        }

        SPRY_METHOD void copy(unsigned char *team, int lane, copy_barrier *full)
        {
            if (lane == 0)
                copy_bulk(team + SLOT * VALUES, values, N * VALUES, full);
            copy_plane<N * HIGH>(team + BULK + SLOT * HIGH, high, lane);
            copy_plane<N * SCALES>(team + SCALES_AT + SLOT * SCALES, scales, lane);
            copy_plane<N * SUPER>(team + SUPER_AT + SLOT * SUPER, super, lane);
            values += TEAM_TILES * VALUES;
            high += TEAM_TILES * HIGH;
            scales += TEAM_TILES * SCALES;
            super += ++unit % 4 ? 0 : TEAM_TILES * SUPER; /* one for four units */
        }
    };

    SPRY_METHOD void load(const unsigned char *team, int slot, int lane)
    {
        load_words(words.words, team + slot * VALUES + lane * Q::LANE, Q::LANE / 4);
        SPRY_UNROLL
        for (int k = 0; k < Q::HIGH; k++)
            words.high[k] = ((const uint32_t *)(team + BULK + slot * HIGH))[lane * Q::HIGH + k];
        SPRY_UNROLL
        for (int upper = 0; upper < 2; upper++) {
            int output = lane / 4 + upper * 8;
            SPRY_UNROLL
            for (int k = 0; k < Q::SCALE / 4; k++)
                raw[upper].scale[k] = ((const uint32_t *)(team + SCALES_AT + slot * SCALES))[output * (Q::SCALE / 4) + k];
            raw[upper].super = Q::SUPER ? ((const uint32_t *)(team + SUPER_AT + slot * SUPER))[output] : 0;
        }
    }

    /* acc += scale * dots of inputs with one scale. */
    template <int GROUPS>
    static SPRY_METHOD void add_dots(float (*acc)[4], const float (*dots)[4], const unit_scales<Q> s[2], int number, const unsigned char *rows,
                                     int lane)
    {
        SPRY_UNROLL
        for (int g = 0; g < GROUPS; g++) {
            const float4 columns = ((const float4 *)(rows + g * GROUP_BYTES + SPRY_CORE_TERM))[number * Q::GROUP / 32 * 4 + lane % 4];
            SPRY_UNROLL
            for (int i = 0; i < 4; i++) {
                float scale = i % 2 ? columns.z : columns.x, sum = i % 2 ? columns.w : columns.y;
                acc[g][i] = fmaf(dots[g][i], s[i / 2].scale[number] * scale, acc[g][i]);
                if (Q::MIN)
                    acc[g][i] = fmaf(s[i / 2].min[number], scale * sum, acc[g][i]);
            }
        }
    }

    /* Where there are registers for it, dots of the next inputs with one scale are computed while those before are scaled. */
    template <int GROUPS> SPRY_METHOD void add(float (*acc)[4], const unsigned char *rows, int lane, bool fresh) const
    {
        enum { STEPS = Q::GROUP / 16, N = 4 / STEPS, TWO = GROUPS == 8 };
        unit_scales<Q> s[2];
        uint32_t q[TWO + 1][STEPS][4];
        float dots[TWO + 1][GROUPS][4];
        decode_scales<Q>(s[0], raw[0]);
        decode_scales<Q>(s[1], raw[1]);
        SPRY_UNROLL
        for (int i = 0; i < GROUPS * 4; i++)
            acc[i / 4][i % 4] = fresh ? 0 : acc[i / 4][i % 4];
        begin<GROUPS>(dots[0], q[0], rows, 0);
        SPRY_UNROLL
        for (int number = 0; number < N; number++) {
            int now = TWO ? number % 2 : 0, next = TWO ? 1 - now : 0;
            if (TWO && number + 1 < N) {
                begin<GROUPS>(dots[next], q[next], rows, number + 1);
                cores_wait<1, GROUPS>(dots[now]);
            } else {
                cores_wait<0, GROUPS>(dots[now]);
            }
            SPRY_UNROLL
            for (int i = 0; i < STEPS * 4; i++)
                keep_operand(q[now][i / 4][i % 4]);
            add_dots<GROUPS>(acc, dots[now], s, number, rows, lane);
            if (!TWO && number + 1 < N)
                begin<GROUPS>(dots[0], q[0], rows, number + 1);
        }
    }

  private:
    template <int GROUPS> SPRY_METHOD void begin(float (*dots)[4], uint32_t (*q)[4], const unsigned char *rows, int number) const
    {
        enum { STEPS = Q::GROUP / 16 };
        SPRY_UNROLL
        for (int step = 0; step < STEPS; step++)
            quant_levels<Q>(q[step], words, number * STEPS + step);
        cores_begin();
        SPRY_UNROLL
        for (int step = 0; step < STEPS; step++)
            multiply_cores_bf16<GROUPS>(dots, q[step], rows + (number * STEPS + step) * 256, GROUP_BYTES, step == 0);
        cores_run();
    }
};

template <class T, bool QUANTS = T::QUANTS> struct core_weights {
    typedef core_quants<T> type;
};
template <class T> struct core_weights<T, false> {
    typedef core_floats<T> type;
};

/* ---- where things are --------------------------------------------------------------------------------------------- */

/* Tiles and rows that a block multiplies; items of one column have the same tiles. */
struct core_item {
    uint32_t column, first_group;
};

/* Tiles of a part of the product. */
struct core_tiles {
    uint32_t part, tile;
    bool there; /* false: a team without tiles of its own, which takes the last ones */
};

template <class T, int GROUPS_, int TEAMS_, bool GATE_> struct core_shape {
    typedef typename core_weights<T>::type weights;
    enum { GROUPS = GROUPS_, TEAMS = TEAMS_, GATE = GATE_, THREADS = TEAMS * TEAM_THREADS };
    enum { ROWS = GROUPS * weights::GROUP_BYTES, STAGE = ROWS + TEAMS * weights::BYTES, BULK = ROWS + TEAMS * weights::BULK };
    enum { STAGES = GROUPS == 8 ? SPRY_CORE_STAGES_8 : T::ACTS == 2 ? SPRY_CORE_STAGES_TWO : SPRY_CORE_STAGES_16 };
    enum { WIDTH = TEAMS * TEAM_OUTPUTS + 4 }; /* floats of a row of sums: so that lanes meet different banks */
    enum { HALVES = GATE && TEAMS == 1 };      /* a team has two tiles of each matrix */

    static SPRY_METHOD uint32_t columns(const spry_product_args &a)
    {
        uint32_t n = 0;
        if (GATE)
            return a.parts[0].weight.n_tiles / (TEAMS * 2);
        for (uint32_t part = 0; part < a.n_parts; part++)
            n += (a.parts[part].weight.n_tiles + TEAM_TILES - 1) / TEAM_TILES;
        return (n + TEAMS - 1) / TEAMS;
    }

    /* The tiles of a team, or of its `half`. */
    static SPRY_METHOD core_tiles find(const spry_product_args &a, uint32_t column, uint32_t team, uint32_t half)
    {
        if (GATE) {
            core_tiles t = {TEAMS == 1 ? half : team, column * TEAMS * 2, true};
            return t;
        }
        uint32_t number = column * TEAMS + team, part = 0;
        for (;; part++) {
            uint32_t n = (a.parts[part].weight.n_tiles + TEAM_TILES - 1) / TEAM_TILES;
            if (number < n || part + 1 == a.n_parts) {
                core_tiles t = {part, (number < n ? number : n - 1) * TEAM_TILES, number < n};
                return t;
            }
            number -= n;
        }
    }
};

/* Barriers and stages of the ring, then [rows, WIDTH] sums, once or for several splits. */
template <class S> struct core_ring {
    unsigned char *memory;

    SPRY_METHOD copy_barrier *full(uint32_t stage) const
    {
        return (copy_barrier *)memory + stage;
    }

    SPRY_METHOD copy_barrier *empty(uint32_t stage) const
    {
        return (copy_barrier *)memory + S::STAGES + stage;
    }

    SPRY_METHOD unsigned char *at(uint32_t stage) const
    {
        return memory + SPRY_CORE_BARRIERS + stage * S::STAGE;
    }

    /* Of an item, or of split `number` of those that a block leaves to its cluster. */
    SPRY_METHOD float *sums(uint32_t number = 0) const
    {
        return (float *)(memory + SPRY_CORE_BARRIERS + S::STAGES * S::STAGE) + number * S::GROUPS * SPRY_ACT_ROWS * S::WIDTH;
    }

    SPRY_METHOD void make() const
    {
        if (threadIdx.x == 0) {
            for (uint32_t i = 0; i < S::STAGES; i++) {
                barrier_make(full(i), 1 + (S::weights::PLANES ? WARP : 0));
                barrier_make(empty(i), S::TEAMS * TEAM_WARPS);
            }
            barriers_made();
        }
        block_wait();
    }
};

/* A stage of the ring, and the phase that its barriers have then. */
template <class S> struct core_cursor {
    uint32_t stage, phase;

    SPRY_METHOD core_cursor() : stage(0), phase(0)
    {
    }

    SPRY_METHOD void next()
    {
        stage = stage + 1 < S::STAGES ? stage + 1 : 0;
        phase ^= stage == 0;
    }
};

/* The part of an item that a block has among those of its cluster: splits of the inputs, then groups of rows. */
struct core_share {
    uint32_t rank, blocks, first_split, first_unit, end_unit;

    SPRY_METHOD core_share(uint32_t n_units)
        : rank(blockIdx.x), blocks(gridDim.x), first_split(ACT_SPLITS * rank / blocks), first_unit(split_begin(n_units, first_split)),
          end_unit(split_begin(n_units, ACT_SPLITS * (rank + 1) / blocks))
    {
    }
};

/* The items of a cluster: every gridDim.y-th, rows first. */
template <class S> struct core_items {
    uint32_t row_blocks, n, number;

    SPRY_METHOD core_items(const spry_product_args &a)
        : row_blocks((a.n_rows + S::GROUPS * SPRY_ACT_ROWS - 1) / (S::GROUPS * SPRY_ACT_ROWS)), n(S::columns(a) * row_blocks), number(blockIdx.y)
    {
    }

    SPRY_METHOD bool next(core_item *item)
    {
        if (number >= n)
            return false;
        item->column = number / row_blocks;
        item->first_group = number % row_blocks * S::GROUPS;
        number += gridDim.y;
        return true;
    }
};

/* ---- the warp that copies ----------------------------------------------------------------------------------------- */

template <class S> struct core_copier {
    typedef typename S::weights weights;
    enum { N = S::HALVES ? 2 : TEAM_TILES, SECOND = S::HALVES ? 2 : 0 }; /* tiles of a source; the slot of a team's second one */
    core_ring<S> ring;
    const spry_product_args &a;
    int lane;
    typename weights::template source<N, 0> first, other; /* other: of the second team */
    typename weights::template source<N, SECOND> second;  /* of the `up` of a single team */
    const unsigned char *rows;

    SPRY_METHOD core_copier(const core_ring<S> &its, const spry_product_args &args) : ring(its), a(args), lane((int)(threadIdx.x % WARP))
    {
    }

    /* Weights of an item from a unit on, and its rows. */
    SPRY_METHOD void start(const core_item &item, uint32_t unit)
    {
        const core_tiles t = S::find(a, item.column, 0, 0), u = S::find(a, item.column, S::TEAMS - 1, S::HALVES);
        first.start(a.parts[t.part].weight, t.tile, unit);
        if (S::HALVES)
            second.start(a.parts[u.part].weight, u.tile, unit);
        else if (S::TEAMS == 2)
            other.start(a.parts[u.part].weight, u.tile, unit);
        rows = a.act.values + core_unit(a.act, item.first_group, unit) * weights::GROUP_BYTES;
    }

    SPRY_METHOD void copy_weights(uint32_t stage)
    {
        unsigned char *to = ring.at(stage) + S::ROWS;
        copy_barrier *full = ring.full(stage);
        if (lane == 0)
            barrier_expect(full, S::BULK);
        first.copy(to, lane, full);
        if (S::HALVES)
            second.copy(to, lane, full);
        else if (S::TEAMS == 2)
            other.copy(to + weights::BYTES, lane, full);
        if (weights::PLANES)
            barrier_arrive_copied(full);
    }

    SPRY_METHOD void copy_rows(uint32_t stage)
    {
        if (lane == 0)
            copy_bulk(ring.at(stage), rows, S::ROWS, ring.full(stage));
        rows += (uint64_t)a.act.cores * weights::GROUP_BYTES;
    }

    /* Weights do not wait for the kernels before this one; rows do. */
    SPRY_METHOD void run()
    {
        core_items<S> items(a);
        core_item item;
        core_cursor<S> cursor;
        const core_share share(a.parts[0].weight.n_units);
        bool waited = false;
        SPRY_UNROLL_BY(1)
        while (items.next(&item)) {
            uint32_t unit = share.first_unit;
            start(item, unit);
            if (!waited) {
                uint32_t n = share.end_unit - unit < S::STAGES ? share.end_unit - unit : (uint32_t)S::STAGES;
                SPRY_UNROLL_BY(1)
                for (uint32_t i = 0; i < n; i++)
                    copy_weights(i);
                grid_wait();
                SPRY_UNROLL_BY(1)
                for (uint32_t i = 0; i < n; i++, unit++, cursor.next())
                    copy_rows(cursor.stage);
                waited = true;
            }
            SPRY_UNROLL_BY(1)
            for (; unit < share.end_unit; unit++, cursor.next()) {
                barrier_wait(ring.empty(cursor.stage), cursor.phase ^ 1);
                copy_weights(cursor.stage);
                copy_rows(cursor.stage);
            }
        }
        if (!waited)
            grid_wait();
        if (share.blocks > 1) {
            cluster_wait();
            cluster_wait();
        }
    }
};

/* ---- what teams write --------------------------------------------------------------------------------------------- */

/* Four outputs of a row, or fewer at the end of a matrix. */
struct core_outputs {
    uint32_t first, n;
    bool whole;

    SPRY_METHOD core_outputs(const spry_product_part &part, uint32_t output)
        : first(output), n(output < part.weight.n_out ? part.weight.n_out - output : 0), whole(n >= 4 && part.stride % 4 == 0)
    {
    }

    SPRY_METHOD float4 load(const float *row) const
    {
        float v[4] = {0, 0, 0, 0};
        if (whole)
            return *(const float4 *)(row + first);
        SPRY_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            v[i] = i < n ? row[first + i] : 0;
        float4 four = {v[0], v[1], v[2], v[3]};
        return four;
    }

    SPRY_METHOD void store(float *row, float4 four) const
    {
        const float v[4] = {four.x, four.y, four.z, four.w};
        if (whole) {
            *(float4 *)(row + first) = four;
            return;
        }
        SPRY_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            if (i < n)
                row[first + i] = v[i];
    }
};

SPRY_DEVICE float4 add_four(float4 a, float4 b)
{
    float4 sum = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
    return sum;
}

/* Sums of an item in shared memory become rows of the result. A warp writes a row of two teams, or two rows of one, at a time; what rows are added to is
 * loaded for eight of them at once. */
template <class S> struct core_writer {
    enum { WARPS = S::TEAMS * TEAM_WARPS, ROWS = S::GROUPS * SPRY_ACT_ROWS, EACH = 2 / S::TEAMS, STEP = WARPS * EACH, AHEAD = 8 };
    const spry_product_args &a;
    const float *sums;
    uint32_t row;        /* the item's first */
    uint32_t begin, end; /* rows of the item that are written, whole groups */
    int lane, warp;

    SPRY_METHOD void write_rows(const core_item &item) const
    {
        const core_tiles t = S::find(a, item.column, S::TEAMS == 1 ? 0 : (uint32_t)lane / 16, 0);
        const spry_product_part &part = a.parts[t.part];
        const core_outputs outputs(part, t.tile * SPRY_TILE_ROWS + (uint32_t)lane % 16 * 4);
        uint32_t own = begin + (uint32_t)(warp * EACH) + (S::TEAMS == 1 ? (uint32_t)lane / 16 : 0); /* the first of its rows */
        uint32_t last = row + end < a.n_rows ? row + end : a.n_rows;
        const float *from = sums + own * S::WIDTH + (uint32_t)lane % (S::TEAMS * 16) * 4;
        float *to = part.out + (uint64_t)(row + own) * part.stride;
        float norm = sum_norm(a, row + begin + (uint32_t)(warp * EACH) + (uint32_t)(lane / EACH * STEP + lane % EACH));
        float4 bias = {0, 0, 0, 0};
        if (part.bias && t.there)
            bias = outputs.load(part.bias);
        SPRY_UNROLL_BY(1)
        for (uint32_t first = 0; begin + first < end; first += STEP * AHEAD) {
            float4 base[AHEAD];
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                if (a.add && t.there && row + own + first + i * STEP < last)
                    base[i] = outputs.load(to + (uint64_t)(first + i * STEP) * part.stride);
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++) {
                uint32_t number = first / STEP + i;
                if (begin + number * STEP >= end)
                    continue;
                float4 v = *(const float4 *)(from + number * STEP * S::WIDTH);
                float scale = warp_from(norm, (int)(number * EACH + (S::TEAMS == 1 ? (uint32_t)lane / 16 : 0)));
                v.x *= scale, v.y *= scale, v.z *= scale, v.w *= scale;
                v = part.bias ? add_four(v, bias) : v;
                v = a.add ? add_four(base[i], v) : v;
                if (t.there && row + own + first + i * STEP < last)
                    outputs.store(to + (uint64_t)(first + i * STEP) * part.stride, v);
            }
        }
    }

    /* A warp writes 32 gated outputs of 8 rows at a time; zeros for rows behind the last. */
    SPRY_METHOD void write_gated(const core_item &item) const
    {
        enum { HALVES = S::TEAMS, UP = S::TEAMS * TEAM_OUTPUTS / 2 };
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin / SPRY_ACT_ROWS * HALVES + (uint32_t)warp; i < end / SPRY_ACT_ROWS * HALVES; i += WARPS) {
            uint32_t in_item = i / HALVES * SPRY_ACT_ROWS + (uint32_t)lane % 8, column = i % HALVES * 32 + (uint32_t)lane / 8 * 8;
            uint32_t block = item.column * HALVES + i % HALVES, output = block * 32 + (uint32_t)lane / 8 * 8;
            float norm = sum_norm(a, row + in_item);
            core_piece gate;
            row_piece up;
            if (row + i / HALVES * SPRY_ACT_ROWS >= a.n_rows)
                continue;
            gate.load(sums + in_item * S::WIDTH, S::WIDTH, column, true);
            up.load(sums + in_item * S::WIDTH, S::WIDTH, UP + column, true);
            SPRY_UNROLL
            for (uint32_t k = 0; k < 8; k++) {
                float x = gate.v[k] * norm, y = up.v[k] * norm;
                x = a.parts[0].bias ? x + a.parts[0].bias[output + k] : x;
                y = a.parts[1].bias ? y + a.parts[1].bias[output + k] : y;
                gate.v[k] = row + in_item < a.n_rows ? gated(x, y, a.from.gate) : 0;
            }
            gate.write(a.from.to, item.first_group + i / HALVES, block / 2, block % 2, lane);
        }
    }
};

/* ---- teams -------------------------------------------------------------------------------------------------------- */

template <class S> struct core_team {
    typedef typename S::weights weights;
    core_ring<S> ring;
    const spry_product_args &a;
    int lane, slot; /* slot: of its tile among those of the team */
    uint32_t team;
    core_cursor<S> cursor;

    SPRY_METHOD core_team(const core_ring<S> &its, const spry_product_args &args)
        : ring(its), a(args), lane((int)(threadIdx.x % WARP)), slot((int)(threadIdx.x / WARP % TEAM_WARPS)), team(threadIdx.x / TEAM_THREADS)
    {
    }

    /* Writes the lane's sums to their places among [rows, WIDTH]. */
    SPRY_METHOD void put(float *sums, const float of[S::GROUPS][4]) const
    {
        float *to = sums + lane % 4 * 2 * S::WIDTH + team * TEAM_OUTPUTS + (uint32_t)(slot * SPRY_TILE_ROWS + lane / 4);
        SPRY_UNROLL
        for (int k = 0; k < S::GROUPS * 4; k++)
            to[(k / 4 * 8 + k % 2) * S::WIDTH + k % 4 / 2 * 8] = of[k / 4][k % 4];
    }

    /* Adds up the splits of an item, or of the block's share; a block that is not the first of its cluster leaves each in shared memory. */
    SPRY_METHOD void multiply(float total[S::GROUPS][4], const core_share &share)
    {
        uint32_t n_units = a.parts[0].weight.n_units, split = share.first_split;
        bool fresh = true;
        float acc[S::GROUPS][4];
        SPRY_UNROLL_BY(1)
        for (uint32_t unit = share.first_unit; unit < share.end_unit; unit++, cursor.next()) {
            weights w;
            const unsigned char *stage = ring.at(cursor.stage);
            barrier_wait(ring.full(cursor.stage), cursor.phase);
            w.load(stage + S::ROWS + team * weights::BYTES, slot, lane);
            w.template add<S::GROUPS>(acc, stage, lane, fresh);
            if (lane == 0)
                barrier_arrive(ring.empty(cursor.stage));
            while (split_begin(n_units, split + 1) <= unit)
                split++;
            fresh = split_begin(n_units, split + 1) == unit + 1;
            if (fresh && share.rank) {
                put(ring.sums(split - share.first_split), acc);
                continue;
            }
            SPRY_UNROLL
            for (int i = 0; fresh && i < S::GROUPS * 4; i++)
                total[i / 4][i % 4] += acc[i / 4][i % 4];
        }
    }

    /* Adds what other blocks of the cluster leave to rows of the first one's, in the block's own memory, of which others read other rows. Blocks are a
     * power of two. */
    SPRY_METHOD void gather(uint32_t begin, uint32_t end, const core_share &share) const
    {
        enum { PIECES = TEAM_OUTPUTS / 4 };
        uint32_t each = ACT_SPLITS / share.blocks;
        cluster_wait();
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin * PIECES + threadIdx.x; i < end * PIECES; i += S::THREADS) {
            uint32_t at = i / PIECES * S::WIDTH + i % PIECES * 4;
            float4 sum = cluster_load((const float4 *)(ring.sums() + at), 0);
            SPRY_UNROLL_BY(8)
            for (uint32_t split = each; split < ACT_SPLITS; split++)
                sum = add_four(sum, cluster_load((const float4 *)(ring.sums(split & (each - 1)) + at), split * share.blocks / ACT_SPLITS));
            *(float4 *)(ring.sums() + at) = sum;
        }
        cluster_wait();
    }

    /* All teams together. */
    SPRY_METHOD void write(const core_item &item, const float total[S::GROUPS][4], const core_share &share) const
    {
        uint32_t rows = S::GROUPS * SPRY_ACT_ROWS / share.blocks, begin = share.rank * rows;
        const core_writer<S> writer = {a, ring.sums(), item.first_group * SPRY_ACT_ROWS, begin, begin + rows, lane, (int)(threadIdx.x / WARP)};
        threads_wait(1, S::THREADS); /* for warps that write what was there */
        if (share.rank == 0)
            put(ring.sums(), total);
        if (S::TEAMS == 1 && share.blocks > 1)
            gather(begin, begin + rows, share);
        threads_wait(1, S::THREADS);
        if (S::GATE)
            writer.write_gated(item);
        else
            writer.write_rows(item);
    }

    SPRY_METHOD void run()
    {
        core_items<S> items(a);
        core_item item;
        const core_share share(a.parts[0].weight.n_units);
        grid_wait();
        SPRY_UNROLL_BY(1)
        while (items.next(&item)) {
            float total[S::GROUPS][4] = {};
            multiply(total, share);
            write(item, total, share);
        }
    }
};
