/* The same attention fused and unfused: by the engine's op, which keeps scores in registers and caches, and by three
 * ops with all scores of a head in memory between them: products of queries and keys, softmax, products of weights and
 * values. The last rows of a sequence, as in a step of a long prompt. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "kernels/kv_layout.h"
#include "kernels/packed.h"
#include "platform/clock.h"
#include "platform/threads.h"
#include "spry_tools.h"

/* The shape of keys and values in most models. */
enum { HEAD_DIM = 128, KV_HEADS = 8, GROUP = 4, WIDTH = KV_HEADS * GROUP * HEAD_DIM, ROWS = 128, TRIES = 5 };
enum { HEAD_BYTES = SPRY_PAGE_TOKENS * HEAD_DIM * 2, SIDE_BYTES = KV_HEADS * HEAD_BYTES, PAGE_BYTES = 2 * SIDE_BYTES };

typedef struct scene {
    const spry_ops *ops;
    size_t n_keys, n_rows;
    float *query, *fused, *unfused; /* [n_rows, WIDTH] */
    float *scores;                  /* [KV_HEADS, n_rows, n_keys] */
    unsigned char *keys, *values;   /* packed matrices of every head: [n_keys, HEAD_DIM], [HEAD_DIM, n_keys] */
    size_t key_bytes, value_bytes;  /* of one head */
    unsigned char *pages;
    spry_kv_entry *entries;
} scene;

static float scale(void)
{
    return 1 / sqrtf(HEAD_DIM);
}

/* ---- both ways, for a range of key/value heads ------------------------------------------------------------------- */

static void run_fused(void *context, size_t begin, size_t end)
{
    const scene *s = context;
    const spry_attend a = {.out = s->fused,
                           .query = s->query,
                           .row_stride = WIDTH,
                           .n_rows = s->n_rows,
                           .first_position = (uint32_t)(s->n_keys - s->n_rows),
                           .head_dim = HEAD_DIM,
                           .group = GROUP,
                           .scale = scale(),
                           .type = SPRY_F16,
                           .pages = s->pages,
                           .page_bytes = PAGE_BYTES,
                           .value_offset = SIDE_BYTES,
                           .head_bytes = HEAD_BYTES,
                           .token_bytes = HEAD_DIM * 2,
                           .entries = s->entries,
                           .n_entries = s->n_keys / SPRY_PAGE_TOKENS};
    s->ops->attend(&a, begin, end);
}

static size_t group_rows(const scene *s)
{
    return s->ops->matmul[SPRY_F32].group ? s->ops->matmul[SPRY_F32].group : 1;
}

/* out[rows, n_out] = act[rows, n_in] by a packed matrix. */
static void multiply(const scene *s, float *out, size_t out_stride, const unsigned char *weight, const float *act,
                     size_t act_stride, size_t n_in, size_t n_out)
{
    const spry_matmul m = {.out = out,
                           .out_stride = out_stride,
                           .weight = weight,
                           .weight_stride = group_rows(s) * n_in * sizeof(float),
                           .act = act,
                           .act_stride = act_stride * sizeof(float),
                           .n_rows = s->n_rows,
                           .n_in = n_in};
    s->ops->matmul[SPRY_F32].run(&m, 0, n_out);
}

static void run_unfused(void *context, size_t begin, size_t end)
{
    const scene *s = context;
    for (size_t head = begin * GROUP; head < end * GROUP; head++) {
        const size_t kv = head / GROUP;
        float *scores = s->scores + kv * s->n_rows * s->n_keys;
        multiply(s, scores, s->n_keys, s->keys + kv * s->key_bytes, s->query + head * HEAD_DIM, WIDTH, HEAD_DIM,
                 s->n_keys);
        for (size_t row = 0; row < s->n_rows; row++) {
            float *own = scores + row * s->n_keys;
            const size_t seen = s->n_keys - s->n_rows + row + 1;
            s->ops->scale(own, scale(), seen);
            s->ops->softmax(own, seen);
            memset(own + seen, 0, (s->n_keys - seen) * sizeof *own);
        }
        multiply(s, s->unfused + head * HEAD_DIM, WIDTH, s->values + kv * s->value_bytes, scores, s->n_keys, s->n_keys,
                 HEAD_DIM);
    }
}

/* ---- keys and values --------------------------------------------------------------------------------------------- */

static void pack(const scene *s, unsigned char *out, const float *matrix, size_t n_out, size_t n_in)
{
    const size_t group = group_rows(s), row_bytes = n_in * sizeof *matrix;
    for (size_t at = 0; at < n_out; at += group)
        if (group == 1)
            memcpy(out + at * row_bytes, matrix + at * n_in, row_bytes);
        else
            spry_pack_group(SPRY_F32, out + at * row_bytes, matrix + at * n_in, row_bytes, n_in,
                            n_out - at < group ? n_out - at : group, group);
}

/* Random numbers in the pages, and the same numbers in the matrices. `key` and `value`: room for one head's. */
static void fill(const scene *s, float *key, float *value, spry_random *random)
{
    for (size_t i = 0; i < s->n_rows * WIDTH; i++)
        s->query[i] = (float)(2 * spry_random_unit(random) - 1);
    for (size_t head = 0; head < KV_HEADS; head++) {
        for (size_t t = 0; t < s->n_keys; t++) {
            float row[HEAD_DIM];
            unsigned char *page = s->pages + t / SPRY_PAGE_TOKENS * PAGE_BYTES + head * HEAD_BYTES;
            for (size_t d = 0; d < HEAD_DIM; d++) {
                key[t * HEAD_DIM + d] = (float)(4 * spry_random_unit(random) - 2);
                value[d * s->n_keys + t] = row[d] = (float)(2 * spry_random_unit(random) - 1);
            }
            spry_kv_store_key(s->ops, SPRY_F16, page, t % SPRY_PAGE_TOKENS, key + t * HEAD_DIM, HEAD_DIM);
            s->ops->encode[SPRY_F16](page + SIDE_BYTES + t % SPRY_PAGE_TOKENS * HEAD_DIM * 2, row, HEAD_DIM);
        }
        pack(s, s->keys + head * s->key_bytes, key, s->n_keys, HEAD_DIM);
        pack(s, s->values + head * s->value_bytes, value, HEAD_DIM, s->n_keys);
    }
    for (uint32_t i = 0; i < s->n_keys / SPRY_PAGE_TOKENS; i++)
        s->entries[i] = (spry_kv_entry){i, i * SPRY_PAGE_TOKENS, SPRY_PAGE_TOKENS, 0};
}

static double best_ms(scene *s, spry_threads *threads, spry_threads_block_fn run)
{
    double best = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        uint64_t start = spry_clock_ns();
        spry_threads_share(threads, run, s, KV_HEADS, 1);
        best = fmin(best, (double)(spry_clock_ns() - start) / 1e6);
    }
    return best;
}

spry_status spry_attention_measure(spry_attention_speed *speed, const char *cpu, uint32_t n_threads, uint32_t n_keys,
                                   spry_error *error)
{
    scene s = {.n_keys = n_keys, .n_rows = n_keys < ROWS ? n_keys : ROWS};
    spry_threads *threads = NULL;
    spry_random random;
    *speed = (spry_attention_speed){0};
    spry_random_seed(&random, 1);
    if (!n_keys || n_keys % SPRY_PAGE_TOKENS || n_keys > SPRY_ATTENTION_KEYS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "%u keys are not a multiple of %d up to %d", n_keys, SPRY_PAGE_TOKENS,
                         SPRY_ATTENTION_KEYS_MAX);
    spry_status status = spry_ops_get(&s.ops, cpu, error);
    if (!status)
        status = spry_threads_create(&threads, n_threads, error);
    if (status)
        return status;
    const size_t group = group_rows(&s), floats = s.n_rows * WIDTH;
    s.key_bytes = (s.n_keys + group) * HEAD_DIM * sizeof(float); /* room for a last group that is not full */
    s.value_bytes = (HEAD_DIM + group) * s.n_keys * sizeof(float);
    float *rows = calloc(3 * floats, sizeof *rows), *head = calloc(2 * s.n_keys * HEAD_DIM, sizeof *head);
    s.scores = calloc(KV_HEADS * s.n_rows * s.n_keys, sizeof *s.scores);
    s.keys = calloc(KV_HEADS, s.key_bytes);
    s.values = calloc(KV_HEADS, s.value_bytes);
    s.pages = calloc(s.n_keys / SPRY_PAGE_TOKENS, PAGE_BYTES);
    s.entries = calloc(s.n_keys / SPRY_PAGE_TOKENS, sizeof *s.entries);
    if (rows && head && s.scores && s.keys && s.values && s.pages && s.entries) {
        s.query = rows;
        s.fused = rows + floats;
        s.unfused = s.fused + floats;
        fill(&s, head, head + s.n_keys * HEAD_DIM, &random);
        speed->fused_ms = best_ms(&s, threads, run_fused);
        speed->unfused_ms = best_ms(&s, threads, run_unfused);
        for (size_t i = 0; i < floats; i++)
            speed->difference = fmax(speed->difference, fabs((double)s.fused[i] - (double)s.unfused[i]));
    } else {
        status = spry_fail_memory(error, "measuring attention", KV_HEADS * (s.key_bytes + s.value_bytes));
    }
    free(rows);
    free(head);
    free(s.scores);
    free(s.keys);
    free(s.values);
    free(s.pages);
    free(s.entries);
    spry_threads_destroy(threads);
    return status;
}
