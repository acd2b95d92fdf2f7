/* Writes a model as GGUF: its metadata, then its tensors, encoded a bounded batch of rows at a time on all workers. */
#include "model/gguf_export.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tensor_names.h"

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

/* Writes the metadata of a GGUF file from a config. An export from GGUF keeps the metadata of its source. */

typedef struct keys {
    spry_gguf_writer *writer;
    const char *arch;
    char key[128];
} keys;

static const char *below(keys *k, const char *suffix)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, suffix);
    return k->key;
}

/* Writes a number, unless it is 0, which means that it does not apply. */
static void whole(keys *k, const char *suffix, uint32_t value)
{
    if (value)
        spry_gguf_writer_u32(k->writer, below(k, suffix), value);
}

static void real(keys *k, const char *suffix, float value)
{
    if (value > 0)
        spry_gguf_writer_f32(k->writer, below(k, suffix), value);
}

static void write_rope(keys *k, const spry_config *c)
{
    static const char *const kinds[] = {
        [SPRY_ROPE_LINEAR] = "linear", [SPRY_ROPE_YARN] = "yarn", [SPRY_ROPE_LONG] = "longrope"};
    const spry_rope *rope = &c->rope;
    real(k, "rope.freq_base", c->arch->compressed ? c->rope_sliding.theta : rope->theta);
    whole(k, "rope.dimension_count", c->rope_dim);
    if (c->arch->two_ropes && !c->arch->compressed)
        real(k, "rope.freq_base_swa", c->rope_sliding.theta);
    if (c->arch->kinds)
        whole(k, "rope.dimension_count_swa", c->slide.rope_dim);
    if (rope->kind == SPRY_ROPE_DEFAULT || rope->kind == SPRY_ROPE_LLAMA3 || rope->kind == SPRY_ROPE_PROPORTIONAL)
        return;
    spry_gguf_writer_string(k->writer, below(k, "rope.scaling.type"), spry_view_of(kinds[rope->kind]));
    real(k, "rope.scaling.factor", rope->factor);
    whole(k, "rope.scaling.original_context_length", rope->original_context);
    if (rope->kind == SPRY_ROPE_YARN) {
        bool plain = rope->attention_factor == 1; /* a factor of 1 */
        real(k, "rope.scaling.yarn_log_multiplier", c->arch->latent ? c->latent_log : plain);
        real(k, "rope.scaling.yarn_beta_fast", rope->beta_fast);
        real(k, "rope.scaling.yarn_beta_slow", rope->beta_slow);
        if (rope->attention_factor > 0 && !plain) /* the value in GGUF is relative to yarn's own */
            real(k, "rope.scaling.attn_factor",
                 rope->attention_factor / (rope->factor <= 1 ? 1 : 0.1f * logf(rope->factor) + 1));
    } else if (rope->kind == SPRY_ROPE_LONG) {
        real(k, "rope.scaling.attn_factor",
             rope->attention_factor > 0
                 ? rope->attention_factor
                 : sqrtf(1 + logf(rope->factor > 1 ? rope->factor : 1) / logf((float)rope->original_context)));
    }
}

static void write_window(keys *k, const spry_config *c)
{
    int32_t slides[SPRY_MAX_LAYERS];
    if (!c->window && c->arch->chunked) /* without the key, readers assume the usual window */
        spry_gguf_writer_u32(k->writer, below(k, "attention.sliding_window"), 0);
    if (!c->window)
        return;
    whole(k, "attention.sliding_window", c->bidirectional ? 2 * (c->window - 1) : c->window);
    for (uint32_t i = 0; i < c->n_layers; i++)
        slides[i] = c->sliding[i];
    spry_gguf_writer_i32s(k->writer, below(k, "attention.sliding_window_pattern"), slides, c->n_layers);
}

static void write_compressed(keys *k, const spry_config *c)
{
    int32_t rates[SPRY_MAX_LAYERS];
    float limits[SPRY_MAX_LAYERS];
    for (uint32_t i = 0; i < c->n_layers; i++) {
        rates[i] = (int32_t)c->rates[i];
        limits[i] = c->gate_limit;
    }
    whole(k, "attention.q_lora_rank", c->n_q_rank);
    whole(k, "attention.output_group_count", c->n_out_groups);
    whole(k, "attention.output_lora_rank", c->out_rank);
    spry_gguf_writer_i32s(k->writer, below(k, "attention.compress_ratios"), rates, c->n_layers);
    real(k, "attention.compress_rope_freq_base", c->rope.theta);
    whole(k, "hyper_connection.count", c->n_hyper);
    whole(k, "hyper_connection.sinkhorn_iterations", c->hyper_rounds);
    real(k, "hyper_connection.epsilon", c->hyper_eps);
    spry_gguf_writer_u32(k->writer, below(k, "hash_layer_count"), c->n_hashed);
    if (c->gate_limit > 0) {
        spry_gguf_writer_f32s(k->writer, below(k, "swiglu_clamp_exp"), limits, c->n_layers);
        spry_gguf_writer_f32s(k->writer, below(k, "swiglu_clamp_shexp"), limits, c->n_layers);
    }
    whole(k, "embedding_length_out", c->n_hyper * c->n_embd);
}

/* Lists the layers that have an indexer, unless all have one. */
static void write_indexes(keys *k, const spry_config *c)
{
    int32_t indexes[SPRY_MAX_LAYERS];
    for (uint32_t i = 0; i < c->n_layers; i++)
        indexes[i] = c->indexes[i];
    if (c->n_index_slots < c->n_layers)
        spry_gguf_writer_i32s(k->writer, below(k, "attention.indexer.types"), indexes, c->n_layers);
}

static void write_kv_heads(keys *k, const spry_config *c)
{
    int32_t heads[SPRY_MAX_LAYERS];
    for (uint32_t i = 0; i < c->n_layers; i++)
        heads[i] = c->convolves[i] ? 0 : (int32_t)spry_config_heads(c, i).n_kv_heads;
    spry_gguf_writer_i32s(k->writer, below(k, "attention.head_count_kv"), heads, c->n_layers);
    if (c->arch->convolutions)
        whole(k, "shortconv.l_cache", c->n_conv);
}

/* Writes the feed-forward sizes; a list, if layers that share keys and values are wider. */
static void write_feed_forward(keys *k, const spry_config *c)
{
    int32_t sizes[SPRY_MAX_LAYERS];
    for (uint32_t i = 0; i < c->n_layers; i++)
        sizes[i] = (int32_t)(c->kv_layer[i] != i && c->n_ff_shared ? c->n_ff_shared : c->n_ff);
    if (c->n_ff_shared)
        spry_gguf_writer_i32s(k->writer, below(k, "feed_forward_length"), sizes, c->n_layers);
    else
        whole(k, "feed_forward_length", c->n_ff);
}

/* How many pairs turn by each of rope's axes; readers of Qwen3.5 require that of models without pictures, too. */
static void write_axes(keys *k, const spry_config *c)
{
    const int32_t pairs = (int32_t)c->rope_dim / 2;
    int32_t sections[4] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    if (c->rope_axes) {
        memset(sections, 0, sizeof sections);
        for (int32_t i = 0; i < pairs; i++)
            sections[c->rope_axes[i]]++;
    }
    if (c->rope_axes || c->arch->delta_tiled)
        spry_gguf_writer_i32s(k->writer, below(k, "rope.dimension_sections"), sections, 4);
}

/* Which layers have delta nets: an interval, or a list where that is not enough. */
static void write_delta(keys *k, const spry_config *c, bool head)
{
    int32_t recurs[SPRY_MAX_LAYERS + 1] = {0};
    bool regular = true;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        recurs[i] = c->convolves[i];
        regular = regular && (c->arch->mamba || c->convolves[i] == ((i + 1) % c->attention_interval != 0));
    }
    whole(k, "ssm.conv_kernel", c->n_conv);
    whole(k, "ssm.state_size", c->delta_key_dim);
    whole(k, "ssm.group_count", c->n_delta_keys);
    whole(k, "ssm.time_step_rank", c->n_delta_heads);
    whole(k, "ssm.inner_size", c->n_delta_heads * c->delta_value_dim);
    whole(k, "full_attention_interval", c->attention_interval);
    if (c->beta_scale != 1)
        real(k, "ssm.beta_scale", c->beta_scale);
    if (c->arch->delta_norms_before)
        spry_gguf_writer_bool(k->writer, below(k, "rope.scaling.finetuned"), !c->unrotated);
    if (!regular)
        spry_gguf_writer_i32s(k->writer, below(k, "attention.recurrent_layers"), recurs, c->n_layers + head);
}

/* Writes the layers of models with Mamba-2: a layer without attention has 0 key/value heads, a layer without
 * feed-forward has 0 as its size. */
static void write_mamba(keys *k, const spry_config *c)
{
    int32_t heads[SPRY_MAX_LAYERS], widths[SPRY_MAX_LAYERS];
    for (uint32_t i = 0; i < c->n_layers; i++) {
        heads[i] = spry_config_attends(c, i) ? (int32_t)c->n_kv_heads : 0;
        widths[i] = !spry_config_feeds(c, i) ? 0 : (int32_t)(c->n_ff ? c->n_ff : c->n_expert_ff);
    }
    if (c->arch->attention_free || c->arch->both_mixers)
        spry_gguf_writer_u32(k->writer, below(k, "attention.head_count_kv"), c->arch->both_mixers ? c->n_kv_heads : 0);
    else
        spry_gguf_writer_i32s(k->writer, below(k, "attention.head_count_kv"), heads, c->n_layers);
    if (c->arch->single_parts)
        spry_gguf_writer_i32s(k->writer, below(k, "feed_forward_length"), widths, c->n_layers);
    else
        spry_gguf_writer_u32(k->writer, below(k, "feed_forward_length"), c->n_ff);
    if (!c->arch->attention_free && !c->arch->both_mixers)
        spry_gguf_writer_bool(k->writer, below(k, "rope.scaling.finetuned"), !c->unrotated);
    whole(k, "moe_latent_size", c->n_latent);
}

/* Writes the number of dense layers at the beginning; for ERNIE, that all others have experts; for Llama 4, the
 * interval of layers with experts. */
static void write_dense(keys *k, const spry_model *m)
{
    uint32_t dense = 0;
    while (dense < m->config.n_layers && !m->weights.layers[dense].router.data)
        dense++;
    if (m->config.n_shared || dense)
        spry_gguf_writer_u32(k->writer, below(k, "leading_dense_block_count"), dense);
    if (m->config.arch == &spry_arch_ernie4_5_moe)
        whole(k, "interleave_moe_layer_step", 1);
    if (m->config.arch->scales_inputs)
        whole(k, "interleave_moe_layer_step", dense + 1);
}

static void write_config(spry_gguf_writer *writer, const spry_model *m, bool head)
{
    const spry_config *c = &m->config;
    keys k = {.writer = writer, .arch = c->arch->gguf};
    whole(&k, "block_count", c->n_layers + head);
    whole(&k, "nextn_predict_layers", head);
    whole(&k, "context_length", c->n_context);
    whole(&k, "embedding_length", c->n_embd);
    if (!c->arch->mamba)
        write_feed_forward(&k, c);
    spry_gguf_writer_u32(writer, below(&k, "attention.head_count"), c->arch->attention_free ? 0 : c->n_heads);
    if (c->arch->mamba)
        write_mamba(&k, c);
    else if (c->arch->convolutions || c->arch->kinds)
        write_kv_heads(&k, c);
    else
        whole(&k, "attention.head_count_kv", c->n_kv_heads);
    if (c->arch->delta)
        write_delta(&k, c, head);
    write_axes(&k, c);
    whole(&k, "attention.key_length", c->head_dim);
    whole(&k, "attention.value_length", c->arch->latent ? c->n_kv_rank : c->value_dim ? c->value_dim : c->head_dim);
    if (c->arch->kinds) {
        whole(&k, "attention.key_length_swa", c->slide.head_dim);
        whole(&k, "attention.value_length_swa", c->value_dim ? c->value_dim : c->slide.head_dim);
    }
    if (c->value_scale != 1)
        real(&k, "attention.value_scale", c->value_scale);
    if (c->arch->latent) {
        whole(&k, "attention.kv_lora_rank", c->n_kv_rank);
        whole(&k, "attention.q_lora_rank", c->n_q_rank);
        whole(&k, "attention.key_length_mla", c->nope_dim + c->rope_dim);
        whole(&k, "attention.value_length_mla", c->value_dim);
    }
    whole(&k, "attention.indexer.head_count", c->n_index_heads);
    whole(&k, "attention.indexer.key_length", c->index_dim);
    whole(&k, "attention.indexer.top_k", c->index_top);
    if (c->index_top && !c->arch->compressed)
        write_indexes(&k, c);
    if (c->arch->compressed)
        write_compressed(&k, c);
    real(&k, c->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c->norm_eps);
    if (c->query_scalar != (float)c->head_dim && !c->arch->latent && !c->arch->streams && !c->arch->beside)
        real(&k, "attention.scale", 1 / sqrtf(c->query_scalar));
    if (c->temperature_length || c->arch->cools_unrotated)
        spry_gguf_writer_f32(writer, below(&k, "attention.temperature_scale"), c->temperature_scale);
    whole(&k, "attention.temperature_length", c->temperature_length);
    real(&k, "attn_logit_softcapping", c->attn_softcap);
    real(&k, "final_logit_softcapping", c->final_softcap);
    if ((c->embedding_scale != 1 && !c->arch->folded_scales) || c->arch == &spry_arch_afmoe)
        real(&k, "embedding_scale", c->embedding_scale);
    if (c->residual_scale != 1)
        real(&k, "residual_scale", c->residual_scale);
    if ((c->logit_scale != 1 && !c->arch->folded_scales) || c->layer_norm)
        real(&k, "logit_scale", c->arch->divides_logits ? 1 / c->logit_scale : c->logit_scale);
    if (c->arch->streams) {
        whole(&k, "altup.num_inputs", c->n_streams);
        spry_gguf_writer_u32(writer, below(&k, "altup.active_idx"), c->active_stream);
    }
    if (c->arch->streams || c->arch->beside) {
        spry_gguf_writer_u32(writer, below(&k, "embedding_length_per_layer_input"), c->n_layer_embd);
        spry_gguf_writer_u32(writer, below(&k, "attention.shared_kv_layers"), c->n_shared_kv);
    }
    if (c->sparsity)
        spry_gguf_writer_f32s(writer, below(&k, "activation_sparsity_scale"), c->sparsity, c->n_layers);
    whole(&k, "vocab_size", c->n_vocab);
    if (c->n_experts) {
        whole(&k, "expert_count", c->n_experts);
        whole(&k, "expert_used_count", c->n_experts_used);
        whole(&k, "expert_feed_forward_length", c->n_expert_ff);
        whole(&k, "expert_shared_feed_forward_length", c->n_shared_ff);
        whole(&k, "expert_shared_count", c->n_shared);
        whole(&k, "expert_group_count", c->n_groups);
        whole(&k, "expert_group_used_count", c->n_groups_used);
        whole(&k, "expert_gating_func", c->routing);
        if (c->routed_scale != 1)
            real(&k, "expert_weights_scale", c->routed_scale);
        spry_gguf_writer_bool(writer, below(&k, "expert_weights_norm"), c->normalise_experts);
        write_dense(&k, m);
    }
    if (c->bidirectional)
        spry_gguf_writer_bool(writer, below(&k, "attention.causal"), false);
    write_rope(&k, c);
    write_window(&k, c);
}

/* The last part of a path, without a trailing slash. */
static spry_view base_name(const char *path)
{
    spry_view all = spry_view_of(path);
    while (all.size && all.data[all.size - 1] == '/')
        all.size--;
    size_t start = all.size;
    while (start && all.data[start - 1] != '/')
        start--;
    return (spry_view){all.data + start, all.size - start};
}

static void copy_metadata(const spry_export_plan *plan, spry_gguf_writer *writer)
{
    const spry_gguf *gguf = plan->model->gguf;
    for (size_t i = 0; i < spry_gguf_entry_count(gguf); i++) {
        const spry_gguf_entry *entry = spry_gguf_entry_at(gguf, i);
        bool ours = spry_view_is(entry->key, "general.file_type") || spry_view_is(entry->key, "general.alignment") ||
                    spry_view_is(entry->key, "general.quantization_version") ||
                    (plan->options->title && spry_view_is(entry->key, "general.name")) ||
                    spry_view_starts(entry->key, SPRY_VIEW("split."));
        if (!ours)
            spry_gguf_writer_entry(writer, entry);
    }
    if (plan->options->title)
        spry_gguf_writer_string(writer, "general.name", spry_view_of(plan->options->title));
}

bool spry_export_metadata(const spry_export_plan *plan, spry_gguf_writer *writer)
{
    const spry_model *m = plan->model;
    const char *title = plan->options->title;
    if (m->gguf) {
        copy_metadata(plan, writer);
    } else {
        spry_view template = spry_chat_template_source(m->chat);
        spry_gguf_writer_string(writer, "general.architecture", spry_view_of(m->config.arch->gguf));
        spry_gguf_writer_string(writer, "general.name", title ? spry_view_of(title) : base_name(m->name));
        write_config(writer, m, plan->head);
        if (m->config.bidirectional || m->pooling.kind != SPRY_POOL_MEAN || m->pooling.n_dense || m->pooling.n_prompts)
            spry_pooling_to_gguf(&m->pooling, writer, m->config.arch->gguf);
        if (m->weights.token_types.data)
            spry_gguf_writer_u32(writer, "tokenizer.ggml.token_type_count", (uint32_t)m->weights.token_types.n_out);
        spry_sampling_hints_to_gguf(&m->sampling, writer);
        if (m->tokenizer && !spry_tokenizer_to_gguf(m->tokenizer, writer, m->config.n_vocab))
            return false;
        if (template.size)
            spry_gguf_writer_string(writer, "tokenizer.chat_template", template);
    }
    spry_gguf_writer_u32(writer, "general.file_type", plan->options->recipe->file_type);
    spry_gguf_writer_u32(writer, "general.quantization_version", 2);
    return true;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Encodes and writes tensors, a bounded batch of rows at a time, with all workers. */

enum { BATCH_VALUES = 1 << 20 };

/* The matrices that adapters change, sorted by the addresses of their rows, because a tensor of a file may contain
 * several of them. */
typedef struct merge {
    const spry_adapters *adapters;
    spry_adapter_scales scales;
    const spry_weight **list; /* ascending; NULL: nothing is merged */
    size_t count, capacity;
    atomic_size_t n_rows; /* number of rows that were changed */
} merge;

typedef struct batch {
    const spry_ops *ops;
    merge *merge;
    const spry_weight *from;
    const spry_export_item *item;
    size_t first_row, n_rows, row_bytes;
    float *floats;      /* [n_rows, n_in]; twice that if columns are moved */
    unsigned char *out; /* [n_rows, row_bytes] */
} batch;

/* Adds the adapters to the row at address `at`. */
static void merge_row(merge *m, float *row, const unsigned char *at)
{
    size_t first = 0;
    for (size_t end = m->count; first < end;) { /* binary search for the first matrix after it */
        size_t middle = first + (end - first) / 2;
        if (m->list[middle]->data <= at)
            first = middle + 1;
        else
            end = middle;
    }
    const spry_weight *w = first ? m->list[first - 1] : NULL;
    size_t index = w ? (size_t)(at - w->data) / w->row_bytes : 0;
    if (!w || index >= w->n_out)
        return;
    spry_adapters_add_row(row, w, index, m->adapters, &m->scales);
    atomic_fetch_add(&m->n_rows, 1);
}

static void add_matrix(void *context, const spry_matrix *matrix)
{
    merge *m = context;
    if (matrix->weight->adapters && m->count < m->capacity)
        m->list[m->count] = matrix->weight;
    m->count += matrix->weight->adapters != NULL;
}

static int by_place(const void *a, const void *b)
{
    const unsigned char *first = (*(const spry_weight *const *)a)->data,
                        *second = (*(const spry_weight *const *)b)->data;
    return first < second ? -1 : first > second;
}

static spry_status merge_init(merge *m, const spry_model *model, spry_error *error)
{
    spry_weights *weights = (spry_weights *)&model->weights; /* the weights are not changed */
    if (model->config.tied && weights->output.adapters)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: an adapter changes the output matrix, which is also the embedding: it cannot be merged",
                         model->name);
    *m = (merge){.adapters = &model->adapters, .scales = spry_adapters_default(&model->adapters)};
    spry_matrices_each(weights, &model->config, add_matrix, m);
    m->capacity = m->count;
    m->list = calloc(m->capacity + 1, sizeof(spry_weight *));
    if (!m->list)
        return spry_fail_memory(error, "the list of matrices", m->capacity * sizeof *m->list);
    m->count = 0;
    spry_matrices_each(weights, &model->config, add_matrix, m);
    qsort(m->list, m->count, sizeof(spry_weight *), by_place);
    return SPRY_OK;
}

/* Fails if a matrix that adapters change was not found, because it was copied when the model was opened or is not
 * exported. */
static spry_status merge_check(const merge *m, const spry_model *model, spry_error *error)
{
    size_t n_rows = 0;
    for (size_t i = 0; i < m->count; i++)
        n_rows += m->list[i]->n_out;
    if (n_rows == m->n_rows)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                     "%s: adapters change %zu rows, of which %zu have a place of their own in the file", model->name,
                     n_rows, m->n_rows);
}

static void encode_part(void *context, size_t worker, size_t n_workers)
{
    const batch *b = context;
    size_t begin, end, n = b->from->n_in;
    spry_threads_part(&begin, &end, b->n_rows, 1, worker, n_workers);
    for (size_t i = begin; i < end; i++) {
        size_t row = b->item->rows
                         ? b->item->rows[b->first_row + i]
                         : spry_export_source_row(b->item->permute_head, b->item->permute_rotated, b->first_row + i);
        if (b->from->type == SPRY_I32) { /* a table of numbers */
            memcpy(b->out + i * b->row_bytes, b->from->data + row * b->from->row_bytes, b->row_bytes);
            continue;
        }
        float *decoded = b->floats + (b->item->columns ? b->n_rows + i : i) * n;
        b->ops->decode[b->from->type](decoded, b->from->data + row * b->from->row_bytes, n);
        merge_row(b->merge, decoded, b->from->data + row * b->from->row_bytes);
        if (b->from->scale != 0)
            b->ops->scale(decoded, b->from->scale, n);
        for (size_t j = 0; b->item->columns && j < n; j++)
            b->floats[i * n + j] = decoded[b->item->columns[j]];
        b->ops->encode[b->item->as.type](b->out + i * b->row_bytes, b->floats + i * n, n);
    }
}

static spry_status write_piece(spry_gguf_writer *writer, merge *merged, const spry_export *options, const spry_ops *ops,
                               const spry_export_item *item, const spry_weight *from, size_t *done, size_t total,
                               spry_error *error)
{
    size_t rows_at_once = from->n_in < BATCH_VALUES ? BATCH_VALUES / from->n_in : 1, row_bytes;
    if (rows_at_once > from->n_out)
        rows_at_once = from->n_out;
    if (!spry_dtype_size(&row_bytes, item->as.type, from->n_in))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "tensor '%.*s': rows of %zu are not whole blocks of %s",
                         SPRY_VIEW_ARG(item->as.name), from->n_in, spry_dtype_name(item->as.type));
    batch b = {.ops = ops, .merge = merged, .from = from, .item = item, .row_bytes = row_bytes};
    b.floats = malloc((item->columns ? 2 : 1) * rows_at_once * from->n_in * sizeof *b.floats);
    b.out = malloc(rows_at_once * row_bytes);
    spry_status status = SPRY_OK;
    if (!b.floats || !b.out)
        status = spry_fail_memory(error, "a batch of rows", rows_at_once * from->n_in * sizeof *b.floats);
    for (b.first_row = 0; !status && b.first_row < from->n_out; b.first_row += b.n_rows) {
        b.n_rows = from->n_out - b.first_row < rows_at_once ? from->n_out - b.first_row : rows_at_once;
        spry_threads_run(options->threads, encode_part, &b);
        status = spry_gguf_writer_data(writer, b.out, b.n_rows * row_bytes, error);
        *done += b.n_rows * row_bytes;
        if (!status && options->progress && !options->progress(options->user, *done, total))
            status = spry_fail(error, SPRY_ERR_CANCELLED, "interrupted; nothing was written");
    }
    free(b.floats);
    free(b.out);
    return status;
}

static size_t item_bytes(const spry_export_item *item)
{
    size_t bytes = 0;
    const size_t *dims = item->as.dims;
    spry_dtype_size(&bytes, item->as.type, dims[0] * dims[1] * dims[2] * dims[3]);
    return bytes;
}

static spry_status write_plan(const spry_export_plan *plan, spry_gguf_writer *writer, merge *merged, const char *path,
                              spry_error *error)
{
    const spry_ops *ops;
    spry_status status = spry_ops_get(&ops, "auto", error);
    if (status)
        return status;
    size_t done = 0, total = 0;
    if (!spry_export_metadata(plan, writer))
        return spry_fail_memory(error, "a file's metadata", 0);
    for (size_t i = 0; i < plan->count; i++) {
        spry_gguf_writer_tensor(writer, &plan->items[i].as);
        total += item_bytes(&plan->items[i]);
    }
    status = spry_gguf_writer_begin(writer, path, error);
    for (size_t i = 0; !status && i < plan->count; i++)
        for (size_t piece = 0; !status && piece < plan->items[i].n_pieces; piece++)
            status = write_piece(writer, merged, plan->options, ops, &plan->items[i], &plan->items[i].pieces[piece],
                                 &done, total, error);
    if (!status)
        status = merge_check(merged, plan->model, error);
    return status ? status : spry_gguf_writer_finish(writer, error);
}

spry_status spry_model_export(const spry_model *model, const char *path, const spry_export *options, spry_error *error)
{
    spry_export_plan plan;
    spry_gguf_writer *writer = NULL;
    merge merged = {0};
    spry_status status = spry_export_plan_init(&plan, model, options, error);
    if (!status && options->merges)
        status = merge_init(&merged, model, error);
    if (!status)
        status = spry_gguf_writer_create(&writer, error);
    if (!status)
        status = write_plan(&plan, writer, &merged, path, error);
    spry_gguf_writer_destroy(writer);
    free(merged.list);
    spry_export_plan_deinit(&plan);
    return status;
}
