/* Matrix products with BF16 weights and activations rounded to BF16, for AVX-512 with BF16: one dpbf16 multiplies two
 * adjacent values of the 16 outputs of a group (packed.h) by two activations and adds both to a sum. Sums of DOT_BLOCK
 * values, each one chain of such instructions, are added in ascending order: the same for every output of every row, in
 * any tile. Include after matmul_floats.h.
 *
 * Activations are multiplied in spans: some values of some rows, which stay in the second-level cache. If m->halves is
 * NULL, the span is a copy that this file rounds. The weights of a span stay in that cache, too: a tile of 24 sums
 * loads two vectors of weights for 24 instructions. Meanwhile the weights of the next groups are prefetched, a few at a
 * time, because many prefetches at once would delay the loads. */

enum { DOT_BLOCK = 128, DOT_SPAN = 8 * DOT_BLOCK, DOT_ROWS = 128, DOT_TILE_ROWS = 12, DOT_TILE_GROUPS = 2 };
enum { DOT_FEW_SPAN = 32 * DOT_BLOCK, DOT_FEW_ROWS = 4, DOT_COPIED_ROWS = 96 };

/* Words (pairs of values) from one row of a span to the next. */
enum { DOT_STRIDE = DOT_SPAN / 2 + 16, DOT_FEW_STRIDE = DOT_FEW_SPAN / 2 + 16 };

/* Sums of the rows and groups of a tile. */
typedef __m512 dot_sums[DOT_TILE_ROWS][DOT_TILE_GROUPS];

/* Rounds n floats to BF16 and adds zeros up to whole pairs of vectors. */
static inline void encode_pairs(uint32_t *out, const float *in, size_t n)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        _mm512_storeu_si512(out + i / 2, (__m512i)_mm512_cvtne2ps_pbh(v_load(in + i + 16), v_load(in + i)));
    if (i < n) {
        size_t low = n - i < 16 ? n - i : 16, high = n - i - low;
        __m512 first = low == 16 ? v_load(in + i) : v_load_part(in + i, low);
        _mm512_storeu_si512(out + i / 2, (__m512i)_mm512_cvtne2ps_pbh(v_load_part(in + i + low, high), first));
    }
}

static void bf16_halve(uint16_t *out, const float *in, size_t n)
{
    encode_pairs((uint32_t *)(void *)out, in, n);
}

/* Loads the last of an odd number of values as a pair with 0. */
static inline __m512i load_single(const unsigned char *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

SPRY_INLINE void dot_step(dot_sums sum, const __m512i w[], const uint32_t *act, size_t stride, int n_groups, int n_rows)
{
    for (int r = 0; r < n_rows; r++) {
        __m512bh a = (__m512bh)_mm512_set1_epi32((int)act[(size_t)r * stride]);
        for (int g = 0; g < n_groups; g++)
            sum[r][g] = _mm512_dpbf16_ps(sum[r][g], (__m512bh)w[g], a);
    }
}

/* Adds the products of a block of n values. */
SPRY_INLINE void add_block(dot_sums total, const unsigned char *weight, size_t weight_stride, const uint32_t *act,
                           size_t stride, size_t n, int n_groups, int n_rows)
{
    __m512i w[DOT_TILE_GROUPS];
    dot_sums sum;
    for (int r = 0; r < n_rows; r++)
        for (int g = 0; g < n_groups; g++)
            sum[r][g] = _mm512_setzero_ps();
    for (size_t pair = 0; pair < n / 2; pair++) {
        for (int g = 0; g < n_groups; g++)
            w[g] = _mm512_loadu_si512(weight + (size_t)g * weight_stride + pair * 64);
        dot_step(sum, w, act + pair, stride, n_groups, n_rows);
    }
    if (n % 2) {
        for (int g = 0; g < n_groups; g++)
            w[g] = load_single(weight + (size_t)g * weight_stride + n / 2 * 64);
        dot_step(sum, w, act + n / 2, stride, n_groups, n_rows);
    }
    for (int r = 0; r < n_rows; r++)
        for (int g = 0; g < n_groups; g++)
            total[r][g] = _mm512_add_ps(total[r][g], sum[r][g]);
}

/* What to prefetch during each block of a tile: `lines` cache lines from `weight` on. */
typedef struct dot_next {
    const unsigned char *weight;
    size_t lines;
} dot_next;

SPRY_INLINE void request_next(const dot_next *next, size_t weight_stride, int n_groups, size_t block)
{
    for (int g = 0; g < n_groups; g++)
        for (size_t i = block * next->lines; i < (block + 1) * next->lines; i++)
            SPRY_PREFETCH_FAR((uintptr_t)next->weight + (size_t)g * weight_stride + 64 * i);
}

/* What a tile multiplies: its first row and group, and a span of n values from `first` on, whose pairs are at `act`.
 * `n_out` outputs exist; with several groups all of them. */
typedef struct dot_place {
    const uint32_t *act;
    size_t stride, group, row, first, n, n_out;
} dot_place;

SPRY_INLINE void dot_tile(const spry_matmul *m, const dot_place *at, const dot_next *next, int n_groups, int n_rows)
{
    const unsigned char *weight = group_at(m, at->group) + at->first * value_bytes(KIND_BF16);
    float *out = m->out + at->row * m->out_stride + at->group * GROUP;
    size_t width = at->n_out < GROUP ? at->n_out : GROUP;
    dot_sums total;
    for (int r = 0; next && r < n_rows; r++)
        for (int g = 0; g < n_groups; g++)
            SPRY_PREFETCH_WRITE(out + (size_t)r * m->out_stride + g * GROUP);
    for (int r = 0; r < n_rows; r++)
        for (int g = 0; g < n_groups; g++)
            total[r][g] =
                at->first ? v_load_part(out + (size_t)r * m->out_stride + g * GROUP, width) : _mm512_setzero_ps();
    for (size_t i = 0; i < at->n; i += DOT_BLOCK) {
        const unsigned char *p = weight + i * value_bytes(KIND_BF16);
        if (next)
            request_next(next, m->weight_stride, n_groups, i / DOT_BLOCK);
        if (i + DOT_BLOCK <= at->n)
            add_block(total, p, m->weight_stride, at->act + i / 2, at->stride, DOT_BLOCK, n_groups, n_rows);
        else
            add_block(total, p, m->weight_stride, at->act + i / 2, at->stride, at->n - i, n_groups, n_rows);
    }
    for (int r = 0; r < n_rows; r++)
        for (int g = 0; g < n_groups; g++)
            v_store_part(out + (size_t)r * m->out_stride + g * GROUP, total[r][g], width);
}

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

SPRY_INLINE void dot_few(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    uint32_t act[DOT_FEW_ROWS][DOT_FEW_STRIDE];
    for (size_t first = 0, n; first < m->n_in; first += n) {
        n = m->n_in - first < DOT_FEW_SPAN ? m->n_in - first : DOT_FEW_SPAN;
        for (size_t row = 0; row < m->n_rows; row++)
            encode_pairs(act[row], floats_at(m, row) + first, n);
        for (size_t output = out_begin; output < out_end; output += GROUP) {
            dot_place at = {act[0], DOT_FEW_STRIDE, output / GROUP, 0, first, n, out_end - output};
            switch (m->n_rows) {
            case 1: dot_tile(m, &at, NULL, 1, 1); break;
            case 2: dot_tile(m, &at, NULL, 1, 2); break;
            case 3: dot_tile(m, &at, NULL, 1, 3); break;
            case 4: dot_tile(m, &at, NULL, 1, 4); break;
            default: break;
            }
        }
    }
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* Computes a tile and advances to the next rows. */
SPRY_INLINE void dot_advance(const spry_matmul *m, dot_place *at, const dot_next *next, int n_groups, int n_rows)
{
    dot_tile(m, at, next, n_groups, n_rows);
    at->row += (size_t)n_rows;
    at->act += (size_t)n_rows * at->stride;
}

/* Computes rows from at->row to `end`. Meanwhile prefetches the weights of the next groups, at `request`. */
SPRY_INLINE void dot_groups(const spry_matmul *m, dot_place at, size_t end, int n_groups, const unsigned char *request)
{
    size_t n_tiles = (end - at.row) / DOT_TILE_ROWS, n_blocks = (at.n + DOT_BLOCK - 1) / DOT_BLOCK;
    size_t n_lines = at.n * value_bytes(KIND_BF16) / 64, parts = n_tiles * n_blocks;
    dot_next next = {request, parts ? (n_lines + parts - 1) / parts : 0};
    for (; at.row + DOT_TILE_ROWS <= end; next.weight += 64 * n_blocks * next.lines)
        dot_advance(m, &at, &next, n_groups, DOT_TILE_ROWS);
    while (at.row + 8 <= end)
        dot_advance(m, &at, NULL, n_groups, 8);
    while (at.row + 4 <= end)
        dot_advance(m, &at, NULL, n_groups, 4);
    switch (end - at.row) {
    case 1: dot_tile(m, &at, NULL, n_groups, 1); break;
    case 2: dot_tile(m, &at, NULL, n_groups, 2); break;
    case 3: dot_tile(m, &at, NULL, n_groups, 3); break;
    default: break;
    }
}

/* The weights that are needed next: those of the groups from `output` on, or of the first groups for the span that
 * begins with value `end`. */
static inline const unsigned char *weights_after(const spry_matmul *m, size_t output, size_t first, size_t end,
                                                 size_t out_begin, size_t out_end)
{
    if (output < out_end)
        return group_at(m, output / GROUP) + first * value_bytes(KIND_BF16);
    return end < m->n_in ? group_at(m, out_begin / GROUP) + end * value_bytes(KIND_BF16) : group_at(m, output / GROUP);
}

/* The product of a span for rows [begin, end), whose pairs are at `act`. */
SPRY_INLINE void dot_span(const spry_matmul *m, const uint32_t *act, size_t stride, size_t begin, size_t end,
                          size_t first, size_t n, size_t out_begin, size_t out_end)
{
    size_t output = out_begin;
    for (; output + 2 * GROUP <= out_end; output += 2 * GROUP) {
        dot_place at = {act, stride, output / GROUP, begin, first, n, 2 * GROUP};
        dot_groups(m, at, end, 2, weights_after(m, output + 2 * GROUP, first, first + n, out_begin, out_end));
    }
    for (; output < out_end; output += GROUP) {
        dot_place at = {act, stride, output / GROUP, begin, first, n, out_end - output};
        dot_groups(m, at, end, 1, weights_after(m, output + GROUP, first, first + n, out_begin, out_end));
    }
}

static void dot_encoded(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    for (size_t row = 0, end; row < m->n_rows; row = end) {
        end = m->n_rows - row < DOT_ROWS ? m->n_rows : row + DOT_ROWS;
        for (size_t first = 0, n; first < m->n_in; first += n) {
            n = m->n_in - first < DOT_SPAN ? m->n_in - first : DOT_SPAN;
            const void *pairs = m->halves + row * m->halves_stride + first;
            dot_span(m, pairs, m->halves_stride / 2, row, end, first, n, out_begin, out_end);
        }
    }
}

static void dot_floats(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    uint32_t act[DOT_COPIED_ROWS][DOT_STRIDE];
    for (size_t row = 0, end; row < m->n_rows; row = end) {
        end = m->n_rows - row < DOT_COPIED_ROWS ? m->n_rows : row + DOT_COPIED_ROWS;
        for (size_t first = 0, n; first < m->n_in; first += n) {
            n = m->n_in - first < DOT_SPAN ? m->n_in - first : DOT_SPAN;
            for (size_t i = row; i < end; i++)
                encode_pairs(act[i - row], floats_at(m, i) + first, n);
            dot_span(m, act[0], DOT_STRIDE, row, end, first, n, out_begin, out_end);
        }
    }
}

static void bf16_matmul(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    if (m->n_rows <= DOT_FEW_ROWS)
        dot_few(m, out_begin, out_end);
    else if (m->halves)
        dot_encoded(m, out_begin, out_end);
    else
        dot_floats(m, out_begin, out_end);
}

/* The table's entry for this file's product. */
#define BF16_OPS .matmul[SPRY_BF16] = {.bf16 = true, .group = GROUP, .run = bf16_matmul, .halve = bf16_halve},
