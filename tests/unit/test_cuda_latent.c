/* MLA on the GPU against the plain C ops: keys in pages, queries, and attention over latents. */
#include "support/cuda_scene.h"

#include <math.h>

#include "device/cuda/kernel_args.h"
#include "kernels/kv_layout.h"
#include "kernels/ref/ref.h"

enum { PAGES = 12, ENTRIES = 7, TURNS = 3, ROWS = 18, KEY_MAX = SPRY_ATTEND_HEAD_DIM_MAX };

typedef struct latent_shape {
    spry_dtype type;
    uint32_t n_values, n_rotated, n_heads;
    bool interleaved;
} latent_shape;

static const latent_shape shapes[] = {
    {SPRY_F16, 512, 64, 16, true}, {SPRY_F32, 32, 8, 3, false},    {SPRY_Q8_0, 64, 32, 5, true},
    {SPRY_F16, 40, 8, 20, false},  {SPRY_Q8_0, 512, 128, 2, true}, {SPRY_F32, 300, 16, 17, true},
};

typedef struct latent_scene {
    const latent_shape *shape;
    size_t key_dim, token_bytes, page_bytes, width, n_tokens; /* width: of a row's queries */
    unsigned char *pages;
    spry_kv_entry entries[ENTRIES];
    spry_step_row rows[ROWS];
    float cosine[TURNS][KEY_MAX / 2], sine[TURNS][KEY_MAX / 2];
    spry_turn rotations[TURNS];
    float *query;
} latent_scene;

static void fill_pages(latent_scene *s)
{
    float key[KEY_MAX];
    s->pages = taken(PAGES, s->page_bytes);
    memset(s->pages, 0xff, PAGES * s->page_bytes);
    for (size_t e = 0; e < ENTRIES; e++) {
        uint32_t count = e % 5 == 3 ? 1 + random_bits() % 32 : 32;
        s->entries[e] = (spry_kv_entry){(uint32_t)((e * 5 + 3) % PAGES), (uint32_t)s->n_tokens, count,
                                        e % 4 == 2 ? 1 + (uint32_t)e % 2 : 0};
        for (size_t token = 0; token < count; token++) {
            fill(key, s->key_dim, 1);
            spry_kv_store_key(ref, s->shape->type, s->pages + s->entries[e].page * s->page_bytes, token, key,
                              s->key_dim);
        }
        s->n_tokens += count;
    }
}

static void open_scene(latent_scene *s, const latent_shape *p)
{
    *s = (latent_scene){.shape = p, .key_dim = p->n_values + p->n_rotated};
    assert_true(spry_dtype_size(&s->token_bytes, p->type, s->key_dim));
    s->page_bytes = s->token_bytes * SPRY_PAGE_TOKENS;
    s->width = p->n_heads * s->key_dim;
    fill_pages(s);
    for (size_t t = 1; t < TURNS; t++) {
        for (size_t i = 0; i < p->n_rotated / 2; i++) {
            s->cosine[t][i] = cosf((float)(t * i) + 0.3f);
            s->sine[t][i] = sinf((float)(t * i) + 0.3f);
        }
        s->rotations[t] = (spry_turn){s->cosine[t], s->sine[t]};
    }
    s->query = taken(ROWS * s->width, sizeof(float));
    fill(s->query, ROWS * s->width, 1);
    for (size_t i = 0; i < ROWS; i++) {
        uint32_t position = (uint32_t)(s->n_tokens - ROWS + i), last = 0;
        while (s->entries[last].start + s->entries[last].count <= position)
            last++;
        s->rows[i] = (spry_step_row){.position = position, .n_entries = last + 1};
    }
}

static void close_scene(latent_scene *s)
{
    free(s->pages);
    free(s->query);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static float scale_of(const latent_scene *s)
{
    return 1 / sqrtf((float)s->key_dim);
}

static void expect_attention(const latent_scene *s, float *out)
{
    const latent_shape *p = s->shape;
    const spry_attend a = {.out = out,
                           .query = s->query,
                           .row_stride = s->width,
                           .n_rows = ROWS,
                           .first_position = (uint32_t)(s->n_tokens - ROWS),
                           .head_dim = s->key_dim,
                           .group = p->n_heads,
                           .scale = scale_of(s),
                           .latent = p->n_values,
                           .type = p->type,
                           .pages = s->pages,
                           .page_bytes = s->page_bytes,
                           .head_bytes = s->page_bytes,
                           .token_bytes = s->token_bytes,
                           .entries = s->entries,
                           .n_entries = ENTRIES,
                           .turns = s->rotations,
                           .n_pairs = p->n_rotated / 2,
                           .interleaved = p->interleaved};
    spry_ref_attend(&a, 0, 1);
}

enum { MEMORIES = 10 };

static spry_mla_attend_args load_attention(spry_cuda_memory m[MEMORIES], const latent_scene *s, uint32_t each)
{
    const latent_shape *p = s->shape;
    uint32_t few[ROWS], n = 0, n_pairs = p->n_rotated / 2;
    spry_row_range prefill_tiles[ROWS];
    spry_decode_tile decode_tiles[ROWS];
    float *angles[2] = {taken(TURNS * n_pairs, sizeof(float)), taken(TURNS * n_pairs, sizeof(float))};
    for (uint32_t i = 0; i < ROWS; i++)
        few[i] = i;
    for (uint32_t i = 0; i < ROWS; i += each, n++) {
        prefill_tiles[n] = (spry_row_range){i, ROWS - i < each ? ROWS - i : each};
        decode_tiles[n] = (spry_decode_tile){i, prefill_tiles[n].n_rows, i};
    }
    for (size_t t = 1; t < TURNS; t++) {
        memcpy(angles[0] + t * n_pairs, s->cosine[t], n_pairs * sizeof(float));
        memcpy(angles[1] + t * n_pairs, s->sine[t], n_pairs * sizeof(float));
    }
    const spry_cuda_memory placed[MEMORIES] = {
        on_gpu(NULL, ROWS * p->n_heads * p->n_values * sizeof(float)),
        on_gpu(s->query, ROWS * s->width * sizeof(float)),
        on_gpu(NULL, ROWS * p->n_heads * ENTRIES * (p->n_values + SPRY_PARTIAL_HEADER) * sizeof(float)),
        on_gpu(s->rows, sizeof s->rows),
        on_gpu(s->entries, sizeof s->entries),
        on_gpu(few, sizeof few),
        on_gpu(decode_tiles, sizeof decode_tiles),
        on_gpu(prefill_tiles, sizeof prefill_tiles),
        on_gpu(angles[0], TURNS * n_pairs * sizeof(float)),
        on_gpu(angles[1], TURNS * n_pairs * sizeof(float))};
    memcpy(m, placed, sizeof placed);
    free(angles[0]);
    free(angles[1]);
    return (spry_mla_attend_args){.attend = {.out = m[0],
                                             .q = m[1],
                                             .partial = m[2],
                                             .rows = m[3],
                                             .entries = m[4],
                                             .decode_rows = m[5],
                                             .decode_tiles = m[6],
                                             .prefill_tiles = m[7],
                                             .rotation_cosine = m[8],
                                             .rotation_sine = m[9],
                                             .kv = {.page_bytes = s->page_bytes,
                                                    .head_bytes = (uint32_t)s->page_bytes,
                                                    .token_bytes = (uint32_t)s->token_bytes,
                                                    .n_kv_heads = 1,
                                                    .head_dim = p->n_values},
                                             .n_heads = p->n_heads,
                                             .n_pairs = n_pairs,
                                             .interleaved = p->interleaved,
                                             .n_chunks = ENTRIES,
                                             .chunk_pages = 1,
                                             .scale = scale_of(s)},
                                  .key_dim = (uint32_t)s->key_dim};
}

/* In prefill or decode tiles of `each` rows. */
static void attend_on_gpu(const latent_scene *s, float *out, bool many, uint32_t each)
{
    spry_cuda_memory m[MEMORIES], pages = on_gpu(s->pages, PAGES * s->page_bytes);
    spry_mla_attend_args args = load_attention(m, s, each);
    const spry_cuda_attention way = spry_cuda_mla_attention(s->shape->type);
    size_t n = (ROWS + each - 1) / each, bytes = SPRY_MLA_SMEM + SPRY_MLA_QUERY_STRIDE * sizeof(float) * s->key_dim;
    size_t batches = (each * s->shape->n_heads + SPRY_MLA_QUERIES - 1) / SPRY_MLA_QUERIES;
    args.attend.kv.pages = pages;
    spry_cuda_launch_shared(&gpu, many ? way.prefill : way.split_kv, n, batches, many ? 1 : ENTRIES, bytes, &args);
    if (!many)
        spry_cuda_launch(&gpu, spry_attend_combine_id, ROWS, s->shape->n_heads, 1, &args.attend);
    from_gpu(out, m[0], (size_t)ROWS * s->shape->n_heads * s->shape->n_values * sizeof(float));
    for (size_t i = 0; i < MEMORIES; i++)
        spry_cuda_free(&gpu, &m[i]);
    spry_cuda_free(&gpu, &pages);
}

static void attention_is_right_and_does_not_depend_on_other_rows(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPRY_COUNT(shapes); t++) {
        const latent_shape *p = &shapes[t];
        latent_scene s;
        open_scene(&s, p);
        size_t n = (size_t)ROWS * p->n_heads * p->n_values;
        float *expected = taken(ROWS * s.width, sizeof(float)), *few = taken(n, sizeof(float));
        float *other = taken(n, sizeof(float));
        expect_attention(&s, expected);
        attend_on_gpu(&s, few, false, 1);
        /* Values are at most 1, scores at most sqrt(key_dim). */
        double allowed = ((double)s.key_dim * sqrt((double)s.key_dim) + 2.0 * (double)s.n_tokens) * 0x1p-24;
        for (size_t i = 0; i < n; i++) {
            double right = (double)expected[i / p->n_values * s.key_dim + i % p->n_values];
            if (!(fabs((double)few[i] - right) <= allowed))
                fail_msg("shape %zu: head %zu, value %zu: %g instead of %g", t, i / p->n_values, i % p->n_values,
                         (double)few[i], right);
        }
        for (uint32_t way = 0; way < 4; way++) {
            attend_on_gpu(&s, other, way % 2, way < 2 ? 3 : way == 2 ? ROWS : 1);
            assert_memory_equal(few, other, n * sizeof(float));
        }
        free(expected);
        free(few);
        free(other);
        close_scene(&s);
    }
}

/* ---- queries and keys -------------------------------------------------------------------------------------------- */

enum { EACH = 24, NOPE = 10 };

typedef struct prepared {
    float *raw, *taken, *k, *norm, *cosine, *sine; /* as the kernel's arguments */
    float *q, *keys;                               /* [ROWS, n_heads, key_dim], [ROWS, key_dim]: what is expected */
} prepared;

static float *random_floats(size_t n)
{
    float *values = taken(n, sizeof *values);
    fill(values, n, 1);
    return values;
}

static void expect_prepared(prepared *e, const latent_scene *s)
{
    const latent_shape *p = s->shape;
    size_t raw_dim = NOPE + p->n_rotated, n_pairs = p->n_rotated / 2, key = s->key_dim;
    *e = (prepared){random_floats(ROWS * p->n_heads * raw_dim),
                    random_floats((size_t)p->n_heads * EACH * p->n_values),
                    random_floats(ROWS * key),
                    random_floats(p->n_values),
                    random_floats(ROWS * n_pairs),
                    random_floats(ROWS * n_pairs),
                    taken(ROWS * s->width, sizeof(float)),
                    taken(ROWS * key, sizeof(float))};
    for (size_t row = 0; row < ROWS; row++) {
        float *q = e->q + row * s->width, *k = e->keys + row * key;
        const float *cosine = e->cosine + row * n_pairs, *sine = e->sine + row * n_pairs;
        for (size_t h = 0; h < p->n_heads; h++) {
            memcpy(q + h * key, e->raw + (row * p->n_heads + h) * raw_dim + NOPE, p->n_rotated * sizeof *q);
            memcpy(q + h * key + p->n_rotated, e->taken + (h * EACH + row) * p->n_values, p->n_values * sizeof *q);
        }
        memcpy(k, e->k + row * key + p->n_values, p->n_rotated * sizeof *k);
        ref->rms_norm(k + p->n_rotated, e->k + row * key, e->norm, p->n_values, 1e-6f);
        ref->rope(q, cosine, sine, p->n_heads, key, n_pairs, p->interleaved);
        ref->rope(k, cosine, sine, 1, key, n_pairs, p->interleaved);
    }
}

/* Overwrites the scene's pages and queries. */
static void prepare_on_gpu(latent_scene *s, const prepared *e)
{
    const latent_shape *p = s->shape;
    size_t n_pairs = p->n_rotated / 2, raw = ROWS * p->n_heads * (NOPE + p->n_rotated);
    spry_cuda_memory m[] = {on_gpu(NULL, ROWS * s->width * sizeof(float)),
                            on_gpu(e->raw, raw * sizeof(float)),
                            on_gpu(e->taken, (size_t)p->n_heads * EACH * p->n_values * sizeof(float)),
                            on_gpu(e->k, ROWS * s->key_dim * sizeof(float)),
                            on_gpu(e->norm, p->n_values * sizeof(float)),
                            on_gpu(e->cosine, ROWS * n_pairs * sizeof(float)),
                            on_gpu(e->sine, ROWS * n_pairs * sizeof(float)),
                            on_gpu(s->rows, sizeof s->rows),
                            on_gpu(s->pages, PAGES * s->page_bytes)};
    const spry_mla_rope_kv_args args = {.q = m[0],
                                        .raw = m[1],
                                        .taken = m[2],
                                        .k = m[3],
                                        .norm = m[4],
                                        .cosine = m[5],
                                        .sine = m[6],
                                        .rows = m[7],
                                        .kv = {.pages = m[8],
                                               .page_bytes = s->page_bytes,
                                               .head_bytes = (uint32_t)s->page_bytes,
                                               .token_bytes = (uint32_t)s->token_bytes,
                                               .n_kv_heads = 1,
                                               .head_dim = (uint32_t)s->key_dim},
                                        .n_rows = ROWS,
                                        .n_heads = p->n_heads,
                                        .n_values = p->n_values,
                                        .raw_dim = NOPE + p->n_rotated,
                                        .each = EACH,
                                        .n_pairs = (uint32_t)n_pairs,
                                        .interleaved = p->interleaved,
                                        .eps = 1e-6f};
    spry_cuda_launch(&gpu, spry_cuda_kv_kernels[p->type].mla_rope_kv,
                     (ROWS + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS, p->n_heads + 1, 1, &args);
    from_gpu(s->query, m[0], ROWS * s->width * sizeof(float));
    from_gpu(s->pages, m[8], PAGES * s->page_bytes);
    for (size_t i = 0; i < SPRY_COUNT(m); i++)
        spry_cuda_free(&gpu, &m[i]);
}

/* What a value of 32 loses in a page, and by sums in another order. */
static double rounding(spry_dtype type, const float *block, size_t n)
{
    double largest = 0, relative = type == SPRY_F32 ? 0x1p-20 : type == SPRY_F16 ? 0x1p-10 : 1.0 / 127;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)block[i]));
    return largest * relative;
}

static void queries_and_keys_are_prepared(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPRY_COUNT(shapes); t++) {
        latent_scene s;
        prepared e;
        float key[KEY_MAX];
        open_scene(&s, &shapes[t]);
        expect_prepared(&e, &s);
        for (uint32_t i = 0; i < ROWS; i++) { /* of three sequences, out of order */
            s.rows[i].page = i % 3 * 4;
            s.rows[i].slot = 31 - i;
        }
        prepare_on_gpu(&s, &e);
        for (size_t i = 0; i < ROWS * s.width; i++)
            assert_true(fabs((double)s.query[i] - (double)e.q[i]) <= 0x1p-22);
        for (size_t row = 0; row < ROWS; row++) {
            const float *right = e.keys + row * s.key_dim;
            spry_kv_load_key(s.shape->type, key, s.pages + s.rows[row].page * s.page_bytes, s.rows[row].slot,
                             s.key_dim);
            for (size_t d = 0; d < s.key_dim; d++) {
                size_t first = d / 32 * 32, n = s.key_dim - first < 32 ? s.key_dim - first : 32;
                if (!(fabs((double)key[d] - (double)right[d]) <= rounding(s.shape->type, right + first, n)))
                    fail_msg("shape %zu: key %zu, value %zu: %g instead of %g", t, row, d, (double)key[d],
                             (double)right[d]);
            }
        }
        float *const all[] = {e.raw, e.taken, e.k, e.norm, e.cosine, e.sine, e.q, e.keys};
        for (size_t i = 0; i < SPRY_COUNT(all); i++)
            free(all[i]);
        close_scene(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_right_and_does_not_depend_on_other_rows),
        cmocka_unit_test(queries_and_keys_are_prepared),
    };
    return run_on_gpu(argc, argv, tests, SPRY_COUNT(tests));
}
