/* Reading towers, and the host's part of them. */
#include "model/tower.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json.h"
#include "base/number.h"
#include "model/weights_bind.h"

/* What one family of towers does in its own way. */
typedef struct spry_tower_kind {
    const char *model_type; /* of config.json */
    const spry_arch *arch;
    const char *patches, *positions; /* tensors, after the tower's prefix */
    const char *pad, *begin, *end;   /* keys of config.json for tokens */
    /* Reads what is its own; `vision` is vision_config. */
    spry_status (*read)(spry_tower *tower, const spry_binder *b, const json_t *vision);
    uint32_t default_patch, default_merge;
    bool rotates;      /* rope by row and column, half of the pairs each */
    bool interpolates; /* positions are a grid, resized to the picture's */
    bool columns;      /* rope of the text model sees rows as a grid */
    bool two_way;      /* rows of the text model see each other */
    bool pools;        /* neighbouring patches are averaged, not joined */
} spry_tower_kind;

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static double number_or(const json_t *json, const char *key, double otherwise)
{
    const json_t *value = json_object_get(json, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static spry_status bind_whole(const spry_binder *b, const float **out, size_t n, const char *prefix, const char *name,
                              bool required, float add)
{
    char full[SPRY_TENSOR_NAME_MAX];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const spry_tensor *t = spry_bind_find(b, full);
    if (!t)
        return required ? spry_bind_missing(b, full) : SPRY_OK;
    return spry_bind_vector(b, out, t, n, add);
}

/* A matrix with its bias, whose number of inputs is known. */
static spry_status bind_product(const spry_binder *b, spry_weight *out, size_t n_in, const char *prefix,
                                const char *name)
{
    char full[SPRY_TENSOR_NAME_MAX], part[SPRY_TENSOR_NAME_MAX];
    snprintf(full, sizeof full, "%s%s.weight", prefix, name);
    snprintf(part, sizeof part, "%s.bias", name);
    const spry_tensor *t = spry_bind_find(b, full);
    if (!t)
        return spry_bind_missing(b, full);
    spry_status status = spry_bind_matrix(b, out, t, t->dims[0], n_in);
    return status ? status : bind_whole(b, &out->bias, out->n_out, prefix, part, OPTIONAL, 0);
}

/* ---- Qwen3-VL ---------------------------------------------------------------------------------------------------- */

static spry_status qwen_projector(const spry_binder *b, spry_projector *p, size_t n_in, const char *name)
{
    char prefix[SPRY_TENSOR_NAME_MAX];
    snprintf(prefix, sizeof prefix, "%s%s.", b->prefix, name);
    spry_status status = bind_product(b, &p->in, n_in, prefix, "linear_fc1");
    return status ? status : bind_product(b, &p->out, p->in.n_out, prefix, "linear_fc2");
}

/* The merger's norm, of each patch, is the output norm of the layers; deep mergers have one of all joined patches. */
static spry_status qwen_read(spry_tower *t, const spry_binder *b, const json_t *vision)
{
    const json_t *deep = json_object_get(vision, "deepstack_visual_indexes");
    size_t joined = (size_t)t->merge * t->merge * t->config.n_embd;
    spry_status status = qwen_projector(b, &t->projector, joined, "merger");
    t->config.n_taps = (uint32_t)json_array_size(deep);
    if (!status && t->config.n_taps > SPRY_MAX_TAPS)
        status = spry_fail(b->error, SPRY_ERR_UNSUPPORTED, "%s: %u deepstack layers, supported are %d", b->name,
                           t->config.n_taps, SPRY_MAX_TAPS);
    for (uint32_t i = 0; !status && i < t->config.n_taps; i++) {
        char name[64];
        double layer = json_number_value(json_array_get(deep, i));
        if (!(layer >= 0 && layer < t->config.n_layers))
            return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: deepstack_visual_indexes lists layer %g of %u", b->name,
                             layer, t->config.n_layers);
        t->config.taps[i] = (uint32_t)layer;
        snprintf(name, sizeof name, "deepstack_merger_list.%u", i);
        status = qwen_projector(b, &t->deep[i], joined, name);
        snprintf(name, sizeof name, "deepstack_merger_list.%u.norm.weight", i);
        if (!status)
            status = bind_whole(b, &t->deep[i].norm, joined, b->prefix, name, REQUIRED, 0);
        snprintf(name, sizeof name, "deepstack_merger_list.%u.norm.bias", i);
        if (!status)
            status = bind_whole(b, &t->deep[i].norm_bias, joined, b->prefix, name, REQUIRED, 0);
    }
    return status;
}

static const spry_tower_kind kinds[] = {
    {"qwen3_vl", &spry_arch_qwen3_tower, "patch_embed.proj", "pos_embed", "image_token_id", "vision_start_token_id",
     "vision_end_token_id", qwen_read, 16, 2, .rotates = true, .interpolates = true, .columns = true},
};

static const spry_tower_kind *kind_of(const json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    for (size_t i = 0; type && i < SPRY_COUNT(kinds); i++)
        if (!strcmp(type, kinds[i].model_type) && json_is_object(json_object_get(config, "vision_config")))
            return &kinds[i];
    return NULL;
}

bool spry_tower_known(const char *folder)
{
    json_t *config = NULL;
    bool known = !spry_model_read_json(&config, folder, "config.json", NULL) && kind_of(config);
    json_decref(config);
    return known;
}

/* ---- all towers -------------------------------------------------------------------------------------------------- */

/* vision_config in the words of other models. */
static json_t *layers_config(const spry_tower_kind *kind, const json_t *vision)
{
    double n_embd = number_or(vision, "hidden_size", 0);
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "model_type", kind->arch->hf_type, "num_hidden_layers",
                     number_or(vision, "depth", number_or(vision, "num_hidden_layers", 0)), "hidden_size", n_embd,
                     "num_attention_heads", number_or(vision, "num_heads", number_or(vision, "num_attention_heads", 0)),
                     "intermediate_size", number_or(vision, "intermediate_size", 4 * n_embd), "layer_norm_eps",
                     number_or(vision, "layer_norm_eps", 1e-6), "max_position_embeddings", 65536.0);
}

/* Half of the pairs turn by a patch's row and half by its column, with the frequencies of a head of half the size. */
static spry_status make_axes(spry_tower *t, spry_error *error)
{
    uint32_t n = t->config.rope_dim / 2, half = n / 2;
    uint8_t *axes = spry_arena_alloc(&t->arena, n, 1);
    float *factors = spry_arena_alloc(&t->arena, n, sizeof *factors);
    if (!axes || !factors)
        return spry_fail_memory(error, "a tower", n);
    for (uint32_t i = 0; i < n; i++) {
        axes[i] = i < half ? 1 : 2;
        factors[i] =
            (float)pow((double)t->config.rope.theta, (4.0 * (i % half) - 2.0 * i) / (double)t->config.rope_dim);
    }
    t->config.rope_axes = axes;
    t->config.rope.factors = t->config.rope_sliding.factors = factors;
    return SPRY_OK;
}

/* The layers compute one after the other in one step, so all of them can have the same place for keys and values. */
static void share_slot(spry_config *c)
{
    for (uint32_t i = 0; i < c->n_layers; i++)
        c->kv_slot[i] = 0;
    c->n_kv_slots = 1;
}

static spry_status read_layers(spry_tower *t, const spry_model *model, const json_t *vision, spry_error *error)
{
    json_t *json = layers_config(t->kind, vision);
    if (!json)
        return spry_fail_memory(error, "a tower", 0);
    spry_status status = spry_config_from_json(&t->config, json, model->name, &t->arena, error);
    json_decref(json);
    if (!status)
        status = spry_weights_bind(&t->weights, &t->config, NULL, model->files, model->name, &t->arena, error);
    if (!status && t->kind->rotates && t->config.rope_dim % 4)
        status = spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: a tower's heads of %u have no halves of pairs",
                           model->name, t->config.rope_dim);
    if (!status && t->kind->rotates)
        status = make_axes(t, error);
    share_slot(&t->config);
    return status;
}

/* Weights for a patch of one frame: those of a film's frames are added. */
static spry_status read_patches(spry_tower *t, const spry_binder *b, uint32_t frames)
{
    char name[SPRY_TENSOR_NAME_MAX];
    const float *all;
    size_t n = t->config.n_embd, pixels = (size_t)t->patch * t->patch;
    snprintf(name, sizeof name, "%s.weight", t->kind->patches);
    spry_status status = bind_whole(b, &all, n * 3 * frames * pixels, b->prefix, name, REQUIRED, 0);
    snprintf(name, sizeof name, "%s.bias", t->kind->patches);
    if (!status)
        status = bind_whole(b, &t->patch_bias, n, b->prefix, name, OPTIONAL, 0);
    float *sums = status ? NULL : spry_arena_alloc(&t->arena, n * 3 * pixels, sizeof *sums);
    if (status || !sums)
        return status ? status : spry_fail_memory(b->error, "a tower", n * 3 * pixels * sizeof *sums);
    for (size_t i = 0; i < n * 3; i++)
        for (size_t f = 0; f < frames; f++)
            for (size_t k = 0; k < pixels; k++)
                sums[i * pixels + k] += all[(i * frames + f) * pixels + k];
    t->patches = sums;
    return SPRY_OK;
}

static spry_status read_positions(spry_tower *t, const spry_binder *b)
{
    char name[SPRY_TENSOR_NAME_MAX];
    snprintf(name, sizeof name, "%s%s.weight", b->prefix, t->kind->positions);
    const spry_tensor *tensor = spry_bind_find(b, name);
    if (!tensor)
        return spry_bind_missing(b, name);
    t->position_side = (uint32_t)lround(sqrt((double)tensor->dims[0]));
    if ((size_t)t->position_side * t->position_side != tensor->dims[0] || t->position_side > 4096)
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%s' has %zu rows, which are no square", b->name, name,
                         tensor->dims[0]);
    return spry_bind_vector(b, &t->positions, tensor, tensor->dims[0] * t->config.n_embd, 0);
}

static void read_recipe(spry_tower *t, const json_t *recipe)
{
    const json_t *size = json_object_get(recipe, "size");
    t->min_pixels = number_or(recipe, "min_pixels", number_or(size, "shortest_edge", 3136));
    t->max_pixels = number_or(recipe, "max_pixels", number_or(size, "longest_edge", 1 << 20));
    double filter = number_or(recipe, "resample", SPRY_BICUBIC);
    t->filter = filter == SPRY_LANCZOS || filter == SPRY_BILINEAR ? (spry_filter)filter : SPRY_BICUBIC;
    for (size_t i = 0; i < 3; i++) {
        const json_t *mean = json_array_get(json_object_get(recipe, "image_mean"), i);
        const json_t *deviation = json_array_get(json_object_get(recipe, "image_std"), i);
        t->mean[i] = mean ? (float)json_number_value(mean) : 0.5f;
        t->deviation[i] = deviation && json_number_value(deviation) > 0 ? (float)json_number_value(deviation) : 0.5f;
    }
}

static int32_t token_of(const json_t *config, const char *key, size_t n_vocab)
{
    double id = key ? number_or(config, key, -1) : -1;
    return id >= 0 && id < (double)n_vocab ? (int32_t)id : -1;
}

static spry_status read_all(spry_tower *t, const spry_model *model, const json_t *config, const json_t *recipe,
                            spry_error *error)
{
    const json_t *vision = json_object_get(config, "vision_config");
    double patch = number_or(vision, "patch_size", t->kind->default_patch);
    double merge = number_or(vision, "spatial_merge_size", t->kind->default_merge);
    double frames = number_or(vision, "temporal_patch_size", 1);
    if (!(patch >= 1 && patch <= 256 && merge >= 1 && merge <= 16 && frames >= 1 && frames <= 16))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: patches of %g, joined by %g, in %g frames", model->name, patch,
                         merge, frames);
    t->patch = (uint32_t)patch;
    t->merge = (uint32_t)merge;
    t->width = model->config.n_embd;
    read_recipe(t, recipe);
    t->pad = token_of(config, t->kind->pad, model->config.n_vocab);
    t->begin = token_of(config, t->kind->begin, model->config.n_vocab);
    t->end = token_of(config, t->kind->end, model->config.n_vocab);
    if (t->pad < 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is missing or no token", model->name, t->kind->pad);
    spry_status status = read_layers(t, model, vision, error);
    if (status)
        return status;
    spry_binder b = {&t->weights,      &t->config, NULL,      model->files, model->name,
                     t->config.prefix, t->ops,     &t->arena, error};
    status = read_patches(t, &b, (uint32_t)frames);
    if (!status)
        status = read_positions(t, &b);
    if (!status)
        status = t->kind->read(t, &b, vision);
    for (uint32_t i = 0; !status && i <= t->config.n_taps; i++) {
        const spry_weight *out = i ? &t->deep[i - 1].out : &t->projector.out;
        if (out->n_out != t->width)
            status = spry_fail(error, SPRY_ERR_FORMAT, "%s: the tower's rows have %zu floats, the model's %u",
                               model->name, out->n_out, t->width);
    }
    return status;
}

spry_status spry_tower_open(spry_tower **out, const spry_model *model, spry_error *error)
{
    json_t *config = NULL, *recipe = NULL;
    *out = NULL;
    spry_status status = spry_model_read_json(&config, model->name, "config.json", error);
    if (!status)
        status = spry_model_read_json(&recipe, model->name, "preprocessor_config.json", error);
    const spry_tower_kind *kind = status ? NULL : kind_of(config);
    if (!status && (!kind || !model->files))
        status = spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s has no eyes", model->name);
    spry_tower *t = status ? NULL : calloc(1, sizeof *t);
    if (!status && !t)
        status = spry_fail_memory(error, "a tower", sizeof *t);
    if (!status) {
        t->kind = kind;
        spry_arena_init(&t->arena);
        status = spry_ops_get(&t->ops, "ref", error);
    }
    if (!status)
        status = read_all(t, model, config, recipe, error);
    json_decref(config);
    json_decref(recipe);
    if (status)
        spry_tower_close(t);
    else
        *out = t;
    return status;
}

void spry_tower_close(spry_tower *t)
{
    if (!t)
        return;
    spry_arena_deinit(&t->arena);
    free(t);
}

/* ---- pixels ------------------------------------------------------------------------------------------------------ */

enum { MOST_RATIO = 200 };

/* Sides that are multiples of `unit`, of about as many pixels as may be. */
static void choose_sides(uint32_t *width, uint32_t *height, const spry_image *image, double unit, double least,
                         double most)
{
    double w = rint(image->width / unit) * unit, h = rint(image->height / unit) * unit;
    double all = (double)image->width * image->height;
    w = w < unit ? unit : w;
    h = h < unit ? unit : h;
    if (w * h > most) {
        double by = sqrt(all / most);
        w = fmax(unit, floor(image->width / by / unit) * unit);
        h = fmax(unit, floor(image->height / by / unit) * unit);
    } else if (w * h < least) {
        double by = sqrt(least / all);
        w = ceil(image->width * by / unit) * unit;
        h = ceil(image->height * by / unit) * unit;
    }
    *width = (uint32_t)w;
    *height = (uint32_t)h;
}

spry_status spry_tower_resize(const spry_tower *t, unsigned char **out, uint32_t *width, uint32_t *height,
                              const spry_image *image, uint64_t max_pixels, spry_error *error)
{
    double unit = (double)t->patch * t->merge, most = t->max_pixels;
    double ratio = (double)image->width / image->height;
    *out = NULL;
    if (ratio > MOST_RATIO || ratio < 1.0 / MOST_RATIO)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "a picture of %u x %u pixels is too narrow: one side is over %d times "
                         "the other",
                         image->width, image->height, MOST_RATIO);
    if ((double)max_pixels < most)
        most = fmax((double)max_pixels, unit * unit);
    choose_sides(width, height, image, unit, fmin(t->min_pixels, most), most);
    *out = malloc((size_t)*width * *height * 3);
    if (!*out)
        return spry_fail_memory(error, "a picture", (size_t)*width * *height * 3);
    spry_status status =
        spry_resample(*out, *width, *height, image->rgb, image->width, image->height, t->filter, error);
    if (status) {
        free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- products on the host ---------------------------------------------------------------------------------------- */

typedef struct product {
    const spry_tower *tower;
    spry_matmul m;
    spry_dtype type;
    const float *bias;
    bool gelu;
} product;

static void multiply(void *context, size_t begin, size_t end)
{
    const product *p = context;
    p->tower->ops->matmul[p->type].run(&p->m, begin, end);
    for (size_t row = 0; row < p->m.n_rows; row++)
        for (size_t i = begin; i < end; i++) {
            float *value = &p->m.out[row * p->m.out_stride + i];
            *value += p->bias ? p->bias[i] : 0;
            if (p->gelu)
                *value = (float)(0.5 * (double)*value * (1 + erf((double)*value / 1.4142135623730951)));
        }
}

/* out [n_rows, w->n_out] */
static void linear(const spry_tower *t, float *out, const spry_weight *w, const float *in, size_t n_rows, bool gelu,
                   spry_threads *threads)
{
    product p = {.tower = t,
                 .m = {.out = out,
                       .out_stride = w->n_out,
                       .weight = w->data,
                       .weight_stride = w->row_bytes,
                       .act = in,
                       .act_stride = w->n_in * sizeof *in,
                       .n_rows = n_rows,
                       .n_in = w->n_in},
                 .type = w->type,
                 .bias = w->bias,
                 .gelu = gelu};
    spry_threads_share(threads, multiply, &p, w->n_out, 1);
}

/* ---- patches ----------------------------------------------------------------------------------------------------- */

/* Patches as the tower's first product takes them: [channel, y, x]. */
static void cut_patches(const spry_tower *t, float *out, const unsigned char *rgb, uint32_t rows, uint32_t columns)
{
    size_t line = (size_t)columns * t->patch * 3;
    for (size_t i = 0; i < (size_t)rows * columns; i++) {
        const unsigned char *corner = rgb + i / columns * t->patch * line + i % columns * t->patch * 3;
        for (size_t channel = 0; channel < 3; channel++)
            for (size_t y = 0; y < t->patch; y++)
                for (size_t x = 0; x < t->patch; x++)
                    *out++ = (corner[y * line + x * 3 + channel] / 255.0f - t->mean[channel]) / t->deviation[channel];
    }
}

/* Adds the learned positions: a grid whose corners are the picture's corners. */
static void add_positions(const spry_tower *t, float *out, uint32_t rows, uint32_t columns)
{
    size_t n = t->config.n_embd, side = t->position_side;
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t column = 0; column < columns; column++, out += n) {
            float y = rows > 1 ? (float)row * (float)(side - 1) / (float)(rows - 1) : 0;
            float x = columns > 1 ? (float)column * (float)(side - 1) / (float)(columns - 1) : 0;
            size_t top = (size_t)y, left = (size_t)x, below = top + 1 < side ? top + 1 : top;
            size_t right = left + 1 < side ? left + 1 : left;
            float dy = y - (float)top, dx = x - (float)left;
            const float *at[] = {t->positions + (top * side + left) * n, t->positions + (top * side + right) * n,
                                 t->positions + (below * side + left) * n, t->positions + (below * side + right) * n};
            const float part[] = {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx};
            for (size_t i = 0; i < n; i++)
                out[i] += at[0][i] * part[0] + at[1][i] * part[1] + at[2][i] * part[2] + at[3][i] * part[3];
        }
}

spry_status spry_tower_patches(const spry_tower *t, spry_picture **out, const spry_image *image, uint64_t max_pixels,
                               spry_threads *threads, spry_error *error)
{
    unsigned char *rgb;
    uint32_t width, height;
    const size_t n_in = (size_t)3 * t->patch * t->patch;
    *out = NULL;
    spry_status status = spry_tower_resize(t, &rgb, &width, &height, image, max_pixels, error);
    if (status)
        return status;
    uint32_t rows = height / t->patch, columns = width / t->patch;
    float *pixels = malloc((size_t)rows * columns * n_in * sizeof *pixels);
    if (!pixels)
        status = spry_fail_memory(error, "a picture", (size_t)rows * columns * n_in * sizeof *pixels);
    if (!status)
        status = spry_picture_create(out, (spry_kv_key){0, 0}, rows * columns, t->config.n_embd, 0, error);
    if (!status) {
        const spry_weight w = {.data = (const unsigned char *)t->patches,
                               .type = SPRY_F32,
                               .n_out = t->config.n_embd,
                               .n_in = n_in,
                               .row_bytes = n_in * sizeof(float),
                               .bias = t->patch_bias};
        (*out)->columns = columns;
        cut_patches(t, pixels, rgb, rows, columns);
        linear(t, (*out)->values, &w, pixels, (size_t)rows * columns, false, threads);
        add_positions(t, (*out)->values, rows, columns);
    }
    free(pixels);
    free(rgb);
    return status;
}

/* ---- rows for the model ------------------------------------------------------------------------------------------ */

/* Neighbouring patches, merge x merge of them, side by side in one row. */
static void join_patches(const spry_tower *t, float *out, const float *hidden, uint32_t rows, uint32_t columns)
{
    size_t n = t->config.n_embd;
    for (uint32_t row = 0; row < rows; row += t->merge)
        for (uint32_t column = 0; column < columns; column += t->merge)
            for (uint32_t i = 0; i < t->merge * t->merge; i++, out += n)
                memcpy(out, hidden + ((size_t)(row + i / t->merge) * columns + column + i % t->merge) * n,
                       n * sizeof *out);
}

static spry_status project(const spry_tower *t, float *out, const spry_projector *p, float *joined, size_t n_rows,
                           spry_threads *threads, spry_error *error)
{
    float *between = malloc(n_rows * p->in.n_out * sizeof *between);
    if (!between)
        return spry_fail_memory(error, "a picture", n_rows * p->in.n_out * sizeof *between);
    for (size_t row = 0; p->norm && row < n_rows; row++)
        t->ops->layer_norm(joined + row * p->in.n_in, joined + row * p->in.n_in, p->norm, p->norm_bias, p->in.n_in,
                           t->config.norm_eps);
    linear(t, between, &p->in, joined, n_rows, true, threads);
    linear(t, out, &p->out, between, n_rows, false, threads);
    free(between);
    return SPRY_OK;
}

spry_status spry_tower_project(const spry_tower *t, spry_picture **out, const spry_picture *patches,
                               const float *hidden, spry_kv_key hash, spry_threads *threads, spry_error *error)
{
    uint32_t columns = patches->columns, rows = patches->n_rows / columns, merged = t->merge * t->merge;
    size_t all = (size_t)patches->n_rows * t->config.n_embd;
    spry_status status = spry_picture_create(out, hash, patches->n_rows / merged, t->width, t->config.n_taps, error);
    float *joined = status ? NULL : malloc(all * sizeof *joined);
    if (!status && !joined)
        status = spry_fail_memory(error, "a picture", all * sizeof *joined);
    for (uint32_t i = 0; !status && i <= t->config.n_taps; i++) {
        join_patches(t, joined, hidden + i * all, rows, columns);
        status = project(t, (*out)->values + (size_t)i * (*out)->n_rows * t->width, i ? &t->deep[i - 1] : &t->projector,
                         joined, (*out)->n_rows, threads, error);
    }
    free(joined);
    if (status) {
        spry_picture_unref(*out);
        *out = NULL;
        return status;
    }
    (*out)->columns = t->kind->columns ? columns / t->merge : 0;
    (*out)->two_way = t->kind->two_way;
    return SPRY_OK;
}
