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
    value = json_is_array(value) ? json_array_get(value, 0) : value; /* [height, width], which are the same */
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

/* The largest multiples of a row's pixels that keep the ratio and are at most `most` pixels. */
static void largest_sides(const spry_tower *t, uint32_t *width, uint32_t *height, const spry_image *image, double most)
{
    double unit = (double)t->patch * t->merge, w = image->width, h = image->height, by = sqrt(most / (w * h));
    double longest = floor(most / (unit * unit));
    double across = floor(by * w / unit), down = floor(by * h / unit);
    if (down < 1) {
        down = 1;
        across = fmax(1, fmin(floor(w / h), longest));
    } else if (across < 1) {
        across = 1;
        down = fmax(1, fmin(floor(h / w), longest));
    }
    *width = (uint32_t)(across * unit);
    *height = (uint32_t)(down * unit);
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
    return status ? status : add_step(b, &t->projector, t->projector.steps[0].n_out, (pair){"merger.mlp.2", "mm.2"});
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
    spry_status status = vector(b, &t->weights.embedding_norm, n, (pair){"ln_pre", "v.pre_ln"}, "weight", REQUIRED, 0);
    if (!status)
        status =
            vector(b, &t->patch_norm, n, (pair){"multi_modal_projector.norm", "mm.input_norm"}, "weight", OPTIONAL, 0);
    t->patch_norm_eps = (float)number_or(json_object_get(config, "text_config"), "rms_norm_eps", 1e-5);
    if (!status && t->merge > 1)
        status = add_step(b, p, joined_size(t),
                          (pair){"multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger"});
    if (!status)
        status = add_step(b, p, n, (pair){"multi_modal_projector.linear_1", "mm.1"});
    return status ? status
                  : add_step(b, p, p->steps[p->n_steps - 1].n_out, (pair){"multi_modal_projector.linear_2", "mm.2"});
}

/* ---- a norm and two products: InternVL, LFM2 --------------------------------------------------------------------- */

static spry_status normed_read(spry_tower *t, const spry_binder *b, pair norm, pair in, pair out)
{
    spry_projector *p = &t->projector;
    p->eps = 1e-5f;
    spry_status status = vector(b, &p->norm, joined_size(t), norm, "weight", OPTIONAL, 0);
    if (!status && p->norm)
        status = vector(b, &p->norm_bias, joined_size(t), norm, "bias", REQUIRED, 0);
    if (!status)
        status = add_step(b, p, joined_size(t), in);
    return status ? status : add_step(b, p, p->steps[0].n_out, out);
}

/* The first of the learned positions is that of the class row. */
static spry_status internvl_read(spry_tower *t, const spry_binder *b, const json_t *config, const json_t *vision)
{
    size_t n = t->config.n_embd;
    const float *given = NULL;
    double ratio = number_or(config, "downsample_ratio", 0.5);
    t->merge = (uint32_t)number_or(vision, "scale_factor", ratio > 0 && ratio <= 1 ? rint(1 / ratio) : 0);
    if (!(t->merge >= 1 && t->merge <= 16) || fmod(t->side / t->patch, t->merge) != 0)
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: %g patches of a side, joined by %u", b->name,
                         t->side / t->patch, t->merge);
    spry_status status = vector(b, &given, n, (pair){"embeddings.cls_token", "v.class_embd"}, "", REQUIRED, 0);
    float *row = status ? NULL : spry_arena_alloc(&t->arena, n, sizeof *row);
    if (status || !row)
        return status ? status : spry_fail_memory(b->error, "a tower", n * sizeof *row);
    for (size_t i = 0; i < n; i++)
        row[i] = given[i] + t->positions[i];
    t->positions += n;
    t->class_row = row;
    return normed_read(t, b, (pair){"multi_modal_projector.layer_norm", "mm.model.mlp.0"},
                       (pair){"multi_modal_projector.linear_1", "mm.model.mlp.1"},
                       (pair){"multi_modal_projector.linear_2", "mm.model.mlp.3"});
}

static spry_status lfm2_read(spry_tower *t, const spry_binder *b, const json_t *config, const json_t *vision)
{
    double merge = number_or(config, "downsample_factor", number_or(vision, "scale_factor", 2));
    if (!(merge >= 1 && merge <= 16) || fmod(t->side, floor(merge) * t->patch) != 0)
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tiles of %g pixels, patches of %u, joined by %g", b->name,
                         t->side, t->patch, merge);
    t->merge = (uint32_t)merge;
    return normed_read(t, b, (pair){"multi_modal_projector.layer_norm", "mm.input_norm"},
                       (pair){"multi_modal_projector.linear_1", "mm.1"},
                       (pair){"multi_modal_projector.linear_2", "mm.2"});
}

/* ---- Gemma 4 ----------------------------------------------------------------------------------------------------- */

/* Copies rows or values of heads in another order: of four quarters the second and the third change places. Then the
 * pairs (i, i + 1/4) of each half are pairs (i, i + 1/2) of the head, as RoPE takes them. */
static void swap_quarters(unsigned char *out, const unsigned char *in, size_t n_heads, size_t quarter)
{
    static const size_t order[] = {0, 2, 1, 3};
    for (size_t head = 0; head < n_heads; head++)
        for (size_t i = 0; i < 4; i++, out += quarter)
            memcpy(out, in + (head * 4 + order[i]) * quarter, quarter);
}

static spry_status swap_heads(const spry_binder *b, spry_weight *w, const float **norm, size_t head_dim)
{
    unsigned char *rows = spry_arena_alloc(b->arena, w->n_out, w->row_bytes);
    float *values = *norm ? spry_arena_alloc(b->arena, head_dim, sizeof *values) : NULL;
    if (!rows || (*norm && !values))
        return spry_fail_memory(b->error, "a tower", w->n_out * w->row_bytes);
    swap_quarters(rows, w->data, w->n_out / head_dim, head_dim / 4 * w->row_bytes);
    w->data = rows;
    b->out->copied_bytes += w->n_out * w->row_bytes;
    if (values)
        swap_quarters((unsigned char *)values, (const unsigned char *)*norm, 1, head_dim / 4 * sizeof *values);
    *norm = values;
    return SPRY_OK;
}

static spry_status gemma4_read(spry_tower *t, const spry_binder *b, const json_t *config, const json_t *vision)
{
    size_t n = t->config.n_embd;
    const char *two_way =
        json_string_value(json_object_get(json_object_get(config, "text_config"), "use_bidirectional_attention"));
    double merge = number_or(vision, "pooling_kernel_size", number_or(vision, "scale_factor", 3));
    if (!(merge >= 1 && merge <= 16))
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: patches joined by %g", b->name, merge);
    t->merge = (uint32_t)merge;
    t->two_way = two_way ? !strcmp(two_way, "vision") : t->two_way;
    t->joined_scale = sqrtf((float)n);
    spry_status status = SPRY_OK;
    for (uint32_t i = 0; !status && i < t->config.n_layers; i++) {
        spry_layer *l = &t->weights.layers[i];
        status = swap_heads(b, &l->q, &l->q_norm, t->config.head_dim);
        status = status ? status : swap_heads(b, &l->k, &l->k_norm, t->config.head_dim);
    }
    if (!status)
        status = vector(b, &t->joined_mean, n, (pair){"std_bias", "v.std_bias"}, "", OPTIONAL, 0);
    if (!status && t->joined_mean)
        status = vector(b, &t->joined_scales, n, (pair){"std_scale", "v.std_scale"}, "", REQUIRED, 0);
    float *ones = status ? NULL : spry_arena_alloc(&t->arena, n, sizeof *ones);
    if (status || !ones)
        return status ? status : spry_fail_memory(b->error, "a tower", n * sizeof *ones);
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    t->projector.norm = ones;
    return add_step(b, &t->projector, n, (pair){"embed_vision.embedding_projection", "mm.input_projection"});
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

#define QWEN                                                                                                           \
    .frame = "<|vision_start|>\1<|vision_end|>", .pad = "<|image_pad|>",                                               \
    .patches = {"patch_embed.proj", "v.patch_embd"}, .sides = multiple_sides, .filter = SPRY_BICUBIC, .merge = 2,      \
    .eps = 1e-6, .rotates = true, .columns = true
#define SIGLIP                                                                                                         \
    .arch = &spry_arch_siglip, .patches = {"embeddings.patch_embedding", "v.patch_embd"},                              \
    .positions = {"embeddings.position_embedding", "v.position_embd"}, .patch = 14, .layers = 12, .heads = 16,         \
    .ff = 3072, .eps = 1e-6

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
     .sides = square_sides,
     .square = true,
     SIGLIP},
    {.model_types = {"smolvlm", "idefics3"},
     .gguf = "idefics3",
     .frame = "<fake_token_around_image><global-img>\1<fake_token_around_image>",
     .pad = "<image>",
     .read = idefics3_read,
     .filter = SPRY_LANCZOS,
     .sides = square_sides,
     .square = true,
     .tiling = SPRY_TILES_LONGEST,
     .tiles = {.before = "",
               .open = "<fake_token_around_image><row_",
               .close = ">\1",
               .line = "\n",
               .after = "\n<fake_token_around_image><global-img>\1<fake_token_around_image>"},
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
    {.model_types = {"internvl"},
     .gguf = "internvl",
     .arch = &spry_arch_internvit,
     .frame = "<img>\1</img>",
     .pad = "<IMG_CONTEXT>",
     .patches = {"embeddings.patch_embeddings.projection", "v.patch_embd"},
     .positions = {"embeddings.position_embeddings", "v.position_embd"},
     .read = internvl_read,
     .sides = square_sides,
     .tiling = SPRY_TILES_RATIO,
     .tiles = {.before = "<img>", .close = "\1", .line = "", .after = "\1</img>"},
     .filter = SPRY_BICUBIC,
     .patch = 14,
     .layers = 24,
     .heads = 16,
     .eps = 1e-6,
     .square = true,
     .class_row = true},
    {.model_types = {"lfm2_vl"},
     .gguf = "lfm2",
     .frame = "<|image_start|>\1<|image_end|>",
     .pad = "<image>",
     .read = lfm2_read,
     .sides = multiple_sides,
     .placing = SPRY_PLACES_SMOOTH,
     .tiling = SPRY_TILES_LARGE,
     .tiles = {.before = "<|image_start|>",
               .open = "<|img_row_",
               .close = "|>\1",
               .line = "",
               .after = "<|img_thumbnail|>\1<|image_end|>"},
     .filter = SPRY_BILINEAR,
     .merge = 2,
     .least_rows = 64,
     .most_rows = 256,
     SIGLIP},
    {.model_types = {"gemma4"},
     .gguf = "gemma4v",
     .arch = &spry_arch_gemma4_tower,
     .frame = "<|image>\1<image|>",
     .pad = "<|image|>",
     .patches = {"patch_embedder.input_proj", "v.patch_embd"},
     .positions = {"patch_embedder.position_embedding_table", "v.position_embd"},
     .read = gemma4_read,
     .sides = largest_sides,
     .joining = SPRY_JOIN_AVERAGE,
     .placing = SPRY_PLACES_AXES,
     .filter = SPRY_BICUBIC,
     .patch = 16,
     .merge = 3,
     .layers = 16,
     .heads = 12,
     .ff = 3072,
     .eps = 1e-6,
     .theta = 100,
     .rotates = true,
     .axes_apart = true,
     .unit_pixels = true,
     .two_way = true,
     .most_rows = 280},
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
    return "qwen3vl_merger, qwen2.5vl_merger, gemma3, idefics3, pixtral, internvl, lfm2, gemma4v";
}
