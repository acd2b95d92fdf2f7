/* Opening: GGUF has everything in one file; a Hugging Face folder has weights, config, tokenizer and template apart. */
#include "model/model.h"

#include <stdlib.h>

#include "base/json.h"
#include "platform/file.h"
#include "platform/memory.h"

enum { SMALL_FILE_BYTES = 64 << 20 };

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
    /* Integers as reals: a model_max_length of 10^30 is common and fits no integer. */
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

/* A template of a list of named ones; empty when it has none of that name. */
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

/* What a checkpoint has of templates: the usual one and, perhaps, one for conversations with tools. */
static spry_status make_templates(spry_model *model, spry_view usual, spry_view tool_use, spry_error *error)
{
    spry_status status = spry_chat_template_create(&model->chat, usual.size ? usual : tool_use, error);
    if (!status && usual.size && tool_use.size)
        status = spry_chat_template_add_tool_use(model->chat, tool_use, error);
    return status;
}

/* tokenizer_config.json has a string, or a list of named templates. */
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
    if (!status)
        status = spry_safetensors_open(&model->files, folder, error);
    if (!status)
        status = spry_weights_bind(&model->weights, &model->config, NULL, model->files, folder, &model->arena, error);
    if (!status)
        status = spry_pooling_from_folder(&model->pooling, folder, model->config.n_embd, &model->arena, error);
    if (!status && whole && (has_file(folder, "tokenizer.json") || has_file(folder, "tokenizer.model")))
        status = spry_tokenizer_open(&model->tokenizer, folder, error);
    if (!status && whole)
        status = open_folder_template(model, folder, error);
    add_ends(model, config);
    add_ends(model, generation);
    spry_sampling_hints_from_json(&model->sampling, generation);
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
                                        &model->arena, error);
    if (!status && whole && spry_gguf_get_string(model->gguf, "tokenizer.ggml.model", &text))
        status = spry_tokenizer_from_gguf(&model->tokenizer, model->gguf, error);
    if (status || !whole)
        return status;
    for (size_t i = 0; i < SPRY_COUNT(end_keys); i++)
        if (spry_gguf_get_u64(model->gguf, end_keys[i], &id) && id <= INT32_MAX)
            model->end_ids[model->n_end_ids++] = (int32_t)id;
    spry_sampling_hints_from_gguf(&model->sampling, model->gguf);
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

/* A path, or with `data` a file in memory. `whole`: with what text needs. */
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
    size_t extra = c->n_delta_layers * spry_config_delta_floats(c) * sizeof(float);
    return (spry_kv_shape){c->n_kv_slots,
                           c->n_kv_heads,
                           c->head_dim,
                           type,
                           .keys_only = c->arch->latent,
                           .extra = (extra + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS};
}
