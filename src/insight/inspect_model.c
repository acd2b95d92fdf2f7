/* Everything that can be said about a model, as one JSON object:
 *
 *   {"model", "path", "format", "file_bytes", "architecture", "runs", "problem", "parameters", "shape", "tokenizer",
 *    "chat_template", "memory", "types", "layout", "metadata", "tensors"}
 *
 * What is not known is left out: a file of an unknown architecture has no shape and no memory, but a problem.
 *
 * Describes first what is in the files, which needs no architecture, then the model if it can be opened. */
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "base/json.h"
#include "base/meter.h"
#include "base/number.h"
#include "base/utf8.h"
#include "device/cpu/pass.h"
#include "engine/engine_state.h"
#include "formats/safetensors.h"
#include "insight/model_file.h"
#include "model/model.h"

enum { ARRAY_WHOLE_MAX = 16, ARRAY_SHOWN = 5 };

/* Bytes from a file as a JSON string, converted to valid UTF-8. */
static json_t *text_to_json(spry_view bytes)
{
    spry_buffer valid;
    spry_buffer_init(&valid, SIZE_MAX / 2);
    spry_utf8_append_valid(&valid, bytes);
    json_t *text = json_stringn(spry_buffer_view(&valid).data, valid.size);
    spry_buffer_deinit(&valid);
    return text;
}

static json_t *size_to_json(size_t value)
{
    return value <= INT64_MAX ? json_integer((json_int_t)value) : json_real((double)value);
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static json_t *number_to_json(bool whole, uint64_t natural, double real)
{
    if (whole)
        return size_to_json(natural);
    if (!isfinite(real))
        return json_sprintf("%f", real);
    return fabs(real) < 0x1p53 && real == floor(real) && real < 0 ? json_integer((json_int_t)real) : json_real(real);
}

static json_t *element_to_json(const spry_gguf_array *array, size_t index, size_t *cursor)
{
    uint64_t natural = 0;
    double real = 0;
    spry_view text;
    if (array->kind == SPRY_GGUF_STRING)
        return spry_gguf_array_string(array, cursor, &text) ? text_to_json(text) : json_null();
    bool whole = spry_gguf_array_u64(array, index, &natural);
    if (whole && array->kind == SPRY_GGUF_BOOL)
        return json_boolean(natural);
    if (!whole && !spry_gguf_array_f64(array, index, &real))
        return json_null();
    return number_to_json(whole, natural, real);
}

/* Short arrays in full; long ones as kind, count and first elements. */
static json_t *array_to_json(const spry_gguf_array *array)
{
    bool whole = array->count <= ARRAY_WHOLE_MAX && array->kind != SPRY_GGUF_ARRAY;
    size_t shown = whole ? array->count : array->kind == SPRY_GGUF_ARRAY ? 0 : ARRAY_SHOWN, cursor = 0;
    json_t *elements = json_array();
    for (size_t i = 0; i < shown; i++)
        json_array_append_new(elements, element_to_json(array, i, &cursor));
    if (whole)
        return elements;
    return json_pack("{s:s, s:o, s:o}", "kind", spry_gguf_kind_name(array->kind), "count", size_to_json(array->count),
                     "first", elements);
}

static json_t *entry_to_json(const spry_gguf_entry *entry)
{
    uint64_t natural = 0;
    double real = 0;
    bool truth;
    spry_view text;
    spry_gguf_array array;
    if (spry_gguf_entry_bool(entry, &truth))
        return json_boolean(truth);
    if (spry_gguf_entry_string(entry, &text))
        return text_to_json(text);
    if (spry_gguf_entry_array(entry, &array))
        return array_to_json(&array);
    bool whole = spry_gguf_entry_u64(entry, &natural);
    if (!whole && !spry_gguf_entry_f64(entry, &real))
        return json_null();
    return number_to_json(whole, natural, real);
}

static json_t *gguf_metadata(const spry_gguf *gguf)
{
    json_t *metadata = json_object();
    for (size_t i = 0; i < spry_gguf_entry_count(gguf); i++) {
        const spry_gguf_entry *entry = spry_gguf_entry_at(gguf, i);
        json_t *key = text_to_json(entry->key);
        if (key)
            json_object_set_new(metadata, json_string_value(key), entry_to_json(entry));
        json_decref(key);
    }
    return metadata;
}

/* config.json; NULL when it is missing or invalid, which the model reader reports. */
static void put_folder_metadata(json_t *out, const char *folder)
{
    json_t *metadata = NULL;
    spry_error error;
    if (spry_model_read_json(&metadata, folder, "config.json", &error) != SPRY_OK) {
        json_object_set_new(out, "problem", text_to_json(spry_view_of(error.message)));
        return;
    }
    json_t *architecture = json_object_get(metadata, "model_type");
    if (json_is_string(architecture))
        json_object_set(out, "architecture", architecture);
    json_object_set_new(out, "metadata", metadata);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Sums over all tensors, and the list of them if requested. */
typedef struct tensor_sums {
    json_t *list; /* NULL: not requested */
    spry_placement placement;
    size_t count[SPRY_DTYPE_COUNT], bytes[SPRY_DTYPE_COUNT];
    size_t parameters, all_bytes;
} tensor_sums;

static void add_tensor(tensor_sums *sums, const spry_tensor *tensor)
{
    size_t values = 1;
    json_t *shape = json_array();
    for (size_t i = 0; i < tensor->n_dims; i++) {
        values *= tensor->dims[i]; /* fits: the reader has checked the product */
        json_array_append_new(shape, size_to_json(tensor->dims[i]));
    }
    sums->count[tensor->type]++;
    sums->bytes[tensor->type] += tensor->bytes;
    sums->parameters += values;
    sums->all_bytes += tensor->bytes;
    spry_placement_add(&sums->placement, tensor);
    if (sums->list)
        json_array_append_new(sums->list,
                              json_pack("{s:o, s:s, s:O, s:o, s:o, s:o, s:b}", "name", text_to_json(tensor->name),
                                        "type", spry_dtype_name(tensor->type), "shape", shape, "bytes",
                                        size_to_json(tensor->bytes), "offset", size_to_json(tensor->offset),
                                        "alignment", size_to_json(spry_tensor_alignment(tensor)), "contiguous",
                                        (int)spry_tensor_contiguous(tensor)));
    json_decref(shape);
}

static json_t *types_to_json(const tensor_sums *sums)
{
    json_t *types = json_array();
    for (uint32_t type = 0; type < SPRY_DTYPE_COUNT; type++)
        if (sums->count[type])
            json_array_append_new(types,
                                  json_pack("{s:s, s:o, s:o}", "type", spry_dtype_name((spry_dtype)type), "tensors",
                                            size_to_json(sums->count[type]), "bytes", size_to_json(sums->bytes[type])));
    return types;
}

/* Without the placement, which only a model that can be opened has. */
static json_t *layout_to_json(const spry_placement *p)
{
    char text[256];
    spry_placement_describe(text, sizeof text, p);
    return json_pack("{s:o, s:o, s:o, s:s}", "tensors", size_to_json(p->tensors), "contiguous",
                     size_to_json(p->contiguous), "smallest_alignment", size_to_json(p->smallest_alignment), "text",
                     text);
}

static void put_sums(json_t *out, tensor_sums *sums)
{
    json_object_set_new(out, "layout", layout_to_json(&sums->placement));
    json_object_set_new(out, "parameters", size_to_json(sums->parameters));
    json_object_set_new(out, "weight_bytes", size_to_json(sums->all_bytes));
    json_object_set_new(out, "types", types_to_json(sums));
    if (sums->list)
        json_object_set_new(out, "tensors", sums->list);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static spry_status describe_gguf(json_t *out, const spry_model_file *file, bool tensors, spry_error *error)
{
    spry_gguf *gguf = NULL;
    spry_view architecture;
    spry_status status = spry_model_file_gguf(&gguf, file, error);
    if (status != SPRY_OK)
        return status;
    tensor_sums sums = {.list = tensors ? json_array() : NULL};
    for (size_t i = 0; i < spry_gguf_tensor_count(gguf); i++)
        add_tensor(&sums, spry_gguf_tensor(gguf, i));
    json_object_set_new(out, "format", json_sprintf("GGUF v%u", spry_gguf_version(gguf)));
    json_object_set_new(out, "file_bytes", size_to_json(spry_gguf_size(gguf)));
    if (spry_gguf_get_string(gguf, "general.architecture", &architecture))
        json_object_set_new(out, "architecture", text_to_json(architecture));
    json_object_set_new(out, "metadata", gguf_metadata(gguf));
    put_sums(out, &sums);
    spry_gguf_close(gguf);
    return SPRY_OK;
}

static spry_status describe_safetensors(json_t *out, const spry_model_file *file, bool tensors, spry_error *error)
{
    spry_safetensors *files = NULL;
    spry_status status = spry_safetensors_open(&files, file->path, error);
    if (status != SPRY_OK)
        return status;
    tensor_sums sums = {.list = tensors ? json_array() : NULL};
    for (size_t i = 0; i < spry_safetensors_count(files); i++)
        add_tensor(&sums, spry_safetensors_tensor(files, i));
    json_object_set_new(out, "format", json_string("safetensors"));
    put_folder_metadata(out, file->path);
    put_sums(out, &sums);
    spry_safetensors_close(files);
    return SPRY_OK;
}

/* ---- tokenizer --------------------------------------------------------------------------------------------------- */

static json_t *token_to_json(const spry_tokenizer *tokenizer, int32_t id)
{
    if (id < 0)
        return json_null();
    return json_pack("{s:i, s:o}", "id", (int)id, "text", text_to_json(spry_tokenizer_name(tokenizer, id)));
}

static json_t *tokenizer_to_json(const spry_model_file *file, bool *is_short)
{
    spry_error error;
    spry_tokenizer *tokenizer = NULL;
    spry_status status = spry_tokenizer_load(&tokenizer, file, &error);
    *is_short |= status == SPRY_ERR_MEMORY;
    if (status != SPRY_OK)
        return json_pack("{s:o}", "problem", text_to_json(spry_view_of(error.message)));
    json_t *json = json_pack("{s:s, s:o, s:o, s:o}", "algorithm", spry_tokenizer_algorithm(tokenizer), "size",
                             size_to_json(spry_tokenizer_size(tokenizer)), "bos",
                             token_to_json(tokenizer, spry_tokenizer_bos(tokenizer)), "eos",
                             token_to_json(tokenizer, spry_tokenizer_eos(tokenizer)));
    spry_tokenizer_destroy(tokenizer);
    return json;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static json_t *shape_to_json(const spry_config *c)
{
    json_t *shape =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "layers", (json_int_t)c->n_layers, "embedding",
                  (json_int_t)c->n_embd, "heads", (json_int_t)c->n_heads, "kv_heads", (json_int_t)c->n_kv_heads,
                  "head_size", (json_int_t)c->head_dim, "feed_forward", (json_int_t)c->n_ff, "vocabulary",
                  (json_int_t)c->n_vocab, "context", (json_int_t)c->n_context);
    if (c->n_experts) {
        json_object_set_new(shape, "experts", json_integer(c->n_experts));
        json_object_set_new(shape, "experts_used", json_integer(c->n_experts_used));
    }
    if (c->window)
        json_object_set_new(shape, "sliding_window", json_integer(c->window));
    return shape;
}

/* Keys and values of a whole context, in whole pages like the engine's; null if the type is not possible. */
static json_t *kv_to_json(const spry_model *model, uint32_t context)
{
    static const spry_dtype types[] = {SPRY_F16, SPRY_Q8_0, SPRY_Q4_0, SPRY_F32};
    static const char *const names[] = {"f16", "q8_0", "q4_0", "f32"};
    size_t tokens = ((size_t)context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS, each, bytes;
    json_t *kv = json_object();
    for (size_t i = 0; i < SPRY_COUNT(types); i++) {
        spry_kv_shape shape = spry_model_kv_shape(model, types[i]);
        bool fits = spry_kv_token_bytes(&each, &shape) && spry_checked_mul(&bytes, each, tokens);
        json_object_set_new(kv, names[i], fits ? size_to_json(bytes) : json_null());
    }
    return kv;
}

static json_t *memory_to_json(const spry_model *model, uint32_t asked)
{
    uint32_t context = asked ? asked : spry_engine_default_context(model);
    spry_engine_options options;
    spry_engine_options_default(&options);
    const spry_step_limits limits = {options.chunk && options.chunk < context ? options.chunk : context,
                                     SPRY_MAX_LOGIT_ROWS, context, 0, 0};
    size_t scratch = 0;
    bool fits = spry_pass_bytes(&scratch, &model->config, &limits);
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "context", (json_int_t)context, "weights",
                     size_to_json(model->weights.bytes), "copied", size_to_json(model->weights.copied_bytes), "kv",
                     kv_to_json(model, context), "scratch", fits ? size_to_json(scratch) : json_null());
}

/* The placement of tensors, each and in total. */
static void put_placings(json_t *out, const spry_model *model)
{
    const spry_ops *ops;
    if (spry_ops_get(&ops, "auto", NULL) != SPRY_OK)
        return;
    spry_placement placement;
    spry_model_placement(&placement, model, ops);
    static const char *const keys[SPRY_PLACED_COUNT] = {
        [SPRY_PLACED_UNUSED] = "unused", [SPRY_PLACED_FLOATS] = "floats",     [SPRY_PLACED_COPIED] = "copied",
        [SPRY_PLACED_PACKED] = "packed", [SPRY_PLACED_IN_PLACE] = "in_place",
    };
    json_t *layout = layout_to_json(&placement), *tensor;
    for (size_t i = 0; i < SPRY_PLACED_COUNT; i++)
        json_object_set_new(layout, keys[i], size_to_json(placement.placed[i]));
    json_object_set_new(layout, "kernels", json_string(ops->name));
    json_object_set_new(out, "layout", layout);
    size_t i;
    json_array_foreach(json_object_get(out, "tensors"), i, tensor)
    {
        const char *why;
        spry_placing placing = spry_model_placing(model, i, ops, &why);
        json_object_set_new(tensor, "use", json_string(spry_placing_name(placing)));
        json_object_set_new(tensor, "why", json_string(why));
    }
}

/* Properties that only a model that can be opened has; otherwise the reason. */
static void describe_model(json_t *out, const spry_model_file *file, uint32_t context, bool *is_short)
{
    spry_error error;
    spry_model *model = NULL;
    spry_status status = spry_model_file_open(&model, file, &error);
    *is_short |= status == SPRY_ERR_MEMORY;
    json_object_set_new(out, "runs", json_boolean(status == SPRY_OK));
    if (status != SPRY_OK) {
        json_object_set_new(out, "problem", text_to_json(spry_view_of(error.message)));
        return;
    }
    json_object_set_new(out, "parameters", size_to_json(model->weights.parameters));
    json_object_set_new(out, "shape", shape_to_json(&model->config));
    json_object_set_new(out, "chat_template", json_string(spry_chat_template_is_own(model->chat) ? "own" : "ChatML"));
    json_object_set_new(out, "memory", memory_to_json(model, context));
    put_placings(out, model);
    spry_model_close(model);
}

/* ---- memory in use ----------------------------------------------------------------------------------------------- */

/* One session with a full context; 0: the default one. */
static json_t *parts_to_json(const spry_model_file *file, uint32_t context, bool *is_short)
{
    spry_error error;
    spry_engine plan;
    spry_memory_parts p;
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.data_is_mapped = true; /* estimate memory as for a bundled model, which is mapped */
    options.context = context;
    const char *name = file->data ? file->name : file->path;
    spry_status status = spry_engine_plan(&plan, name, file->data, file->size, &options, &error);
    const spry_memory_use use = {.size = sizeof use, .tokens = plan.context};
    spry_model_close(plan.model);
    if (!status)
        status = spry_memory_estimate(&p, name, file->data, file->size, &options, &use, &error);
    *is_short |= status == SPRY_ERR_MEMORY;
    if (status)
        return json_pack("{s:I, s:o}", "context", (json_int_t)context, "problem",
                         text_to_json(spry_view_of(error.message)));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o*}", "context", size_to_json(use.tokens), "weights",
                     size_to_json(p.weights), "kv", size_to_json(p.kv), "cache", size_to_json(p.cache), "scratch",
                     size_to_json(p.scratch), "program", size_to_json(p.program), "whole", size_to_json(p.whole),
                     "tower", p.tower ? size_to_json(p.tower) : NULL);
}

/* At the default context and, if different, at the given one. Runs first: it counts the memory of the program
 * itself. */
static json_t *estimates_to_json(const spry_model_file *file, uint32_t asked, bool *is_short)
{
    json_t *estimates = json_array();
    json_array_append_new(estimates, parts_to_json(file, 0, is_short));
    if (asked)
        json_array_append_new(estimates, parts_to_json(file, asked, is_short));
    return estimates;
}

static spry_status describe(json_t **out, const spry_model_file *file, uint32_t context, bool tensors,
                            spry_error *error)
{
    unsigned shortages = spry_meter_shortages();
    bool is_short = false; /* what is missing for want of memory is no property of the model */
    json_t *estimates = estimates_to_json(file, context, &is_short);
    json_t *json = json_pack("{s:s, s:o}", "model", spry_model_file_name(file), "path",
                             file->path ? text_to_json(spry_view_of(file->path)) : json_null());
    if (!json) {
        json_decref(estimates);
        return spry_fail_memory(error, "the description", 0);
    }
    spry_status status = spry_model_file_is_gguf(file) ? describe_gguf(json, file, tensors, error)
                                                       : describe_safetensors(json, file, tensors, error);
    if (status != SPRY_OK) {
        json_decref(estimates);
        json_decref(json);
        return status;
    }
    json_object_set_new(json, "tokenizer", tokenizer_to_json(file, &is_short));
    describe_model(json, file, context, &is_short);
    json_object_set(json_object_get(json, "memory"), "estimates", estimates); /* if there is such an object */
    json_decref(estimates);
    if (is_short || spry_json_short() || spry_meter_shortages() != shortages) {
        json_decref(json);
        return spry_fail_memory(error, "the description", 0);
    }
    *out = json;
    return SPRY_OK;
}

spry_status spry_inspect_json(char **json, const spry_model_file *file, uint32_t context, bool tensors,
                              spry_error *error)
{
    json_t *description = NULL;
    *json = NULL;
    spry_status status = describe(&description, file, context, tensors, error);
    if (status == SPRY_OK && !(*json = spry_json_text(description, 0)))
        status = spry_fail_memory(error, "the description as JSON", 0);
    json_decref(description);
    return status;
}
