/* Products for many rows with the matrix instructions of four warps, which GPUs of compute capability 9.0 have. A block has one or two
 * teams of four warps, which multiply, a warp that copies and one that makes norms of rows. Units of 64 inputs, of the block's rows and of each team's four tiles of
 * weights, go through a ring of stages in shared memory, from one item of the block (tiles and rows) to the next without a pause. A team takes
 * GROUPS groups of 8 rows, which are all rows of an item, and each of its warps one tile; what they give goes through shared memory, so that a warp
 * writes whole rows.
 *
 * Of a gate and an `up` half of the tiles are of each, and what they give is written gated, encoded for the product that follows. Results that are rows of
 * the next product's input are encoded as well as written.
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

    /* acc += what the unit gives, or = with `fresh`: begun, while the next unit can be loaded, and ended. */
    template <int GROUPS> SPRY_METHOD void begin(float (*acc)[4], const unsigned char *rows, bool fresh) const
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
    }

    template <int GROUPS> SPRY_METHOD void end(float (*acc)[4], const unsigned char *, int, bool) const
    {
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

    template <int GROUPS> SPRY_METHOD void begin(float (*)[4], const unsigned char *, bool) const
    {
    }

    /* Where there are registers for it, dots of the next inputs with one scale are computed while those before are scaled. */
    template <int GROUPS> SPRY_METHOD void end(float (*acc)[4], const unsigned char *rows, int lane, bool fresh) const
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
        multiply<GROUPS>(dots[0], q[0], rows, 0);
        SPRY_UNROLL
        for (int number = 0; number < N; number++) {
            int now = TWO ? number % 2 : 0, next = TWO ? 1 - now : 0;
            if (TWO && number + 1 < N) {
                multiply<GROUPS>(dots[next], q[next], rows, number + 1);
                cores_wait<1, GROUPS>(dots[now]);
            } else {
                cores_wait<0, GROUPS>(dots[now]);
            }
            SPRY_UNROLL
            for (int i = 0; i < STEPS * 4; i++)
                keep_operand(q[now][i / 4][i % 4]);
            add_dots<GROUPS>(acc, dots[now], s, number, rows, lane);
            if (!TWO && number + 1 < N)
                multiply<GROUPS>(dots[0], q[0], rows, number + 1);
        }
    }

  private:
    template <int GROUPS> SPRY_METHOD void multiply(float (*dots)[4], uint32_t (*q)[4], const unsigned char *rows, int number) const
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
    enum { GROUPS = GROUPS_, TEAMS = TEAMS_, GATE = GATE_, THREADS = TEAMS * TEAM_THREADS, FORM = T::FORM };
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

/* Barriers, norms of the rows of two items, and stages of the ring; then [rows, WIDTH] sums, once or for several splits. */
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

    SPRY_METHOD copy_barrier *norms_full(uint32_t item) const
    {
        return (copy_barrier *)memory + 2 * S::STAGES + item;
    }

    SPRY_METHOD copy_barrier *norms_empty(uint32_t item) const
    {
        return (copy_barrier *)memory + 2 * S::STAGES + 2 + item;
    }

    SPRY_METHOD float *norms(uint32_t item) const
    {
        return (float *)(memory + SPRY_CORE_BARRIERS) + item * SPRY_CORE_ROWS;
    }

    SPRY_METHOD unsigned char *at(uint32_t stage) const
    {
        return memory + SPRY_CORE_HEAD + stage * S::STAGE;
    }

    /* Of an item, or of split `number` of those that a block leaves to its cluster. */
    SPRY_METHOD float *sums(uint32_t number = 0) const
    {
        return (float *)(memory + SPRY_CORE_HEAD + S::STAGES * S::STAGE) + number * S::GROUPS * SPRY_ACT_ROWS * S::WIDTH;
    }

    SPRY_METHOD void make() const
    {
        if (threadIdx.x == 0) {
            for (uint32_t i = 0; i < S::STAGES; i++) {
                barrier_make(full(i), 1 + (S::weights::PLANES ? WARP : 0));
                barrier_make(empty(i), S::TEAMS * TEAM_WARPS);
            }
            for (uint32_t i = 0; i < 2; i++) {
                barrier_make(norms_full(i), 1);
                barrier_make(norms_empty(i), S::TEAMS * TEAM_WARPS);
            }
            barriers_made();
        }
        block_wait();
    }
};

/* One of N stages of the ring, or of the places for norms, and the phase that its barriers have then. */
template <int N> struct core_cursor {
    uint32_t stage, phase;

    SPRY_METHOD core_cursor() : stage(0), phase(0)
    {
    }

    SPRY_METHOD void next()
    {
        stage = stage + 1 < N ? stage + 1 : 0;
        phase ^= stage == 0;
    }
};

/* The part of an item that a block has among those of its cluster: splits of the inputs, then groups of rows. */
struct core_share {
    uint32_t rank, blocks, splits, first_split, first_unit, end_unit; /* blocks: 1, 2, 4 or 8 */

    SPRY_METHOD core_share(uint32_t n_units)
        : rank(blockIdx.x), blocks(gridDim.x), splits(blocks == 1 ? ACT_SPLITS : blocks == 2 ? ACT_SPLITS / 2 : blocks == 4 ? ACT_SPLITS / 4 : ACT_SPLITS / 8),
          first_split(rank * splits), first_unit(split_begin(n_units, first_split)), end_unit(split_begin(n_units, first_split + splits))
    {
    }

    /* Of a warp that has nothing more to do. */
    SPRY_METHOD void leave() const
    {
        if (blocks > 1) {
            cluster_wait_shared();
            cluster_wait_shared();
        }
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
        item->column = SPRY_SELDOM(row_blocks > 1) ? number / row_blocks : number;
        item->first_group = (number - item->column * row_blocks) * S::GROUPS;
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
        core_cursor<S::STAGES> cursor;
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
        share.leave();
    }
};

/* ---- the warp that makes norms ------------------------------------------------------------------------------------ */

/* What the sums of a row are multiplied by, made from the squares of its units. */
SPRY_DEVICE float core_norm(const spry_product_args &a, uint32_t row)
{
    enum { AT_ONCE = 16 };
    uint32_t n_units = a.act.n_units, stride = a.act.cores * SPRY_ACT_ROWS, split = 0;
    float total = 0, sum = 0;
    if (row >= a.n_rows)
        return 1;
    SPRY_UNROLL_BY(1)
    for (uint32_t first = 0; first < n_units; first += AT_ONCE) {
        float squares[AT_ONCE];
        SPRY_UNROLL
        for (uint32_t i = 0; i < AT_ONCE; i++)
            squares[i] = first + i < n_units ? a.act.norms[(uint64_t)(first + i) * stride + row] : 0;
        SPRY_UNROLL
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            while (split + 1 < ACT_SPLITS && split_begin(n_units, split + 1) <= first + i) {
                total += sum;
                sum = 0;
                split++;
            }
            sum += squares[i];
        }
    }
    return quick_norm(total + sum, a.parts[0].weight.n_in, a.from.eps);
}

/* For the rows of one item after the other. */
template <class S> SPRY_DEVICE void make_norms(const core_ring<S> &ring, const spry_product_args &a)
{
    core_items<S> items(a);
    core_item item;
    core_cursor<2> cursor;
    const core_share share(a.parts[0].weight.n_units);
    grid_wait();
    SPRY_UNROLL_BY(1)
    for (; a.act.norms && items.next(&item); cursor.next()) {
        barrier_wait(ring.norms_empty(cursor.stage), cursor.phase ^ 1);
        SPRY_UNROLL_BY(1)
        for (uint32_t i = threadIdx.x % WARP; i < S::GROUPS * SPRY_ACT_ROWS; i += WARP)
            ring.norms(cursor.stage)[i] = core_norm(a, item.first_group * SPRY_ACT_ROWS + i);
        warp_wait();
        if (threadIdx.x % WARP == 0)
            barrier_arrive(ring.norms_full(cursor.stage));
    }
    share.leave();
}

/* ---- what teams write --------------------------------------------------------------------------------------------- */

/* Four outputs of a row, or fewer at the end of a matrix: where they are whole they are loaded and stored at once. */
struct core_outputs {
    uint32_t first, n;
    bool whole;

    SPRY_METHOD core_outputs(const spry_product_part &part, uint32_t output)
        : first(output), n(output < part.weight.n_out ? part.weight.n_out - output : 0), whole(n >= 4 && part.stride % 4 == 0)
    {
    }

    SPRY_METHOD float4 load(const float *row) const
    {
        return *(const float4 *)(row + first);
    }

    SPRY_METHOD void store(float *row, float4 four) const
    {
        *(float4 *)(row + first) = four;
    }

    /* Those that are there, with a bias where there is one, and onto what is there with `add`. */
    SPRY_METHOD void store_some(float *row, float4 four, const float *bias, bool add) const
    {
        const float v[4] = {four.x, four.y, four.z, four.w};
        SPRY_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            if (i >= n)
                continue;
            float value = bias ? v[i] + bias[first + i] : v[i];
            row[first + i] = add ? row[first + i] + value : value;
        }
    }
};

SPRY_DEVICE float4 add_four(float4 a, float4 b)
{
    float4 sum = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
    return sum;
}

/* Sums of an item in shared memory become rows of the result. Code for what is seldom, a bias or a gate of another kind than SiLU, stands apart: blocks
 * run through the rest once or a few times, and wait for its fetching. */
template <class S> struct core_writer {
    enum { WARPS = S::TEAMS * TEAM_WARPS, EACH = 2 / S::TEAMS, STEP = WARPS * EACH, AHEAD = 4 };
    const spry_product_args &a;
    float *sums;
    const float *norms;  /* NULL, or what the sums of the item's rows are multiplied by */
    uint32_t row;        /* the item's first */
    uint32_t begin, end; /* rows of the item that are written, whole groups */
    int lane, warp;

    SPRY_METHOD float norm_of(uint32_t in_item) const
    {
        return norms ? norms[in_item] : 1;
    }

    SPRY_METHOD float4 normalised(uint32_t in_item, uint32_t column) const
    {
        float4 v = *(const float4 *)(sums + in_item * S::WIDTH + column);
        float norm = norm_of(in_item);
        v.x *= norm, v.y *= norm, v.z *= norm, v.w *= norm;
        return v;
    }

    /* A warp writes a row of two teams, or two rows of one, at a time; what rows are added to is loaded for several of them at once. To add -0 changes
     * nothing. */
    SPRY_METHOD void write_rows(const core_item &item) const
    {
        const core_tiles t = S::find(a, item.column, S::TEAMS == 1 ? 0 : (uint32_t)lane / 16, 0);
        const spry_product_part &part = a.parts[t.part];
        const core_outputs outputs(part, t.tile * SPRY_TILE_ROWS + (uint32_t)lane % 16 * 4);
        const float4 nothing = {-0.0f, -0.0f, -0.0f, -0.0f};
        uint32_t own = begin + (uint32_t)(warp * EACH) + (S::TEAMS == 1 ? (uint32_t)lane / 16 : 0); /* the first of its rows */
        uint32_t last = row + end < a.n_rows ? end : a.n_rows - row, column = (uint32_t)lane % (S::TEAMS * 16) * 4;
        float *to = part.out + (uint64_t)row * part.stride;
        float4 bias = nothing;
        if (SPRY_SELDOM(!warp_all(t.there && outputs.whole))) {
            SPRY_UNROLL_BY(1)
            for (uint32_t r = own; t.there && r < last; r += STEP)
                outputs.store_some(to + (uint64_t)r * part.stride, normalised(r, column), part.bias, a.add);
            return;
        }
        if (SPRY_SELDOM(part.bias))
            bias = outputs.load(part.bias);
        SPRY_UNROLL_BY(1)
        for (uint32_t first = own; first < last; first += STEP * AHEAD) {
            float4 base[AHEAD];
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                base[i] = a.add && first + i * STEP < last ? outputs.load(to + (uint64_t)(first + i * STEP) * part.stride) : nothing;
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                if (first + i * STEP < last)
                    outputs.store(to + (uint64_t)(first + i * STEP) * part.stride,
                                  add_four(base[i], add_four(normalised(first + i * STEP, column), bias)));
        }
    }

    /* A warp writes a unit of 8 rows at a time, and encodes it; of rows behind the last zeros. All outputs are those of one matrix, and whole units. */
    SPRY_METHOD void write_encoded(const core_item &item) const
    {
        const spry_product_part &part = a.parts[0];
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin / SPRY_ACT_ROWS * S::TEAMS + (uint32_t)warp; i < end / SPRY_ACT_ROWS * S::TEAMS; i += WARPS) {
            uint32_t in_item = i / S::TEAMS * SPRY_ACT_ROWS + (uint32_t)lane % 8, unit = item.column * S::TEAMS + i % S::TEAMS;
            uint32_t output = unit * SPRY_TILE_UNIT, group = item.first_group + i / S::TEAMS;
            bool there = row + in_item < a.n_rows;
            float *to = part.out + (uint64_t)(row + in_item) * part.stride + output;
            unit_pieces sum, base, weight;
            if (group * SPRY_ACT_ROWS >= a.n_rows || output >= part.weight.n_out)
                continue;
            base.load(to, SPRY_TILE_UNIT, 0, lane, there && a.add);
            weight.load(a.from.weight, a.from.n, output, lane, true);
            sum.load(sums + in_item * S::WIDTH, S::WIDTH, i % S::TEAMS * SPRY_TILE_UNIT, lane, there);
            if (SPRY_SELDOM(part.bias))
                sum.add(part.bias, output, lane);
            SPRY_UNROLL
            for (int k = 0; k < 16; k++)
                sum.of[k / 8].v[k % 8] = a.add ? base.of[k / 8].v[k % 8] + sum.of[k / 8].v[k % 8] : sum.of[k / 8].v[k % 8];
            SPRY_UNROLL
            for (uint32_t half = 0; half < 2 && there; half++)
                sum.of[half].store(to + unit_pieces::begin(half, lane));
            sum.weigh(weight, a.from.to, group, unit, lane);
            sum.of[0].template write_mostly<S::FORM>(a.from.to, group, unit, 0, lane);
            sum.of[1].template write_mostly<S::FORM>(a.from.to, group, unit, 1, lane);
        }
    }

    /* Eight outputs of a row that are gated, in place of the gates. */
    SPRY_METHOD void gate_apart(float *gate, const float *up, uint32_t output, float norm) const
    {
        SPRY_UNROLL_BY(1)
        for (uint32_t k = 0; k < 8; k++) {
            float x = gate[k] * norm, y = up[k] * norm;
            x = a.parts[0].bias ? x + a.parts[0].bias[output + k] : x;
            y = a.parts[1].bias ? y + a.parts[1].bias[output + k] : y;
            gate[k] = gated(x, y, a.from.gate);
        }
    }

    /* A warp writes 32 gated outputs of 8 rows at a time; zeros for rows behind the last. */
    SPRY_METHOD void write_gated(const core_item &item) const
    {
        enum { HALVES = S::TEAMS, UP = S::TEAMS * TEAM_OUTPUTS / 2 };
        bool plain = a.from.gate == GATE_SILU && !a.parts[0].bias && !a.parts[1].bias;
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin / SPRY_ACT_ROWS * HALVES + (uint32_t)warp; i < end / SPRY_ACT_ROWS * HALVES; i += WARPS) {
            uint32_t in_item = i / HALVES * SPRY_ACT_ROWS + (uint32_t)lane % 8, column = i % HALVES * 32 + (uint32_t)lane / 8 * 8;
            uint32_t block = item.column * HALVES + i % HALVES, group = item.first_group + i / HALVES;
            float norm = norm_of(in_item), *gates = sums + in_item * S::WIDTH + column;
            core_piece gate;
            row_piece up;
            if (group * SPRY_ACT_ROWS >= a.n_rows)
                continue;
            if (SPRY_SELDOM(!plain))
                gate_apart(gates, gates + UP, block * 32 + (uint32_t)lane / 8 * 8, norm);
            gate.load(gates, 8, 0, true);
            up.load(gates + UP, 8, 0, true);
            SPRY_UNROLL
            for (uint32_t k = 0; k < 8; k++) {
                float x = plain ? gated(gate.v[k] * norm, up.v[k] * norm, GATE_SILU) : gate.v[k];
                gate.v[k] = row + in_item < a.n_rows ? x : 0;
            }
            gate.template write_mostly<S::FORM>(a.from.to, group, block / 2, block % 2, lane);
        }
    }
};

/* ---- teams -------------------------------------------------------------------------------------------------------- */

template <class S> struct core_team {
    typedef typename S::weights weights;
    enum { AHEAD = !weights::PLANES }; /* weights of the next unit are loaded while one is multiplied */
    core_ring<S> ring;
    const spry_product_args &a;
    int lane, slot; /* slot: of its tile among those of the team */
    uint32_t team;
    core_cursor<S::STAGES> cursor;
    core_cursor<2> norms;

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

    /* Weights of the unit where the cursor stands, when they are there. */
    SPRY_METHOD void load(weights &w) const
    {
        barrier_wait(ring.full(cursor.stage), cursor.phase);
        w.load(ring.at(cursor.stage) + S::ROWS + team * weights::BYTES, slot, lane);
    }

    /* Adds up the splits of an item, or of the block's share; a block that is not the first of its cluster leaves each in shared memory. */
    SPRY_METHOD void multiply(float total[S::GROUPS][4], const core_share &share)
    {
        uint32_t n_units = a.parts[0].weight.n_units, split = share.first_split;
        bool fresh = true;
        float acc[S::GROUPS][4];
        weights w, next;
        if (AHEAD && share.first_unit < share.end_unit)
            load(w);
        SPRY_UNROLL_BY(AHEAD + 1)
        for (uint32_t unit = share.first_unit; unit < share.end_unit; unit++) {
            if (!AHEAD)
                load(w);
            uint32_t now = cursor.stage;
            cursor.next();
            w.template begin<S::GROUPS>(acc, ring.at(now), fresh);
            if (AHEAD && unit + 1 < share.end_unit)
                load(next);
            w.template end<S::GROUPS>(acc, ring.at(now), lane, fresh);
            if (AHEAD)
                w = next;
            if (lane == 0)
                barrier_arrive(ring.empty(now));
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
        uint32_t each = share.splits;
        cluster_wait_shared();
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin * PIECES + threadIdx.x; i < end * PIECES; i += S::THREADS) {
            uint32_t at = i / PIECES * S::WIDTH + i % PIECES * 4;
            float4 sum = cluster_load((const float4 *)(ring.sums() + at), 0);
            SPRY_UNROLL_BY(8)
            for (uint32_t split = each; split < ACT_SPLITS; split++)
                sum = add_four(sum, cluster_load((const float4 *)(ring.sums(split & (each - 1)) + at), split * share.blocks / ACT_SPLITS));
            *(float4 *)(ring.sums() + at) = sum;
        }
        cluster_wait_shared();
    }

    /* All teams together. */
    SPRY_METHOD void write(const core_item &item, const float total[S::GROUPS][4], const core_share &share)
    {
        uint32_t rows = S::GROUPS * SPRY_ACT_ROWS / share.blocks, begin = share.rank * rows;
        const core_writer<S> writer = {a, ring.sums(), a.act.norms ? ring.norms(norms.stage) : (const float *)0, item.first_group * SPRY_ACT_ROWS,
                                       begin, begin + rows, lane, (int)(threadIdx.x / WARP)};
        threads_wait(1, S::THREADS); /* for warps that write what was there */
        if (share.rank == 0)
            put(ring.sums(), total);
        if (S::TEAMS == 1 && share.blocks > 1)
            gather(begin, begin + rows, share);
        threads_wait(1, S::THREADS);
        if (a.act.norms)
            barrier_wait(ring.norms_full(norms.stage), norms.phase);
        if (S::GATE)
            writer.write_gated(item);
        else if (a.from.weight)
            writer.write_encoded(item);
        else
            writer.write_rows(item);
        if (lane == 0)
            barrier_arrive(ring.norms_empty(norms.stage));
        norms.next();
    }

    SPRY_METHOD void run()
    {
        core_items<S> items(a);
        core_item item;
        const core_share share(a.parts[0].weight.n_units);
        SPRY_UNROLL_BY(1)
        while (items.next(&item)) {
            float total[S::GROUPS][4] = {};
            multiply(total, share);
            grid_wait(); /* which the rows of the first unit stand for: they were copied behind it */
            write(item, total, share);
        }
        grid_wait();
    }
};
