/* Reads the settings of pooling, and computes embeddings from hidden states. */
#include "model/pooling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/number.h"
#include "formats/safetensors.h"
#include "kernels/ops.h"
#include "platform/file.h"

enum { SETTINGS_BYTES = 1 << 20, MAX_WIDTH = 1 << 16 };

#define KEY_PROMPTS   "spry.embedding.prompts"
#define KEY_NORMALISE "spry.embedding.normalize"
#define KEY_TYPES     "spry.rerank.second_type"
#define KEY_MEAN      "spry.rerank.mean"
#define NORM_NAME     "cls.norm"

/* ---- sentence-transformers --------------------------------------------------------------------------------------- */

typedef struct reader {
    spry_pooling *out;
    const char *folder;
    spry_arena *arena;
    spry_error *error;
} reader;

/* Reads a file of the folder as JSON, with the texts `before` and `after` around it; *out stays NULL if the file does
 * not exist. */
static spry_status read_json(json_t **out, const reader *r, const char *file, const char *before, const char *after)
{
    spry_buffer path, text, whole;
    spry_buffer_init(&path, 1 << 16);
    spry_buffer_init(&text, SETTINGS_BYTES);
    spry_buffer_init(&whole, SETTINGS_BYTES + 64);
    *out = NULL;
    spry_status status = spry_path_join(&path, r->folder, file, r->error);
    if (!status && spry_path_exists(path.data)) {
        status = spry_file_read(&text, path.data, r->error);
        spry_buffer_format(&whole, "%s%s%s", before, text.size ? text.data : "", after);
        if (!status)
            status = spry_json_object(out, spry_buffer_view(&whole), r->error);
        if (status)
            spry_fail_prefix(r->error, status, path.data);
    }
    spry_buffer_deinit(&path);
    spry_buffer_deinit(&text);
    spry_buffer_deinit(&whole);
    return status;
}

static bool is_true(const json_t *json, const char *key)
{
    return json_is_true(json_object_get(json, key));
}

static spry_status read_pooling(const reader *r, const char *path, const json_t *json)
{
    static const char *const others[] = {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens"};
    const char *mode = json_string_value(json_object_get(json, "pooling_mode"));
    bool first = is_true(json, "pooling_mode_cls_token") || (mode && !strcmp(mode, "cls"));
    bool last = is_true(json, "pooling_mode_lasttoken") || (mode && !strcmp(mode, "lasttoken"));
    bool mean = is_true(json, "pooling_mode_mean_tokens") || (mode && !strcmp(mode, "mean"));
    for (size_t i = 0; i < SPRY_COUNT(others); i++)
        if (is_true(json, others[i]))
            return spry_fail(r->error, SPRY_ERR_UNSUPPORTED,
                             "%s/%s: %s is not supported; known are cls, mean, lasttoken", r->folder, path, others[i]);
    if (first + last + mean != 1)
        return spry_fail(r->error, SPRY_ERR_UNSUPPORTED,
                         "%s/%s: exactly one of the pooling modes cls, mean and lasttoken must be chosen", r->folder,
                         path);
    if (json_is_false(json_object_get(json, "include_prompt")))
        return spry_fail(r->error, SPRY_ERR_UNSUPPORTED, "%s/%s: include_prompt false is not supported", r->folder,
                         path);
    r->out->kind = first ? SPRY_POOL_FIRST : last ? SPRY_POOL_LAST : SPRY_POOL_MEAN;
    return SPRY_OK;
}

/* Reads a tensor of `count` values as floats. */
static spry_status read_floats(const float **out, const reader *r, const spry_tensor *t, size_t count)
{
    const spry_ops *ops;
    float *values = spry_arena_alloc(r->arena, count, sizeof *values);
    void *aligned = spry_arena_alloc(r->arena, t->bytes, 1);
    if (t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3] != count || !spry_dtype_known(t->type))
        return spry_fail(r->error, SPRY_ERR_FORMAT, "%s: tensor '%.*s' does not have %zu numbers", r->folder,
                         SPRY_VIEW_ARG(t->name), count);
    if (!values || !aligned)
        return spry_fail_memory(r->error, "a matrix after the model", count * sizeof *values);
    spry_status status = spry_ops_get(&ops, "ref", r->error);
    if (status)
        return status;
    memcpy(aligned, t->data, t->bytes);
    ops->decode[t->type](values, aligned, count);
    *out = values;
    return SPRY_OK;
}

/* Adds a matrix after the existing ones. */
static spry_status add_dense(const reader *r, const spry_tensor *weight, const spry_tensor *bias, spry_dense_act act)
{
    spry_pooling *p = r->out;
    spry_dense *d = &p->dense[p->n_dense];
    size_t count;
    if (p->n_dense == SPRY_MAX_DENSE || weight->dims[1] != p->width || !weight->dims[0] ||
        weight->dims[0] > MAX_WIDTH || !spry_checked_mul(&count, weight->dims[0], weight->dims[1]))
        return spry_fail(r->error, SPRY_ERR_FORMAT,
                         "%s: a matrix of %zu by %zu after embeddings of %zu, or more than %d of them", r->folder,
                         weight->dims[0], weight->dims[1], p->width, SPRY_MAX_DENSE);
    *d = (spry_dense){.n_out = weight->dims[0], .n_in = weight->dims[1], .act = act};
    spry_status status = read_floats(&d->weight, r, weight, count);
    if (!status && bias)
        status = read_floats(&d->bias, r, bias, d->n_out);
    p->width = d->n_out;
    p->n_dense += !status;
    return status;
}

static spry_status read_dense(const reader *r, const char *path, const json_t *json)
{
    const char *activation = json_string_value(json_object_get(json, "activation_function"));
    spry_dense_act act = !activation || strstr(activation, "Tanh") ? SPRY_DENSE_TANH : SPRY_DENSE_PLAIN;
    if (activation && act == SPRY_DENSE_PLAIN && !strstr(activation, "Identity"))
        return spry_fail(r->error, SPRY_ERR_UNSUPPORTED,
                         "%s/%s: activation_function '%.60s' is not supported; known are Identity and Tanh", r->folder,
                         path, activation);
    spry_buffer folder;
    spry_safetensors *files = NULL;
    spry_buffer_init(&folder, 1 << 16);
    spry_status status = spry_path_join(&folder, r->folder, path, r->error);
    if (!status)
        status = spry_safetensors_open(&files, folder.data, r->error);
    const spry_tensor *weight = files ? spry_safetensors_find(files, SPRY_VIEW("linear.weight")) : NULL;
    const spry_tensor *bias = files ? spry_safetensors_find(files, SPRY_VIEW("linear.bias")) : NULL;
    if (!status && (!weight || (!bias && is_true(json, "bias"))))
        status = spry_fail(r->error, SPRY_ERR_FORMAT, "%s: tensor 'linear.%s' is missing", folder.data,
                           weight ? "bias" : "weight");
    if (!status)
        status = add_dense(r, weight, bias, act);
    spry_safetensors_close(files);
    spry_buffer_deinit(&folder);
    return status;
}

/* True if a folder's name, which comes from a file, cannot lead out of the model's folder. */
static bool is_inside(const char *path)
{
    return path[0] != '/' && !strstr(path, "..");
}

static spry_status read_module(const reader *r, const json_t *module)
{
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *path = json_string_value(json_object_get(module, "path"));
    const char *kind = type && strrchr(type, '.') ? strrchr(type, '.') + 1 : type ? type : "";
    char file[512];
    json_t *json = NULL;
    if (!strcmp(kind, "Transformer"))
        return SPRY_OK;
    if (!strcmp(kind, "Normalize")) {
        r->out->normalise = true;
        return SPRY_OK;
    }
    bool pools = !strcmp(kind, "Pooling");
    if (!pools && strcmp(kind, "Dense") != 0)
        return spry_fail(r->error, SPRY_ERR_UNSUPPORTED,
                         "%s/modules.json: '%.100s' is not supported; known are Transformer, Pooling, Dense, Normalize",
                         r->folder, kind);
    if (!path || strlen(path) > 400 || !is_inside(path))
        return spry_fail(r->error, SPRY_ERR_FORMAT, "%s/modules.json: a %s without a folder inside the model's",
                         r->folder, kind);
    snprintf(file, sizeof file, "%s/config.json", path);
    spry_status status = read_json(&json, r, file, "", "");
    if (!status && !json)
        status = spry_fail(r->error, SPRY_ERR_FILE, "%s: no %s", r->folder, file);
    if (!status)
        status = pools ? read_pooling(r, path, json) : read_dense(r, path, json);
    json_decref(json);
    return status;
}

static spry_status read_prompts(const reader *r, const json_t *json)
{
    spry_pooling *p = r->out;
    json_t *prompts = json_object_get(json, "prompts"), *text;
    const char *name, *chosen = json_string_value(json_object_get(json, "default_prompt_name"));
    p->prompts = spry_arena_alloc(r->arena, json_object_size(prompts), sizeof *p->prompts);
    if (!p->prompts)
        return spry_fail_memory(r->error, "prompts", json_object_size(prompts) * sizeof *p->prompts);
    json_object_foreach(prompts, name, text)
    {
        if (!json_is_string(text))
            return spry_fail(r->error, SPRY_ERR_FORMAT, "%s: the prompt '%.60s' is not a text", r->folder, name);
        spry_text_prompt *prompt = &p->prompts[p->n_prompts++];
        *prompt = (spry_text_prompt){spry_arena_copy(r->arena, spry_view_of(name)),
                                     spry_arena_copy(r->arena, spry_view_of(json_string_value(text)))};
        if (!prompt->name || !prompt->text)
            return spry_fail_memory(r->error, "prompts", json_string_length(text));
    }
    p->default_prompt = chosen ? spry_pooling_prompt(p, chosen) : NULL;
    return SPRY_OK;
}

spry_status spry_pooling_from_folder(spry_pooling *p, const char *folder, size_t n_embd, spry_arena *arena,
                                     spry_error *error)
{
    const reader r = {p, folder, arena, error};
    json_t *modules = NULL, *settings = NULL;
    *p = (spry_pooling){.kind = SPRY_POOL_MEAN, .normalise = true, .width = n_embd};
    spry_status status = read_json(&modules, &r, "modules.json", "{\"modules\":", "}");
    const json_t *list = json_object_get(modules, "modules");
    if (!status && modules && !json_is_array(list))
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s/modules.json is not a list", folder);
    p->normalise = !modules;
    for (size_t i = 0; !status && i < json_array_size(list); i++)
        status = read_module(&r, json_array_get(list, i));
    if (!status)
        status = read_json(&settings, &r, "config_sentence_transformers.json", "", "");
    if (!status)
        status = read_prompts(&r, settings);
    json_decref(modules);
    json_decref(settings);
    return status;
}

/* ---- heads of cross-encoders ------------------------------------------------------------------------------------- */

/* The first of these tensors that exists; NULL: none. */
static const spry_tensor *find_any(const spry_safetensors *files, const char *const names[], size_t n,
                                   const char *suffix)
{
    const spry_tensor *found = NULL;
    for (size_t i = 0; i < n && !found; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", names[i], suffix);
        found = spry_safetensors_find(files, spry_view_of(name));
    }
    return found;
}

/* True if transformers' tokenizer marks which tokens belong to the second text: BERT's own does, a general one only if
 * the file says so. */
static bool gives_types(const json_t *tokenizer)
{
    const char *kind = json_string_value(json_object_get(tokenizer, "tokenizer_class"));
    const json_t *inputs = json_object_get(tokenizer, "model_input_names");
    bool general = kind && (!strcmp(kind, "PreTrainedTokenizerFast") || !strcmp(kind, "TokenizersBackend"));
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const char *name = json_string_value(json_array_get(inputs, i));
        if (name && !strcmp(name, "token_type_ids"))
            return true;
    }
    return !json_is_array(inputs) && !general;
}

/* Adds the norm after the first matrix of a head, if there is one. */
static spry_status add_norm(const reader *r, const spry_tensor *weight, const spry_tensor *bias, float eps)
{
    spry_dense *d = &r->out->dense[0];
    d->norm_eps = eps;
    spry_status status = weight ? read_floats(&d->norm, r, weight, d->n_out) : SPRY_OK;
    return !status && bias ? read_floats(&d->norm_bias, r, bias, d->n_out) : status;
}

/* ModernBERT's config.json says which rows its head reads. */
static spry_status read_head_kind(const reader *r)
{
    json_t *config = NULL;
    spry_status status = read_json(&config, r, "config.json", "", "");
    const char *kind = json_string_value(json_object_get(config, "classifier_pooling"));
    const char *act = json_string_value(json_object_get(config, "classifier_activation"));
    r->out->kind = kind && !strcmp(kind, "mean") ? SPRY_POOL_MEAN : SPRY_POOL_FIRST;
    if (!status && kind && strcmp(kind, "mean") != 0 && strcmp(kind, "cls") != 0)
        status = spry_fail(r->error, SPRY_ERR_UNSUPPORTED, "%s: classifier_pooling is '%.60s'; known are cls and mean",
                           r->folder, kind);
    if (!status && act && strcmp(act, "gelu") != 0)
        status = spry_fail(r->error, SPRY_ERR_UNSUPPORTED, "%s: classifier_activation is '%.60s'; known is gelu",
                           r->folder, act);
    json_decref(config);
    return status;
}

spry_status spry_pooling_from_classifier(spry_pooling *p, const spry_safetensors *files, const char *name,
                                         float norm_eps, spry_arena *arena, spry_error *error)
{
    static const char *const first[] = {"classifier.dense", "bert.pooler.dense", "pooler.dense"};
    static const char *const normed[] = {"head.dense"}, *const norm[] = {"head.norm"}; /* ModernBERT */
    static const char *const last[] = {"classifier.out_proj", "classifier"};
    const reader r = {p, name, arena, error};
    const spry_tensor *head = find_any(files, last, SPRY_COUNT(last), "weight");
    const spry_tensor *scales = find_any(files, norm, 1, "weight");
    const char *const *names = scales ? normed : first;
    size_t n_names = scales ? SPRY_COUNT(normed) : SPRY_COUNT(first);
    const spry_tensor *dense = find_any(files, names, n_names, "weight");
    if (!head || head->dims[0] != 1 || p->n_dense)
        return SPRY_OK;
    if (!dense)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: tensor '%s.weight'%s is missing", name, names[0],
                         scales ? "" : " or 'pooler.dense.weight'");
    json_t *tokenizer = NULL;
    spry_status status = read_json(&tokenizer, &r, "tokenizer_config.json", "", "");
    p->second_type = gives_types(tokenizer);
    json_decref(tokenizer);
    p->kind = SPRY_POOL_FIRST;
    p->ranks = true;
    p->normalise = false;
    if (!status && scales)
        status = read_head_kind(&r);
    if (!status)
        status =
            add_dense(&r, dense, find_any(files, names, n_names, "bias"), scales ? SPRY_DENSE_GELU : SPRY_DENSE_TANH);
    if (!status)
        status = add_norm(&r, scales, find_any(files, norm, 1, "bias"), norm_eps);
    return status ? status : add_dense(&r, head, find_any(files, last, SPRY_COUNT(last), "bias"), SPRY_DENSE_PLAIN);
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

void spry_pooling_tensor_name(char name[32], const spry_pooling *p, size_t dense, const char *suffix)
{
    if (p->ranks) {
        snprintf(name, 32, "%s.%s", dense ? "cls.output" : "cls", suffix);
        return;
    }
    snprintf(name, 32, "dense_%zu.%s", dense + 2, suffix); /* numbered as in the folders */
}

static spry_status read_gguf_dense(const reader *r, const spry_gguf *gguf, float norm_eps)
{
    const spry_tensor *norm = spry_gguf_find_tensor(gguf, SPRY_VIEW(NORM_NAME ".weight"));
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < (r->out->ranks ? 2 : SPRY_MAX_DENSE); i++) {
        char name[32], bias[32];
        spry_pooling_tensor_name(name, r->out, i, "weight");
        spry_pooling_tensor_name(bias, r->out, i, "bias");
        const spry_tensor *t = spry_gguf_find_tensor(gguf, spry_view_of(name));
        if (!t)
            break;
        spry_dense_act act = !r->out->ranks || i ? SPRY_DENSE_PLAIN : norm ? SPRY_DENSE_GELU : SPRY_DENSE_TANH;
        status = add_dense(r, t, spry_gguf_find_tensor(gguf, spry_view_of(bias)), act);
        if (!status && r->out->ranks && i == 0)
            status = add_norm(r, norm, spry_gguf_find_tensor(gguf, SPRY_VIEW(NORM_NAME ".bias")), norm_eps);
    }
    return !status && r->out->ranks && r->out->width != 1
               ? spry_fail(r->error, SPRY_ERR_UNSUPPORTED,
                           "%s: the head of a cross-encoder (cls.output) has %zu outputs, not 1", r->folder,
                           r->out->width)
               : status;
}

spry_status spry_pooling_from_gguf(spry_pooling *p, const spry_gguf *gguf, const char *arch, size_t n_embd,
                                   float norm_eps, spry_arena *arena, spry_error *error)
{
    const reader r = {p, spry_gguf_name(gguf), arena, error};
    char key[128];
    uint64_t kind = 0;
    spry_view prompts;
    *p = (spry_pooling){.kind = SPRY_POOL_MEAN, .normalise = true, .width = n_embd};
    snprintf(key, sizeof key, "%s.pooling_type", arch);
    if (spry_gguf_find_entry(gguf, spry_view_of(key)) &&
        (!spry_gguf_get_u64(gguf, key, &kind) || kind > SPRY_POOL_RANK))
        return spry_fail(
            error, SPRY_ERR_UNSUPPORTED,
            "%s: %s is %llu; known are 1 (mean), 2 (the first token), 3 (the last) and 4 (a cross-encoder)", r.folder,
            key, (unsigned long long)kind);
    p->ranks = kind == SPRY_POOL_RANK;
    p->normalise = !p->ranks;
    p->second_type = p->ranks;
    spry_gguf_get_bool(gguf, KEY_TYPES, &p->second_type);
    bool mean = false;
    spry_gguf_get_bool(gguf, KEY_MEAN, &mean);
    p->kind = p->ranks ? mean ? SPRY_POOL_MEAN : SPRY_POOL_FIRST
              : kind   ? (spry_pool_kind)kind
                       : SPRY_POOL_MEAN; /* 0: the file does not say */
    spry_gguf_get_bool(gguf, KEY_NORMALISE, &p->normalise);
    spry_status status = read_gguf_dense(&r, gguf, norm_eps);
    if (!status && spry_gguf_get_string(gguf, KEY_PROMPTS, &prompts)) {
        json_t *json;
        status = spry_json_object(&json, prompts, error);
        if (!status)
            status = read_prompts(&r, json);
        json_decref(json);
    }
    return status;
}

void spry_pooling_to_gguf(const spry_pooling *p, spry_gguf_writer *writer, const char *arch)
{
    char key[128];
    snprintf(key, sizeof key, "%s.pooling_type", arch);
    spry_gguf_writer_u32(writer, key, (uint32_t)(p->ranks ? SPRY_POOL_RANK : p->kind));
    spry_gguf_writer_bool(writer, KEY_NORMALISE, p->normalise);
    if (p->ranks)
        spry_gguf_writer_bool(writer, KEY_TYPES, p->second_type);
    if (p->ranks && p->kind == SPRY_POOL_MEAN)
        spry_gguf_writer_bool(writer, KEY_MEAN, true);
    json_t *prompts = json_object(), *all;
    const char *chosen = NULL;
    for (size_t i = 0; i < p->n_prompts; i++) {
        json_object_set_new(prompts, p->prompts[i].name, json_string(p->prompts[i].text));
        chosen = p->prompts[i].text == p->default_prompt ? p->prompts[i].name : chosen;
    }
    all = json_pack("{s:o, s:s?}", "prompts", prompts, "default_prompt_name", chosen);
    char *text = p->n_prompts && all ? spry_json_text(all, JSON_COMPACT) : NULL;
    if (text)
        spry_gguf_writer_string(writer, KEY_PROMPTS, spry_view_of(text));
    free(text);
    json_decref(all);
}

/* ---- computing embeddings ---------------------------------------------------------------------------------------- */

const char *spry_pooling_prompt(const spry_pooling *p, const char *name)
{
    if (!name)
        return p->default_prompt;
    for (size_t i = 0; i < p->n_prompts; i++)
        if (!strcmp(p->prompts[i].name, name))
            return p->prompts[i].text;
    return NULL;
}

static void apply_norm(double *x, const spry_dense *d)
{
    double mean = 0, square = 0, n = (double)d->n_out;
    for (size_t i = 0; i < d->n_out; i++)
        mean += x[i] / n;
    for (size_t i = 0; i < d->n_out; i++)
        square += (x[i] - mean) * (x[i] - mean) / n;
    for (size_t i = 0; i < d->n_out; i++)
        x[i] = (x[i] - mean) / sqrt(square + (double)d->norm_eps) * (double)d->norm[i] +
               (d->norm_bias ? (double)d->norm_bias[i] : 0);
}

static void apply_dense(double *out, const spry_dense *d, const double *in)
{
    for (size_t o = 0; o < d->n_out; o++) {
        double sum = d->bias ? (double)d->bias[o] : 0;
        for (size_t i = 0; i < d->n_in; i++)
            sum += (double)d->weight[o * d->n_in + i] * in[i];
        out[o] = d->act == SPRY_DENSE_TANH   ? tanh(sum)
                 : d->act == SPRY_DENSE_GELU ? sum * (1 + erf(sum / sqrt(2))) / 2
                                             : sum;
    }
    if (d->norm)
        apply_norm(out, d);
}

static double squares(const double *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i] * values[i];
    return sum;
}

spry_status spry_pooling_finish(const spry_pooling *p, float *out, const double *sum, size_t count, size_t n_embd,
                                spry_error *error)
{
    size_t widest = n_embd;
    for (size_t i = 0; i < p->n_dense; i++)
        widest = p->dense[i].n_out > widest ? p->dense[i].n_out : widest;
    double *rows = malloc(2 * widest * sizeof *rows), *now = rows, *next = rows ? rows + widest : NULL;
    if (!rows)
        return spry_fail_memory(error, "an embedding", 2 * widest * sizeof *rows);
    bool plain = p->normalise && !p->n_dense; /* the mean has the same direction as the sum */
    for (size_t i = 0; i < n_embd; i++)
        now[i] = plain || p->kind != SPRY_POOL_MEAN ? sum[i] : sum[i] / (double)count;
    for (size_t i = 0; i < p->n_dense; i++) {
        apply_dense(next, &p->dense[i], now);
        double *swap = now;
        now = next;
        next = swap;
    }
    double square = squares(now, p->width), scale = !p->normalise ? 1 : square > 0 ? 1 / sqrt(square) : 0;
    for (size_t i = 0; i < p->width; i++)
        out[i] = (float)(now[i] * scale);
    free(rows);
    return isfinite(square)
               ? SPRY_OK
               : spry_fail(error, SPRY_ERR_UNSUPPORTED, "the model's numbers for this text are not finite");
}
