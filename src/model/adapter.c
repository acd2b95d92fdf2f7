/* LoRA adapters: reading their files, the list of loaded adapters, and the choice of adapters for a request. */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/number.h"
#include "model/arch.h"
#include "model/gguf_export.h"
#include "model/model.h"
#include "model/tensor_names.h"
#include "platform/file.h"

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* One adapter: its file, its settings, and its pairs of matrices, which are matched to the model's matrices by name. */

enum { RANK_MAX = 4096 };

typedef struct adapter_file {
    const char *path;
    spry_gguf *gguf; /* a GGUF file, or */
    spry_safetensors *files;
    json_t *json;        /* adapter_config.json */
    double alpha;        /* 0: the product is added without a factor (GGUF only) */
    bool by_root;        /* alpha is divided by the square root of the rank */
    unsigned char *used; /* [tensors] the tensor belongs to a pair that was found */
    size_t n_tensors;
} adapter_file;

static const spry_tensor *tensor_at(const adapter_file *f, size_t index)
{
    return f->gguf ? spry_gguf_tensor(f->gguf, index) : spry_safetensors_tensor(f->files, index);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static spry_status check_alpha(const adapter_file *f, double alpha, spry_error *error)
{
    if (isfinite(alpha) && fabs(alpha) <= 1e9)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "%s: alpha is %g", f->path, alpha);
}

static spry_status read_gguf(adapter_file *f, const spry_config *c, spry_error *error)
{
    spry_view kind = {"", 0}, type = {"", 0}, arch = {"", 0};
    spry_status status = spry_gguf_open(&f->gguf, f->path, error);
    if (status)
        return status;
    f->n_tensors = spry_gguf_tensor_count(f->gguf);
    spry_gguf_get_string(f->gguf, "general.type", &kind);
    spry_gguf_get_string(f->gguf, "adapter.type", &type);
    spry_gguf_get_string(f->gguf, "general.architecture", &arch);
    if (!spry_view_is(kind, "adapter") || !spry_view_is(type, "lora"))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: not a LoRA adapter: general.type is '%.*s', adapter.type '%.*s'",
                         f->path, SPRY_VIEW_ARG(kind), SPRY_VIEW_ARG(type));
    if (!spry_view_is(arch, c->arch->gguf))
        return spry_fail(error, SPRY_ERR_INPUT, "%s: the adapter is for models of '%.*s', this one is '%s'", f->path,
                         SPRY_VIEW_ARG(arch), c->arch->gguf);
    if (!spry_gguf_get_f64(f->gguf, "adapter.lora.alpha", &f->alpha))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: adapter.lora.alpha is missing", f->path);
    return check_alpha(f, f->alpha, error);
}

/* Refuses settings of PEFT that are not implemented. */
static spry_status check_json(const adapter_file *f, spry_error *error)
{
    static const char *const flags[] = {"use_dora", "fan_in_fan_out", "lora_bias"};
    const char *type = json_string_value(json_object_get(f->json, "peft_type"));
    const json_t *saved = json_object_get(f->json, "modules_to_save");
    if (type && strcmp(type, "LORA") != 0)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: adapters of type '%.40s' are not supported, only LORA",
                         f->path, type);
    for (size_t i = 0; i < SPRY_COUNT(flags); i++)
        if (json_is_true(json_object_get(f->json, flags[i])))
            return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: adapters with %s are not supported", f->path, flags[i]);
    if (json_array_size(saved))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: the adapter replaces whole modules (modules_to_save), which is not supported", f->path);
    return SPRY_OK;
}

static spry_status read_folder(adapter_file *f, spry_error *error)
{
    spry_buffer path;
    spry_status status = spry_model_read_json(&f->json, f->path, "adapter_config.json", error);
    if (status)
        return status;
    if (!f->json)
        return spry_fail(error, SPRY_ERR_FILE, "%s: no adapter_config.json in this folder", f->path);
    if ((status = check_json(f, error)))
        return status;
    const json_t *alpha = json_object_get(f->json, "lora_alpha");
    f->alpha = alpha ? json_is_number(alpha) ? json_number_value(alpha) : NAN : 8; /* 8 is PEFT's default */
    f->by_root = json_is_true(json_object_get(f->json, "use_rslora"));
    if ((status = check_alpha(f, f->alpha, error)))
        return status;
    spry_buffer_init(&path, 1 << 16);
    status = spry_path_join(&path, f->path, "adapter_model.safetensors", error);
    if (!status && !spry_path_exists(path.data))
        status =
            spry_fail(error, SPRY_ERR_FILE,
                      "%s: no adapter_model.safetensors in this folder (adapters saved as .bin are not read)", f->path);
    if (!status)
        status = spry_safetensors_open(&f->files, path.data, error);
    spry_buffer_deinit(&path);
    f->n_tensors = f->files ? spry_safetensors_count(f->files) : 0;
    return status;
}

static spry_status open_file(adapter_file *f, const char *path, const spry_config *config, spry_error *error)
{
    *f = (adapter_file){.path = path};
    spry_status status = spry_path_is_folder(path) ? read_folder(f, error) : read_gguf(f, config, error);
    if (status)
        return status;
    f->used = calloc(f->n_tensors + 1, 1);
    return f->used ? SPRY_OK : spry_fail_memory(error, "an adapter's tensors", f->n_tensors + 1);
}

static void close_file(adapter_file *f)
{
    free(f->used);
    json_decref(f->json);
    spry_gguf_close(f->gguf);
    spry_safetensors_close(f->files);
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

typedef struct attacher {
    adapter_file file;
    spry_adapter *adapter;
    const spry_config *config;
    const spry_ops *ops;
    uint32_t index;
    size_t n;
    spry_arena *arena;
    XXH3_state_t *hash;
    spry_status status;
    spry_error *error;
} attacher;

typedef struct tensor_pair {
    const spry_tensor *a, *b;
    char module[SPRY_TENSOR_NAME_MAX]; /* name of the matrix in the adapter's file */
} tensor_pair;

static const spry_tensor *take(adapter_file *f, const char *module, const char *suffix)
{
    char name[SPRY_TENSOR_NAME_MAX + 32];
    snprintf(name, sizeof name, "%s.%s", module, suffix);
    const spry_tensor *t = f->gguf ? spry_gguf_find_tensor(f->gguf, spry_view_of(name))
                                   : spry_safetensors_find(f->files, spry_view_of(name));
    if (t)
        f->used[t - tensor_at(f, 0)] = 1;
    return t;
}

static void find_in_gguf(attacher *at, tensor_pair *pair, const spry_matrix *m)
{
    if (strcmp(m->ours, "output") == 0)
        snprintf(pair->module, sizeof pair->module, "output.weight");
    else
        spry_tensor_gguf_name(pair->module, at->config->arch, m->layer, m->ours, "weight");
    pair->a = take(&at->file, pair->module, "lora_a");
    pair->b = take(&at->file, pair->module, "lora_b");
}

static void find_in_folder(attacher *at, tensor_pair *pair, const spry_matrix *m)
{
    static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model.", ""};
    static const char *const outputs[] = {"lm_head", "language_model.lm_head"};
    bool output = strcmp(m->ours, "output") == 0;
    for (size_t i = 0; i < (output ? SPRY_COUNT(outputs) : SPRY_COUNT(prefixes)) && !pair->a && !pair->b; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "base_model.model.%s", output ? outputs[i] : prefixes[i]);
        if (output)
            snprintf(pair->module, sizeof pair->module, "%s", prefix);
        else if (!spry_tensor_hf_name(pair->module, at->config->arch, prefix, m->layer, m->ours, m->expert, ""))
            return;
        else
            pair->module[strlen(pair->module) - 1] = 0; /* removes the point before the empty suffix */
        pair->a = take(&at->file, pair->module, "lora_A.weight");
        pair->b = take(&at->file, pair->module, "lora_B.weight");
    }
}

/* Checks the shapes of a pair: [rank, n_in] and [n_rows, rank], or stacks of these. */
static spry_status check_pair(const attacher *at, const tensor_pair *pair, const spry_matrix *m, size_t *rank)
{
    const char *path = at->file.path;
    if (!pair->a || !pair->b)
        return spry_fail(at->error, SPRY_ERR_FORMAT, "%s: '%s' has only one of its two matrices", path, pair->module);
    size_t stack = m->stacked && at->file.gguf ? at->config->n_experts : 1, skip = stack > 1;
    const size_t *a = pair->a->dims, *b = pair->b->dims;
    *rank = a[skip];
    bool fits = a[skip + 1] == m->weight->n_in && b[skip] == m->n_rows && b[skip + 1] == *rank && a[skip + 2] == 1 &&
                b[skip + 2] == 1 && (!skip || (a[0] == stack && b[0] == stack));
    if (!fits)
        return spry_fail(at->error, SPRY_ERR_INPUT,
                         "%s: '%s' is [%zu, %zu] times [%zu, %zu], but this model's matrix is [%zu, %zu]: the adapter "
                         "was made for another model",
                         path, pair->module, b[skip], b[skip + 1], a[skip], a[skip + 1], m->n_rows, m->weight->n_in);
    if (!*rank || *rank > RANK_MAX)
        return spry_fail(at->error, SPRY_ERR_FORMAT, "%s: '%s' has rank %zu, outside 1 to %d", path, pair->module,
                         *rank, RANK_MAX);
    if (!spry_dtype_known(pair->a->type) || !spry_dtype_known(pair->b->type))
        return spry_fail(at->error, SPRY_ERR_UNSUPPORTED, "%s: '%s' has a type that is not one of weights", path,
                         pair->module);
    return SPRY_OK;
}

/* Reads row `row` of a tensor whose rows have `width` values, as floats. */
static spry_status read_row(const attacher *at, float *out, const spry_tensor *t, size_t row, size_t width)
{
    size_t row_bytes;
    if (!spry_dtype_size(&row_bytes, t->type, width))
        return spry_fail(at->error, SPRY_ERR_FORMAT, "%s: '%.*s' has rows of %zu, not whole blocks of %s",
                         at->file.path, SPRY_VIEW_ARG(t->name), width, spry_dtype_name(t->type));
    at->ops->decode[t->type](out, t->data + row * row_bytes, width);
    for (size_t i = 0; i < width; i++)
        if (!isfinite(out[i]))
            return spry_fail(at->error, SPRY_ERR_FORMAT, "%s: '%.*s' holds a number that is not finite", at->file.path,
                             SPRY_VIEW_ARG(t->name));
    return SPRY_OK;
}

static spry_status read_a(const attacher *at, const float **out, const spry_tensor *t, size_t first, size_t rank,
                          size_t n_in)
{
    spry_status status = SPRY_OK;
    float *a = spry_arena_alloc(at->arena, rank * n_in, sizeof *a);
    if (!a)
        return spry_fail_memory(at->error, "an adapter", rank * n_in * sizeof *a);
    for (size_t j = 0; !status && j < rank; j++)
        status = read_row(at, a + j * n_in, t, first + j, n_in);
    *out = a;
    return status;
}

/* Reads matrix b, transposed, with its rows in the order that the model uses. */
static spry_status read_b(const attacher *at, const float **out, const spry_tensor *t, size_t first,
                          const spry_matrix *m, size_t rank)
{
    size_t n = m->weight->n_out, head = spry_matrix_head(at->config, m);
    bool model_permuted = at->config->interleaved, file_permuted = at->file.gguf != NULL;
    spry_status status = SPRY_OK;
    float values[RANK_MAX], *b = spry_arena_alloc(at->arena, rank * n, sizeof *b);
    if (!b)
        return spry_fail_memory(at->error, "an adapter", rank * n * sizeof *b);
    head = model_permuted == file_permuted ? 0 : head;
    for (size_t row = 0; !status && row < n; row++) {
        size_t source = spry_export_source_row(head, at->config->rope_dim, row);
        size_t to = model_permuted ? row : source, from = model_permuted ? source : row;
        status = read_row(at, values, t, first + from, rank);
        for (size_t j = 0; j < rank; j++)
            b[j * n + to] = values[j];
    }
    *out = b;
    return status;
}

/* Finds alpha for a module. PEFT's alpha_pattern selects modules by the ends of their names. */
static spry_status find_alpha(const attacher *at, double *alpha, const char *module)
{
    const json_t *value;
    const char *key;
    size_t length = strlen(module);
    *alpha = at->file.alpha;
    json_object_foreach(json_object_get(at->file.json, "alpha_pattern"), key, value)
    {
        size_t n = strlen(key);
        if (strpbrk(key, "^$*+?[](){}|\\"))
            return spry_fail(at->error, SPRY_ERR_UNSUPPORTED, "%s: the expression '%.80s' of alpha_pattern is not read",
                             at->file.path, key);
        if (n && n < length && strcmp(module + length - n, key) == 0 && module[length - n - 1] == '.')
            *alpha = json_is_number(value) ? json_number_value(value) : NAN;
    }
    return check_alpha(&at->file, *alpha, at->error);
}

static spry_status scale_of(const attacher *at, float *scale, const char *module, size_t rank)
{
    double alpha;
    spry_status status = find_alpha(at, &alpha, module);
    if (at->file.gguf && fabs(alpha) <= 0)
        *scale = 1;
    else
        *scale = (float)(alpha / (at->file.by_root ? sqrt((double)rank) : (double)rank));
    return status;
}

static spry_status attach(attacher *at, const spry_matrix *m, const tensor_pair *pair)
{
    size_t rank = 0, n_in = m->weight->n_in, expert = m->stacked && at->file.gguf ? m->expert : 0;
    spry_status status = check_pair(at, pair, m, &rank);
    if (status)
        return status;
    spry_adapter_pair own = {.rank = (uint32_t)rank};
    if ((status = scale_of(at, &own.scale, pair->module, rank)) ||
        (status = read_a(at, &own.a, pair->a, expert * rank, rank, n_in)) ||
        (status = read_b(at, &own.b, pair->b, expert * m->n_rows + m->first_row, m, rank)))
        return status;
    if (!m->weight->adapters)
        m->weight->adapters = spry_arena_alloc(at->arena, at->n, sizeof own);
    if (!m->weight->adapters)
        return spry_fail_memory(at->error, "an adapter", at->n * sizeof own);
    m->weight->adapters[at->index] = own;
    at->adapter->rank = own.rank > at->adapter->rank ? own.rank : at->adapter->rank;
    const uint32_t place[] = {m->layer, m->expert, own.rank};
    XXH3_128bits_update(at->hash, place, sizeof place);
    XXH3_128bits_update(at->hash, m->ours, strlen(m->ours));
    XXH3_128bits_update(at->hash, &own.scale, sizeof own.scale);
    XXH3_128bits_update(at->hash, own.a, rank * n_in * sizeof *own.a);
    XXH3_128bits_update(at->hash, own.b, rank * m->weight->n_out * sizeof *own.b);
    return SPRY_OK;
}

static void visit(void *context, const spry_matrix *m)
{
    attacher *at = context;
    tensor_pair pair = {0};
    if (at->status)
        return;
    if (at->file.gguf)
        find_in_gguf(at, &pair, m);
    else
        find_in_folder(at, &pair, m);
    if (pair.a || pair.b)
        at->status = attach(at, m, &pair);
}

/* Fails unless every tensor of the file belongs to a matrix of the model. */
static spry_status check_used(const attacher *at)
{
    const adapter_file *f = &at->file;
    if (!f->n_tensors)
        return spry_fail(at->error, SPRY_ERR_FORMAT, "%s: the adapter has no tensors", f->path);
    for (size_t i = 0; i < f->n_tensors; i++)
        if (!f->used[i])
            return spry_fail(at->error, SPRY_ERR_INPUT,
                             "%s: tensor '%.*s' belongs to no matrix of this %s model that adapters can change",
                             f->path, SPRY_VIEW_ARG(tensor_at(f, i)->name), at->config->arch->name);
    return SPRY_OK;
}

/* Attaches an adapter to the weights, as number `index` of `n`. */
static spry_status adapter_attach(spry_adapter *adapter, spry_weights *weights, const spry_config *config,
                                  uint32_t index, size_t n, spry_arena *arena, spry_error *error)
{
    attacher at = {.adapter = adapter, .config = config, .index = index, .n = n, .arena = arena, .error = error};
    at.hash = XXH3_createState();
    if (!at.hash)
        return spry_fail_memory(error, "an adapter", 0);
    XXH3_128bits_reset(at.hash);
    at.status = spry_ops_get(&at.ops, "ref", error);
    if (!at.status)
        at.status = open_file(&at.file, adapter->path, config, error);
    if (!at.status)
        spry_matrices_each(weights, config, visit, &at);
    if (!at.status)
        at.status = check_used(&at);
    const XXH128_hash_t all = XXH3_128bits_digest(at.hash);
    adapter->key = (spry_kv_key){all.low64, all.high64};
    XXH3_freeState(at.hash);
    close_file(&at.file);
    return at.status;
}

/* ---- the list of adapters ---------------------------------------------------------------------------------------- */

/* The list of adapters, and the choice of adapters for a request. */

/* Splits "PATH=SCALE" if a number is after the last "=". */
static spry_view split_scale(spry_view text, float *scale)
{
    double value;
    *scale = 1;
    for (size_t at = text.size; at-- > 0;)
        if (text.data[at] == '=') {
            const spry_view number = {text.data + at + 1, text.size - at - 1};
            if (!spry_number_double(&value, number) || !isfinite((float)value))
                break;
            *scale = (float)value;
            return (spry_view){text.data, at};
        }
    return text;
}

/* The last part of a path. */
static spry_view name_of(spry_view path)
{
    const spry_view suffix = SPRY_VIEW(".gguf");
    while (path.size && path.data[path.size - 1] == '/')
        path.size--;
    for (size_t at = path.size; at-- > 0;)
        if (path.data[at] == '/') {
            path = (spry_view){path.data + at + 1, path.size - at - 1};
            break;
        }
    if (spry_view_ends(path, suffix))
        path.size -= suffix.size;
    return path;
}

static uint32_t find(const spry_adapters *adapters, spry_view name)
{
    uint32_t i = 0;
    while (i < adapters->count && !spry_view_equal(spry_view_of(adapters->list[i].name), name))
        i++;
    return i;
}

static spry_status add(spry_adapters *adapters, spry_weights *weights, const spry_config *config, spry_view spec,
                       size_t n_specs, spry_error *error)
{
    spry_adapter *a = &adapters->list[adapters->count];
    const spry_view path = split_scale(spec, &a->scale), name = name_of(path);
    if (!name.size || memchr(name.data, '=', name.size))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "adapter '%.*s': its name, the last part of the path, is empty or has '=' in it",
                         SPRY_VIEW_ARG(spec));
    if (find(adapters, name) < adapters->count)
        return spry_fail(error, SPRY_ERR_INPUT, "two adapters have the name '%.*s'", SPRY_VIEW_ARG(name));
    a->name = spry_arena_copy(&adapters->arena, name);
    a->path = spry_arena_copy(&adapters->arena, path);
    if (!a->name || !a->path)
        return spry_fail_memory(error, "an adapter's name", path.size);
    spry_status status = adapter_attach(a, weights, config, adapters->count, n_specs, &adapters->arena, error);
    if (!status) {
        adapters->count++;
        adapters->ranks += a->rank;
    }
    return status;
}

spry_status spry_adapters_load(spry_adapters *adapters, spry_weights *weights, const spry_config *config,
                               const char *paths, spry_error *error)
{
    size_t n = 1, length;
    *adapters = (spry_adapters){0};
    spry_arena_init(&adapters->arena);
    for (const char *c = paths; *c; c++)
        n += *c == ',';
    if (n > SPRY_ADAPTERS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "%zu adapters are more than %d", n, SPRY_ADAPTERS_MAX);
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < n; i++, paths += length + 1) {
        length = strcspn(paths, ",");
        status = add(adapters, weights, config, (spry_view){paths, length}, n, error);
    }
    return status;
}

void spry_adapters_deinit(spry_adapters *adapters)
{
    spry_arena_deinit(&adapters->arena);
    *adapters = (spry_adapters){0};
}

spry_adapter_scales spry_adapters_default(const spry_adapters *adapters)
{
    spry_adapter_scales scales = {0};
    for (uint32_t i = 0; i < adapters->count; i++)
        scales.of[i] = adapters->list[i].scale;
    return scales;
}

static spry_status unknown(const spry_adapters *adapters, spry_view name, spry_error *error)
{
    char known[SPRY_ERROR_MAX / 2] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < adapters->count; i++) {
        int n = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", adapters->list[i].name);
        used += n > 0 && used + (size_t)n < sizeof known ? (size_t)n : 0;
    }
    return spry_fail(error, SPRY_ERR_INPUT, "there is no adapter '%.*s'; %s%s", name.size < 80 ? (int)name.size : 80,
                     name.data, adapters->count ? "known are " : "none is loaded", known);
}

spry_status spry_adapters_choose(spry_adapter_scales *scales, const spry_adapters *adapters, const char *text,
                                 spry_error *error)
{
    *scales = (spry_adapter_scales){0};
    bool taken[SPRY_ADAPTERS_MAX] = {0};
    for (size_t n; *text; text += n + (text[n] == ',')) {
        float scale;
        uint64_t number;
        n = strcspn(text, ",");
        const spry_view name = split_scale((spry_view){text, n}, &scale);
        uint32_t at = find(adapters, name);
        if (at == adapters->count && spry_number_u64(&number, name) && number < adapters->count)
            at = (uint32_t)number;
        if (at == adapters->count)
            return unknown(adapters, name, error);
        if (taken[at])
            return spry_fail(error, SPRY_ERR_INPUT, "adapter '%s' is chosen twice", adapters->list[at].name);
        taken[at] = true;
        scales->of[at] = scale;
    }
    return SPRY_OK;
}

bool spry_adapter_scales_any(const spry_adapter_scales *scales)
{
    for (size_t i = 0; i < SPRY_ADAPTERS_MAX; i++)
        if (scales->of[i] < 0 || scales->of[i] > 0)
            return true;
    return false;
}

spry_kv_key spry_adapters_root(spry_kv_key root, const spry_adapters *adapters, const spry_adapter_scales *scales)
{
    for (uint32_t i = 0; i < adapters->count; i++)
        if (scales->of[i] < 0 || scales->of[i] > 0) {
            unsigned char part[sizeof(spry_kv_key) + sizeof(float)];
            memcpy(part, &adapters->list[i].key, sizeof(spry_kv_key));
            memcpy(part + sizeof(spry_kv_key), &scales->of[i], sizeof(float));
            root = spry_kv_key_root(root, part, sizeof part);
        }
    return root;
}

void spry_adapters_add_row(float *row, const spry_weight *w, size_t index, const spry_adapters *adapters,
                           const spry_adapter_scales *scales)
{
    for (uint32_t i = 0; i < adapters->count; i++) {
        const spry_adapter_pair *pair = &w->adapters[i];
        for (uint32_t j = 0; j < pair->rank; j++) {
            float factor = scales->of[i] * pair->scale * pair->b[j * w->n_out + index];
            for (size_t k = 0; k < w->n_in; k++)
                row[k] += factor * pair->a[j * w->n_in + k];
        }
    }
}
