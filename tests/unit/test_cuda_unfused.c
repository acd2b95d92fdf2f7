/* Prefill attention, fused, against three kernels with results in global memory (support/unfused.cu): both agree, and
 * on a real GPU (`test_cuda_unfused gpu`) a line for each length reports their times. */
#define REAL_IMAGES unfused_images
extern const void *const unfused_images[]; /* images of the fused kernel and of the unfused ones; ends with NULL */

#include "support/cuda_scene.h"

#include <math.h>

#include "kernels/kv_layout.h"
#include "support/unfused_args.h"

enum { HEAD = UNFUSED_HEAD, MEMORIES = 9, REPEATS = 9 };

/* A prompt of n tokens: keys and values in pages, and as tiles. */
typedef struct scene {
    uint32_t n, n_heads, n_kv_heads;
    spry_cuda_attention way;
    spry_cuda_memory memory[MEMORIES];
    spry_attend_args fused;
    unfused_args unfused;
    size_t n_prefill_tiles, longest; /* longest: rows of the longest tile */
} scene;

/* Random heads as floats and as halves. */
static float *make_heads(uint16_t *halves, size_t count)
{
    float *values = taken(count, sizeof *values);
    fill(values, count, 1);
    ref->encode[SPRY_F16](halves, values, count);
    return values;
}

/* Keys and values of all heads, page by page. */
static void fill_pages(unsigned char *pages, const scene *s, const float *keys, const uint16_t *values)
{
    size_t head_bytes = (size_t)SPRY_PAGE_TOKENS * HEAD * 2;
    for (size_t h = 0; h < s->n_kv_heads; h++)
        for (size_t i = 0; i < s->n; i++) {
            unsigned char *page = pages + i / SPRY_PAGE_TOKENS * 2 * s->n_kv_heads * head_bytes + h * head_bytes;
            size_t token = i % SPRY_PAGE_TOKENS, at = (h * s->n + i) * HEAD;
            spry_kv_store_key(ref, SPRY_F16, page, token, keys + at, HEAD);
            memcpy(page + s->n_kv_heads * head_bytes + token * HEAD * 2, values + at, HEAD * 2);
        }
}

static void make_rows(scene *s, spry_step_row *rows, spry_step_entry *entries, spry_row_range *prefill_tiles)
{
    uint32_t each = (uint32_t)(s->way.prefill_warps / s->way.parts * s->way.queries / (s->n_heads / s->n_kv_heads));
    s->longest = each;
    for (uint32_t i = 0; i < s->n; i++)
        rows[i] = (spry_step_row){.position = i, .n_entries = i / SPRY_PAGE_TOKENS + 1};
    for (uint32_t i = 0; i < s->n / SPRY_PAGE_TOKENS; i++)
        entries[i] = (spry_step_entry){.page = i, .start = i * SPRY_PAGE_TOKENS, .count = SPRY_PAGE_TOKENS};
    s->n_prefill_tiles = 0;
    for (uint32_t i = 0; i < s->n; i += each)
        prefill_tiles[s->n_prefill_tiles++] = (spry_row_range){i, s->n - i < each ? s->n - i : each};
}

static void set_args(scene *s)
{
    const spry_cuda_memory *m = s->memory;
    uint32_t head_bytes = SPRY_PAGE_TOKENS * HEAD * 2;
    s->fused = (spry_attend_args){.out = m[0],
                                  .q = m[1],
                                  .rows = m[2],
                                  .entries = m[3],
                                  .prefill_tiles = m[4],
                                  .kv = {.pages = m[5],
                                         .page_bytes = 2 * s->n_kv_heads * head_bytes,
                                         .value_offset = s->n_kv_heads * head_bytes,
                                         .head_bytes = head_bytes,
                                         .token_bytes = HEAD * 2,
                                         .n_kv_heads = s->n_kv_heads,
                                         .head_dim = HEAD},
                                  .n_heads = s->n_heads,
                                  .n_pairs = HEAD / 2,
                                  .scale = 1 / sqrtf(HEAD)};
    size_t kv = (size_t)s->n_kv_heads * s->n * HEAD * 2;
    s->unfused = (unfused_args){.q = m[6],
                                .k = m[7],
                                .v = m[7] + kv,
                                .scores = m[8],
                                .out = m[0],
                                .n = s->n,
                                .n_heads = s->n_heads,
                                .n_kv_heads = s->n_kv_heads,
                                .scale = s->fused.scale};
}

static void open_scene(scene *s, uint32_t n, uint32_t n_heads, uint32_t n_kv_heads)
{
    const spry_config heads = {.n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_dim = HEAD};
    size_t n_q = (size_t)n * n_heads * HEAD, n_kv = (size_t)n * n_kv_heads * HEAD;
    *s = (scene){.n = n,
                 .n_heads = n_heads,
                 .n_kv_heads = n_kv_heads,
                 .way = spry_cuda_attention_of(&gpu, &heads, SPRY_F16, false)};
    uint16_t *halves = taken(n_q, 2), *kv = taken(2 * n_kv, 2);
    float *q = make_heads(halves, n_q), *k = make_heads(kv, n_kv), *v = make_heads(kv + n_kv, n_kv);
    float *rows_first = taken(n_q, sizeof(float)); /* [row, head], as the fused kernel takes queries */
    for (size_t i = 0; i < n_q / HEAD; i++)
        memcpy(rows_first + (i % n * n_heads + i / n) * HEAD, q + i * HEAD, HEAD * sizeof *q);
    unsigned char *pages = taken(2 * n_kv, 2);
    fill_pages(pages, s, k, kv + n_kv);
    spry_step_row *rows = taken(n, sizeof *rows);
    spry_step_entry *entries = taken(n / SPRY_PAGE_TOKENS, sizeof *entries);
    spry_row_range *prefill_tiles = taken(n, sizeof *prefill_tiles);
    make_rows(s, rows, entries, prefill_tiles);
    const struct {
        const void *from;
        size_t bytes;
    } parts[MEMORIES] = {{NULL, n_q * 4},
                         {rows_first, n_q * 4},
                         {rows, n * sizeof *rows},
                         {entries, n / SPRY_PAGE_TOKENS * sizeof *entries},
                         {prefill_tiles, n * sizeof *prefill_tiles},
                         {pages, 4 * n_kv},
                         {halves, n_q * 2},
                         {kv, 4 * n_kv},
                         {NULL, (size_t)n_heads * n * n * 2}};
    for (size_t i = 0; i < MEMORIES; i++)
        s->memory[i] = on_gpu(parts[i].from, parts[i].bytes);
    set_args(s);
    spry_cuda_encode_tensor_maps(&gpu, &s->way, &s->fused.kv, s->n / SPRY_PAGE_TOKENS);
    void *const lists[] = {halves, kv, q, k, v, rows_first, pages, rows, entries, prefill_tiles};
    for (size_t i = 0; i < SPRY_COUNT(lists); i++)
        free(lists[i]);
}

static void close_scene(scene *s)
{
    for (size_t i = 0; i < MEMORIES; i++)
        spry_cuda_free(&gpu, &s->memory[i]);
}

static void attend_fused(scene *s)
{
    spry_cuda_attend_prefill(&gpu, &s->way, &s->fused, s->n_prefill_tiles, s->longest, 0);
}

/* A kernel of support/unfused.cu, which is not in the list of kernels. */
static void launch_unfused(scene *s, const char *name, size_t grid_x, size_t grid_y, size_t grid_z)
{
    void *function = NULL, *parameters[] = {&s->unfused};
    const spry_cuda_launch_config config = {.grid_x = (unsigned)grid_x,
                                            .grid_y = (unsigned)grid_y,
                                            .grid_z = (unsigned)grid_z,
                                            .block_x = UNFUSED_THREADS,
                                            .block_y = 1,
                                            .block_z = 1,
                                            .stream = gpu.stream};
    for (size_t i = 0; !function && i < gpu.n_modules; i++)
        if (gpu.cuda->module_function(&function, gpu.modules[i], name))
            function = NULL;
    assert_non_null(function);
    spry_cuda_went_well(&gpu, gpu.cuda->launch_as(&config, function, parameters, NULL), "cuLaunchKernelEx");
}

static void attend_unfused(scene *s)
{
    size_t tiles = s->n / UNFUSED_TILE;
    launch_unfused(s, "unfused_scores", tiles, tiles, s->n_heads);
    launch_unfused(s, "unfused_softmax", s->n, s->n_heads, 1);
    launch_unfused(s, "unfused_values", tiles, s->n_heads, 1);
}

/* Weights are halves on both sides, and scores on one: at most 4, so off by 2^-10; values are at most 1. */
static void fused_and_unfused_agree(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, UNFUSED_TILE * 2, 2, 1);
    size_t count = (size_t)s.n * s.n_heads * HEAD;
    float *fused = taken(count, sizeof *fused), *unfused = taken(count, sizeof *unfused);
    attend_fused(&s);
    from_gpu(fused, s.memory[0], count * sizeof *fused);
    gpu.cuda->memory_fill(s.memory[0], 0xffffffff, count);
    attend_unfused(&s);
    from_gpu(unfused, s.memory[0], count * sizeof *unfused);
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(fused[i] - unfused[i]) <= 0x1p-8f))
            fail_msg("row %zu, value %zu: %g and %g", i / s.n_heads / HEAD, i % HEAD, (double)fused[i],
                     (double)unfused[i]);
    free(fused);
    free(unfused);
    close_scene(&s);
}

/* Milliseconds, the least of some. */
static double time_of(void (*attend)(scene *), scene *s)
{
    void *from = spry_cuda_event_create(&gpu), *to = spry_cuda_event_create(&gpu);
    double least = INFINITY;
    for (size_t i = 0; i < REPEATS; i++) {
        spry_cuda_event_record(&gpu, from);
        attend(s);
        spry_cuda_event_record(&gpu, to);
        spry_cuda_finish(&gpu);
        double ms = spry_cuda_event_elapsed(&gpu, from, to);
        least = ms < least ? ms : least;
    }
    spry_cuda_event_destroy(&gpu, from);
    spry_cuda_event_destroy(&gpu, to);
    return least;
}

static bool on_real_gpu;

/* Heads as Qwen3-0.6B has them. */
static void fused_is_timed(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {512, 2048, 8192};
    if (!on_real_gpu) {
        print_message("times left out: without a GPU they say nothing\n");
        return;
    }
    for (size_t i = 0; i < SPRY_COUNT(lengths); i++) {
        scene s;
        open_scene(&s, lengths[i], 16, 8);
        double unfused = time_of(attend_unfused, &s), fused = time_of(attend_fused, &s);
        float last;
        from_gpu(&last, s.memory[0], sizeof last); /* fails where a kernel did */
        print_message("attention of %5u tokens: fused %8.3f ms, unfused %8.3f ms, %.2f times\n", s.n, fused, unfused,
                      unfused / fused);
        close_scene(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_and_unfused_agree),
        cmocka_unit_test(fused_is_timed),
    };
    on_real_gpu = argc > 1 && !strcmp(argv[1], "gpu");
    return run_on_gpu(argc, argv, tests, SPRY_COUNT(tests));
}
