/* Opening the tower, encoding, and the list of pictures that are kept. */
#include "engine/eyes.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/number.h"
#include "model/tower.h"
#include "platform/clock.h"
#include "platform/threads.h"
#include "sched/driver.h"

enum {
    KEPT = 64,                /* pictures, and */
    KEPT_BYTES = 256 << 20,   /* limit for pictures that are kept for later questions */
    FILE_PIXELS = 64 << 20,   /* maximum pixels of a file, before it is resized */
    DEFAULT_PIXELS = 1 << 20, /* default maximum of pixels that the tower receives */
    TOWER_SHARE = 2,          /* a tower on a GPU uses less than this part of its memory */
};

typedef struct kept_picture {
    spry_kv_key file; /* the hash of its bytes */
    spry_seen *seen;
} kept_picture;

struct spry_eyes {
    spry_engine *engine;
    pthread_mutex_t lock;
    spry_tower *tower; /* NULL before the first picture */
    spry_kv_pool pool;
    spry_device *device;
    spry_kv_table table;
    int32_t *tokens;         /* [max_rows]: zeros; a tower has no vocabulary */
    int32_t pad, row_end;    /* tokens in place of a picture's rows, and of those that end its lines */
    spry_kv_key tower_hash;  /* hash of a tower that has its own file */
    kept_picture kept[KEPT]; /* the last used first */
    size_t n_kept, kept_bytes;
};

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

static void close_device(spry_eyes *eyes)
{
    spry_device_close(eyes->device);
    spry_kv_table_deinit(&eyes->table, &eyes->pool);
    spry_kv_pool_deinit(&eyes->pool);
    free(eyes->tokens);
    eyes->device = NULL;
    eyes->tokens = NULL;
    eyes->pool = (spry_kv_pool){0};
    eyes->table = (spry_kv_table){0};
}

static void close_tower(spry_eyes *eyes)
{
    close_device(eyes);
    spry_tower_close(eyes->tower);
    eyes->tower = NULL;
}

void spry_eyes_destroy(spry_eyes *eyes)
{
    if (!eyes)
        return;
    for (size_t i = 0; i < eyes->n_kept; i++)
        spry_seen_unref(eyes->kept[i].seen);
    close_tower(eyes);
    pthread_mutex_destroy(&eyes->lock);
    free(eyes);
}

/* ---- the tower --------------------------------------------------------------------------------------------------- */

/* The most patches of a sheet, and the pages of keys that its windows need: each begins and ends one. */
static void measure(const spry_tower *t, double most, uint32_t *rows, uint32_t *pages)
{
    double unit = (double)t->patch * t->merge, area = (double)t->patch * t->patch, side = t->side / t->patch;
    double longest = sqrt(SPRY_TOWER_RATIO * most), windows = 1;
    longest = t->kind->limits_side && t->longest < longest ? t->longest : longest;
    double sheet = fmax(fmin(most, t->max_pixels), unit * unit);
    double n = t->kind->square ? side * side : ceil((sheet + 2 * unit * longest + unit * unit) / area);
    n = fmax(n, t->kind->tiling ? side * side : 0) + (t->class_row ? 1 : 0);
    if (t->window)
        windows = n / ((double)t->window * t->window) + 2 * n / ((double)t->merge * t->window) + 4;
    *rows = (uint32_t)n;
    *pages = (uint32_t)(n / SPRY_PAGE_TOKENS + windows + 1);
}

/* Where the tower's layers are computed: on the GPU that computes the whole model, else on the CPU. */
static const char *place_of(const spry_eyes *eyes)
{
    return eyes->engine->eyes_on_gpu ? eyes->engine->device_name : "cpu";
}

/* All layers have one place for keys and values, so memory is small and they can be floats, unless kernels are faster
 * with halves. */
static spry_kv_shape shape_of(const spry_eyes *eyes, const char *place)
{
    const spry_config *c = &eyes->tower->config;
    bool halves = strcmp(place, "cpu") ? eyes->engine->pool.shape.type != SPRY_F32 : eyes->engine->ops->attend_halves;
    spry_dtype type = halves ? SPRY_F16 : SPRY_F32;
    return (spry_kv_shape){.n_layers = 1, .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim, .type = type};
}

static spry_device_setup setup_of(const spry_eyes *eyes, const spry_kv_pool *pool, uint32_t rows, const char *place)
{
    return (spry_device_setup){.config = &eyes->tower->config,
                               .weights = &eyes->tower->weights,
                               .pool = pool,
                               .ops = eyes->engine->ops,
                               .threads = eyes->engine->threads,
                               .limits = {.max_rows = rows, .max_logits = 1, .session = rows},
                               .mapped = true,
                               .name = place,
                               .log = eyes->engine->log};
}

/* Bytes of memory that the tower's layers need once they are used. */
static size_t bytes_of(const spry_eyes *eyes, const char *place)
{
    const spry_device_kind *kind;
    spry_device_memory memory;
    spry_kv_pool pool = {.shape = shape_of(eyes, place)};
    uint32_t rows, pages;
    size_t all, token;
    measure(eyes->tower, (double)eyes->engine->max_image_pixels, &rows, &pages);
    pool.n_pages = pages;
    const spry_device_setup setup = setup_of(eyes, &pool, rows, place);
    bool known = spry_kv_token_bytes(&token, &pool.shape) &&
                 spry_checked_mul(&pool.page_bytes, token, SPRY_PAGE_TOKENS) && !spry_device_find(&kind, place, NULL) &&
                 spry_device_estimate(kind, &memory, &setup, NULL) &&
                 spry_checked_add(&all, memory.weights, memory.scratch) && spry_checked_add(&all, all, memory.kv);
    return known ? all : SIZE_MAX;
}

/* The same on the host for what is before and after the layers. */
static size_t host_bytes(const spry_eyes *eyes)
{
    size_t all;
    return spry_checked_add(&all, spry_tower_packed_bytes(eyes->tower), eyes->tower->arena.total) ? all : SIZE_MAX;
}

/* A GPU that computes all layers of the model also computes those of its tower, unless they need more memory than the
 * text leaves. */
void spry_eyes_place(spry_eyes *eyes)
{
    spry_engine *e = eyes->engine;
    const spry_device_kind *kind = e->kind;
    bool gpu = strcmp(e->device_name, "cpu") != 0 && !strchr(e->device_name, '+') && spry_device_towers(kind);
    if (!eyes->tower)
        return;
    e->eyes_on_gpu = gpu && !spry_device_check(kind, &eyes->tower->config, NULL);
    size_t bytes = bytes_of(eyes, place_of(eyes)), host = host_bytes(eyes);
    if (e->eyes_on_gpu && bytes < e->device_bytes / TOWER_SHARE) {
        e->device_bytes -= bytes; /* what is left for the text */
        e->gpu_bytes -= e->gpu_bytes ? bytes : 0;
    } else if (e->eyes_on_gpu) {
        e->eyes_on_gpu = false;
        bytes = bytes_of(eyes, "cpu");
    }
    if (!spry_checked_add(&e->eyes_bytes, bytes, host))
        e->eyes_bytes = SIZE_MAX;
}

static spry_status open_device(spry_eyes *eyes, const char *place, spry_error *error)
{
    const spry_kv_shape shape = shape_of(eyes, place);
    uint32_t rows, pages;
    measure(eyes->tower, (double)eyes->engine->max_image_pixels, &rows, &pages);
    spry_status status = spry_kv_pool_init(&eyes->pool, &shape, pages, error);
    if (!status)
        status = spry_kv_table_init(&eyes->table, rows, error);
    eyes->tokens = calloc(rows, sizeof *eyes->tokens);
    if (!status && !eyes->tokens)
        status = spry_fail_memory(error, "a tower", rows * sizeof *eyes->tokens);
    const spry_device_setup setup = setup_of(eyes, &eyes->pool, rows, place);
    if (!status)
        status = spry_device_open(&eyes->device, place, &setup, error);
    if (!status)
        spry_device_attach(eyes->device, &eyes->pool);
    else
        close_device(eyes);
    return status;
}

/* On the GPU, or where that has no memory left on the CPU. */
static spry_status open_place(spry_eyes *eyes, spry_error *error)
{
    spry_error why = {0};
    if (!eyes->engine->eyes_on_gpu)
        return open_device(eyes, "cpu", error);
    spry_status status = open_device(eyes, eyes->engine->device_name, &why);
    if (!status)
        return SPRY_OK;
    spry_log_write(&eyes->engine->log, SPRY_LOG_WARN, "pictures are encoded by the CPU: %s", why.message);
    eyes->engine->eyes_on_gpu = false;
    return open_device(eyes, "cpu", error);
}

/* The one token of a text. */
static spry_status find_token(const spry_eyes *eyes, int32_t *out, const char *text, spry_error *error)
{
    const spry_model *m = eyes->engine->model;
    spry_tokens ids = {0};
    *out = -1;
    if (!text)
        return SPRY_OK;
    spry_status status = m->tokenizer ? spry_tokenizer_encode(m->tokenizer, &ids, spry_view_of(text), NULL, 0,
                                                              SPRY_ENCODE_SPECIAL, error)
                                      : SPRY_OK;
    if (!status && ids.count != 1)
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s: the tokenizer has no token %s for pictures", m->name, text);
    *out = status ? -1 : ids.ids[0];
    spry_tokens_deinit(&ids);
    return status;
}

/* Reads the tower's files; its weights stay in the mapping. */
static spry_status read_tower(spry_eyes *eyes, spry_error *error)
{
    spry_engine *e = eyes->engine;
    if (eyes->tower)
        return SPRY_OK;
    spry_status status = spry_tower_open(&eyes->tower, e->model, e->mmproj, e->ops, error);
    if (!status) {
        e->picture_rows = spry_tower_joint_rows(eyes->tower, (double)e->max_image_pixels);
    }
    return status;
}

static spry_status open_tower(spry_eyes *eyes, spry_error *error)
{
    if (eyes->device)
        return SPRY_OK;
    spry_status status = read_tower(eyes, error);
    spry_driver_enter(eyes->engine->driver); /* whose threads pack the weights */
    if (!status)
        status = spry_tower_pack(eyes->tower, eyes->engine->threads, error);
    if (!status)
        status = find_token(eyes, &eyes->pad, eyes->tower->kind->pad, error);
    if (!status)
        status = find_token(eyes, &eyes->row_end, eyes->tower->kind->row_end, error);
    if (!status)
        status = open_place(eyes, error);
    spry_driver_leave(eyes->engine->driver);
    if (!status)
        eyes->tower_hash = spry_tower_hash(eyes->tower);
    if (status)
        close_tower(eyes);
    return status;
}

spry_status spry_eyes_create(spry_eyes **out, spry_engine *engine, const spry_engine_options *options,
                             spry_error *error)
{
    bool asked = options->mmproj && *options->mmproj;
    spry_status status = SPRY_OK;
    *out = NULL;
    engine->max_image_pixels = options->max_image_pixels ? options->max_image_pixels : DEFAULT_PIXELS;
    if (asked && !(engine->mmproj = strdup(options->mmproj)))
        return spry_fail_memory(error, "a path", strlen(options->mmproj));
    if (!options->mmproj)
        status = spry_tower_beside(&engine->mmproj, engine->model, error);
    if (status || (!engine->mmproj && (!engine->model->files || !spry_tower_known(engine->model->name))))
        return status;
    spry_eyes *eyes = calloc(1, sizeof *eyes);
    if (!eyes)
        return spry_fail_memory(error, "eyes", sizeof *eyes);
    eyes->engine = engine;
    pthread_mutex_init(&eyes->lock, NULL);
    *out = eyes;
    spry_error why = {0};
    status = read_tower(eyes, &why);
    if (status && asked)
        return spry_fail(error, status, "%s", why.message);
    if (status)
        spry_log_write(&engine->log, SPRY_LOG_WARN, "pictures will be refused: %s", why.message);
    return SPRY_OK;
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

/* The tower's layers, on the engine's workers: a window is a segment, in pages of its own. The caller frees *hidden,
 * also after a failure. */
static spry_status compute(spry_eyes *eyes, float **hidden, const spry_patches *patches, spry_error *error)
{
    spry_segment *segments = calloc(patches->n, sizeof *segments);
    spry_status status = segments ? SPRY_OK : spry_fail_memory(error, "a picture", patches->n * sizeof *segments);
    for (uint32_t i = 0; !status && i < patches->n; i++) {
        uint32_t first = (uint32_t)eyes->table.n_tokens;
        segments[i] = (spry_segment){.table = &eyes->table,
                                     .tokens = eyes->tokens + first,
                                     .first_position = first,
                                     .n_rows = patches->windows[i]->n_rows,
                                     .want = SPRY_WANT_HIDDEN,
                                     .shift = -(int32_t)first, /* coordinates are of the picture */
                                     .picture = patches->windows[i]};
        status = spry_kv_table_extend(&eyes->table, &eyes->pool, segments[i].n_rows, error);
        spry_kv_table_close(&eyes->table);
    }
    const spry_device_step step = {.segments = segments, .n_segments = patches->n};
    if (!status)
        status = spry_device_submit(eyes->device, &step, error);
    if (!status)
        status = spry_device_wait(eyes->device, error);
    if (!status)
        status = take_hidden(eyes, hidden, spry_patches_rows(eyes->tower, patches), error);
    spry_kv_table_truncate(&eyes->table, &eyes->pool, 0);
    free(segments);
    return status;
}

/* Hashes a sheet's pixels and all settings that change its rows. The tower's weights are part of the model's
 * fingerprint, or have a hash of their own. */
static spry_kv_key hash_sheet(const spry_eyes *eyes, const spry_image *sheet)
{
    const spry_tower *t = eyes->tower;
    const double recipe[] = {sheet->width,    sheet->height,   t->mean[0],      t->mean[1], t->mean[2],
                             t->deviation[0], t->deviation[1], t->deviation[2], t->patch,   t->merge};
    const XXH128_hash_t parts[] = {XXH3_128bits(sheet->rgb, (size_t)sheet->width * sheet->height * 3),
                                   XXH3_128bits(recipe, sizeof recipe),
                                   {eyes->tower_hash.low, eyes->tower_hash.high}};
    XXH128_hash_t all = XXH3_128bits(parts, sizeof parts);
    return (spry_kv_key){all.low64, all.high64};
}

static spry_status encode_sheet(spry_eyes *eyes, spry_picture **out, const spry_image *sheet, spry_error *error)
{
    spry_threads *threads = eyes->engine->threads;
    spry_patches patches = {0};
    float *hidden = NULL;
    spry_driver_enter(eyes->engine->driver);
    spry_status status = spry_tower_patches(eyes->tower, &patches, sheet, threads, error);
    if (!status)
        status = compute(eyes, &hidden, &patches, error);
    if (!status)
        status = spry_tower_project(eyes->tower, out, &patches, hidden, hash_sheet(eyes, sheet), threads, error);
    spry_driver_leave(eyes->engine->driver);
    spry_patches_deinit(&patches);
    free(hidden);
    return status;
}

/* ---- parts of prompts -------------------------------------------------------------------------------------------- */

void spry_seen_unref(spry_seen *seen)
{
    if (!seen || atomic_fetch_sub(&seen->references, 1) != 1)
        return;
    spry_placed_free(seen->placed, seen->n_placed);
    spry_tokens_deinit(&seen->ids);
    free(seen);
}

/* Placeholders for a picture's rows; takes the picture. */
static spry_status place(const spry_eyes *eyes, spry_seen *seen, spry_picture *picture, spry_error *error)
{
    bool fine = true;
    seen->placed[seen->n_placed++] = (spry_placed){seen->ids.count, picture};
    for (uint32_t i = 0; fine && i < picture->n_rows; i++)
        fine = spry_tokens_push(&seen->ids,
                                picture->line && (i + 1) % (picture->line + 1) == 0 ? eyes->row_end : eyes->pad);
    seen->bytes += sizeof *picture + (size_t)(1 + picture->n_deep) * picture->n_rows * picture->n_embd * sizeof(float);
    return fine ? SPRY_OK : spry_fail_memory(error, "a picture", picture->n_rows * sizeof *seen->ids.ids);
}

/* The tokens of `text`, with the next sheet's picture at each mark. */
static spry_status fill(spry_eyes *eyes, spry_seen *seen, spry_view text, const spry_sheets *sheets, spry_error *error)
{
    spry_status status = SPRY_OK;
    while (!status && text.size) {
        const char *mark = memchr(text.data, '\1', text.size);
        size_t before = mark ? (size_t)(mark - text.data) : text.size;
        if (before)
            status = spry_tokenizer_encode(eyes->engine->model->tokenizer, &seen->ids, (spry_view){text.data, before},
                                           NULL, 0, SPRY_ENCODE_SPECIAL, error);
        spry_picture *picture = NULL;
        if (!status && mark)
            status = encode_sheet(eyes, &picture, &sheets->sheets[seen->n_placed], error);
        if (!status && mark)
            status = place(eyes, seen, picture, error);
        before += mark != NULL;
        text = (spry_view){text.data + before, text.size - before};
    }
    return status;
}

static spry_status describe(spry_eyes *eyes, spry_seen **out, const spry_sheets *sheets, spry_error *error)
{
    spry_buffer text;
    spry_seen *seen = *out = calloc(1, sizeof *seen);
    if (!seen)
        return spry_fail_memory(error, "a picture", sizeof *seen);
    atomic_init(&seen->references, 1);
    seen->margin = eyes->tower->kind->margin;
    seen->placed = calloc(sheets->n, sizeof *seen->placed);
    spry_buffer_init(&text, 1 << 20);
    bool fine = seen->placed && spry_tower_write(&text, eyes->tower, sheets);
    spry_status status = fine ? fill(eyes, seen, spry_buffer_view(&text), sheets, error)
                              : spry_fail_memory(error, "a picture", sheets->n * sizeof *seen->placed);
    spry_buffer_deinit(&text);
    return status;
}

/* ---- pictures that are kept -------------------------------------------------------------------------------------- */

/* The picture of these bytes becomes the first; NULL: it is not kept. */
static spry_seen *find(spry_eyes *eyes, spry_kv_key file)
{
    size_t i = 0;
    while (i < eyes->n_kept && !spry_kv_key_equal(eyes->kept[i].file, file))
        i++;
    if (i == eyes->n_kept)
        return NULL;
    const kept_picture found = eyes->kept[i];
    memmove(eyes->kept + 1, eyes->kept, i * sizeof *eyes->kept);
    eyes->kept[0] = found;
    return found.seen;
}

static void keep(spry_eyes *eyes, spry_kv_key file, spry_seen *seen)
{
    if (seen->bytes > KEPT_BYTES)
        return;
    while (eyes->n_kept == KEPT || eyes->kept_bytes + seen->bytes > KEPT_BYTES) {
        spry_seen *last = eyes->kept[--eyes->n_kept].seen;
        eyes->kept_bytes -= last->bytes;
        spry_seen_unref(last);
    }
    memmove(eyes->kept + 1, eyes->kept, eyes->n_kept++ * sizeof *eyes->kept);
    atomic_fetch_add(&seen->references, 1);
    eyes->kept[0] = (kept_picture){file, seen};
    eyes->kept_bytes += seen->bytes;
}

/* *decoded_ns: when the sheets were ready. */
static spry_status see(spry_eyes *eyes, spry_seen **out, uint64_t *decoded_ns, const void *file, size_t size,
                       const char *name, spry_error *error)
{
    spry_image image;
    spry_sheets sheets = {0};
    spry_status status = spry_image_decode(&image, file, size, FILE_PIXELS, name, error);
    if (!status) {
        spry_driver_enter(eyes->engine->driver); /* the engine's workers pack the tower's weights */
        status = open_tower(eyes, error);
        spry_driver_leave(eyes->engine->driver);
    }
    if (!status)
        status = spry_tower_sheets(eyes->tower, &sheets, &image, (double)eyes->engine->max_image_pixels, error);
    spry_image_deinit(&image);
    *decoded_ns = spry_clock_ns();
    if (!status)
        status = describe(eyes, out, &sheets, error);
    spry_sheets_deinit(&sheets);
    if (status) {
        spry_seen_unref(*out);
        *out = NULL;
    }
    return status;
}

spry_status spry_eyes_look(spry_eyes *eyes, spry_seen **out, spry_eyes_cost *cost, const void *file, size_t size,
                           const char *name, spry_error *error)
{
    uint64_t began = spry_clock_ns(), locked, decoded;
    XXH128_hash_t hash = XXH3_128bits(file, size);
    const spry_kv_key key = {hash.low64, hash.high64};
    spry_status status = SPRY_OK;
    *out = NULL;
    if (!spry_lock_patiently(&eyes->lock))
        return spry_fail(error, SPRY_ERR_CANCELLED, "%s was not looked at: cancelled", name);
    locked = decoded = spry_clock_ns();
    *out = find(eyes, key);
    if (*out)
        atomic_fetch_add(&(*out)->references, 1);
    else if (!(status = see(eyes, out, &decoded, file, size, name, error)))
        keep(eyes, key, *out);
    pthread_mutex_unlock(&eyes->lock);
    cost->preprocess_ns += decoded - locked;
    cost->encode_ns += spry_clock_ns() - decoded + (locked - began);
    return status;
}
