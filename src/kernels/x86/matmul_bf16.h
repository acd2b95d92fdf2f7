/* Matrix products with BF16 weights and activations rounded to BF16, for AVX-512 with BF16: one dpbf16 multiplies two
 * adjacent values of the 16 outputs of a group (packed.h) by two activations and adds both to a sum. Sums of DOT_BLOCK
 * values, each one chain of such instructions, are added in ascending order: the same for every output of every row, in
 * any tile. Include after matmul_floats.h.
 *
 * Activations are encoded, or copied where they come encoded, a span of values of some rows at a time, which stays in
 * the second-level cache: rows of pairs that no address in the cache is shared by. Weights are streamed from there,
 * too: a tile of 24 sums loads two vectors of them for 24 instructions. */

enum { DOT_BLOCK = 128, DOT_SPAN = 8 * DOT_BLOCK, DOT_ROWS = 96, DOT_TILE_ROWS = 12, DOT_TILE_GROUPS = 2 };
enum { DOT_FEW_SPAN = 32 * DOT_BLOCK, DOT_FEW_ROWS = 4 };

/* From row to row of a span, in pairs. */
enum { DOT_STRIDE = DOT_SPAN / 2 + 16, DOT_FEW_STRIDE = DOT_FEW_SPAN / 2 + 16 };

/* Sums of the rows and groups of a tile. */
typedef __m512 dot_sums[DOT_TILE_ROWS][DOT_TILE_GROUPS];

/* Rounds n floats to BF16, and zeros behind them up to whole pairs of vectors. */
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

/* Copies what encode_pairs gave for n floats. A row further on is requested: no prefetcher expects it. */
static inline void copy_pairs(uint32_t *out, const uint16_t *in, size_t n, size_t stride)
{
    for (size_t i = 0; i < n; i += SPRY_HALVES_BLOCK) {
        SPRY_PREFETCH((uintptr_t)in + 2 * (4 * stride + i));
        _mm512_storeu_si512(out + i / 2, _mm512_loadu_si512(in + i));
    }
}

/* The last of an odd number of values: pairs with zeros. */
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

/* Adds the sums of a block of n values. */
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

/* A span: n values from `first` on, of rows from `row` on, whose pairs are at `act`. `n_out` outputs exist; several
 * groups are whole. */
SPRY_INLINE void dot_tile(const spry_matmul *m, const uint32_t *act, size_t stride, size_t group, size_t row,
                          int n_groups, int n_rows, size_t first, size_t n, size_t n_out)
{
    const unsigned char *weight = group_at(m, group) + first * value_bytes(KIND_BF16);
    float *out = m->out + row * m->out_stride + group * GROUP;
    size_t width = n_out < GROUP ? n_out : GROUP;
    dot_sums total;
    for (int r = 0; r < n_rows; r++)
        for (int g = 0; g < n_groups; g++)
            total[r][g] = first ? v_load_part(out + (size_t)r * m->out_stride + g * GROUP, width) : _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += DOT_BLOCK) {
        const unsigned char *p = weight + i * value_bytes(KIND_BF16);
        if (i + DOT_BLOCK <= n)
            add_block(total, p, m->weight_stride, act + i / 2, stride, DOT_BLOCK, n_groups, n_rows);
        else
            add_block(total, p, m->weight_stride, act + i / 2, stride, n - i, n_groups, n_rows);
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
            size_t n_out = out_end - output, group = output / GROUP;
            switch (m->n_rows) {
            case 1: dot_tile(m, act[0], DOT_FEW_STRIDE, group, 0, 1, 1, first, n, n_out); break;
            case 2: dot_tile(m, act[0], DOT_FEW_STRIDE, group, 0, 1, 2, first, n, n_out); break;
            case 3: dot_tile(m, act[0], DOT_FEW_STRIDE, group, 0, 1, 3, first, n, n_out); break;
            case 4: dot_tile(m, act[0], DOT_FEW_STRIDE, group, 0, 1, 4, first, n, n_out); break;
            default: break;
            }
        }
    }
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

typedef struct dot_rows {
    uint32_t pair[DOT_ROWS][DOT_STRIDE];
} dot_rows;

/* Rows [begin, end) of m, a span of n values from `first` on. The weights of the next groups are requested meanwhile.
 */
SPRY_INLINE void dot_groups(const spry_matmul *m, const dot_rows *act, size_t group, int n_groups, size_t begin,
                            size_t end, size_t first, size_t n, size_t n_out)
{
    const unsigned char *next = group_at(m, group + (size_t)n_groups) + first * value_bytes(KIND_BF16);
    size_t row = begin, n_tiles = (end - begin) / DOT_TILE_ROWS;
    for (; row + DOT_TILE_ROWS <= end; row += DOT_TILE_ROWS) {
        request_part(next, m->weight_stride, n_groups, n * value_bytes(KIND_BF16), (row - begin) / DOT_TILE_ROWS,
                     n_tiles);
        dot_tile(m, act->pair[row - begin], DOT_STRIDE, group, row, n_groups, DOT_TILE_ROWS, first, n, n_out);
    }
    for (; row + 4 <= end; row += 4)
        dot_tile(m, act->pair[row - begin], DOT_STRIDE, group, row, n_groups, 4, first, n, n_out);
    switch (end - row) {
    case 1: dot_tile(m, act->pair[row - begin], DOT_STRIDE, group, row, n_groups, 1, first, n, n_out); break;
    case 2: dot_tile(m, act->pair[row - begin], DOT_STRIDE, group, row, n_groups, 2, first, n, n_out); break;
    case 3: dot_tile(m, act->pair[row - begin], DOT_STRIDE, group, row, n_groups, 3, first, n, n_out); break;
    default: break;
    }
}

/* Rows [begin, end), at most DOT_ROWS. */
SPRY_INLINE void dot_many(const spry_matmul *m, size_t begin, size_t end, size_t out_begin, size_t out_end)
{
    dot_rows act;
    for (size_t first = 0, n; first < m->n_in; first += n) {
        n = m->n_in - first < DOT_SPAN ? m->n_in - first : DOT_SPAN;
        for (size_t row = begin; row < end; row++)
            if (m->halves)
                copy_pairs(act.pair[row - begin], m->halves + row * m->halves_stride + first, n, m->halves_stride);
            else
                encode_pairs(act.pair[row - begin], floats_at(m, row) + first, n);
        size_t output = out_begin;
        for (; output + 2 * GROUP <= out_end; output += 2 * GROUP)
            dot_groups(m, &act, output / GROUP, 2, begin, end, first, n, 2 * GROUP);
        for (; output < out_end; output += GROUP)
            dot_groups(m, &act, output / GROUP, 1, begin, end, first, n, out_end - output);
    }
}

static void bf16_matmul(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    if (m->n_rows <= DOT_FEW_ROWS) {
        dot_few(m, out_begin, out_end);
        return;
    }
    for (size_t row = 0; row < m->n_rows; row += DOT_ROWS)
        dot_many(m, row, m->n_rows - row < DOT_ROWS ? m->n_rows : row + DOT_ROWS, out_begin, out_end);
}

/* An entry of a table. */
#define BF16_OPS .matmul[SPRY_BF16] = {.bf16 = true, .group = GROUP, .run = bf16_matmul, .halve = bf16_halve},
