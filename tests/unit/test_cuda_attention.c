/* Attention and draws on the GPU against the plain C ops and the host's sampler. */
#include "support/cuda_scene.h"

#include <math.h>

#include "kernels/kv_layout.h"
#include "kernels/ref/ref.h"
#include "sampling/sampler.h"

/* ---- attention --------------------------------------------------------------------------------------------------- */

enum { PAGES = 40, ENTRIES = 35, KV_HEADS = 2, TURNS = 3, ATTEND_ROWS = 40 };

typedef struct attend_shape {
    spry_dtype type;
    size_t head_dim, group;
    uint32_t window;
    float softcap;
    bool interleaved;
    uint32_t ahead; /* later positions that a row sees */
    uint32_t block; /* 0, or rows see their own block of so many positions */
} attend_shape;

#define EVERY_TYPE(name, TYPE) {SPRY_##TYPE, 32, 2, 0, 0, false, 0, 0},
static const attend_shape attend_shapes[] = {
    SPRY_KV_TYPES(EVERY_TYPE){SPRY_F16, 128, 2, 0, 0, false, 0, 0},
    {SPRY_F16, 64, 4, 100, 0, true, 0, 0},
    {SPRY_F32, 16, 3, 0, 5, false, 0, 0},
    {SPRY_F32, 32, 1, 1, 0, false, 0, 0},
    {SPRY_Q8_0, 96, 2, 0, 0, false, 0, 0},
    {SPRY_Q8_0, 256, 4, 40, 3, true, 0, 0},
    {SPRY_F16, 512, 2, 0, 0, false, 0, 0},
    {SPRY_F16, 80, 9, 333, 0, false, 0, 0},
    {SPRY_F16, 256, 1, 50, 2, false, 0, 0},
    {SPRY_F16, 96, 20, 0, 0, true, 0, 0},
    {SPRY_F16, 32, 5, 0, 0, false, 0, 0},
    {SPRY_F16, 64, 1, 0, 0, false, 1 << 30, 0},
    {SPRY_F16, 128, 4, 20, 0, false, 19, 0},
    {SPRY_F32, 16, 2, 0, 0, false, 1 << 30, 0},
    {SPRY_Q8_0, 32, 1, 9, 0, false, 8, 0},
    {SPRY_F16, 24, 2, 0, 0, false, 0, 0},
    {SPRY_F32, 72, 3, 30, 0, true, 0, 0},
    {SPRY_F16, 128, 4, 0, 0, false, 0, 50},
    {SPRY_F16, 64, 1, 0, 0, false, 0, 333},
    {SPRY_F32, 40, 2, 0, 0, false, 0, 7},
};
#undef EVERY_TYPE

typedef struct attend_scene {
    const attend_shape *shape;
    unsigned char *pages;
    spry_kv_entry entries[ENTRIES];
    float cosine[TURNS][SPRY_ATTEND_HEAD_DIM_MAX / 2], sine[TURNS][SPRY_ATTEND_HEAD_DIM_MAX / 2];
    spry_turn rotations[TURNS];
    float *query, *expected; /* [ATTEND_ROWS, heads * head_dim] */
    size_t n_tokens, token_bytes, head_bytes, page_bytes, width;
    spry_step_row rows[ATTEND_ROWS];
} attend_scene;

static void fill_pages(attend_scene *s)
{
    const attend_shape *p = s->shape;
    float head[SPRY_ATTEND_HEAD_DIM_MAX];
    s->pages = taken(PAGES, s->page_bytes);
    memset(s->pages, 0xff, PAGES * s->page_bytes);
    s->n_tokens = 0;
    for (size_t e = 0; e < ENTRIES; e++) {
        uint32_t count = e % 5 == 3 ? 1 + random_bits() % 32 : 32;
        s->entries[e] = (spry_kv_entry){(uint32_t)((e * 7 + 3) % PAGES), (uint32_t)s->n_tokens, count,
                                        e % 4 == 2 ? 1 + (uint32_t)e % 2 : 0};
        for (size_t token = 0; token < count; token++)
            for (size_t h = 0; h < KV_HEADS; h++) {
                unsigned char *at = s->pages + s->entries[e].page * s->page_bytes + h * s->head_bytes;
                fill(head, p->head_dim, 1);
                spry_kv_store_key(ref, p->type, at, token, head, p->head_dim);
                fill(head, p->head_dim, 1);
                ref->encode[p->type](at + KV_HEADS * s->head_bytes + token * s->token_bytes, head, p->head_dim);
            }
        s->n_tokens += count;
    }
}

static void open_scene(attend_scene *s, const attend_shape *p)
{
    *s = (attend_scene){.shape = p, .width = KV_HEADS * p->group * p->head_dim};
    assert_true(spry_dtype_size(&s->token_bytes, p->type, p->head_dim));
    s->head_bytes = s->token_bytes * SPRY_PAGE_TOKENS;
    s->page_bytes = s->head_bytes * KV_HEADS * 2;
    fill_pages(s);
    for (size_t t = 1; t < TURNS; t++) {
        for (size_t i = 0; i < p->head_dim / 2; i++) {
            s->cosine[t][i] = cosf((float)(t * i) + 0.3f);
            s->sine[t][i] = sinf((float)(t * i) + 0.3f);
        }
        s->rotations[t] = (spry_turn){s->cosine[t], s->sine[t]};
    }
    s->query = taken(ATTEND_ROWS * s->width, sizeof(float));
    s->expected = taken(ATTEND_ROWS * s->width, sizeof(float));
    fill(s->query, ATTEND_ROWS * s->width, 1);
}

static float attend_scale(const attend_shape *p)
{
    return 1 / sqrtf((float)p->head_dim);
}

static void expect_attention(attend_scene *s)
{
    const attend_shape *p = s->shape;
    const spry_attend a = {.out = s->expected,
                           .query = s->query,
                           .row_stride = s->width,
                           .n_rows = ATTEND_ROWS,
                           .first_position = (uint32_t)(s->n_tokens - ATTEND_ROWS),
                           .window = p->window,
                           .block = p->block,
                           .ahead = p->ahead,
                           .head_dim = p->head_dim,
                           .group = p->group,
                           .scale = attend_scale(p),
                           .softcap = p->softcap,
                           .type = p->type,
                           .pages = s->pages,
                           .page_bytes = s->page_bytes,
                           .value_offset = KV_HEADS * s->head_bytes,
                           .head_bytes = s->head_bytes,
                           .token_bytes = s->token_bytes,
                           .entries = s->entries,
                           .n_entries = ENTRIES,
                           .turns = s->rotations,
                           .n_pairs = p->head_dim / 2,
                           .interleaved = p->interleaved};
    for (size_t h = 0; h < KV_HEADS; h++)
        spry_ref_attend(&a, h, h + 1);
}

static void place_rows_of(attend_scene *s)
{
    for (size_t i = 0; i < ATTEND_ROWS; i++) {
        uint32_t position = (uint32_t)(s->n_tokens - ATTEND_ROWS + i), last = 0;
        while (s->entries[last].start + s->entries[last].count <= position)
            last++;
        s->rows[i] = (spry_step_row){.position = position, .n_entries = s->shape->ahead ? ENTRIES : last + 1};
    }
}

enum { ATTEND_MEMORIES = 11 };

/* Uploads the rows, also as prefill tiles and decode tiles of `each` rows. */
static spry_attend_args load_attention(spry_cuda_memory memory[ATTEND_MEMORIES], const attend_scene *s,
                                       const spry_cuda_attention *way, size_t chunks, uint32_t each)
{
    const attend_shape *p = s->shape;
    uint32_t few[ATTEND_ROWS], n_prefill_tiles = 0, n_decode_tiles = 0, n_heads = (uint32_t)(KV_HEADS * p->group);
    size_t bytes = ATTEND_ROWS * s->width * sizeof(float);
    spry_row_range prefill_tiles[ATTEND_ROWS];
    spry_decode_tile decode_tiles[ATTEND_ROWS];
    for (uint32_t i = 0; i < ATTEND_ROWS; i++)
        few[i] = i;
    for (uint32_t i = 0; i < ATTEND_ROWS; i += each)
        prefill_tiles[n_prefill_tiles++] = (spry_row_range){i, ATTEND_ROWS - i < each ? ATTEND_ROWS - i : each};
    for (uint32_t i = 0; i < ATTEND_ROWS; i += each)
        decode_tiles[n_decode_tiles++] = (spry_decode_tile){i, ATTEND_ROWS - i < each ? ATTEND_ROWS - i : each, i};
    const spry_cuda_memory placed[ATTEND_MEMORIES] = {
        on_gpu(NULL, bytes),
        on_gpu(s->query, bytes),
        on_gpu(NULL, ATTEND_ROWS * n_heads * chunks * (p->head_dim + SPRY_PARTIAL_HEADER) * sizeof(float)),
        on_gpu(s->rows, sizeof s->rows),
        on_gpu(s->entries, sizeof s->entries),
        on_gpu(few, sizeof few),
        on_gpu(prefill_tiles, sizeof prefill_tiles),
        on_gpu(NULL, TURNS * p->head_dim / 2 * sizeof(float)),
        on_gpu(NULL, TURNS * p->head_dim / 2 * sizeof(float)),
        on_gpu(s->pages, PAGES * s->page_bytes),
        on_gpu(decode_tiles, sizeof decode_tiles)};
    memcpy(memory, placed, sizeof placed);
    for (size_t t = 1; t < TURNS; t++) {
        spry_cuda_write(&gpu, memory[7] + t * p->head_dim / 2 * sizeof(float), s->cosine[t], p->head_dim / 2 * 4);
        spry_cuda_write(&gpu, memory[8] + t * p->head_dim / 2 * sizeof(float), s->sine[t], p->head_dim / 2 * 4);
    }
    return (spry_attend_args){.out = memory[0],
                              .q = memory[1],
                              .partial = memory[2],
                              .rows = memory[3],
                              .entries = memory[4],
                              .decode_rows = memory[5],
                              .decode_tiles = memory[10],
                              .prefill_tiles = memory[6],
                              .rotation_cosine = memory[7],
                              .rotation_sine = memory[8],
                              .kv = {.pages = memory[9],
                                     .page_bytes = s->page_bytes,
                                     .value_offset = KV_HEADS * s->head_bytes,
                                     .head_bytes = (uint32_t)s->head_bytes,
                                     .token_bytes = (uint32_t)s->token_bytes,
                                     .n_kv_heads = KV_HEADS,
                                     .head_dim = (uint32_t)p->head_dim},
                              .n_heads = n_heads,
                              .n_pairs = (uint32_t)p->head_dim / 2,
                              .interleaved = p->interleaved,
                              .window = p->block ? p->block : p->window,
                              .block = p->block,
                              .ahead = p->ahead,
                              .n_chunks = (uint32_t)chunks,
                              .chunk_pages = (uint32_t)way->chunk_pages,
                              .scale = attend_scale(p),
                              .softcap = p->softcap};
}

static bool without_wgmma; /* prefill with mma, as on GPUs without wgmma */

static spry_cuda_attention way_of(const attend_shape *p)
{
    const spry_config config = {
        .n_heads = (uint32_t)(KV_HEADS * p->group), .n_kv_heads = KV_HEADS, .head_dim = (uint32_t)p->head_dim};
    const spry_cuda_context by = {.has_wgmma = gpu.has_wgmma && !without_wgmma, .shared_bytes = gpu.shared_bytes};
    return spry_cuda_attention_of(&by, &config, p->type, false);
}

/* How rows are attended: as decode tiles of `each` rows, as prefill tiles of `each` rows, or as such tiles with
 * split-KV. */
typedef enum attend_as { DECODE, PREFILL, PREFILL_SPLIT } attend_as;

static void attend_on_gpu(attend_scene *s, float *out, attend_as as, uint32_t each)
{
    const attend_shape *p = s->shape;
    uint32_t n_heads = (uint32_t)(KV_HEADS * p->group);
    spry_cuda_attention way = way_of(p);
    size_t chunks = (ENTRIES + way.chunk_pages - 1) / way.chunk_pages, n = (ATTEND_ROWS + each - 1) / each;
    spry_cuda_memory memory[ATTEND_MEMORIES];
    spry_attend_args args = load_attention(memory, s, &way, chunks, each);
    spry_cuda_encode_tensor_maps(&gpu, &way, &args.kv, PAGES);
    gpu.cuda->memory_fill(memory[0], 0xffffffff, ATTEND_ROWS * s->width); /* the result must not depend on old values */
    if (as == PREFILL_SPLIT) {
        args.n_chunks = (ENTRIES + SPRY_SPLIT_KV_PAGES - 1) / SPRY_SPLIT_KV_PAGES;
        args.chunk_pages = SPRY_SPLIT_KV_PAGES;
    }
    if (as != DECODE) {
        spry_cuda_attend_prefill(&gpu, &way, &args, n, each, as == PREFILL_SPLIT ? args.n_chunks : 0);
    } else {
        spry_cuda_launch_shared(&gpu, way.split_kv, way.multi_row ? n : ATTEND_ROWS,
                                KV_HEADS * ((p->group + way.queries - 1) / way.queries) * way.parts,
                                (chunks * way.chunk_pages + way.warps - 1) / way.warps, way.split_kv_bytes, &args);
        spry_cuda_launch(&gpu, way.combine, ATTEND_ROWS, n_heads, 1, &args);
    }
    from_gpu(out, memory[0], ATTEND_ROWS * s->width * sizeof(float));
    for (size_t i = 0; i < SPRY_COUNT(memory); i++)
        spry_cuda_free(&gpu, &memory[i]);
}

static void attention_is_right_and_does_not_depend_on_other_rows(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPRY_COUNT(attend_shapes); t++) {
        attend_scene s;
        open_scene(&s, &attend_shapes[t]);
        expect_attention(&s);
        place_rows_of(&s);
        size_t n = ATTEND_ROWS * s.width;
        float *few = taken(n, sizeof(float)), *many = taken(n, sizeof(float)), *others = taken(n, sizeof(float));
        attend_on_gpu(&s, few, DECODE, 1);
        attend_on_gpu(&s, many, PREFILL, 16);
        attend_on_gpu(&s, others, PREFILL, 7);
        /* Values are at most 1, scores at most sqrt(head_dim). */
        double allowed =
            ((double)s.shape->head_dim * sqrt((double)s.shape->head_dim) + 2.0 * (double)s.n_tokens) * 0x1p-24;
        for (size_t i = 0; i < n; i++)
            if (!(fabs((double)few[i] - (double)s.expected[i]) <= allowed))
                fail_msg("shape %zu: row %zu, value %zu: %g instead of %g", t, i / s.width, i % s.width, (double)few[i],
                         (double)s.expected[i]);
        assert_memory_equal(few, many, n * sizeof(float));
        if (s.shape->group < 16) {
            attend_on_gpu(&s, many, DECODE, (uint32_t)(16 / s.shape->group));
            assert_memory_equal(few, many, n * sizeof(float));
        }
        if (way_of(s.shape).combine_prefill) { /* prefill tiles as long as a block takes */
            attend_on_gpu(&s, many, PREFILL_SPLIT, 32);
            assert_memory_equal(few, many, n * sizeof(float));
            attend_on_gpu(&s, many, PREFILL_SPLIT, 7);
            assert_memory_equal(few, many, n * sizeof(float));
            without_wgmma = true;
            attend_on_gpu(&s, many, PREFILL_SPLIT, 32);
            assert_memory_equal(few, many, n * sizeof(float));
            attend_on_gpu(&s, many, PREFILL, 16);
            assert_memory_equal(few, many, n * sizeof(float));
            without_wgmma = false;
        }
        assert_memory_equal(few, others, n * sizeof(float));
        free(few);
        free(many);
        free(others);
        free(s.pages);
        free(s.query);
        free(s.expected);
    }
}

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

enum { VOCAB = 1500, DRAWS = 16, HISTORY = 40 };

typedef struct draw_scene {
    float logits[VOCAB];
    int32_t history[HISTORY];
    spry_logit_bias bias[3];
    uint32_t mask[(VOCAB + 31) / 32];
    spry_sampling settings;
    bool masked;
} draw_scene;

static bool sometimes(void)
{
    return random_bits() % 2;
}

static void make_scene(draw_scene *s)
{
    float size = sometimes() ? 8.0f : 2.0f;
    for (size_t i = 0; i < VOCAB; i++) /* some are equal */
        s->logits[i] = floorf(uniform() * 64) / 64 * size;
    for (size_t i = 0; i < HISTORY; i++)
        s->history[i] = (int32_t)(random_bits() % VOCAB);
    for (size_t i = 0; i < SPRY_COUNT(s->bias); i++)
        s->bias[i] = (spry_logit_bias){(int32_t)(random_bits() % VOCAB), i ? uniform() * 10 : -INFINITY};
    for (size_t i = 0; i < SPRY_COUNT(s->mask); i++)
        s->mask[i] = random_bits() | random_bits() << 16;
    s->masked = sometimes();
    bool plain = random_bits() % 8 == 0; /* greedy and nothing else */
    spry_sampling_default(&s->settings);
    s->settings.temperature = random_bits() % 4 ? 0.2f + (float)(random_bits() % 100) / 50 : 0;
    s->settings.repeat_penalty = sometimes() ? 1.3f : 1;
    s->settings.presence_penalty = sometimes() ? 0.4f : 0;
    s->settings.frequency_penalty = sometimes() ? 0.2f : 0;
    s->settings.penalty_window = sometimes() ? 16 : 0;
    s->settings.top_k = sometimes() ? 1 + random_bits() % 60 : 0;
    s->settings.top_p = sometimes() ? 0.3f + (float)(random_bits() % 70) / 100 : 1;
    s->settings.min_p = sometimes() ? (float)(random_bits() % 20) / 100 : 0;
    s->settings.typical_p = random_bits() % 3 ? 1 : 0.6f;
    s->settings.seed = random_bits();
    s->settings.bias = s->bias;
    s->settings.n_bias = sometimes() ? SPRY_COUNT(s->bias) : 0;
    if (plain) {
        spry_sampling_default(&s->settings);
        s->settings.temperature = 0;
        s->masked = false;
    }
}

/* Some draws on the GPU, each with its own settings, beside logits that are on the host too. */
static void make_draws(spry_draw draws[DRAWS], spry_draw *list[DRAWS], draw_scene scenes[DRAWS], float *logits)
{
    for (size_t i = 0; i < DRAWS; i++) {
        spry_random random;
        make_scene(&scenes[i]);
        memcpy(logits + i * VOCAB, scenes[i].logits, sizeof scenes[i].logits);
        spry_random_seed(&random, scenes[i].settings.seed);
        draws[i] = (spry_draw){.row = i,
                               .settings = &scenes[i].settings,
                               .history = scenes[i].history,
                               .n_history = HISTORY,
                               .mask = scenes[i].masked ? scenes[i].mask : NULL,
                               .u = spry_random_unit(&random),
                               .wants_logprob = sometimes(),
                               .max_top = sometimes() ? 7 : 0};
        list[i] = &draws[i];
    }
}

static void compare_draw(spry_sampler *sampler, const draw_scene *s, const spry_draw *draw)
{
    spry_error error = {0};
    int32_t token;
    assert_int_equal(spry_sampler_set(sampler, &s->settings, &error), SPRY_OK);
    assert_int_equal(
        spry_sampler_draw(sampler, &token, s->logits, s->history, HISTORY, s->masked ? s->mask : NULL, &error),
        SPRY_OK);
    assert_int_equal(draw->status, SPRY_OK);
    assert_int_equal(draw->token, token);
    if (draw->wants_logprob || draw->max_top)
        assert_true(fabs(draw->logprob - spry_logprob(s->logits, VOCAB, token)) < 1e-9);
    assert_int_equal(draw->n_top, draw->max_top);
    for (size_t k = 0; k < draw->n_top; k++) {
        size_t better = 0;
        float own = s->logits[draw->top[k].id];
        for (int32_t id = 0; id < VOCAB; id++)
            better += s->logits[id] > own || (s->logits[id] == own && id < draw->top[k].id);
        assert_int_equal(better, k);
    }
}

static void draw_on_gpu(spry_cuda_device *d, const float *logits, size_t bytes, spry_draw **list, size_t n)
{
    spry_error error = {0};
    spry_cuda_write(&d->context, d->scratch.logits, logits, bytes);
    assert_int_equal(spry_cuda_draw_queue(d, list, n, &error), SPRY_OK);
    spry_cuda_finish(&d->context);
    spry_cuda_draw_take(d, d->newest, list, n);
}

static void draws_are_those_of_the_host(void **state)
{
    (void)state;
    static draw_scene scenes[DRAWS];
    static float logits[DRAWS * VOCAB];
    spry_config config = {.n_vocab = VOCAB};
    spry_cuda_device d = {.config = &config, .context = gpu};
    spry_error error = {0};
    spry_sampler *sampler;
    assert_int_equal(spry_sampler_create(&sampler, ref, VOCAB, &error), SPRY_OK);
    spry_cuda_memory *const memory[] = {&d.scratch.draw_scores, &d.scratch.draw_weight, &d.scratch.draw_count,
                                        &d.scratch.draw_best, &d.scratch.logits};
    const size_t bytes[] = {SPRY_CUDA_DRAWS * VOCAB * 4, SPRY_CUDA_DRAWS * VOCAB * 8, SPRY_CUDA_DRAWS * VOCAB * 4,
                            SPRY_CUDA_DRAWS * SPRY_DRAW_SLICES * 8, sizeof logits};
    for (size_t i = 0; i < SPRY_COUNT(memory); i++)
        *memory[i] = on_gpu(NULL, bytes[i]);
    gpu.cuda->memory_fill(d.scratch.draw_count, 0, SPRY_CUDA_DRAWS * VOCAB);
    for (size_t round = 0; round < 12; round++) {
        spry_draw draws[DRAWS] = {{0}}, *list[DRAWS];
        make_draws(draws, list, scenes, logits);
        draw_on_gpu(&d, logits, sizeof logits, list, DRAWS);
        for (size_t i = 0; i < DRAWS; i++)
            compare_draw(sampler, &scenes[i], &draws[i]);
    }
    logits[5] = NAN;
    spry_sampling settings;
    spry_sampling_default(&settings);
    uint32_t nothing[(VOCAB + 31) / 32] = {0};
    spry_draw bad = {.settings = &settings}, empty = {.row = 1, .settings = &settings, .mask = nothing};
    spry_draw *list[] = {&bad, &empty};
    draw_on_gpu(&d, logits, sizeof logits, list, 2);
    assert_int_equal(bad.status, SPRY_ERR_INPUT);
    assert_int_equal(empty.status, SPRY_ERR_INPUT);
    spry_cuda_draw_deinit(&d);
    for (size_t i = 0; i < SPRY_COUNT(memory); i++)
        spry_cuda_free(&gpu, memory[i]);
    spry_sampler_destroy(sampler);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_right_and_does_not_depend_on_other_rows),
        cmocka_unit_test(draws_are_those_of_the_host),
    };
    return run_on_gpu(argc, argv, tests, SPRY_COUNT(tests));
}
