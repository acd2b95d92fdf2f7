/* The families of towers: one row each, and what only that family reads. */
#include "model/tower.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static double number_or(const json_t *json, const char *key, double otherwise)
{
    const json_t *value = json_object_get(json, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

const spry_tensor *spry_tower_find(const spry_binder *b, const char *const names[2], const char *suffix)
{
    char name[SPRY_TENSOR_NAME_MAX];
    const char *const prefixes[] = {b->gguf ? "" : b->prefix, "", "model."};
    const char *dot = *suffix ? "." : "";
    const spry_tensor *t = NULL;
    for (size_t i = 0; !t && i < (b->gguf ? 1 : SPRY_COUNT(prefixes)); i++) {
        snprintf(name, sizeof name, "%s%s%s%s", prefixes[i], names[b->gguf != NULL], dot, suffix);
        t = spry_bind_find(b, name);
    }
    return t;
}

static spry_status missing(const spry_binder *b, const char *const names[2])
{
    return spry_bind_missing(b, names[b->gguf != NULL]);
}

typedef const char *const pair[2]; /* a name in Hugging Face and in GGUF files */

static spry_status vector(const spry_binder *b, const float **out, size_t n, pair names, const char *suffix,
                          bool required, float add)
{
    const spry_tensor *t = spry_tower_find(b, names, suffix);
    if (!t)
        return required ? missing(b, names) : SPRY_OK;
    return spry_bind_vector(b, out, t, n, add);
}

/* The next product of a projector, with its bias. Its outputs are as many as the tensor has. */
static spry_status add_step(const spry_binder *b, spry_projector *p, size_t n_in, pair names)
{
    const spry_tensor *t = spry_tower_find(b, names, "weight");
    spry_weight *step = &p->steps[p->n_steps];
    if (!t)
        return missing(b, names);
    spry_status status = spry_bind_matrix(b, step, t, t->dims[0], n_in);
    p->n_steps++;
    return status ? status : vector(b, &step->bias, step->n_out, names, "bias", OPTIONAL, 0);
}

static size_t joined_size(const spry_tower *t)
{
    return (size_t)t->merge * t->merge * t->config.n_embd;
}

/* ---- sides of sheets --------------------------------------------------------------------------------------------- */

/* Multiples of a row's pixels, of about as many pixels as may be. */
static void multiple_sides(const spry_tower *t, uint32_t *width, uint32_t *height, const spry_image *image, double most)
{
    double unit = (double)t->patch * t->merge, least = fmin(t->min_pixels, most);
    double w = fmax(unit, rint(image->width / unit) * unit), h = fmax(unit, rint(image->height / unit) * unit);
    double all = (double)image->width * image->height;
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

static void square_sides(const spry_tower *t, uint32_t *width, uint32_t *height, const spry_image *image, double most)
{
    (void)image;
    (void)most;
    *width = *height = (uint32_t)t->side;
}

/* Not longer than `longest`, then up to multiples of a row's pixels. */
static void longest_sides(const spry_tower *t, uint32_t *width, uint32_t *height, const spry_image *image, double most)
{
    double unit = (double)t->patch * t->merge, w = image->width, h = image->height;
    double by = fmax(1, fmax(fmax(w, h) / t->longest, sqrt(w * h / most)));
    *width = (uint32_t)(fmax(1, ceil(floor(w / by) / unit)) * unit);
    *height = (uint32_t)(fmax(1, ceil(floor(h / by) / unit)) * unit);
}

/* ---- Qwen -------------------------------------------------------------------------------------------------------- */

static spry_status read_deep(spry_tower *t, const spry_binder *b, uint32_t i, uint32_t layer)
{
    char norm[2][64], in[2][64], out[2][64];
    snprintf(norm[0], sizeof norm[0], "deepstack_merger_list.%u.norm", i);
    snprintf(norm[1], sizeof norm[1], "v.deepstack.%u.norm", layer);
    snprintf(in[0], sizeof in[0], "deepstack_merger_list.%u.linear_fc1", i);
    snprintf(in[1], sizeof in[1], "v.deepstack.%u.fc1", layer);
    snprintf(out[0], sizeof out[0], "deepstack_merger_list.%u.linear_fc2", i);
    snprintf(out[1], sizeof out[1], "v.deepstack.%u.fc2", layer);
    pair norms = {norm[0], norm[1]}, ins = {in[0], in[1]}, outs = {out[0], out[1]};
    spry_projector *p = &t->deep[i];
    t->config.taps[i] = layer;
    spry_status status = vector(b, &p->norm, joined_size(t), norms, "weight", REQUIRED, 0);
    if (!status)
        status = vector(b, &p->norm_bias, joined_size(t), norms, "bias", REQUIRED, 0);
    if (!status)
        status = add_step(b, p, joined_size(t), ins);
    return status ? status : add_step(b, p, p->steps[0].n_out, outs);
}

/* The merger's norm, of each patch, is the output norm of the layers; deep mergers have one of all joined patches. */
static spry_status qwen3_read(spry_tower *t, const spry_binder *b, const json_t *config, const json_t *vision)
{
    (void)config;
    const json_t *deep = json_object_get(vision, "deepstack_visual_indexes");
    size_t n_deep = json_array_size(deep);
    spry_status status = add_step(b, &t->projector, joined_size(t), (pair){"merger.linear_fc1", "mm.0"});
    if (!status)
        status = add_step(b, &t->projector, t->projector.steps[0].n_out, (pair){"merger.linear_fc2", "mm.2"});
    if (!status && n_deep > SPRY_MAX_TAPS)
        status = spry_fail(b->error, SPRY_ERR_UNSUPPORTED, "%s: %zu deepstack layers, supported are %d", b->name,
                           n_deep, SPRY_MAX_TAPS);
    t->config.n_taps = status ? 0 : (uint32_t)n_deep;
    for (uint32_t i = 0; !status && i < t->config.n_taps; i++) {
        double layer = json_number_value(json_array_get(deep, i));
        if (!(layer >= 0 && layer < t->config.n_layers))
            return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: deepstack_visual_indexes lists layer %g of %u", b->name,
                             layer, t->config.n_layers);
        status = read_deep(t, b, i, (uint32_t)layer);
    }
    return status;
}

/* Layers see windows of a picture, but for those that are listed. */
static spry_status qwen2_5_read(spry_tower *t, const spry_binder *b, const json_t *config, const json_t *vision)
{
    (void)config;
    const json_t *whole = json_object_get(vision, "fullatt_block_indexes");
    double unit = (double)t->patch * t->merge, window = floor(number_or(vision, "window_size", 112) / unit);
    bool *windowed = spry_arena_alloc(&t->arena, t->config.n_layers, sizeof *windowed);
    if (!windowed)
        return spry_fail_memory(b->error, "a tower", t->config.n_layers);
    if (!(window >= 1 && window <= 256))
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: window_size is not from %g to %g pixels", b->name, unit,
                         256 * unit);
    for (uint32_t i = 0; i < t->config.n_layers; i++)
        windowed[i] = true;
    for (size_t i = 0; i < json_array_size(whole); i++) {
        double layer = json_number_value(json_array_get(whole, i));
        if (layer >= 0 && layer < t->config.n_layers)
            windowed[(uint32_t)layer] = false;
    }
    t->window = (uint32_t)window * t->merge;
    t->config.windowed = windowed;
    spry_status status = add_step(b, &t->projector, joined_size(t), (pair){"merger.mlp.0", "mm.0"});
    return status ? status
                  : add_step(b, &t->projector, t->projector.steps[0].n_out, (pair){"merger.mlp.2", "mm.2"});
}

/* ---- Gemma 3 ----------------------------------------------------------------------------------------------------- */

/* [n_in, n_out] as the rows of products. */
static spry_status transposed(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_in)
{
    const float *given = NULL;
    size_t n_out = t->dims[1];
    if (t->dims[0] != n_in || t->dims[2] != 1)
        return spry_bind_wrong_shape(b, t, n_in, n_out);
    spry_status status = spry_bind_vector(b, &given, t, n_in * n_out, 0);
    float *rows = status ? NULL : spry_arena_alloc(b->arena, n_in * n_out, sizeof *rows);
    if (status || !rows)
        return status ? status : spry_fail_memory(b->error, "a tower", n_in * n_out * sizeof *rows);
    for (size_t i = 0; i < n_out; i++)
        for (size_t k = 0; k < n_in; k++)
            rows[i * n_in + k] = given[k * n_out + i];
    *out = (spry_weight){.data = (const unsigned char *)rows,
                         .type = SPRY_F32,
                         .n_out = n_out,
                         .n_in = n_in,
                         .row_bytes = n_in * sizeof *rows};
    return SPRY_OK;
}

static spry_status gemma3_read(spry_tower *t, const spry_binder *b, const json_t *config, const json_t *vision)
{
    size_t n = t->config.n_embd;
    double side = t->side / t->patch, rows = sqrt(number_or(config, "mm_tokens_per_image", 256));
    t->merge = (uint32_t)number_or(vision, "scale_factor", rows >= 1 ? floor(side / floor(rows)) : 0);
    if (!t->merge || fmod(side, t->merge) != 0)
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: %g patches of a side are not made into %g rows", b->name, side,
                         rows);
    const spry_tensor *m = spry_tower_find(
        b, (pair){"multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"}, "");
    if (!m)
        return spry_bind_missing(b, "multi_modal_projector.mm_input_projection_weight");
    spry_status status =
        vector(b, &t->projector.norm, n, (pair){"multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm"}, "weight",
               REQUIRED, b->gguf ? 0 : 1);
    t->projector.n_steps = 1;
    return status ? status : transposed(b, &t->projector.steps[0], m, n);
}

/* ---- Idefics 3, SmolVLM ------------------------------------------------------------------------------------------ */

static spry_status idefics3_read(spry_tower *t, const spry_binder *b, const json_t *config, const json_t *vision)
{
    double merge = number_or(vision, "scale_factor", number_or(config, "scale_factor", 2));
    if (!(merge >= 1 && merge <= 16) || fmod(t->side / t->patch, floor(merge)) != 0)
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: %g patches of a side, joined by %g", b->name,
                         t->side / t->patch, merge);
    t->merge = (uint32_t)merge;
    return add_step(b, &t->projector, joined_size(t), (pair){"connector.modality_projection.proj", "mm.model.fc"});
}

/* ---- Pixtral ----------------------------------------------------------------------------------------------------- */

static spry_status pixtral_read(spry_tower *t, const spry_binder *b, const json_t *config, const json_t *vision)
{
    (void)vision;
    size_t n = t->config.n_embd;
    spry_projector *p = &t->projector;
    spry_status status =
        vector(b, &t->weights.embedding_norm, n, (pair){"ln_pre", "v.pre_ln"}, "weight", REQUIRED, 0);
    if (!status)
        status = vector(b, &t->patch_norm, n, (pair){"multi_modal_projector.norm", "mm.input_norm"}, "weight", OPTIONAL,
                        0);
    t->patch_norm_eps = (float)number_or(json_object_get(config, "text_config"), "rms_norm_eps", 1e-5);
    if (!status && t->merge > 1)
        status = add_step(b, p, joined_size(t), (pair){"multi_modal_projector.patch_merger.merging_layer",
                                                       "mm.patch_merger"});
    if (!status)
        status = add_step(b, p, n, (pair){"multi_modal_projector.linear_1", "mm.1"});
    return status ? status
                  : add_step(b, p, p->steps[p->n_steps - 1].n_out, (pair){"multi_modal_projector.linear_2", "mm.2"});
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

#define QWEN                                                                                                           \
    .frame = "<|vision_start|>\1<|vision_end|>", .pad = "<|image_pad|>", .patches = {"patch_embed.proj", "v.patch_embd"}, \
    .sides = multiple_sides, .filter = SPRY_BICUBIC, .merge = 2, .eps = 1e-6, .rotates = true, .columns = true
#define SIGLIP                                                                                                         \
    .arch = &spry_arch_siglip, .patches = {"embeddings.patch_embedding", "v.patch_embd"},                              \
    .positions = {"embeddings.position_embedding", "v.position_embd"}, .sides = square_sides, .patch = 14,             \
    .layers = 12, .heads = 16, .ff = 3072, .eps = 1e-6, .square = true

static const spry_tower_kind kinds[] = {
    {.model_types = {"qwen3_vl"},
     .gguf = "qwen3vl_merger",
     .arch = &spry_arch_qwen3_tower,
     .positions = {"pos_embed", "v.position_embd"},
     .read = qwen3_read,
     .patch = 16,
     QWEN},
    {.model_types = {"qwen3_5", "qwen3_5_moe"},
     .arch = &spry_arch_qwen3_tower,
     .positions = {"pos_embed", "v.position_embd"},
     .read = qwen3_read,
     .patch = 16,
     QWEN},
    {.model_types = {"qwen2_5_vl"},
     .gguf = "qwen2.5vl_merger",
     .arch = &spry_arch_qwen2_5_tower,
     .read = qwen2_5_read,
     .patch = 14,
     QWEN},
    {.model_types = {"gemma3"},
     .gguf = "gemma3",
     .margin = "\n\n",
     .frame = "<start_of_image>\1<end_of_image>",
     .pad = "<image_soft_token>",
     .read = gemma3_read,
     .filter = SPRY_BILINEAR,
     .joining = SPRY_JOIN_AVERAGE,
     .two_way = true,
     SIGLIP},
    {.model_types = {"smolvlm", "idefics3"},
     .gguf = "idefics3",
     .frame = "<fake_token_around_image><global-img>\1<fake_token_around_image>",
     .pad = "<image>",
     .read = idefics3_read,
     .filter = SPRY_LANCZOS,
     .tiles = true,
     .limits_side = true,
     SIGLIP},
    {.model_types = {"mistral3"},
     .gguf = "pixtral",
     .arch = &spry_arch_pixtral,
     .gelu_arch = &spry_arch_pixtral_gelu,
     .frame = "\1[IMG_END]",
     .pad = "[IMG]",
     .row_end = "[IMG_BREAK]",
     .patches = {"patch_conv", "v.patch_embd"},
     .read = pixtral_read,
     .sides = longest_sides,
     .filter = SPRY_BICUBIC,
     .joining = SPRY_JOIN_UNFOLD,
     .patch = 14,
     .merge = 1,
     .layers = 24,
     .heads = 16,
     .eps = 1e-5,
     .rotates = true,
     .odd_columns = true,
     .limits_side = true},
};

const spry_tower_kind *spry_tower_kind_of(const char *model_type, const char *projector)
{
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++) {
        for (size_t k = 0; model_type && k < SPRY_COUNT(kinds[i].model_types); k++)
            if (kinds[i].model_types[k] && !strcmp(model_type, kinds[i].model_types[k]))
                return &kinds[i];
        if (projector && kinds[i].gguf && !strcmp(projector, kinds[i].gguf))
            return &kinds[i];
    }
    return NULL;
}

const char *spry_tower_kind_names(void)
{
    return "qwen3vl_merger, qwen2.5vl_merger, gemma3, idefics3, pixtral";
}
