/* Opening the tower, encoding, and the list of pictures that are kept. */
#include "engine/eyes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "model/tower.h"
#include "sched/driver.h"

enum {
    KEPT = 64,                /* pictures, and */
    KEPT_BYTES = 256 << 20,   /* bytes of them, that are kept for later questions */
    FILE_PIXELS = 64 << 20,   /* of a file, before it is made smaller */
    DEFAULT_PIXELS = 1 << 20, /* that the tower sees */
};

typedef struct kept_picture {
    spry_kv_key file; /* the hash of its bytes */
    spry_picture *picture;
    size_t bytes;
} kept_picture;

struct spry_eyes {
    spry_engine *engine;
    pthread_mutex_t lock;
    spry_tower *tower; /* NULL before the first picture */
    spry_kv_pool pool;
    spry_device *device;
    spry_kv_table table;
    int32_t *tokens;         /* [max_rows]: zeros; a tower has no vocabulary */
    kept_picture kept[KEPT]; /* the last used first */
    size_t n_kept, kept_bytes;
};

spry_status spry_eyes_create(spry_eyes **out, spry_engine *engine, spry_error *error)
{
    *out = NULL;
    if (!engine->model->files || !spry_tower_known(engine->model->name))
        return SPRY_OK;
    spry_eyes *eyes = calloc(1, sizeof *eyes);
    if (!eyes)
        return spry_fail_memory(error, "eyes", sizeof *eyes);
    eyes->engine = engine;
    pthread_mutex_init(&eyes->lock, NULL);
    *out = eyes;
    return SPRY_OK;
}

bool spry_engine_sees(const spry_engine *engine)
{
    return engine->eyes;
}

void spry_placed_free(spry_placed *pictures, size_t count)
{
    for (size_t i = 0; i < count; i++)
        spry_picture_unref(pictures[i].picture);
    free(pictures);
}

static void close_tower(spry_eyes *eyes)
{
    spry_device_close(eyes->device);
    spry_kv_table_deinit(&eyes->table, &eyes->pool);
    spry_kv_pool_deinit(&eyes->pool);
    spry_tower_close(eyes->tower);
    free(eyes->tokens);
    eyes->device = NULL;
    eyes->tower = NULL;
    eyes->tokens = NULL;
}

void spry_eyes_destroy(spry_eyes *eyes)
{
    if (!eyes)
        return;
    for (size_t i = 0; i < eyes->n_kept; i++)
        spry_picture_unref(eyes->kept[i].picture);
    close_tower(eyes);
    pthread_mutex_destroy(&eyes->lock);
    free(eyes);
}

/* ---- the tower --------------------------------------------------------------------------------------------------- */

/* All layers have one place for keys and values, so memory is small and they can be floats. */
static spry_status open_device(spry_eyes *eyes, uint32_t rows, spry_error *error)
{
    const spry_engine *e = eyes->engine;
    const spry_config *c = &eyes->tower->config;
    const spry_kv_shape shape = {.n_layers = 1, .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim, .type = SPRY_F32};
    spry_status status = spry_kv_pool_init(&eyes->pool, &shape, rows / SPRY_PAGE_TOKENS + 1, error);
    if (!status)
        status = spry_kv_table_init(&eyes->table, rows, error);
    eyes->tokens = calloc(rows, sizeof *eyes->tokens);
    if (!status && !eyes->tokens)
        status = spry_fail_memory(error, "a tower", rows * sizeof *eyes->tokens);
    const spry_device_setup setup = {.config = c,
                                     .weights = &eyes->tower->weights,
                                     .pool = &eyes->pool,
                                     .ops = e->ops,
                                     .threads = e->threads,
                                     .limits = {.max_rows = rows, .max_logits = 1, .session = rows},
                                     .mapped = true,
                                     .name = "cpu",
                                     .log = e->log};
    if (!status)
        status = spry_device_open(&eyes->device, "cpu", &setup, error);
    if (!status)
        eyes->pool.mover = spry_device_mover(eyes->device);
    return status;
}

static spry_status open_tower(spry_eyes *eyes, spry_error *error)
{
    if (eyes->device)
        return SPRY_OK;
    spry_status status = spry_tower_open(&eyes->tower, eyes->engine->model, error);
    if (!status) {
        uint32_t area = eyes->tower->patch * eyes->tower->patch;
        status = open_device(eyes, DEFAULT_PIXELS / area + 1, error);
    }
    if (status)
        close_tower(eyes);
    return status;
}

/* Hidden states of all patches, then those of each tap, into one list. */
static spry_status take_hidden(spry_eyes *eyes, float **out, uint32_t n_rows, spry_error *error)
{
    size_t n_lists = 1 + eyes->tower->config.n_taps, each = (size_t)n_rows * eyes->tower->config.n_embd;
    spry_status status = SPRY_OK;
    *out = malloc(n_lists * each * sizeof **out);
    if (!*out)
        return spry_fail_memory(error, "a picture", n_lists * each * sizeof **out);
    for (size_t i = 0; !status && i < n_lists; i++) {
        const float *rows;
        status = spry_device_hidden(eyes->device, &rows, i * n_rows, n_rows, error);
        if (!status)
            memcpy(*out + i * each, rows, each * sizeof **out);
    }
    return status;
}

/* The tower's layers, on the engine's workers. The caller frees *hidden, also after a failure. */
static spry_status compute(spry_eyes *eyes, float **hidden, const spry_picture *patches, spry_error *error)
{
    spry_status status = spry_kv_table_extend(&eyes->table, &eyes->pool, patches->n_rows, error);
    const spry_segment segment = {.table = &eyes->table,
                                  .tokens = eyes->tokens,
                                  .n_rows = patches->n_rows,
                                  .want = SPRY_WANT_HIDDEN,
                                  .picture = patches};
    const spry_device_step step = {.segments = &segment, .n_segments = 1};
    if (!status)
        status = spry_device_submit(eyes->device, &step, error);
    if (!status)
        status = spry_device_wait(eyes->device, error);
    if (!status)
        status = take_hidden(eyes, hidden, patches->n_rows, error);
    spry_kv_table_truncate(&eyes->table, &eyes->pool, 0);
    return status;
}

/* Of the pixels and of all that is done with them; the tower's weights are part of the model's fingerprint. */
static spry_kv_key hash_picture(const spry_tower *t, const spry_image *image)
{
    const double recipe[] = {image->width,    image->height,   t->min_pixels, t->max_pixels, DEFAULT_PIXELS,
                             t->filter,       t->mean[0],      t->mean[1],    t->mean[2],    t->deviation[0],
                             t->deviation[1], t->deviation[2], t->patch,      t->merge};
    const XXH128_hash_t parts[] = {XXH3_128bits(image->rgb, (size_t)image->width * image->height * 3),
                                   XXH3_128bits(recipe, sizeof recipe)};
    XXH128_hash_t all = XXH3_128bits(parts, sizeof parts);
    return (spry_kv_key){all.low64, all.high64};
}

static spry_status encode(spry_eyes *eyes, spry_picture **out, const spry_image *image, spry_error *error)
{
    spry_threads *threads = eyes->engine->threads;
    spry_picture *patches = NULL;
    float *hidden = NULL;
    spry_driver_enter(eyes->engine->driver);
    spry_status status = spry_tower_patches(eyes->tower, &patches, image, DEFAULT_PIXELS, threads, error);
    if (!status)
        status = compute(eyes, &hidden, patches, error);
    if (!status)
        status =
            spry_tower_project(eyes->tower, out, patches, hidden, hash_picture(eyes->tower, image), threads, error);
    spry_driver_leave(eyes->engine->driver);
    spry_picture_unref(patches);
    free(hidden);
    return status;
}

/* ---- pictures that are kept -------------------------------------------------------------------------------------- */

/* The picture of these bytes becomes the first; NULL: it is not kept. */
static spry_picture *find(spry_eyes *eyes, spry_kv_key file)
{
    size_t i = 0;
    while (i < eyes->n_kept && !spry_kv_key_equal(eyes->kept[i].file, file))
        i++;
    if (i == eyes->n_kept)
        return NULL;
    const kept_picture found = eyes->kept[i];
    memmove(eyes->kept + 1, eyes->kept, i * sizeof *eyes->kept);
    eyes->kept[0] = found;
    return found.picture;
}

static void keep(spry_eyes *eyes, spry_kv_key file, spry_picture *picture)
{
    size_t bytes = sizeof *picture + (size_t)(1 + picture->n_deep) * picture->n_rows * picture->n_embd * sizeof(float);
    if (bytes > KEPT_BYTES)
        return;
    while (eyes->n_kept == KEPT || eyes->kept_bytes + bytes > KEPT_BYTES) {
        const kept_picture *last = &eyes->kept[--eyes->n_kept];
        eyes->kept_bytes -= last->bytes;
        spry_picture_unref(last->picture);
    }
    memmove(eyes->kept + 1, eyes->kept, eyes->n_kept++ * sizeof *eyes->kept);
    eyes->kept[0] = (kept_picture){file, spry_picture_ref(picture), bytes};
    eyes->kept_bytes += bytes;
}

static spry_status see(spry_eyes *eyes, spry_picture **out, const void *file, size_t size, const char *name,
                       spry_error *error)
{
    spry_image image;
    spry_status status = spry_image_decode(&image, file, size, FILE_PIXELS, name, error);
    if (!status)
        status = open_tower(eyes, error);
    if (!status)
        status = encode(eyes, out, &image, error);
    spry_image_deinit(&image);
    return status;
}

spry_status spry_eyes_look(spry_eyes *eyes, spry_picture **out, spry_eyes_tokens *tokens, const void *file, size_t size,
                           const char *name, spry_error *error)
{
    XXH128_hash_t hash = XXH3_128bits(file, size);
    const spry_kv_key key = {hash.low64, hash.high64};
    spry_status status = SPRY_OK;
    pthread_mutex_lock(&eyes->lock);
    *out = find(eyes, key);
    if (*out)
        spry_picture_ref(*out);
    else if (!(status = see(eyes, out, file, size, name, error)))
        keep(eyes, key, *out);
    if (!status)
        *tokens = (spry_eyes_tokens){eyes->tower->pad, eyes->tower->begin, eyes->tower->end};
    pthread_mutex_unlock(&eyes->lock);
    return status;
}
