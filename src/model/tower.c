/* Opening towers: from a model's folder, or from a GGUF file beside the model, whose metadata is put into the words of
 * config.json. */
#include "model/tower.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

#include "base/compiler.h"
#include "base/json.h"
#include "base/number.h"
#include "model/weight_groups.h"
#include "platform/file.h"

static double number_or(const json_t *json, const char *key, double otherwise)
{
    const json_t *value = json_object_get(json, key);
    value = json_is_array(value) ? json_array_get(value, 0) : value; /* [height, width], which are the same */
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

/* ---- what files say ---------------------------------------------------------------------------------------------- */

/* config.json and preprocessor_config.json, or what a GGUF file has instead. */
typedef struct description {
    json_t *config, *recipe;
    const spry_tower_kind *kind;
} description;

static const spry_tower_kind *kind_of(const json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    return json_is_object(json_object_get(config, "vision_config")) ? spry_tower_kind_of(type, NULL) : NULL;
}

bool spry_tower_known(const char *folder)
{
    json_t *config = NULL;
    bool known = !spry_model_read_json(&config, folder, "config.json", NULL) && kind_of(config);
    json_decref(config);
    return known;
}

/* The floats or flags of an array. */
static json_t *list_of(const spry_gguf *gguf, const char *key)
{
    spry_gguf_array array;
    json_t *list = json_array();
    double value;
    uint64_t whole;
    for (size_t i = 0; spry_gguf_get_array(gguf, key, &array) && i < array.count && i < SPRY_MAX_LAYERS; i++)
        if (spry_gguf_array_f64(&array, i, &value))
            json_array_append_new(list, json_real(value));
        else if (spry_gguf_array_u64(&array, i, &whole))
            json_array_append_new(list, json_real((double)whole));
    return list;
}

/* The layers that are listed as flags, or that end a pattern of windows. */
static void list_layers(json_t *vision, const spry_gguf *gguf)
{
    json_t *flags = list_of(gguf, "clip.vision.is_deepstack_layers"), *deep = json_array(), *whole = json_array();
    double n_layers = number_or(vision, "depth", 0);
    uint64_t pattern = 0;
    for (size_t i = 0; i < json_array_size(flags); i++)
        if (json_number_value(json_array_get(flags, i)) != 0)
            json_array_append_new(deep, json_real((double)i));
    spry_gguf_get_u64(gguf, "clip.vision.n_wa_pattern", &pattern);
    for (uint64_t i = pattern; pattern && (double)i <= n_layers && i <= SPRY_MAX_LAYERS; i += pattern)
        json_array_append_new(whole, json_real((double)i - 1));
    json_object_set_new(vision, "deepstack_visual_indexes", deep);
    json_object_set_new(vision, "fullatt_block_indexes", whole);
    json_decref(flags);
}

static spry_status describe_gguf(description *d, const spry_gguf *gguf, spry_error *error)
{
    static const char *const keys[][2] = {
        {"clip.vision.block_count", "depth"},
        {"clip.vision.embedding_length", "hidden_size"},
        {"clip.vision.attention.head_count", "num_heads"},
        {"clip.vision.attention.head_count_kv", "num_key_value_heads"},
        {"clip.vision.attention.head_dim", "head_dim"},
        {"clip.vision.feed_forward_length", "intermediate_size"},
        {"clip.vision.attention.layer_norm_epsilon", "layer_norm_eps"},
        {"clip.vision.patch_size", "patch_size"},
        {"clip.vision.image_size", "image_size"},
        {"clip.vision.spatial_merge_size", "spatial_merge_size"},
        {"clip.vision.projector.scale_factor", "scale_factor"},
        {"clip.vision.window_size", "window_size"},
    };
    spry_view projector = {0};
    char type[64];
    bool silu = false, seen = spry_gguf_get_string(gguf, "clip.projector_type", &projector) ||
                              spry_gguf_get_string(gguf, "clip.vision.projector_type", &projector);
    if (!seen)
        return spry_fail(
            error, SPRY_ERR_UNSUPPORTED,
            "%s has no vision tower: clip.projector_type is missing; a file for --mmproj is named mmproj-*",
            spry_gguf_name(gguf));
    snprintf(type, sizeof type, "%.*s", SPRY_VIEW_ARG(projector));
    d->kind = spry_tower_kind_of(NULL, type);
    if (!d->kind)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: the projector '%s' is not known; known are %s",
                         spry_gguf_name(gguf), type, spry_tower_kind_names());
    spry_gguf_get_bool(gguf, "clip.use_silu", &silu);
    json_t *vision = json_pack("{s:s}", "hidden_act", silu ? "silu" : "gelu");
    for (size_t i = 0; i < SPRY_COUNT(keys); i++) {
        double value;
        if (spry_gguf_get_f64(gguf, keys[i][0], &value))
            json_object_set_new(vision, keys[i][1], json_real(value));
    }
    list_layers(vision, gguf);
    d->config = json_pack("{s:o}", "vision_config", vision);
    d->recipe = json_pack("{s:o, s:o}", "image_mean", list_of(gguf, "clip.vision.image_mean"), "image_std",
                          list_of(gguf, "clip.vision.image_std"));
    static const char *const recipe_keys[][2] = {{"clip.vision.image_min_pixels", "min_pixels"},
                                                 {"clip.vision.image_max_pixels", "max_pixels"},
                                                 {"clip.vision.preproc_min_tiles", "min_tiles"},
                                                 {"clip.vision.preproc_max_tiles", "max_tiles"}};
    double value;
    for (size_t i = 0; i < SPRY_COUNT(recipe_keys); i++)
        if (spry_gguf_get_f64(gguf, recipe_keys[i][0], &value))
            json_object_set_new(d->recipe, recipe_keys[i][1], json_real(value));
    if (spry_gguf_get_f64(gguf, "clip.vision.preproc_image_size", &value))
        json_object_set_new(d->recipe, "size", json_pack("{s:f}", "longest_edge", value));
    return d->config && d->recipe ? SPRY_OK : spry_fail_memory(error, "a tower", 0);
}

/* Newer folders have the recipe within processor_config.json. */
static spry_status read_newer_recipe(description *d, const spry_model *model, spry_error *error)
{
    json_t *all = NULL;
    spry_status status = spry_model_read_json(&all, model->name, "processor_config.json", error);
    d->recipe = json_incref(json_object_get(all, "image_processor"));
    json_decref(all);
    return status;
}

static spry_status describe_folder(description *d, const spry_model *model, spry_error *error)
{
    spry_status status = spry_model_read_json(&d->config, model->name, "config.json", error);
    if (!status)
        status = spry_model_read_json(&d->recipe, model->name, "preprocessor_config.json", error);
    if (!status && !d->recipe)
        status = read_newer_recipe(d, model, error);
    d->kind = status ? NULL : kind_of(d->config);
    if (!status && (!d->kind || !model->files))
        status = spry_fail(error, SPRY_ERR_UNSUPPORTED, "the model %s cannot see pictures", model->name);
    return status;
}

/* ---- a file beside the model ------------------------------------------------------------------------------------- */

typedef struct beside_search {
    const spry_model *model;
    const char *file;   /* the model's name in its folder */
    const char *folder; /* folder with a slash at its end, or empty */
    spry_buffer best;   /* a path; empty: none yet */
    int64_t best_common;
} beside_search;

static const char *skip(const char *at, const char *word)
{
    size_t n = strlen(word);
    at = strncasecmp(at, word, n) ? at : at + n;
    return at + strspn(at, "-_.");
}

/* "f16.gguf", "Q8_0.gguf" or "gguf": a type, or nothing. */
static bool is_type(const char *rest)
{
    size_t n = strcspn(rest, ".");
    return !strcasecmp(rest, "gguf") ||
           (strchr("bfqBFQ", *rest) && strcspn(rest, "0123456789") < n && n <= 8 && !strcasecmp(rest + n, ".gguf"));
}

/* How far a tower's name is the model's: "mmproj-MODEL-f16.gguf", "MODEL-mmproj.gguf"; 0 where it names no model, as
 * "mmproj-f16.gguf", and -1: another model. */
static int64_t common_length(const char *name, const char *model)
{
    const char *at = skip(name, "mmproj");
    size_t n = 0, whole = 0;
    for (; at[n] && model[n] && !strncasecmp(at + n, model + n, 1); n++)
        if (strchr("-_.", at[n]))
            whole = n + 1;
    return is_type(skip(skip(at + whole, "mmproj"), "model")) ? (int64_t)whole : -1;
}

static bool is_tower_name(const char *name)
{
    size_t size = strlen(name);
    bool found = false;
    for (size_t i = 0; i + 6 <= size; i++)
        found = found || !strncasecmp(name + i, "mmproj", 6);
    return found && size > 5 && !strcasecmp(name + size - 5, ".gguf");
}

/* Whether a file is a tower of a known kind whose rows are as wide as the model's. */
static bool fits(const char *path, const spry_model *model)
{
    spry_gguf *gguf = NULL;
    uint64_t width = 0;
    bool fine = !spry_gguf_open(&gguf, path, NULL) && spry_gguf_get_u64(gguf, "clip.vision.projection_dim", &width) &&
                width == model->config.n_embd;
    spry_gguf_close(gguf);
    return fine;
}

static void visit_beside(void *context, const char *name)
{
    beside_search *s = context;
    spry_buffer path;
    int64_t common = common_length(name, s->file);
    if (!is_tower_name(name) || common < 0 || !strcmp(name, s->file))
        return;
    spry_buffer_init(&path, 1 << 16);
    spry_buffer_format(&path, "%s%s", s->folder, name);
    bool better = !s->best.size || common > s->best_common ||
                  (common == s->best_common && strcmp(path.data ? path.data : "", s->best.data) < 0);
    if (!path.failed && better && fits(path.data, s->model)) {
        s->best_common = common;
        spry_buffer_clear(&s->best);
        spry_buffer_text(&s->best, path.data);
    }
    spry_buffer_deinit(&path);
}

spry_status spry_tower_beside(char **out, const spry_model *model, spry_error *error)
{
    const char *slash = strrchr(model->name, '/');
    char *folder = slash ? strndup(model->name, (size_t)(slash - model->name) + 1) : strdup("");
    beside_search search = {.model = model, .file = slash ? slash + 1 : model->name, .folder = folder};
    *out = NULL;
    if (!folder)
        return spry_fail_memory(error, "a path", strlen(model->name));
    spry_buffer_init(&search.best, 1 << 16);
    spry_status status = SPRY_OK;
    if (model->gguf && !spry_folder_each(*folder ? folder : ".", visit_beside, &search, NULL) && search.best.size &&
        !(*out = strdup(search.best.data)))
        status = spry_fail_memory(error, "a path", search.best.size);
    spry_buffer_deinit(&search.best);
    free(folder);
    return status;
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* GGUF's first files of SigLIP name the two matrices of the feed-forward part the other way round. */
static const spry_arch *arch_of(const spry_tower *t, const json_t *vision, double n_ff)
{
    const char *act = json_string_value(json_object_get(vision, "hidden_act"));
    const spry_tensor *down = t->own ? spry_gguf_find_tensor(t->own, SPRY_VIEW("v.blk.0.ffn_down.weight")) : NULL;
    if (t->kind->gelu_arch && act && !strcmp(act, "gelu"))
        return t->kind->gelu_arch;
    if (t->kind->arch == &spry_arch_siglip && down && (double)down->dims[0] == n_ff)
        return &spry_arch_siglip_first;
    return t->kind->arch;
}

/* GGUF files do not say, but norms without biases are RMS norms. */
static bool has_rms_norms(const spry_tower *t, const json_t *vision)
{
    const char *norm = json_string_value(json_object_get(vision, "norm_type"));
    return t->own ? !spry_gguf_find_tensor(t->own, SPRY_VIEW("v.blk.0.ln1.bias")) : norm && !strcmp(norm, "rms_norm");
}

/* vision_config in the words of other models. */
static json_t *layers_config(const spry_tower *t, const json_t *vision)
{
    const spry_tower_kind *k = t->kind;
    double n_embd = number_or(vision, "hidden_size", 0), eps = number_or(vision, "layer_norm_eps", k->eps);
    double n_heads = number_or(vision, "num_heads", number_or(vision, "num_attention_heads", k->heads));
    double n_ff = number_or(vision, "intermediate_size", k->ff > 0 ? k->ff : 4 * n_embd);
    const json_t *rope = json_object_get(vision, "rope_parameters");
    json_t *json =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "model_type", arch_of(t, vision, n_ff)->hf_type,
                  "num_hidden_layers", number_or(vision, "depth", number_or(vision, "num_hidden_layers", k->layers)),
                  "hidden_size", n_embd, "num_attention_heads", n_heads, "intermediate_size", n_ff, "layer_norm_eps",
                  eps, "rms_norm_eps", eps, "max_position_embeddings", 65536.0, "rope_theta",
                  number_or(rope, "rope_theta", number_or(vision, "rope_theta", k->theta > 0 ? k->theta : 10000)));
    static const char *const same[] = {"head_dim", "num_key_value_heads", "attention_bias", "use_qk_norm"};
    for (size_t i = 0; json && i < SPRY_COUNT(same); i++)
        if (json_object_get(vision, same[i]))
            json_object_set(json, same[i], json_object_get(vision, same[i]));
    if (k->arch->either_norm && !has_rms_norms(t, vision))
        json_object_del(json, "rms_norm_eps");
    return json;
}

/* Half of the pairs turn by a patch's row and half by its column (the other way round with axes_apart), with the
 * frequencies of a head of half the size; or columns with those between. */
static spry_status make_axes(spry_tower *t, spry_error *error)
{
    uint32_t n = t->config.rope_dim / 2, half = n / 2;
    uint8_t *axes = spry_arena_alloc(&t->arena, n, 1);
    float *factors = spry_arena_alloc(&t->arena, n, sizeof *factors);
    if (!axes || !factors)
        return spry_fail_memory(error, "a tower", n);
    for (uint32_t i = 0; i < n; i++) {
        double wanted = 2.0 * (i % half) + (i >= half && t->kind->odd_columns ? 1 : 0);
        axes[i] = (i < half) == t->kind->axes_apart ? 2 : 1;
        factors[i] = (float)pow((double)t->config.rope.theta, 2 * (wanted - i) / (double)t->config.rope_dim);
    }
    t->config.rope_axes = axes;
    t->config.rope.factors = t->config.rope_sliding.factors = factors;
    return SPRY_OK;
}

/* Lets all layers use the same slot for keys and values, because they are computed one after the other in one step. */
static void share_slot(spry_config *c)
{
    for (uint32_t i = 0; i < c->n_layers; i++)
        c->kv_slot[i] = 0;
    c->n_kv_slots = 1;
}

static const char *name_of(const spry_tower *t, const spry_model *model)
{
    return t->own ? spry_gguf_name(t->own) : model->name;
}

static spry_status read_layers(spry_tower *t, const spry_model *model, const json_t *vision, spry_error *error)
{
    const char *name = name_of(t, model);
    json_t *json = layers_config(t, vision);
    if (!json)
        return spry_fail_memory(error, "a tower", 0);
    spry_status status = spry_config_from_json(&t->config, json, name, &t->arena, error);
    json_decref(json);
    if (!status)
        status =
            spry_weights_bind(&t->weights, &t->config, t->own, t->own ? NULL : model->files, name, &t->arena, error);
    if (!status && t->kind->rotates && (t->config.rope_dim % 4 || t->config.rope_dim != t->config.head_dim))
        status = spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: a tower's heads of %u have no halves of pairs", name,
                           t->config.rope_dim);
    if (!status && t->kind->rotates)
        status = make_axes(t, error);
    if (status)
        return status;
    t->config.interleaved = t->own && t->config.arch->permuted_in_gguf;
    share_slot(&t->config);
    return SPRY_OK;
}

/* ---- before and after the layers --------------------------------------------------------------------------------- */

/* Adds a frame's weights of a patch to the sums. Files have all frames of a film in one tensor, or one each. */
static spry_status add_frames(spry_tower *t, const spry_binder *b, float *sums, const spry_tensor *given)
{
    const float *all;
    size_t n = (size_t)t->config.n_embd * 3, pixels = (size_t)t->patch * t->patch;
    size_t count = given->dims[0] * given->dims[1] * given->dims[2] * given->dims[3], frames = count / (n * pixels);
    if (!frames || frames > 16 || count != n * frames * pixels)
        return spry_bind_wrong_shape(b, given, t->config.n_embd, 3 * pixels);
    spry_status status = spry_bind_vector(b, &all, given, count, 0);
    if (given->n_dims == 2) { /* [n_embd, y, x, channel] */
        for (size_t i = 0; !status && i < n; i++)
            for (size_t k = 0; k < pixels; k++)
                sums[i * pixels + k] = all[(i / 3 * pixels + k) * 3 + i % 3];
        return status;
    }
    for (size_t i = 0; !status && i < n; i++)
        for (size_t f = 0; f < frames; f++)
            for (size_t k = 0; k < pixels; k++)
                sums[i * pixels + k] += all[(i * frames + f) * pixels + k];
    return status;
}

static spry_status read_patches(spry_tower *t, const spry_binder *b)
{
    const char *const *names = t->kind->patches;
    const spry_tensor *first = spry_tower_find(b, names, "weight"), *second = spry_tower_find(b, names, "weight.1");
    const spry_tensor *bias = spry_tower_find(b, names, "bias");
    size_t n = (size_t)t->config.n_embd * 3 * t->patch * t->patch;
    if (!first)
        return spry_bind_missing(b, names[b->gguf != NULL]);
    float *sums = spry_arena_alloc(&t->arena, n, sizeof *sums);
    if (!sums)
        return spry_fail_memory(b->error, "a tower", n * sizeof *sums);
    spry_status status = add_frames(t, b, sums, first);
    if (!status && second)
        status = add_frames(t, b, sums, second);
    t->patches = (spry_weight){.data = (const unsigned char *)sums,
                               .type = SPRY_F32,
                               .n_out = t->config.n_embd,
                               .n_in = n / t->config.n_embd,
                               .row_bytes = n / t->config.n_embd * sizeof *sums};
    return !status && bias ? spry_bind_vector(b, &t->patches.bias, bias, t->config.n_embd, 0) : status;
}

static spry_status read_positions(spry_tower *t, const spry_binder *b)
{
    const char *const *names = t->kind->positions;
    const spry_tensor *tensor = names[0] ? spry_tower_find(b, names, "weight") : NULL;
    if (!names[0])
        return SPRY_OK;
    tensor = tensor ? tensor : spry_tower_find(b, names, "");
    if (!tensor)
        return spry_bind_missing(b, names[b->gguf != NULL]);
    size_t count = tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3], n = t->config.n_embd;
    size_t rows = count / n - (t->kind->class_row && count >= n ? 1 : 0);
    bool axes = t->kind->placing == SPRY_PLACES_AXES;
    t->position_side = axes ? (uint32_t)(rows / 2) : (uint32_t)lround(sqrt((double)rows));
    size_t wanted = axes ? 2 * (size_t)t->position_side : (size_t)t->position_side * t->position_side;
    if (wanted != rows || !rows || count % n || rows > 1 << 24)
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%.*s' has %zu rows, which are no %s", b->name,
                         SPRY_VIEW_ARG(tensor->name), rows, axes ? "two tables" : "square");
    return spry_bind_vector(b, &t->positions, tensor, count, 0);
}

static void read_recipe(spry_tower *t, const json_t *recipe, const json_t *vision)
{
    const json_t *size = json_object_get(recipe, "size");
    double least = t->kind->tiling == SPRY_TILES_LARGE ? 2 : 1, tiles = t->kind->tiling == SPRY_TILES_LARGE ? 10 : 12;
    t->longest = number_or(size, "longest_edge", number_or(vision, "image_size", 1540));
    t->min_pixels = number_or(recipe, "min_pixels", number_or(size, "shortest_edge", 3136));
    const json_t *pixels = t->kind->limits_side ? NULL : size; /* kinds that limit sides have a side there */
    t->max_pixels = number_or(recipe, "max_pixels", number_or(pixels, "longest_edge", 1 << 24));
    double row = (double)t->patch * t->merge * t->patch * t->merge; /* pixels */
    double most = number_or(recipe, "max_image_tokens", number_or(recipe, "max_soft_tokens", t->kind->most_rows));
    double fewest = number_or(recipe, "min_image_tokens", t->kind->least_rows);
    t->min_pixels = t->kind->least_rows > 0 ? number_or(recipe, "min_pixels", fewest * row) : t->min_pixels;
    t->max_pixels = t->kind->most_rows > 0 ? number_or(recipe, "max_pixels", most * row) : t->max_pixels;
    t->large_pixels = t->max_pixels * number_or(recipe, "max_pixels_tolerance", 2);
    t->min_tiles =
        (uint32_t)fmin(fmax(number_or(recipe, "min_tiles", number_or(recipe, "min_patches", least)), 1), 256);
    t->max_tiles =
        (uint32_t)fmin(fmax(number_or(recipe, "max_tiles", number_or(recipe, "max_patches", tiles)), 1), 256);
    if (json_is_false(json_object_get(recipe, "do_image_splitting")) && t->kind->tiling == SPRY_TILES_LARGE)
        t->max_tiles = 1;
    double filter = number_or(recipe, "resample", t->kind->filter);
    t->filter = filter == SPRY_LANCZOS || filter == SPRY_BILINEAR ? (spry_filter)filter : SPRY_BICUBIC;
    for (size_t i = 0; i < 3; i++) {
        const json_t *mean = json_array_get(json_object_get(recipe, "image_mean"), i);
        const json_t *deviation = json_array_get(json_object_get(recipe, "image_std"), i);
        t->mean[i] = mean ? (float)json_number_value(mean) : 0.5f;
        t->deviation[i] = deviation && json_number_value(deviation) > 0 ? (float)json_number_value(deviation) : 0.5f;
        if (t->kind->unit_pixels)
            t->mean[i] = t->deviation[i] = 0.5f;
    }
}

/* Sides of patches, rows and sheets. A square sheet has a position for each patch. */
static spry_status read_sides(spry_tower *t, const json_t *config, const json_t *vision, const json_t *recipe,
                              const char *name, spry_error *error)
{
    double patch = number_or(vision, "patch_size", t->kind->patch);
    double merge = number_or(vision, "spatial_merge_size",
                             number_or(config, "spatial_merge_size", t->kind->merge > 0 ? t->kind->merge : 1));
    double side = number_or(vision, "image_size", t->kind->patch > 0 ? 16 * t->kind->patch : 0);
    side = t->kind->tiling == SPRY_TILES_LARGE ? number_or(recipe, "tile_size", 512) : side;
    if (!(patch >= 1 && patch <= 256 && merge >= 1 && merge <= 16 && side >= patch && side <= 8192))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: patches of %g pixels, joined by %g, in pictures of %g", name,
                         patch, merge, side);
    t->patch = (uint32_t)patch;
    t->merge = (uint32_t)merge;
    t->side = floor(side / t->patch) * t->patch;
    return SPRY_OK;
}

static spry_status check(const spry_tower *t, const char *name, spry_error *error)
{
    for (uint32_t i = 0; i <= t->config.n_taps; i++) {
        const spry_projector *p = i ? &t->deep[i - 1] : &t->projector;
        size_t width = p->steps[p->n_steps - 1].n_out;
        if (width != t->width)
            return spry_fail(error, SPRY_ERR_FORMAT,
                             "%s: the tower's rows have %zu floats, the model's %u: it is the tower of another model",
                             name, width, t->width);
    }
    double side = t->side / t->patch;
    if (t->kind->square && (double)t->position_side != side)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: the tower has %u x %u positions for pictures of %g x %g patches",
                         name, t->position_side, t->position_side, side, side);
    if (!t->kind->limits_side)
        return SPRY_OK;
    if (t->longest < t->patch || t->longest > 65536 || (t->kind->tiling && t->longest < t->side))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: pictures of at most %g pixels a side", name, t->longest);
    return SPRY_OK;
}

/* A row between two lines is the embedding of a token, which GGUF files of towers hold, too. */
static spry_status read_row_end(spry_tower *t, const spry_binder *b, const spry_model *model)
{
    const spry_weight *embedding = &model->weights.embedding;
    const spry_tensor *own = b->gguf ? spry_bind_find(b, "v.token_embd.img_break") : NULL;
    int32_t id = -1;
    if (!t->kind->row_end || !model->tokenizer) /* a model that is only measured */
        return SPRY_OK;
    if (own)
        return spry_bind_vector(b, &t->row_end, own, t->width, 0);
    for (size_t i = 0; model->tokenizer && i < spry_tokenizer_size(model->tokenizer) && id < 0; i++)
        if (spry_view_is(spry_tokenizer_name(model->tokenizer, (int32_t)i), t->kind->row_end))
            id = (int32_t)i;
    if (id < 0 || (size_t)id >= embedding->n_out || !embedding->data)
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s has no token %s", model->name, t->kind->row_end);
    float *row = spry_arena_alloc(&t->arena, t->width, sizeof *row);
    void *bytes = spry_arena_alloc(&t->arena, embedding->row_bytes, 1);
    if (!row || !bytes)
        return spry_fail_memory(b->error, "a tower", t->width);
    memcpy(bytes, embedding->data + (size_t)id * embedding->row_bytes, embedding->row_bytes);
    b->ops->decode[embedding->type](row, bytes, t->width);
    t->row_end = row;
    return SPRY_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static size_t packed_bytes(const spry_tower *t, const spry_weight *w)
{
    size_t bytes;
    return spry_weight_packed_bytes(&bytes, w, t->ops) ? bytes : SIZE_MAX;
}

size_t spry_tower_packed_bytes(const spry_tower *t)
{
    size_t all = packed_bytes(t, &t->patches);
    for (uint32_t i = 0; i <= t->config.n_taps; i++) {
        const spry_projector *p = i ? &t->deep[i - 1] : &t->projector;
        for (uint32_t k = 0; k < p->n_steps; k++)
            if (!spry_checked_add(&all, all, packed_bytes(t, &p->steps[k])))
                return SIZE_MAX;
    }
    return all;
}

static spry_status pack(spry_tower *t, spry_weight *w, spry_threads *threads, spry_error *error)
{
    size_t bytes = packed_bytes(t, w);
    unsigned char *groups = bytes && bytes < SIZE_MAX ? spry_arena_alloc(&t->arena, bytes, 1) : NULL;
    if (bytes && !groups)
        return spry_fail_memory(error, "a tower", bytes);
    if (bytes)
        spry_weight_pack(w, groups, t->ops, threads, false);
    return SPRY_OK;
}

spry_status spry_tower_pack(spry_tower *t, spry_threads *threads, spry_error *error)
{
    size_t widest = 0;
    spry_status status = pack(t, &t->patches, threads, error);
    for (uint32_t i = 0; i <= t->config.n_taps; i++) {
        spry_projector *p = i ? &t->deep[i - 1] : &t->projector;
        for (uint32_t k = 0; !status && k < p->n_steps; k++) {
            widest = p->steps[k].n_out > widest ? p->steps[k].n_out : widest;
            status = pack(t, &p->steps[k], threads, error);
        }
    }
    float *ones = status ? NULL : spry_arena_alloc(&t->arena, widest, sizeof *ones);
    if (!status && !ones)
        return spry_fail_memory(error, "a tower", widest * sizeof *ones);
    for (size_t i = 0; !status && i < widest; i++)
        ones[i] = 1;
    t->ones = ones;
    return status;
}

enum { HEAD_GRAIN = 16 }; /* kernels of attention are fast for heads of multiples of this */

/* Rows of zeros after those of each head. */
static spry_status widen_heads(spry_tower *t, spry_weight *w, uint32_t from, uint32_t to, spry_error *error)
{
    size_t n_heads = w->n_out / from;
    unsigned char *rows = spry_arena_alloc(&t->arena, n_heads * to, w->row_bytes);
    float *bias = w->bias ? spry_arena_alloc(&t->arena, n_heads * to, sizeof *bias) : NULL;
    if (!rows || (w->bias && !bias))
        return spry_fail_memory(error, "a tower", n_heads * to * w->row_bytes);
    for (size_t head = 0; head < n_heads; head++) {
        memcpy(rows + head * to * w->row_bytes, w->data + head * from * w->row_bytes, from * w->row_bytes);
        if (bias)
            memcpy(bias + head * to, w->bias + head * from, from * sizeof *bias);
    }
    t->weights.copied_bytes += n_heads * to * w->row_bytes;
    w->data = rows;
    w->bias = bias;
    w->n_out = n_heads * to;
    return SPRY_OK;
}

/* Widens the heads of queries and keys for the kernels; values keep their size, as in models whose values are
 * shorter than their keys. */
static spry_status widen_all(spry_tower *t, spry_error *error)
{
    spry_config *c = &t->config;
    uint32_t from = c->head_dim, to = (from + HEAD_GRAIN - 1) / HEAD_GRAIN * HEAD_GRAIN;
    spry_status status = SPRY_OK;
    if (from == to || c->arch->qk_norm == SPRY_QK_NORM_ROW)
        return SPRY_OK;
    for (uint32_t i = 0; !status && i < c->n_layers; i++) {
        status = widen_heads(t, &t->weights.layers[i].q, from, to, error);
        status = status ? status : widen_heads(t, &t->weights.layers[i].k, from, to, error);
    }
    c->head_dim = c->slide.head_dim = to;
    c->value_dim = c->normed_dim = from;
    return status;
}

static spry_status read_all(spry_tower *t, const spry_model *model, const description *d, spry_error *error)
{
    const char *name = name_of(t, model);
    const json_t *vision = json_object_get(d->config, "vision_config");
    t->width = model->config.n_embd;
    t->two_way = t->kind->two_way && !model->config.n_layer_embd; /* Gemma 4's small models see in one direction */
    spry_status status = read_sides(t, d->config, vision, d->recipe, name, error);
    if (status || (status = read_layers(t, model, vision, error)))
        return status;
    spry_binder b = {&t->weights, &t->config, t->own, t->own ? NULL : model->files, name, t->config.prefix, 0,
                     t->ops,      &t->arena,  error};
    status = read_patches(t, &b);
    if (!status)
        status = read_positions(t, &b);
    if (!status)
        status = t->kind->read(t, &b, d->config, vision);
    if (!status)
        read_recipe(t, d->recipe, vision);
    if (!status)
        status = read_row_end(t, &b, model);
    if (!status)
        status = check(t, name, error);
    return status ? status : widen_all(t, error);
}

uint32_t spry_tower_joint_rows(const spry_tower *t, double max_pixels)
{
    double unit = (double)t->patch * t->merge, side = floor(t->side / unit);
    double n = t->kind->square ? side * side : floor(fmin(t->max_pixels, fmax(max_pixels, unit * unit)) / unit / unit);
    return t->two_way ? (uint32_t)fmin(n, 1 << 16) : 0;
}

spry_status spry_tower_open(spry_tower **out, const spry_model *model, const char *mmproj, const spry_ops *ops,
                            spry_error *error)
{
    description d = {0};
    *out = NULL;
    spry_tower *t = calloc(1, sizeof *t);
    if (!t)
        return spry_fail_memory(error, "a tower", sizeof *t);
    spry_arena_init(&t->arena);
    spry_status status = SPRY_OK;
    t->ops = ops;
    if (mmproj)
        status = spry_gguf_open(&t->own, mmproj, error);
    if (!status)
        status = mmproj ? describe_gguf(&d, t->own, error) : describe_folder(&d, model, error);
    t->kind = d.kind;
    if (!status)
        status = read_all(t, model, &d, error);
    json_decref(d.config);
    json_decref(d.recipe);
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
    spry_gguf_close(t->own);
    spry_arena_deinit(&t->arena);
    free(t);
}

spry_kv_key spry_tower_hash(const spry_tower *t)
{
    XXH128_hash_t all = {0};
    for (size_t i = 0; t->own && i < spry_gguf_tensor_count(t->own); i++) {
        const spry_tensor *tensor = spry_gguf_tensor(t->own, i);
        const XXH128_hash_t parts[] = {all, XXH3_128bits(tensor->name.data, tensor->name.size),
                                       XXH3_128bits(tensor->data, tensor->bytes)};
        all = XXH3_128bits(parts, sizeof parts);
    }
    return (spry_kv_key){all.low64, all.high64};
}
