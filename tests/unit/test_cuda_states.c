/* Recurrent layers on the GPU against plain C over the same pages. */
#include "support/cuda_scene.h"

#include <math.h>

#include "device/cuda/kernel_args.h"
#include "kernels/kv_layout.h"

enum { PAGES = 9, ENTRIES = 6, KV_HEADS = 2, REACH = 4, ROWS = 37 };

/* Pages of two sequences, of which the step adds the last rows. Some entries are closed before their page is full. */
static const spry_step_entry entries[ENTRIES] = {{7, 0, 32, 0},  {2, 32, 1, 0}, {4, 33, 2, 0},
                                                 {0, 35, 31, 0}, {5, 0, 32, 0}, {8, 32, 9, 0}};
static const spry_row_range segments[] = {{0, 34}, {34, 3}}; /* rows */
static const uint32_t first_entries[] = {0, 4, ENTRIES}, first_positions[] = {32, 38};

/* A row of a step that adds to a sequence from `first_new` on. */
static spry_step_row row_at(size_t sequence, uint32_t first_new, uint32_t position)
{
    uint32_t last = first_entries[sequence];
    while (entries[last].start + entries[last].count <= position)
        last++;
    return (spry_step_row){.position = position,
                           .page = entries[last].page,
                           .slot = position - entries[last].start,
                           .first_entry = first_entries[sequence],
                           .n_entries = last + 1 - first_entries[sequence],
                           .first_new = first_new};
}

static void make_rows(spry_step_row rows[ROWS])
{
    for (size_t s = 0; s < SPRY_COUNT(segments); s++)
        for (uint32_t i = 0; i < segments[s].n_rows; i++)
            rows[segments[s].first_row + i] = row_at(s, first_positions[s], first_positions[s] + i);
}

/* ---- short convolutions ------------------------------------------------------------------------------------------ */

enum { PLACES = 3 }; /* of a page: the layer's are the last two */

typedef struct conv_scene {
    spry_dtype type;
    size_t head_dim, n, token_bytes, head_bytes, place_bytes, page_bytes;
    unsigned char *pages, *expected_pages;
    float *in, *weight, *bias, *expected; /* [ROWS, 3 * n], [n, REACH], [n], [ROWS, n] */
    spry_step_row rows[ROWS];
} conv_scene;

/* A piece of a token's vector: keys and values in turn, KV_HEADS each. */
static unsigned char *piece_at(const conv_scene *s, uint32_t page, size_t token, size_t piece)
{
    size_t side = piece / KV_HEADS;
    unsigned char *at = s->expected_pages + page * s->page_bytes + s->place_bytes + side * KV_HEADS * s->head_bytes +
                        piece % KV_HEADS * s->head_bytes;
    return side % 2 ? at + token * s->token_bytes : at;
}

static void store_vector(const conv_scene *s, uint32_t page, size_t token, const float *vector)
{
    for (size_t piece = 0; piece < s->n / s->head_dim; piece++) {
        unsigned char *at = piece_at(s, page, token, piece);
        if (piece / KV_HEADS % 2)
            ref->encode[s->type](at, vector + piece * s->head_dim, s->head_dim);
        else
            spry_kv_store_key(ref, s->type, at, token, vector + piece * s->head_dim, s->head_dim);
    }
}

static void add_vector(const conv_scene *s, float *sum, uint32_t page, size_t token, size_t tap)
{
    float values[SPRY_ATTEND_HEAD_DIM_MAX];
    for (size_t piece = 0; piece < s->n / s->head_dim; piece++) {
        const unsigned char *at = piece_at(s, page, token, piece);
        if (piece / KV_HEADS % 2)
            ref->decode[s->type](values, at, s->head_dim);
        else
            spry_kv_load_key(s->type, values, at, token, s->head_dim);
        for (size_t i = 0, to = piece * s->head_dim; i < s->head_dim; i++, to++)
            sum[to] += s->weight[to * REACH + tap] * values[i];
    }
}

static void open_conv(conv_scene *s, spry_dtype type, size_t head_dim, size_t pieces)
{
    *s = (conv_scene){.type = type, .head_dim = head_dim, .n = pieces * head_dim};
    assert_true(spry_dtype_size(&s->token_bytes, type, head_dim));
    s->head_bytes = s->token_bytes * SPRY_PAGE_TOKENS;
    s->place_bytes = 2 * KV_HEADS * s->head_bytes;
    s->page_bytes = PLACES * s->place_bytes;
    s->expected_pages = taken(PAGES, s->page_bytes);
    s->pages = taken(PAGES, s->page_bytes);
    s->in = taken(ROWS * 3 * s->n, sizeof(float));
    s->weight = taken(s->n * REACH, sizeof(float));
    s->bias = taken(s->n, sizeof(float));
    s->expected = taken(ROWS * s->n, sizeof(float));
    make_rows(s->rows);
    for (uint32_t e = 0; e < ENTRIES; e++)
        for (uint32_t token = 0; token < entries[e].count; token++) {
            fill(s->bias, s->n, 1);
            store_vector(s, entries[e].page, token, s->bias);
        }
    memcpy(s->pages, s->expected_pages, PAGES * s->page_bytes);
    fill(s->in, ROWS * 3 * s->n, 1);
    fill(s->weight, s->n * REACH, 1);
    fill(s->bias, s->n, 1);
}

static void expect_convolution(const conv_scene *s, bool biased)
{
    float *sum = taken(s->n, sizeof(float));
    for (size_t row = 0; row < ROWS; row++) {
        const float *b = s->in + row * 3 * s->n;
        for (size_t i = 0; i < s->n; i++)
            sum[i] = b[i] * b[2 * s->n + i];
        store_vector(s, s->rows[row].page, s->rows[row].slot, sum);
    }
    for (size_t row = 0; row < ROWS; row++) {
        memset(sum, 0, s->n * sizeof *sum);
        for (uint32_t tap = 0; tap < REACH; tap++) {
            uint32_t position = s->rows[row].position + tap + 1 - REACH;
            const spry_step_entry *e = entries + s->rows[row].first_entry;
            while (e->start + e->count <= position)
                e++;
            add_vector(s, sum, e->page, position - e->start, tap);
        }
        for (size_t i = 0; i < s->n; i++)
            s->expected[row * s->n + i] = s->in[row * 3 * s->n + s->n + i] * (sum[i] + (biased ? s->bias[i] : 0));
    }
    free(sum);
}

static void close_conv(conv_scene *s)
{
    free(s->pages);
    free(s->expected_pages);
    free(s->in);
    free(s->weight);
    free(s->bias);
    free(s->expected);
}

/* Every bit: the order of a sum is that of its tokens here and there. */
static void check_convolution(spry_dtype type, size_t head_dim, size_t pieces, bool biased)
{
    conv_scene s;
    open_conv(&s, type, head_dim, pieces);
    expect_convolution(&s, biased);
    float *got = taken(ROWS * s.n, sizeof(float));
    spry_cuda_memory memory[] = {on_gpu(NULL, ROWS * s.n * sizeof(float)),
                                 on_gpu(s.in, ROWS * 3 * s.n * sizeof(float)),
                                 on_gpu(s.weight, s.n * REACH * sizeof(float)),
                                 on_gpu(s.bias, s.n * sizeof(float)),
                                 on_gpu(s.rows, sizeof s.rows),
                                 on_gpu(entries, sizeof entries),
                                 on_gpu(s.pages, PAGES * s.page_bytes)};
    const spry_conv_args args = {.out = memory[0],
                                 .in = memory[1],
                                 .weight = memory[2],
                                 .bias = biased ? memory[3] : 0,
                                 .rows = memory[4],
                                 .entries = memory[5],
                                 .kv = {.pages = memory[6],
                                        .page_bytes = s.page_bytes,
                                        .key_offset = s.place_bytes,
                                        .value_offset = s.place_bytes + KV_HEADS * s.head_bytes,
                                        .head_bytes = (uint32_t)s.head_bytes,
                                        .token_bytes = (uint32_t)s.token_bytes,
                                        .n_kv_heads = KV_HEADS,
                                        .head_dim = (uint32_t)head_dim},
                                 .place_bytes = s.place_bytes,
                                 .n_rows = ROWS,
                                 .n = (uint32_t)s.n,
                                 .reach = REACH};
    const spry_kernel_id kernels[] = {spry_cuda_kv_kernels[type].conv_store, spry_cuda_kv_kernels[type].convolve};
    for (size_t k = 0; k < SPRY_COUNT(kernels); k++)
        spry_cuda_launch(&gpu, kernels[k], (ROWS + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS, pieces, 1, &args);
    from_gpu(got, memory[0], ROWS * s.n * sizeof(float));
    from_gpu(s.pages, memory[6], PAGES * s.page_bytes);
    assert_memory_equal(s.pages, s.expected_pages, PAGES * s.page_bytes);
    assert_memory_equal(got, s.expected, ROWS * s.n * sizeof(float));
    for (size_t i = 0; i < SPRY_COUNT(memory); i++)
        spry_cuda_free(&gpu, &memory[i]);
    free(got);
    close_conv(&s);
}

static void convolutions_have_the_bits_of_the_plain_ones(void **state)
{
    (void)state;
    check_convolution(SPRY_F16, 64, 7, false); /* the last place is not full */
    check_convolution(SPRY_F32, 16, 2, true);
    check_convolution(SPRY_Q8_0, 96, 3, true);
    check_convolution(SPRY_F16, 80, 1, false);
}

/* ---- gated delta nets -------------------------------------------------------------------------------------------- */

#define BETA_SCALE   1.5
#define TIME_LEAST   0.3
#define TIME_LARGEST 0.6

enum { SEQUENCES = 2, FIRST_TOKENS = 66, TOKENS = FIRST_TOKENS + 41 }; /* of the first sequence; of both */

typedef struct delta_shape {
    uint32_t n_heads, n_keys, key_dim, value_dim;
    bool mamba; /* Mamba-2: values, keys and queries in this order, no delta rule */
} delta_shape;

/* Inputs are above 0, so that sums of the convolution lose nothing to cancellation. */
typedef struct delta_scene {
    const delta_shape *shape;
    size_t n_mixed, width, state_floats;
    float *mixed, *ba;                 /* [TOKENS, n_mixed], [TOKENS, 2 * n_heads] */
    float *weight, *bias;              /* [n_mixed, REACH], [n_mixed] */
    float *dt, *fading, *skip;         /* [n_heads] */
    double *expected, *allowed;        /* [TOKENS, width] */
    spry_cuda_memory fixed[5], states; /* weight, dt, fading, bias, skip */
    uint32_t from[SEQUENCES];          /* what the states are kept for the beginning of */
} delta_scene;

static float *above_zero(size_t n)
{
    float *x = taken(n, sizeof *x);
    fill(x, n, 1);
    for (size_t i = 0; i < n; i++)
        x[i] = fabsf(x[i]) + 0.01f;
    return x;
}

static void open_delta(delta_scene *s, const delta_shape *p)
{
    *s = (delta_scene){.shape = p, .width = (size_t)p->n_heads * p->value_dim};
    s->n_mixed = 2 * (size_t)p->n_keys * p->key_dim + s->width;
    s->state_floats = 5 + s->width * p->key_dim + SPRY_PAGE_TOKENS * 2 * p->n_heads +
                      (REACH - 1 + SPRY_PAGE_TOKENS) * s->n_mixed; /* 5 of another layer */
    s->mixed = above_zero(TOKENS * s->n_mixed);
    s->ba = above_zero(TOKENS * 2 * p->n_heads);
    s->weight = above_zero(s->n_mixed * REACH);
    s->dt = above_zero(p->n_heads);
    s->fading = above_zero(p->n_heads);
    s->bias = above_zero(s->n_mixed);
    s->skip = above_zero(p->n_heads);
    s->expected = taken(TOKENS * s->width, sizeof(double));
    s->allowed = taken(TOKENS * s->width, sizeof(double));
    for (size_t i = 0; i < TOKENS * 2 * p->n_heads; i++)
        s->ba[i] -= 1.5f; /* states forget faster than they learn */
    for (size_t i = 0; i < p->n_heads; i++)
        s->fading[i] = -2 - s->fading[i];
    s->fixed[0] = on_gpu(s->weight, s->n_mixed * REACH * sizeof(float));
    s->fixed[1] = on_gpu(s->dt, p->n_heads * sizeof(float));
    s->fixed[2] = on_gpu(s->fading, p->n_heads * sizeof(float));
    s->fixed[3] = on_gpu(s->bias, s->n_mixed * sizeof(float));
    s->fixed[4] = on_gpu(s->skip, p->n_heads * sizeof(float));
}

static void close_delta(delta_scene *s)
{
    free(s->mixed);
    free(s->ba);
    free(s->weight);
    free(s->dt);
    free(s->fading);
    free(s->bias);
    free(s->skip);
    free(s->expected);
    free(s->allowed);
    for (size_t i = 0; i < SPRY_COUNT(s->fixed); i++)
        spry_cuda_free(&gpu, &s->fixed[i]);
}

/* Coordinate i of the convolution at a token of a sequence that begins with token `first`. */
static double mixed_at(const delta_scene *s, size_t first, size_t token, size_t i)
{
    double sum = s->shape->mamba ? (double)s->bias[i] : 0;
    for (size_t tap = 0; tap < REACH; tap++)
        if (token + tap + 1 >= first + REACH)
            sum += (double)s->weight[i * REACH + tap] * (double)s->mixed[(token + tap + 1 - REACH) * s->n_mixed + i];
    return sum / (1 + exp(-sum));
}

/* A head of a query or key; of delta nets of length `scale`. */
static void head_at(const delta_scene *s, double *out, size_t first, size_t token, size_t from, double scale)
{
    double sum = 0;
    for (size_t i = 0; i < s->shape->key_dim; i++) {
        out[i] = mixed_at(s, first, token, from + i);
        sum += out[i] * out[i];
    }
    for (size_t i = 0; !s->shape->mamba && i < s->shape->key_dim; i++)
        out[i] *= scale / sqrt(sum + 1e-6);
}

/* One column over the tokens of a sequence, and beside it what its values would be were all terms of one sign: a token
 * rounds each of its sums by at most this many units of these, and what it leaves fades within a few tokens. */
static void expect_column(const delta_scene *s, size_t first, size_t end, size_t head, size_t column)
{
    const delta_shape *p = s->shape;
    size_t keys = (size_t)p->n_keys * p->key_dim, group = head / (p->n_heads / p->n_keys) * p->key_dim;
    const size_t q_at = p->mamba ? s->width + keys : 0, k_at = p->mamba ? s->width : keys,
                 v_at = p->mamba ? 0 : 2 * keys;
    double x[SPRY_MAX_DELTA_DIM] = {0}, size[SPRY_MAX_DELTA_DIM] = {0}, k[SPRY_MAX_DELTA_DIM], q[SPRY_MAX_DELTA_DIM];
    for (size_t token = first; token < end; token++) {
        const float *ba = s->ba + token * 2 * p->n_heads;
        double time = log1p(exp((double)ba[p->n_heads + head] + (double)s->dt[head]));
        time = p->mamba ? fmin(fmax(time, TIME_LEAST), TIME_LARGEST) : time;
        double fade = exp((double)s->fading[head] * time), sum = 0, sizes = 0;
        double beta = p->mamba ? time : BETA_SCALE / (1 + exp(-(double)ba[head]));
        double v = mixed_at(s, first, token, v_at + head * p->value_dim + column);
        double answer = p->mamba ? (double)s->skip[head] * v : 0, answer_size = answer;
        head_at(s, q, first, token, q_at + group, 1 / sqrt((double)p->key_dim));
        head_at(s, k, first, token, k_at + group, 1);
        for (size_t i = 0; i < p->key_dim; i++) {
            sum += (x[i] *= fade) * (p->mamba ? 0 : k[i]);
            sizes += (size[i] *= fade) * (p->mamba ? 0 : k[i]);
        }
        for (size_t i = 0; i < p->key_dim; i++) {
            answer += (x[i] += k[i] * (v - sum) * beta) * q[i];
            answer_size += (size[i] += k[i] * (v + sizes) * beta) * q[i];
        }
        s->expected[token * s->width + head * p->value_dim + column] = answer;
        s->allowed[token * s->width + head * p->value_dim + column] = answer_size * 4 * (p->key_dim + 16.0) * 0x1p-24;
    }
}

/* Rows of a step: tokens of one sequence. */
typedef struct delta_piece {
    uint32_t sequence, first, n_rows;
} delta_piece;

/* The first position of the page that holds a position of a sequence. */
static uint32_t page_start(uint32_t sequence, uint32_t position)
{
    const spry_step_row row = row_at(sequence, 0, position);
    return entries[row.first_entry + row.n_entries - 1].start;
}

/* Gives the rows of the pieces, into their tokens' places of `out`. */
static void run_delta(delta_scene *s, float *out, const delta_piece *pieces, size_t n_pieces)
{
    const delta_shape *p = s->shape;
    spry_delta_run runs[SEQUENCES];
    size_t all = (size_t)p->n_keys * p->key_dim;
    uint32_t n_rows = 0, keys = 32;
    float *mixed = taken(TOKENS * s->n_mixed, sizeof(float)), *ba = taken(TOKENS * 2 * p->n_heads, sizeof(float));
    for (size_t i = 0; i < n_pieces; n_rows += pieces[i++].n_rows) {
        size_t token = pieces[i].sequence * FIRST_TOKENS + pieces[i].first;
        uint32_t *from = &s->from[pieces[i].sequence], end = pieces[i].first + pieces[i].n_rows;
        runs[i] = (spry_delta_run){n_rows,
                                   pieces[i].n_rows,
                                   pieces[i].first,
                                   *from,
                                   page_start(pieces[i].sequence, end - 1),
                                   SEQUENCES - 1 - pieces[i].sequence};
        *from = runs[i].next;
        memcpy(mixed + n_rows * s->n_mixed, s->mixed + token * s->n_mixed,
               pieces[i].n_rows * s->n_mixed * sizeof(float));
        memcpy(ba + n_rows * 2 * p->n_heads, s->ba + token * 2 * p->n_heads,
               pieces[i].n_rows * 2 * p->n_heads * sizeof(float));
    }
    spry_cuda_memory memory[] = {on_gpu(NULL, n_rows * s->width * sizeof(float)),
                                 on_gpu(mixed, n_rows * s->n_mixed * sizeof(float)),
                                 on_gpu(ba, n_rows * 2 * p->n_heads * sizeof(float)), on_gpu(runs, sizeof runs)};
    const spry_delta_args args = {.out = memory[0],
                                  .mixed = memory[1],
                                  .ba = memory[2],
                                  .runs = memory[3],
                                  .weight = s->fixed[0],
                                  .dt = s->fixed[1],
                                  .fading = s->fixed[2],
                                  .bias = p->mamba ? s->fixed[3] : 0,
                                  .skip = p->mamba ? s->fixed[4] : 0,
                                  .states = s->states + 5 * sizeof(float),
                                  .state_bytes = s->state_floats * sizeof(float),
                                  .n_heads = p->n_heads,
                                  .n_keys = p->n_keys,
                                  .key_dim = p->key_dim,
                                  .value_dim = p->value_dim,
                                  .n_mixed = (uint32_t)s->n_mixed,
                                  .reach = REACH,
                                  .queries = (uint32_t)(p->mamba ? s->width + all : 0),
                                  .keys = (uint32_t)(p->mamba ? s->width : all),
                                  .values = (uint32_t)(p->mamba ? 0 : 2 * all),
                                  .mamba = p->mamba,
                                  .beta_scale = (float)BETA_SCALE,
                                  .time_least = (float)TIME_LEAST,
                                  .time_largest = (float)TIME_LARGEST};
    static const spry_kernel_id kernels[] = {spry_delta_32_id, spry_delta_64_id, spry_delta_128_id, spry_delta_256_id};
    size_t kernel = 0;
    for (; keys < p->key_dim; keys *= 2)
        kernel++;
    spry_cuda_launch(&gpu, spry_delta_gates_id, n_rows, 1, 1, &args);
    spry_cuda_launch(&gpu, kernels[kernel], (p->value_dim + SPRY_DELTA_COLUMNS - 1) / SPRY_DELTA_COLUMNS, p->n_heads,
                     n_pieces, &args);
    spry_cuda_launch(&gpu, spry_delta_keep_id,
                     (args.n_mixed + 2 * args.n_heads + SPRY_DELTA_ROW_THREADS - 1) / SPRY_DELTA_ROW_THREADS, n_pieces,
                     1, &args);
    float *got = taken(n_rows * s->width, sizeof(float));
    from_gpu(got, memory[0], n_rows * s->width * sizeof(float));
    for (size_t i = 0; i < n_pieces; i++)
        memcpy(out + (pieces[i].sequence * FIRST_TOKENS + pieces[i].first) * s->width,
               got + runs[i].first_row * s->width, pieces[i].n_rows * s->width * sizeof(float));
    for (size_t i = 0; i < SPRY_COUNT(memory); i++)
        spry_cuda_free(&gpu, &memory[i]);
    free(mixed);
    free(ba);
    free(got);
}

/* Both sequences from their beginning, in steps of `chunk` tokens of one sequence after the other; 0: all at once. The
 * states as they are then. */
static float *run_chunks(delta_scene *s, float *states, uint32_t chunk)
{
    static const uint32_t counts[SEQUENCES] = {FIRST_TOKENS, TOKENS - FIRST_TOKENS};
    size_t bytes = SEQUENCES * s->state_floats * sizeof(float);
    float *out = taken(TOKENS * s->width, sizeof(float));
    memset(states, 0xff, bytes);
    memset(s->from, 0, sizeof s->from);
    s->states = on_gpu(states, bytes);
    if (!chunk)
        run_delta(s, out, (delta_piece[]){{0, 0, counts[0]}, {1, 0, counts[1]}}, SEQUENCES);
    for (uint32_t sequence = 0; chunk && sequence < SEQUENCES; sequence++)
        for (uint32_t at = 0; at < counts[sequence]; at += chunk)
            run_delta(s, out,
                      &(delta_piece){sequence, at, counts[sequence] - at < chunk ? counts[sequence] - at : chunk}, 1);
    from_gpu(states, s->states, bytes);
    spry_cuda_free(&gpu, &s->states);
    return out;
}

static void check_delta(const delta_shape *shape)
{
    static const uint32_t chunks[] = {1, 7, 33};
    delta_scene s;
    open_delta(&s, shape);
    float *states = taken(SEQUENCES * s.state_floats, sizeof *states);
    for (size_t head = 0; head < shape->n_heads; head++)
        for (size_t column = 0; column < shape->value_dim; column++) {
            expect_column(&s, 0, FIRST_TOKENS, head, column);
            expect_column(&s, FIRST_TOKENS, TOKENS, head, column);
        }
    float *whole = run_chunks(&s, states, 0);
    for (size_t i = 0; i < TOKENS * s.width; i++)
        if (!(fabs((double)whole[i] - s.expected[i]) <= s.allowed[i]))
            fail_msg("keys of %u: token %zu, value %zu is %g, expected %g +- %g", shape->key_dim, i / s.width,
                     i % s.width, (double)whole[i], s.expected[i], s.allowed[i]);
    for (size_t c = 0; c < SPRY_COUNT(chunks); c++) {
        float *parts = run_chunks(&s, states, chunks[c]);
        assert_memory_equal(parts, whole, TOKENS * s.width * sizeof(float));
        free(parts);
    }
    free(whole);
    free(states);
    close_delta(&s);
}

static void delta_nets_go_on_from_any_token(void **state)
{
    (void)state;
    static const delta_shape shapes[] = {{4, 2, 16, 16, false}, {2, 2, 40, 33, false}, {3, 1, 128, 20, false},
                                         {1, 1, 256, 8, false}, {4, 2, 16, 16, true},  {3, 1, 128, 40, true}};
    for (size_t i = 0; i < SPRY_COUNT(shapes); i++)
        check_delta(&shapes[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_have_the_bits_of_the_plain_ones),
        cmocka_unit_test(delta_nets_go_on_from_any_token),
    };
    return run_on_gpu(argc, argv, tests, SPRY_COUNT(tests));
}
