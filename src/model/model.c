/* Opens models. A GGUF file contains everything; a Hugging Face folder has separate files for weights, config,
 * tokenizer and template. */
#include "model/model.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/compiler.h"
#include "base/json.h"
#include "base/number.h"
#include "platform/file.h"
#include "platform/memory.h"

/* ---- recommended settings of sampling ---------------------------------------------------------------------------- */

/* One table names every setting in both formats; the sampling options define the ranges. */

static const struct {
    const char *json, *gguf;
    size_t offset;
    double min, max;
    bool whole;
} hints_known[] = {
    {"temperature", "general.sampling.temp", offsetof(spry_sampling_hints, temperature), 0, 100, false},
    {"top_k", "general.sampling.top_k", offsetof(spry_sampling_hints, top_k), 0, 1 << 24, true},
    {"top_p", "general.sampling.top_p", offsetof(spry_sampling_hints, top_p), 0, 1, false},
    {"min_p", "general.sampling.min_p", offsetof(spry_sampling_hints, min_p), 0, 1, false},
    {"repetition_penalty", "general.sampling.penalty_repeat", offsetof(spry_sampling_hints, repeat_penalty), 0.01, 100,
     false},
};

static float *field_of(spry_sampling_hints *hints, size_t index)
{
    return (float *)((char *)hints + hints_known[index].offset);
}

static float judged(size_t index, double value)
{
    bool fits = value >= hints_known[index].min && value <= hints_known[index].max;
    return fits && (!hints_known[index].whole || value == floor(value)) ? (float)value : NAN;
}

/* Reads recommendations; `json` may be NULL. With "do_sample": false there are none. */
static void sampling_hints_from_json(spry_sampling_hints *hints, const json_t *json)
{
    bool greedy = json_is_false(json_object_get(json, "do_sample"));
    for (size_t i = 0; i < SPRY_COUNT(hints_known); i++) {
        const json_t *value = json_object_get(json, hints_known[i].json);
        *field_of(hints, i) = judged(i, json_is_number(value) && !greedy ? json_number_value(value) : NAN);
    }
}

static void sampling_hints_from_gguf(spry_sampling_hints *hints, const spry_gguf *gguf)
{
    for (size_t i = 0; i < SPRY_COUNT(hints_known); i++) {
        double value = NAN;
        uint64_t number;
        if (!spry_gguf_get_f64(gguf, hints_known[i].gguf, &value) &&
            spry_gguf_get_u64(gguf, hints_known[i].gguf, &number))
            value = (double)number;
        *field_of(hints, i) = judged(i, value);
    }
}

void spry_sampling_hints_to_gguf(const spry_sampling_hints *hints, spry_gguf_writer *writer)
{
    spry_sampling_hints copy = *hints;
    for (size_t i = 0; i < SPRY_COUNT(hints_known); i++) {
        float value = *field_of(&copy, i);
        if (isnan(value))
            continue;
        if (hints_known[i].whole)
            spry_gguf_writer_u32(writer, hints_known[i].gguf, (uint32_t)value);
        else
            spry_gguf_writer_f32(writer, hints_known[i].gguf, value);
    }
}

void spry_sampling_hints_apply(const spry_sampling_hints *hints, spry_sampling *settings)
{
    if (!isnan(hints->temperature))
        settings->temperature = hints->temperature;
    if (!isnan(hints->top_k))
        settings->top_k = (uint32_t)hints->top_k;
    if (!isnan(hints->top_p))
        settings->top_p = hints->top_p;
    if (!isnan(hints->min_p))
        settings->min_p = hints->min_p;
    if (!isnan(hints->repeat_penalty))
        settings->repeat_penalty = hints->repeat_penalty;
}

/* ---- where tensors are ------------------------------------------------------------------------------------------- */

/* Where a model's tensors are, and how each is used. */

static const char *const names[SPRY_PLACED_COUNT] = {
    [SPRY_PLACED_UNUSED] = "unused", [SPRY_PLACED_FLOATS] = "floats",     [SPRY_PLACED_COPIED] = "copied",
    [SPRY_PLACED_PACKED] = "packed", [SPRY_PLACED_IN_PLACE] = "in place",
};

const char *spry_placing_name(spry_placing placing)
{
    return names[placing];
}

size_t spry_tensor_alignment(const spry_tensor *tensor)
{
    size_t alignment = SPRY_ALIGNMENT_SHOWN;
    while (tensor->offset % alignment)
        alignment /= 2;
    return alignment;
}

bool spry_tensor_contiguous(const spry_tensor *tensor)
{
    size_t last = tensor->n_dims ? tensor->n_dims - 1 : 0, bytes;
    if (!spry_dtype_size(&bytes, tensor->type, tensor->dims[last]))
        return false;
    for (size_t i = 0; i < last; i++)
        if (!spry_checked_mul(&bytes, bytes, tensor->dims[i]))
            return false;
    return bytes == tensor->bytes;
}

const spry_tensor *spry_model_tensor(const spry_model *model, size_t index)
{
    return model->gguf ? spry_gguf_tensor(model->gguf, index) : spry_safetensors_tensor(model->files, index);
}

static spry_placing place_matrix(const spry_weights *w, const spry_tensor *t, const spry_ops *ops, const char **why)
{
    bool embedding = t->data == w->embedding.data, tied = embedding && t->data == w->output.data;
    if (embedding && !tied) {
        *why = "its rows are read one by one";
        return SPRY_PLACED_IN_PLACE;
    }
    if (ops->matmul[t->type].group) {
        *why = tied ? "kernels take groups of rows; tokens are looked up in them, too" : "kernels take groups of rows";
        return SPRY_PLACED_PACKED;
    }
    *why = "kernels read its rows in file layout";
    return SPRY_PLACED_IN_PLACE;
}

spry_placing spry_model_placing(const spry_model *model, size_t index, const spry_ops *ops, const char **why)
{
    const spry_weights *w = &model->weights;
    switch ((spry_tensor_use)w->uses[index]) {
    case SPRY_USE_FLOATS: *why = "a vector, turned into floats once"; return SPRY_PLACED_FLOATS;
    case SPRY_USE_COPIED: *why = "it does not begin where its type needs to"; return SPRY_PLACED_COPIED;
    case SPRY_USE_MATRIX:
        if (!w->quantized_bytes)
            return place_matrix(w, spry_model_tensor(model, index), ops, why);
        *why = "quantised while the model was opened";
        return SPRY_PLACED_COPIED;
    case SPRY_USE_NONE: break;
    }
    *why = "nothing in this architecture asks for it";
    return SPRY_PLACED_UNUSED;
}

void spry_placement_add(spry_placement *placement, const spry_tensor *tensor)
{
    size_t alignment = spry_tensor_alignment(tensor);
    placement->tensors++;
    placement->contiguous += spry_tensor_contiguous(tensor);
    if (placement->tensors == 1 || alignment < placement->smallest_alignment)
        placement->smallest_alignment = alignment;
}

void spry_model_placement(spry_placement *placement, const spry_model *model, const spry_ops *ops)
{
    const spry_tensor *tensor;
    const char *why;
    *placement = (spry_placement){0};
    for (size_t i = 0; (tensor = spry_model_tensor(model, i)); i++) {
        spry_placement_add(placement, tensor);
        placement->placed[spry_model_placing(model, i, ops, &why)]++;
    }
}

void spry_placement_describe(char *out, size_t size, const spry_placement *p)
{
    char contiguous[48] = "all contiguous", placed[128] = "";
    size_t known = 0;
    for (size_t i = 0; i < SPRY_PLACED_COUNT; i++)
        known += p->placed[i];
    if (p->contiguous < p->tensors)
        snprintf(contiguous, sizeof contiguous, "%zu not contiguous", p->tensors - p->contiguous);
    if (known)
        snprintf(placed, sizeof placed, "; %zu packed, %zu in place, %zu made floats, %zu unused, %zu copied",
                 p->placed[SPRY_PLACED_PACKED], p->placed[SPRY_PLACED_IN_PLACE], p->placed[SPRY_PLACED_FLOATS],
                 p->placed[SPRY_PLACED_UNUSED], p->placed[SPRY_PLACED_COPIED]);
    snprintf(out, size, "%zu tensors, %s, smallest alignment %zu%s", p->tensors, contiguous, p->smallest_alignment,
             placed);
}

/* ---- fingerprints ------------------------------------------------------------------------------------------------ */

/* The tensors are hashed by all threads, then the hashes in the order of the file. */

typedef struct hash_job {
    const spry_model *model;
    XXH128_hash_t *hashes; /* [n] */
    size_t n;
    atomic_size_t next;
} hash_job;

static const spry_tensor *tensor_at(const spry_model *model, size_t index)
{
    return model->gguf ? spry_gguf_tensor(model->gguf, index) : spry_safetensors_tensor(model->files, index);
}

static XXH128_hash_t hash_tensor(const spry_tensor *t)
{
    XXH128_hash_t parts[3] = {XXH3_128bits(t->name.data, t->name.size), XXH3_128bits(t->dims, sizeof t->dims),
                              XXH3_128bits_withSeed(t->data, t->bytes, (XXH64_hash_t)t->type)};
    return XXH3_128bits(parts, sizeof parts);
}

static void hash_part(void *context, size_t worker, size_t n_workers)
{
    (void)worker;
    (void)n_workers;
    hash_job *job = context;
    for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < job->n;)
        job->hashes[i] = hash_tensor(tensor_at(job->model, i));
}

enum { SETTINGS = 128 };

static double *add_rope(double *at, const spry_rope *r)
{
    const double values[] = {(double)r->kind,
                             (double)r->theta,
                             (double)r->factor,
                             (double)r->low_freq_factor,
                             (double)r->high_freq_factor,
                             (double)r->beta_fast,
                             (double)r->beta_slow,
                             (double)r->attention_factor,
                             (double)r->original_context,
                             (double)r->truncate,
                             (double)r->share};
    memcpy(at, values, sizeof values);
    return at + SPRY_COUNT(values);
}

static XXH128_hash_t hash_factors(const float *factors, size_t count)
{
    return XXH3_128bits(factors ? (const void *)factors : "", factors ? count * sizeof *factors : 0);
}

/* A hash of the settings that are in no tensor, field by field, because padding between fields is undefined. */
static XXH128_hash_t hash_config(const spry_config *c)
{
    double settings[SETTINGS], *at = settings;
    const double sizes[] = {c->n_layers,
                            c->n_heads,
                            c->n_kv_heads,
                            c->head_dim,
                            c->rope_dim,
                            c->window,
                            c->interleaved,
                            c->n_experts_used,
                            c->normalise_experts,
                            c->routing,
                            c->n_streams,
                            c->active_stream,
                            c->unscaled_stream,
                            c->n_shared_kv,
                            c->n_kv_rank,
                            c->n_q_rank,
                            c->nope_dim,
                            c->value_dim,
                            c->n_index_heads,
                            c->index_dim,
                            c->index_top,
                            c->index_interleaved,
                            c->n_hyper,
                            c->hyper_rounds,
                            (double)c->hyper_eps,
                            (double)c->gate_limit,
                            c->n_out_groups,
                            c->n_hashed,
                            c->n_blocks,
                            c->block_attention,
                            c->n_groups,
                            c->n_groups_used,
                            (double)c->routed_scale,
                            c->scale_block[0],
                            c->scale_block[1],
                            c->tied,
                            c->bidirectional,
                            c->position_offset,
                            c->n_conv,
                            c->n_delta_heads,
                            c->n_delta_keys,
                            c->delta_key_dim,
                            c->delta_value_dim,
                            c->delta_tiled,
                            c->delta_norm_size,
                            c->delta_gate_first,
                            (double)c->beta_scale,
                            (double)c->time_limit[0],
                            (double)c->time_limit[1],
                            (double)c->attention_in_scale * 3 + (double)c->attention_out_scale,
                            (double)c->key_scale,
                            (double)c->state_in_scale * 3 + (double)c->state_out_scale,
                            (double)c->gate_scale * 3 + (double)c->down_scale,
                            (double)c->n_latent,
                            c->int4,
                            c->int4_group,
                            (double)c->temperature_scale,
                            c->temperature_length,
                            c->temperature_offset,
                            (double)c->weight_eps,
                            c->average_shared,
                            c->layer_norm,
                            c->qk_norm,
                            c->slide.n_kv_heads,
                            c->slide.head_dim,
                            c->slide.rope_dim,
                            (double)c->value_scale,
                            c->keys_as_values,
                            (double)c->embedding_scale,
                            (double)c->residual_scale,
                            (double)c->logit_scale,
                            (double)c->norm_eps,
                            (double)c->query_scalar,
                            (double)c->attn_softcap,
                            (double)c->final_softcap};
    memcpy(at, sizes, sizeof sizes);
    at = add_rope(at + SPRY_COUNT(sizes), &c->rope);
    at = add_rope(at, &c->rope_sliding);
    XXH128_hash_t parts[] = {
        XXH3_128bits(settings, (size_t)((char *)at - (char *)settings)),
        XXH3_128bits(c->arch->name, strlen(c->arch->name)),
        XXH3_128bits(c->sliding, c->n_layers * sizeof *c->sliding),
        XXH3_128bits(c->convolves, c->n_layers * sizeof *c->convolves),
        XXH3_128bits(c->rotated, c->n_layers * sizeof *c->rotated),
        XXH3_128bits(c->kinds, c->n_layers * sizeof *c->kinds),
        XXH3_128bits(c->indexes, c->n_layers * sizeof *c->indexes),
        XXH3_128bits(c->blocks, c->n_layers * sizeof *c->blocks),
        XXH3_128bits(c->rates, c->n_layers * sizeof *c->rates),
        XXH3_128bits(c->overlaps, c->n_layers * sizeof *c->overlaps),
        XXH3_128bits(c->state_scales, sizeof c->state_scales),
        XXH3_128bits(c->rope_axes ? (const void *)c->rope_axes : "", c->rope_axes ? c->rope_dim / 2 : 0),
        hash_factors(c->sparsity, c->n_layers),
        hash_factors(c->rope.factors, c->rope_dim / 2),
        hash_factors(c->rope.long_factors, c->rope_dim / 2),
        hash_factors(c->rope_sliding.factors, c->rope_dim / 2),
        hash_factors(c->rope_sliding.long_factors, c->rope_dim / 2)};
    return XXH3_128bits(parts, sizeof parts);
}

spry_status spry_model_fingerprint(spry_kv_key *out, const spry_model *model, spry_threads *threads, spry_error *error)
{
    size_t n = model->gguf ? spry_gguf_tensor_count(model->gguf) : spry_safetensors_count(model->files);
    hash_job job = {.model = model, .hashes = calloc(n + 1, sizeof *job.hashes), .n = n};
    if (!job.hashes)
        return spry_fail_memory(error, "the model's fingerprint", (n + 1) * sizeof *job.hashes);
    spry_threads_run(threads, hash_part, &job);
    job.hashes[n] = hash_config(&model->config);
    XXH128_hash_t all = XXH3_128bits(job.hashes, (n + 1) * sizeof *job.hashes);
    free(job.hashes);
    *out = (spry_kv_key){all.low64, all.high64};
    return SPRY_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

enum { SMALL_FILE_BYTES = 64 << 20 };

/* Replaces the bare word Infinity, which Python writes and JSON does not allow, by a number of the same length that
 * reads as infinity. */
static void spell_infinity(char *text)
{
    static const char word[] = "Infinity", number[] = "1e+00300";
    bool quoted = false;
    for (char *at = text; at && *at; at++) {
        if (*at == '\\' && quoted && at[1])
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted && !strncmp(at, word, sizeof word - 1))
            memcpy(at, number, sizeof number - 1);
    }
}

spry_status spry_model_read_json(json_t **out, const char *folder, const char *file, spry_error *error)
{
    *out = NULL;
    spry_buffer path, text;
    spry_buffer_init(&path, 1 << 16);
    spry_buffer_init(&text, SMALL_FILE_BYTES);
    spry_status status = spry_path_join(&path, folder, file, error);
    if (status || !spry_path_exists(path.data))
        goto done;
    status = spry_file_read(&text, path.data, error);
    if (status)
        goto done;
    spell_infinity(text.data);
    /* Reads integers as floating-point numbers, because a model_max_length of 10^30 is common and fits no integer. */
    status = spry_json_object(out, spry_buffer_view(&text), error);
    if (status)
        spry_fail_prefix(error, status, path.data);
done:
    spry_buffer_deinit(&path);
    spry_buffer_deinit(&text);
    return status;
}

static void add_end(spry_model *model, const json_t *id)
{
    double value = json_is_number(id) ? json_number_value(id) : -1;
    if (value >= 0 && value <= INT32_MAX && model->n_end_ids < SPRY_MAX_END_IDS)
        model->end_ids[model->n_end_ids++] = (int32_t)value;
}

static void add_ends(spry_model *model, const json_t *json)
{
    const json_t *ids = json_object_get(json, "eos_token_id"), *id;
    size_t i;
    add_end(model, ids);
    json_array_foreach(ids, i, id) add_end(model, id);
}

/* The template with a name, from a list of named templates; empty when there is none. */
static spry_view named_template(const json_t *list, const char *wanted)
{
    const json_t *item, *text = NULL;
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, wanted) == 0)
            text = json_object_get(item, "template");
    }
    return json_is_string(text) ? (spry_view){json_string_value(text), json_string_length(text)} : (spry_view){"", 0};
}

/* Creates the templates of a checkpoint: the usual one and, if it exists, one for conversations with tools. */
static spry_status make_templates(spry_model *model, spry_view usual, spry_view tool_use, spry_error *error)
{
    spry_status status = spry_chat_template_create(&model->chat, usual.size ? usual : tool_use, error);
    if (!status && usual.size && tool_use.size)
        status = spry_chat_template_add_tool_use(model->chat, tool_use, error);
    return status;
}

/* Reads templates from tokenizer_config.json: a string, or a list of named templates. */
static spry_status make_json_templates(spry_model *model, const json_t *json, spry_error *error)
{
    const json_t *chat = json_object_get(json, "chat_template");
    if (json_is_string(chat))
        return make_templates(model, (spry_view){json_string_value(chat), json_string_length(chat)}, (spry_view){"", 0},
                              error);
    return make_templates(model, named_template(chat, "default"), named_template(chat, "tool_use"), error);
}

static spry_status open_folder_template(spry_model *model, const char *folder, spry_error *error)
{
    json_t *json = NULL;
    spry_buffer path, text;
    spry_buffer_init(&path, 1 << 16);
    spry_buffer_init(&text, SMALL_FILE_BYTES);
    spry_status status = spry_path_join(&path, folder, "chat_template.jinja", error);
    if (!status && spry_path_exists(path.data)) {
        status = spry_file_read(&text, path.data, error);
        if (!status)
            status = make_templates(model, spry_buffer_view(&text), (spry_view){"", 0}, error);
    } else if (!status) {
        status = spry_model_read_json(&json, folder, "tokenizer_config.json", error);
        if (!status)
            status = make_json_templates(model, json, error);
    }
    json_decref(json);
    spry_buffer_deinit(&path);
    spry_buffer_deinit(&text);
    return status;
}

static bool has_file(const char *folder, const char *file)
{
    spry_buffer path;
    spry_buffer_init(&path, 1 << 16);
    bool there = !spry_path_join(&path, folder, file, NULL) && spry_path_exists(path.data);
    spry_buffer_deinit(&path);
    return there;
}

static spry_status open_folder(spry_model *model, const char *folder, bool whole, spry_error *error)
{
    json_t *config = NULL, *generation = NULL;
    spry_status status = spry_model_read_json(&config, folder, "config.json", error);
    if (!status && !config)
        status = spry_fail(error, SPRY_ERR_FILE, "%s: no config.json in this folder", folder);
    if (!status)
        status = spry_model_read_json(&generation, folder, "generation_config.json", error);
    if (!status)
        status = spry_config_from_json(&model->config, config, folder, &model->arena, error);
    if (!status && model->config.arch->tower)
        status = spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: a vision tower is no model of text", folder);
    if (!status)
        status = spry_safetensors_open(&model->files, folder, error);
    if (!status)
        status = spry_weights_bind(&model->weights, &model->config, NULL, model->files, folder, &model->arena, error);
    if (!status)
        status = spry_pooling_from_folder(&model->pooling, folder, model->config.n_embd, &model->arena, error);
    if (!status && model->config.arch->encoder)
        status = spry_pooling_from_classifier(&model->pooling, model->files, folder, model->config.norm_eps,
                                              &model->arena, error);
    if (!status && whole && (has_file(folder, "tokenizer.json") || has_file(folder, "tokenizer.model")))
        status = spry_tokenizer_open(&model->tokenizer, folder, error);
    if (!status && whole)
        status = open_folder_template(model, folder, error);
    add_ends(model, config);
    add_ends(model, generation);
    sampling_hints_from_json(&model->sampling, generation);
    json_decref(config);
    json_decref(generation);
    return status;
}

static spry_status bind_gguf(spry_model *model, bool whole, spry_error *error)
{
    spry_view text = {"", 0}, tool_use = {"", 0};
    uint64_t id;
    static const char *const end_keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    spry_status status = spry_config_from_gguf(&model->config, model->gguf, &model->arena, error);
    if (!status)
        status =
            spry_weights_bind(&model->weights, &model->config, model->gguf, NULL, model->name, &model->arena, error);
    if (!status)
        status = spry_pooling_from_gguf(&model->pooling, model->gguf, model->config.arch->gguf, model->config.n_embd,
                                        model->config.norm_eps, &model->arena, error);
    if (!status && whole && spry_gguf_get_string(model->gguf, "tokenizer.ggml.model", &text))
        status = spry_tokenizer_from_gguf(&model->tokenizer, model->gguf, error);
    if (status || !whole)
        return status;
    for (size_t i = 0; i < SPRY_COUNT(end_keys); i++)
        if (spry_gguf_get_u64(model->gguf, end_keys[i], &id) && id <= INT32_MAX)
            model->end_ids[model->n_end_ids++] = (int32_t)id;
    sampling_hints_from_gguf(&model->sampling, model->gguf);
    text = (spry_view){"", 0};
    spry_gguf_get_string(model->gguf, "tokenizer.chat_template", &text);
    spry_gguf_get_string(model->gguf, "tokenizer.chat_template.tool_use", &tool_use);
    return make_templates(model, text, tool_use, error);
}

static spry_status model_create(spry_model **out, const char *name, spry_error *error)
{
    spry_model *model = calloc(1, sizeof *model);
    if (!model)
        return spry_fail_memory(error, "a model", sizeof *model);
    spry_arena_init(&model->arena);
    model->name = spry_arena_copy(&model->arena, spry_view_of(name));
    if (!model->name) {
        spry_model_close(model);
        return spry_fail_memory(error, "a model's name", strlen(name));
    }
    *out = model;
    return SPRY_OK;
}

/* Opens a path, or with `data` a file in memory. `whole`: with tokenizer and template. */
static spry_status open_any(spry_model **out, const char *name, const void *data, size_t size, bool whole,
                            spry_error *error)
{
    spry_model *model = NULL;
    *out = NULL;
    spry_status status = model_create(&model, name, error);
    if (status)
        return status;
    if (!data && spry_path_is_folder(name)) {
        status = open_folder(model, name, whole, error);
    } else {
        status = data ? spry_gguf_open_memory(&model->gguf, data, size, name, error)
                      : spry_gguf_open(&model->gguf, name, error);
        if (!status)
            status = bind_gguf(model, whole, error);
    }
    if (status)
        spry_model_close(model);
    else
        *out = model;
    if (!status && model->pooling.second_type && model->weights.token_types.n_out > 1 && model->tokenizer)
        model->config.second_type = (uint32_t)(spry_tokenizer_eos(model->tokenizer) + 1);
    return status;
}

spry_status spry_model_open(spry_model **out, const char *path, spry_error *error)
{
    return open_any(out, path, NULL, 0, true, error);
}

spry_status spry_model_open_memory(spry_model **out, const void *data, size_t size, const char *name, spry_error *error)
{
    return open_any(out, name, data ? data : "", data ? size : 0, true, error);
}

spry_status spry_model_open_sizes(spry_model **out, const char *name, const void *data, size_t size, spry_error *error)
{
    return open_any(out, name, data, size, false, error);
}

void spry_model_close(spry_model *model)
{
    if (!model)
        return;
    spry_chat_template_destroy(model->chat);
    spry_tokenizer_destroy(model->tokenizer);
    spry_safetensors_close(model->files);
    spry_gguf_close(model->gguf);
    spry_adapters_deinit(&model->adapters);
    spry_memory_unmap(model->weights.quantized, model->weights.quantized_bytes);
    spry_arena_deinit(&model->arena);
    if (model->weights.copied_bytes)
        spry_memory_trim();
    free(model);
}

spry_status spry_model_add_adapters(spry_model *model, const char *paths, spry_error *error)
{
    return spry_adapters_load(&model->adapters, &model->weights, &model->config, paths, error);
}

bool spry_model_is_end(const spry_model *model, int32_t id)
{
    for (size_t i = 0; i < model->n_end_ids; i++)
        if (model->end_ids[i] == id)
            return true;
    return model->tokenizer && spry_tokenizer_is_end(model->tokenizer, id);
}

spry_kv_shape spry_model_kv_shape(const spry_model *model, spry_dtype type)
{
    const spry_config *c = &model->config;
    return (spry_kv_shape){c->n_kv_slots,
                           c->n_kv_heads,
                           c->head_dim,
                           type,
                           .keys_only = c->arch->latent || c->arch->compressed,
                           .other = c->index_top
                                        ? (spry_kv_kind){c->n_index_slots, 1, c->index_dim}
                                        : (spry_kv_kind){c->n_slide_slots, c->slide.n_kv_heads, c->slide.head_dim},
                           .state = c->n_delta_layers * spry_config_delta_floats(c) * sizeof(float)};
}
