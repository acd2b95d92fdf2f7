/* Layers that keep a state instead of attending, on GPUs, against plain C over the same pages. */
#include "support/cuda_scene.h"

#include "device/cuda/state_args.h"
#include "kernels/kv_layout.h"

enum { PAGES = 9, ENTRIES = 6, KV_HEADS = 2, REACH = 4, ROWS = 37 };

/* Pages of two sequences, of which the step adds the last rows. Some entries are closed before their page is full. */
static const spry_step_entry entries[ENTRIES] = {{7, 0, 32, 0},  {2, 32, 1, 0}, {4, 33, 2, 0},
                                                 {0, 35, 31, 0}, {5, 0, 32, 0}, {8, 32, 9, 0}};
static const spry_attend_run segments[] = {{0, 34}, {34, 3}}; /* rows */
static const uint32_t first_entries[] = {0, 4, ENTRIES}, first_positions[] = {32, 38};

static void make_rows(spry_step_row rows[ROWS])
{
    for (size_t s = 0; s < SPRY_COUNT(segments); s++)
        for (uint32_t i = 0; i < segments[s].n_rows; i++) {
            uint32_t position = first_positions[s] + i, last = first_entries[s];
            while (entries[last].start + entries[last].count <= position)
                last++;
            rows[segments[s].first_row + i] = (spry_step_row){.position = position,
                                                              .page = entries[last].page,
                                                              .slot = position - entries[last].start,
                                                              .first_entry = first_entries[s],
                                                              .n_entries = last + 1 - first_entries[s],
                                                              .first_new = first_positions[s]};
        }
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
    char name[SPRY_CUDA_KERNEL_NAME];
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
    static const char *const kernels[] = {"spry_conv_store_%s", "spry_convolve_%s"};
    for (size_t k = 0; k < SPRY_COUNT(kernels); k++) {
        snprintf(name, sizeof name, kernels[k], spry_cuda_type_name(type));
        spry_cuda_launch(&gpu, spry_cuda_kernel(&gpu, name), (ROWS + SPRY_PREPARE_ROWS - 1) / SPRY_PREPARE_ROWS, pieces,
                         1, SPRY_PREPARE_THREADS, &args);
    }
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_have_the_bits_of_the_plain_ones),
    };
    return run_on_gpu(argc, argv, tests, SPRY_COUNT(tests));
}
