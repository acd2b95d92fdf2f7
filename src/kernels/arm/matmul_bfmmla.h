/* Matrix products with BF16 weights and activations rounded to BF16, for ARM with bfloat16: one bfmmla multiplies four
 * values of two rows by values of two outputs of a group (packed.h) and adds them in pairs. Sums of DOT_BLOCK values,
 * each one chain of such instructions, are added in ascending order: the same for every output of every row, in any
 * tile; a row without another is paired with itself. Subnormal numbers are zeros. Include after matmul_i8mm.h.
 *
 * Activations are encoded by each call, a chunk at a time: one block of many rows, or many blocks of one pair, whose
 * weights are then read in place. */

enum { DOT_BLOCK = 64, DOT_FOURS = DOT_BLOCK / 4, DOT_PAIRS = 32, DOT_FEW_BLOCKS = 32, FOUR_BYTES = 8 * GROUP };

/* Activations as pairs of rows, four values of each: DOT_PAIRS pairs of DOT_FOURS fours, or one pair of DOT_FEW_BLOCKS
 * blocks. */
typedef struct dot_rows {
    bfloat16x8_t four[DOT_PAIRS * DOT_FOURS];
} dot_rows;

/* Encodes four values, or fewer at the end of a row. */
static inline bfloat16x4_t encode_four(const float *in, size_t n)
{
    return vcvt_bf16_f32(n >= LANES ? v_load(in) : v_load_part(in, n));
}

static void encode_pair(bfloat16x8_t *out, const float *one, const float *two, size_t n)
{
    for (size_t i = 0; i < n; i += 4)
        out[i / 4] = vcombine_bf16(encode_four(one + i, n - i), encode_four(two + i, n - i));
}

/* The weights of a group, read in place four values at a time; the last four have zeros for missing values. */
typedef struct dot_weights {
    const unsigned char *whole;
    unsigned char last[FOUR_BYTES];
    size_t n_whole;
} dot_weights;

static void find_weights(dot_weights *out, const unsigned char *p, size_t n)
{
    size_t rest = n % 4, pairs = rest / 2 * (4 * GROUP);
    const unsigned char *end = p + n / 4 * FOUR_BYTES;
    out->whole = p;
    out->n_whole = n / 4;
    memset(out->last, 0, sizeof out->last);
    memcpy(out->last, end, pairs);
    for (size_t o = 0; rest % 2 && o < GROUP; o++) /* the last value of an odd number, which has no partner */
        memcpy(out->last + pairs + 4 * o, end + pairs + 2 * o, 2);
}

/* Four values of outputs 2p and 2p + 1. */
SPRY_INLINE bfloat16x8_t zipped_four(const dot_weights *w, size_t k, int p)
{
    const unsigned char *four = k < w->n_whole ? w->whole + k * FOUR_BYTES : w->last;
    uint32x4_t first = vreinterpretq_u32_u8(vld1q_u8(four + p / 2 * 16));
    uint32x4_t second = vreinterpretq_u32_u8(vld1q_u8(four + 4 * GROUP + p / 2 * 16));
    return vreinterpretq_bf16_u32(p % 2 ? vzip2q_u32(first, second) : vzip1q_u32(first, second));
}

/* The weights of one block of a group, in the order of bfmmla. */
typedef struct dot_panel {
    bfloat16x8_t four[DOT_FOURS][GROUP / 2];
} dot_panel;

static void fill_panel(dot_panel *out, const dot_weights *w, size_t n_fours)
{
    for (size_t k = 0; k < n_fours; k++)
        for (int p = 0; p < GROUP / 2; p++)
            out->four[k][p] = zipped_four(w, k, p);
}

/* Sums of pairs of rows times pairs of outputs. */
typedef float32x4_t dot_sums[TILE_PAIRS][GROUP / 2];

static inline vec get_four(const float *p, size_t n)
{
    return n >= LANES ? v_load(p) : v_load_part(p, n);
}

static inline void put_four(float *p, vec x, size_t n)
{
    if (n >= LANES)
        v_store(p, x);
    else
        v_store_part(p, x, n);
}

/* Adds a sum to the output, or stores it with `first`; n outputs exist, and one row (`alone`) or two. */
SPRY_INLINE void add_two(float *out, size_t stride, float32x4_t left, float32x4_t right, size_t n, bool first,
                         bool alone)
{
    put_four(out, vaddq_f32(first ? v_set(0) : get_four(out, n), lower_two(left, right)), n);
    if (!alone)
        put_four(out + stride, vaddq_f32(first ? v_set(0) : get_four(out + stride, n), upper_two(left, right)), n);
}

/* Multiplies one block: n_pairs pairs of rows, which are `stride` apart from `act` on, times pairs [p, p + n_outputs)
 * of outputs. */
SPRY_INLINE void dot_block(dot_sums sum, const dot_panel *filled, const dot_weights *w, const bfloat16x8_t *act,
                           size_t stride, size_t begin, size_t end, int p, int n_pairs, int n_outputs)
{
    for (int i = 0; i < n_pairs; i++)
        for (int j = 0; j < n_outputs; j++)
            sum[i][j] = v_set(0);
    for (size_t k = begin; k < end; k++) {
        bfloat16x8_t four[GROUP / 2];
        for (int j = 0; j < n_outputs; j++)
            four[j] = filled ? filled->four[k][p + j] : zipped_four(w, k, p + j);
        for (int i = 0; i < n_pairs; i++)
            for (int j = 0; j < n_outputs; j++)
                sum[i][j] = vbfmmlaq_f32(sum[i][j], act[(size_t)i * stride + k], four[j]);
    }
}

/* Multiplies `n_pairs` pairs of rows by half a group, from a panel. `left`: number of outputs that exist. */
SPRY_INLINE void panel_tile(float *out, size_t stride, const dot_panel *filled, const bfloat16x8_t *act, size_t n_fours,
                            int half, int n_pairs, size_t left, bool first, bool alone)
{
    dot_sums sum;
    dot_block(sum, filled, NULL, act, DOT_FOURS, 0, n_fours, TILE_HALF * half, n_pairs, TILE_HALF);
    for (int i = 0; i < n_pairs; i++)
        add_two(out + 2 * (size_t)i * stride, stride, sum[i][0], sum[i][1], left, first, alone);
}

static inline const float *row_floats(const spry_matmul *m, size_t row)
{
    return (const float *)(const void *)((const unsigned char *)m->act + row * m->act_stride);
}

static inline const unsigned char *bf16_at(const spry_matmul *m, size_t output, size_t value)
{
    return (const unsigned char *)m->weight + output / GROUP * m->weight_stride + value * (2 * GROUP);
}

/* The product for one or two rows. */
static void dot_few(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    dot_rows act;
    bool alone = m->n_rows == 1;
    for (size_t first = 0, n; first < m->n_in; first += n) {
        n = m->n_in - first < DOT_FEW_BLOCKS * DOT_BLOCK ? m->n_in - first : DOT_FEW_BLOCKS * DOT_BLOCK;
        encode_pair(act.four, row_floats(m, 0) + first, row_floats(m, alone ? 0 : 1) + first, n);
        for (size_t output = out_begin; output < out_end; output += GROUP) {
            size_t n_out = out_end - output < GROUP ? out_end - output : GROUP, n_fours = (n + 3) / 4;
            float *out = m->out + output;
            dot_weights w;
            find_weights(&w, bf16_at(m, output, first), n);
            for (size_t k = 0; k < n_fours; k += DOT_FOURS) {
                dot_sums sum;
                dot_block(sum, NULL, &w, act.four, 0, k, k + DOT_FOURS < n_fours ? k + DOT_FOURS : n_fours, 0, 1,
                          GROUP / 2);
                bool start = first == 0 && k == 0;
                add_two(out, m->out_stride, sum[0][0], sum[0][1], n_out, start, alone);
                if (n_out > LANES)
                    add_two(out + LANES, m->out_stride, sum[0][2], sum[0][3], n_out - LANES, start, alone);
            }
        }
    }
}

/* Multiplies rows [begin, end) by one group. */
SPRY_INLINE void dot_group(const spry_matmul *m, const dot_rows *act, const dot_panel *filled, size_t begin, size_t end,
                           size_t output, size_t n_out, size_t n_fours, bool first)
{
    for (int half = 0; half < 2 && n_out > (size_t)half * LANES; half++) {
        size_t row = begin, left = n_out - (size_t)half * LANES;
        float *out = m->out + output + (size_t)half * LANES;
        for (; row + 2 * TILE_PAIRS <= end; row += 2 * TILE_PAIRS)
            panel_tile(out + row * m->out_stride, m->out_stride, filled, act->four + (row - begin) / 2 * DOT_FOURS,
                       n_fours, half, TILE_PAIRS, left, first, false);
        for (; row < end; row += 2)
            panel_tile(out + row * m->out_stride, m->out_stride, filled, act->four + (row - begin) / 2 * DOT_FOURS,
                       n_fours, half, 1, left, first, row + 1 == end);
    }
}

/* The product for rows [begin, end), at most 2 * DOT_PAIRS of them. */
static void dot_many(const spry_matmul *m, size_t begin, size_t end, size_t out_begin, size_t out_end)
{
    dot_rows act;
    dot_panel filled;
    dot_weights w;
    for (size_t first = 0, n; first < m->n_in; first += n) {
        n = m->n_in - first < DOT_BLOCK ? m->n_in - first : DOT_BLOCK;
        for (size_t row = begin; row < end; row += 2)
            encode_pair(act.four + (row - begin) / 2 * DOT_FOURS, row_floats(m, row) + first,
                        row_floats(m, row + 1 < end ? row + 1 : row) + first, n);
        for (size_t output = out_begin; output < out_end; output += GROUP) {
            find_weights(&w, bf16_at(m, output, first), n);
            fill_panel(&filled, &w, (n + 3) / 4);
            dot_group(m, &act, &filled, begin, end, output, out_end - output < GROUP ? out_end - output : GROUP,
                      (n + 3) / 4, first == 0);
        }
    }
}

static void bf16_matmul(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    if (m->n_rows <= 2) {
        dot_few(m, out_begin, out_end);
        return;
    }
    for (size_t row = 0; row < m->n_rows; row += 2 * DOT_PAIRS)
        dot_many(m, row, m->n_rows - row < 2 * DOT_PAIRS ? m->n_rows : row + 2 * DOT_PAIRS, out_begin, out_end);
}

/* The table's entry for this file's product. */
#define BF16_OPS .matmul[SPRY_BF16] = {.bf16 = true, .group = GROUP, .run = bf16_matmul},
