/* Predicts the speed of a model from the work of its steps. */
#include "insight/prediction.h"

#include <math.h>

#include "device/cpu/pass.h"
#include "insight/model_file.h"
#include "kernels/packed.h"
#include "model/quantize.h"
#include "model/shapes.h"

/* ---- the work of a model ----------------------------------------------------------------------------------------- */

/* One iteration over a model's matrices computes all counts. */

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

static double file_bytes(const spry_weight *w)
{
    return (double)w->n_out * (double)w->row_bytes;
}

/* In the kernels' layout. */
static double read_bytes(const spry_weight *w, const spry_ops *ops)
{
    size_t group = ops->matmul[w->type].group;
    if (!group)
        return file_bytes(w);
    size_t blocks = w->n_in / spry_dtype_block(w->type), groups = (w->n_out + group - 1) / group;
    return (double)(spry_packed_row_bytes(w->type) * group * blocks) * (double)groups;
}

static double weight_products(const spry_weight *w)
{
    return (double)w->n_out * (double)w->n_in;
}

/* Calls `visit` for every matrix of a layer; equal experts as one, with their number. */
typedef void (*visit_fn)(void *context, const spry_weight *w, bool expert);

static void visit_list(const spry_weight *const *matrices, size_t n, visit_fn visit, void *context, bool experts)
{
    for (size_t i = 0; i < n; i++)
        if (matrices[i] && matrices[i]->data)
            visit(context, matrices[i], experts);
}

static void visit_layer(const spry_layer *l, const spry_config *c, visit_fn visit, void *context)
{
    const spry_weight *const mixing[] = {&l->q_a,
                                         &l->q,
                                         &l->k,
                                         &l->v,
                                         &l->o,
                                         &l->attn_gate,
                                         &l->conv_in,
                                         &l->conv_out,
                                         &l->delta_qkv[0],
                                         &l->delta_qkv[1],
                                         &l->delta_qkv[2],
                                         &l->delta_gate,
                                         &l->delta_b,
                                         &l->delta_a,
                                         &l->delta_out};
    const spry_weight *const feeding[] = {&l->gate,        &l->up,        &l->down,        &l->router,
                                          &l->shared_gate, &l->shared_up, &l->shared_down, &l->shared_router,
                                          &l->latent_in,   &l->latent_out};
    const spry_weight *const experts[] = {l->expert_gate, l->expert_up, l->expert_down};
    const spry_weight *const beside[] = {l->side ? &l->side->gate : NULL, l->side ? &l->side->proj : NULL};
    visit_list(mixing, SPRY_COUNT(mixing), visit, context, false);
    for (size_t head = 0; l->k_b && head < c->n_heads; head++)
        visit_list((const spry_weight *const[]){&l->k_b[head], &l->v_b[head]}, 2, visit, context, false);
    visit_list(feeding, SPRY_COUNT(feeding), visit, context, false);
    visit_list(experts, SPRY_COUNT(experts), visit, context, true);
    visit_list(beside, SPRY_COUNT(beside), visit, context, false);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

typedef struct tally {
    spry_step_work *work;
    const spry_ops *ops;
    double rows;
    double experts, expert_rows; /* experts chosen by any row; rows per expert */
} tally;

/* Counts `alike` equal matrices with `rows` rows each. */
static void count_matrix(tally *t, const spry_weight *w, double alike, double rows)
{
    spry_type_work *sum = rows < 2 ? &t->work->one[w->type] : &t->work->many[w->type];
    sum->bytes += alike * read_bytes(w, t->ops);
    sum->products += alike * rows * weight_products(w);
}

static void count_any(void *context, const spry_weight *w, bool expert)
{
    tally *t = context;
    count_matrix(t, w, expert ? t->experts : 1, expert ? t->expert_rows : t->rows);
}

/* Counts values processed. They are split among threads when there are enough of them (see the device's block). */
static bool count_numbers(tally *t, spry_small_op op, double rows, double width, double times)
{
    const double worth_waking = 8192;
    bool shared = rows >= 2 && rows * width >= worth_waking;
    (shared ? t->work->many_small : t->work->one_small)[op] += times * rows * width;
    return shared;
}

static void count_small(tally *t, spry_small_op op, double rows, double width, double times)
{
    if (count_numbers(t, op, rows, width, times))
        t->work->syncs += times;
}

/* Counts the encoding of rows for integer kernels. */
static void count_input(tally *t, const spry_weight *w, double rows, double times)
{
    t->work->syncs += times;
    if (t->ops->matmul[w->type].integer)
        count_small(t, SPRY_SMALL_ENCODE, rows, (double)w->n_in, times);
}

/* out = down(activation(gate(in)) * up(in)) */
static void count_gated(tally *t, const spry_weight *gate, const spry_weight *down, double rows, double times)
{
    count_input(t, gate, rows, times);
    count_small(t, SPRY_SMALL_GATE, rows, (double)gate->n_out, times);
    count_input(t, down, rows, times);
}

/* Counts the operations of a layer besides products. A norm without a residual is half of a norm with one. */
static void count_between(tally *t, const spry_layer *l, const spry_config *c)
{
    double n_q = (double)c->n_heads * c->head_dim, n_kv = (double)c->n_kv_heads * c->head_dim;
    count_small(t, SPRY_SMALL_NORM, t->rows, c->n_embd, 2);
    t->work->syncs += t->rows < 2 ? 0 : 2; /* norm and residual are separate */
    if (l->attn_post_norm)
        count_small(t, SPRY_SMALL_NORM, t->rows, c->n_embd / 2.0, 2);
    if (l->q_norm)
        count_numbers(t, SPRY_SMALL_NORM, t->rows, n_q + n_kv, 1); /* short rows: no faster without a residual */
    if (l->q.data) {
        count_input(t, &l->q, t->rows, 1);
        count_small(t, SPRY_SMALL_ROPE, t->rows, n_q + 2 * n_kv, 1);
        t->work->syncs++; /* attention */
        count_input(t, &l->o, t->rows, 1);
    }
    if (l->delta_out.data) {
        count_input(t, &l->delta_gate, t->rows, 1);
        t->work->syncs += 3;
        count_input(t, &l->delta_out, t->rows, 1);
    }
    if (l->gate.data)
        count_gated(t, &l->gate, &l->down, t->rows, 1);
    if (l->shared_up.data)
        count_gated(t, &l->shared_up, &l->shared_down, t->rows, 1);
    if (l->expert_up)
        count_gated(t, l->expert_up, l->expert_down, t->expert_rows, t->experts);
}

/* Counts a step of `rows` rows, `logits` of which are multiplied by the output matrix; without attention. */
static void count_step(spry_step_work *work, const spry_work_setting *s, double rows, double logits)
{
    const spry_config *c = &s->model->config;
    const spry_weights *w = &s->model->weights;
    tally t = {.work = work, .ops = s->ops, .rows = rows};
    if (c->n_experts) {
        t.experts = c->n_experts * (1 - pow(1 - (double)c->n_experts_used / c->n_experts, rows));
        t.expert_rows = rows * c->n_experts_used / t.experts;
    }
    for (uint32_t i = 0; i < c->n_layers; i++) {
        visit_layer(&w->layers[i], c, count_any, &t);
        count_between(&t, &w->layers[i], c);
    }
    if (logits > 0) {
        count_matrix(&t, &w->output, 1, logits);
        count_input(&t, &w->output, logits, 1);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Keys that a row with `keys` keys attends to in a layer. */
static double seen(const spry_config *c, uint32_t layer, size_t keys)
{
    if (!spry_config_attends(c, layer))
        return 0;
    return c->sliding[layer] && keys > c->window ? c->window : (double)keys;
}

/* Attention of the row at a position: scores and weighted sum, one product per key and value each; and recurrent
 * states, of which each value fades, is read and is added to. */
static double attention_products(const spry_config *c, size_t position)
{
    double sum = 0, state = (double)c->n_delta_heads * c->delta_key_dim * c->delta_value_dim;
    for (uint32_t i = 0; i < c->n_layers; i++)
        sum += seen(c, i, position + 1) * c->n_heads * spry_config_heads(c, i).head_dim * 2 +
               (spry_config_recurs(c, i) ? 3 * state : 0);
    return sum;
}

static double token_bytes(const spry_work_setting *s)
{
    spry_kv_shape shape = spry_model_kv_shape(s->model, s->kv_type);
    size_t bytes;
    return spry_kv_token_bytes(&bytes, &shape) ? (double)bytes : 0;
}

/* Bytes of a sequence's keys and values that its next rows read. */
static double attention_bytes(const spry_work_setting *s, size_t keys)
{
    const spry_config *c = &s->model->config;
    double read = 0, stored = 0; /* values of heads: of all keys that are seen, and of one token */
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const spry_heads h = spry_config_heads(c, i);
        double width = (double)h.n_kv_heads * h.head_dim;
        read += seen(c, i, keys) * width;
        stored += spry_config_attends(c, i) && c->kv_layer[i] == i ? width : 0;
    }
    return stored > 0 ? read * token_bytes(s) / stored : 0;
}

/* ---- the counts -------------------------------------------------------------------------------------------------- */

spry_step_work spry_work_of_prefill(const spry_work_setting *s, size_t tokens)
{
    spry_step_work work = {0};
    for (size_t done = 0; done < tokens;) {
        size_t part = tokens - done < s->chunk ? tokens - done : s->chunk;
        count_step(&work, s, (double)part, done + part == tokens);
        for (size_t i = 0; i < part; i++)
            work.attend_products += attention_products(&s->model->config, done + i);
        work.kv_bytes += attention_bytes(s, done + part);
        done += part;
    }
    return work;
}

spry_step_work spry_work_of_decode(const spry_work_setting *s, size_t depth, size_t batch)
{
    spry_step_work work = {0};
    count_step(&work, s, (double)batch, (double)batch);
    work.attend_products = (double)batch * attention_products(&s->model->config, depth);
    work.kv_bytes = (double)batch * attention_bytes(s, depth + 1);
    return work;
}

double spry_work_bytes(const spry_step_work *work)
{
    double sum = work->kv_bytes;
    for (size_t type = 0; type < SPRY_DTYPE_COUNT; type++)
        sum += work->one[type].bytes + work->many[type].bytes;
    return sum;
}

double spry_work_products(const spry_step_work *work)
{
    double sum = work->attend_products;
    for (size_t type = 0; type < SPRY_DTYPE_COUNT; type++)
        sum += work->one[type].products + work->many[type].products;
    return sum;
}

/* ---- what a model is --------------------------------------------------------------------------------------------- */

typedef struct type_products {
    double by_type[SPRY_DTYPE_COUNT];
    double experts; /* per row */
} type_products;

static void add_products(void *context, const spry_weight *w, bool expert)
{
    type_products *sum = context;
    sum->by_type[w->type] += (expert ? sum->experts : 1) * weight_products(w);
}

spry_dtype spry_work_main_type(const spry_model *model)
{
    type_products sum = {.experts = model->config.n_experts_used};
    uint32_t best = 0;
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        visit_layer(&model->weights.layers[i], &model->config, add_products, &sum);
    for (uint32_t type = 1; type < SPRY_DTYPE_COUNT; type++)
        if (sum.by_type[type] > sum.by_type[best])
            best = type;
    return (spry_dtype)best;
}

typedef struct size_tally {
    spry_model_size *size;
    const spry_work_setting *setting;
} size_tally;

static void add_size(void *context, const spry_weight *w, bool expert)
{
    const size_tally *t = context;
    double alike = expert ? t->setting->model->config.n_experts : 1;
    t->size->parameters += alike * weight_products(w);
    t->size->file_bytes += alike * file_bytes(w);
    t->size->weight_bytes += alike * read_bytes(w, t->setting->ops);
    t->size->expert_bytes += expert ? alike * read_bytes(w, t->setting->ops) : 0;
    t->size->expert_token_bytes +=
        expert ? t->setting->model->config.n_experts_used * read_bytes(w, t->setting->ops) : 0;
}

/* Norms and biases; mostly F32 in files. */
static double vector_values(const spry_model *model)
{
    const spry_config *c = &model->config;
    double sum = c->n_embd;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const spry_layer *l = &model->weights.layers[i];
        const spry_weight *const biased[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t b = 0; b < SPRY_COUNT(biased); b++)
            sum += biased[b]->bias ? (double)biased[b]->n_out : 0;
        sum += (double)c->n_embd * (2 + !!l->attn_post_norm + !!l->ffn_post_norm);
        sum += (double)c->head_dim * (!!l->q_norm + !!l->k_norm);
    }
    return sum;
}

/* What a model is and takes with these kernels, opened from a file. */
static spry_model_size model_size_of(const spry_work_setting *s, uint32_t context)
{
    enum { LOGIT_ROWS = 16 }; /* rows of logits of an engine with one session */
    const spry_model *model = s->model;
    const spry_weights *w = &model->weights;
    double vectors = vector_values(model);
    spry_model_size size = {.parameters = vectors, .file_bytes = vectors * sizeof(float)};
    size.weight_bytes = size.file_bytes;
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        visit_layer(&w->layers[i], &model->config, add_size, &(size_tally){&size, s});
    if (!model->config.tied)
        add_size(&(size_tally){&size, s}, &w->output, false);
    if (w->layer_embedding.data) {
        add_size(&(size_tally){&size, s}, &w->layer_projection, false);
        size.parameters += weight_products(&w->layer_embedding);
        size.file_bytes += file_bytes(&w->layer_embedding);
        size.weight_bytes += file_bytes(&w->layer_embedding);
    }
    size.parameters += weight_products(&w->embedding);
    size.file_bytes += file_bytes(&w->embedding);
    size.weight_bytes += model->config.tied ? read_bytes(&w->output, s->ops) : file_bytes(&w->embedding);
    size_t pages = ((size_t)context + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS, scratch;
    const spry_step_limits limits = {s->chunk < context ? s->chunk : context, LOGIT_ROWS, context, 0, 0};
    size.kv_bytes = (double)(pages * SPRY_PAGE_TOKENS) * token_bytes(s);
    size.scratch_bytes = spry_pass_bytes(&scratch, &model->config, &limits) ? (double)scratch : INFINITY;
    return size;
}

/* ---- prediction -------------------------------------------------------------------------------------------------- */

/* A step's time is the sum of the times of its parts. Products of one row take as long as reading the weights, from
 * memory or from the cache that holds the whole model, but at least as long as the kernel with cached weights; products
 * of many rows take as long as multiplying, but at least as long as reading the weights. */

double spry_predict_read(const spry_machine_speed *speed, double bytes)
{
    const spry_read_speed *reads = speed->reads;
    if (bytes <= reads[0].bytes)
        return reads[0].gb_s;
    for (size_t i = 1; i < SPRY_READ_SPEEDS; i++)
        if (bytes < reads[i].bytes) {
            double part = log(bytes / reads[i - 1].bytes) / log(reads[i].bytes / reads[i - 1].bytes);
            return reads[i - 1].gb_s * pow(reads[i].gb_s / reads[i - 1].gb_s, part);
        }
    return reads[SPRY_READ_SPEEDS - 1].gb_s;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Seconds of a step whose data is read again in the next step: `nearer` is the speed of its source relative to
 * memory. */
static double seconds_of(const spry_machine_speed *m, const spry_step_work *work, double nearer)
{
    const double giga = 1e9;
    double sum = work->syncs * m->sync_us * 1e-6;
    for (size_t i = 0; i < SPRY_DTYPE_COUNT; i++) {
        const spry_type_speed *type = &m->types[i];
        const spry_type_work *one = &work->one[i], *many = &work->many[i];
        if (one->bytes > 0)
            sum += larger(one->bytes / nearer / type->decode_gb_s, one->bytes / type->cached_gb_s) / giga;
        if (many->bytes > 0)
            sum += larger(many->products / type->multiply_g_s, many->bytes / nearer / type->decode_gb_s) / giga;
    }
    for (size_t op = 0; op < SPRY_SMALL_COUNT; op++)
        sum += (work->one_small[op] * m->threads + work->many_small[op]) / m->small_g_s[op] / giga;
    return sum + larger(work->attend_products / m->attend_g_s, work->kv_bytes / nearer / m->attend_gb_s) / giga;
}

double spry_predict_prefill(const spry_machine_speed *speed, const spry_work_setting *setting, size_t tokens)
{
    spry_step_work work = spry_work_of_prefill(setting, tokens);
    return seconds_of(speed, &work, 1);
}

double spry_predict_decode(const spry_machine_speed *speed, const spry_work_setting *setting, size_t depth,
                           size_t batch)
{
    size_t keys = depth / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS + SPRY_PAGE_TOKENS; /* attention processes whole pages */
    spry_step_work work = spry_work_of_decode(setting, keys - 1, batch);
    return seconds_of(speed, &work, spry_predict_read(speed, spry_work_bytes(&work)) / speed->read_gb_s);
}

/* ---- of a model -------------------------------------------------------------------------------------------------- */

static spry_status check_types(const spry_machine_speed *speed, const spry_work_setting *setting, spry_error *error)
{
    spry_step_work work = spry_work_of_decode(setting, 0, 1);
    for (uint32_t type = 0; type < SPRY_DTYPE_COUNT; type++) {
        const spry_type_speed *t = &speed->types[type];
        if (work.one[type].bytes > 0 && !(t->multiply_g_s > 0 && t->decode_gb_s > 0 && t->cached_gb_s > 0))
            return spry_fail(error, SPRY_ERR_INPUT, "%s: the speed of this machine with %s was not measured",
                             setting->model->name, spry_dtype_name((spry_dtype)type));
    }
    return SPRY_OK;
}

spry_status spry_predict_model(spry_prediction *p, const spry_machine_speed *speed, const spry_model *model,
                               spry_error *error)
{
    spry_work_setting setting = {.model = model, .kv_type = SPRY_F16, .chunk = SPRY_PREDICTED_CHUNK};
    *p = (spry_prediction){.context = SPRY_PREDICTED_CONTEXT};
    spry_status status = spry_ops_get(&setting.ops, speed->kernels, error);
    if (!status)
        status = check_types(speed, &setting, error);
    if (status)
        return status;
    if (model->config.n_context < p->context)
        p->context = model->config.n_context;
    p->size = model_size_of(&setting, p->context);
    p->memory_bytes = p->size.weight_bytes + p->size.kv_bytes + p->size.scratch_bytes;
    p->prefill_tps = SPRY_PREDICTED_PREFILL / spry_predict_prefill(speed, &setting, SPRY_PREDICTED_PREFILL);
    p->decode_tps = 1 / spry_predict_decode(speed, &setting, 0, 1);
    p->ttft_1k_ms = 1e3 * spry_predict_prefill(speed, &setting, SPRY_PREDICTED_PROMPT);
    return SPRY_OK;
}

spry_status spry_predict_file(spry_prediction *prediction, const spry_machine_speed *speed, const spry_model_file *file,
                              spry_error *error)
{
    spry_model *model = NULL;
    const char *name = file->data ? spry_model_file_name(file) : file->path;
    spry_status status = spry_model_open_sizes(&model, name, file->data, file->size, error);
    if (!status)
        status = spry_predict_model(prediction, speed, model, error);
    spry_model_close(model);
    return status;
}

spry_status spry_predict_shape(spry_prediction *prediction, const spry_machine_speed *speed, const char *shape_name,
                               const char *type, spry_error *error)
{
    const spry_shape *shape = spry_shape_find(shape_name);
    const spry_recipe *recipe;
    spry_model *model = NULL;
    if (!shape)
        return spry_fail(error, SPRY_ERR_INPUT, "unknown shape '%.40s'", shape_name);
    spry_status status = spry_recipe_find(&recipe, type, error);
    if (!status)
        status = spry_shape_model(&model, shape, shape_name, error);
    if (!status)
        status = spry_model_quantize_sizes(model, recipe, error);
    if (!status)
        status = spry_predict_model(prediction, speed, model, error);
    spry_model_close(model);
    return status;
}
