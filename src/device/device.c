/* The table of device kinds, and the checks on which every device relies. */
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "device/device_impl.h"
#include "device/ranks/ranks.h"
#include "kv/kv_states.h"
#include "model/arch.h"
#include "platform/clock.h"

/* ---- the watch of ops -------------------------------------------------------------------------------------------- */

const char *spry_op_name(spry_op op)
{
    static const char *const names[] = {
        [SPRY_OP_LAYOUT] = "layout", [SPRY_OP_EMBED] = "embed",       [SPRY_OP_NORM] = "norm",
        [SPRY_OP_QKV] = "qkv",       [SPRY_OP_ROPE] = "rope",         [SPRY_OP_ATTEND] = "attend",
        [SPRY_OP_OUT] = "out",       [SPRY_OP_ADD] = "add",           [SPRY_OP_GATE_UP] = "gate_up",
        [SPRY_OP_GATE] = "gate",     [SPRY_OP_DOWN] = "down",         [SPRY_OP_ROUTE] = "route",
        [SPRY_OP_LOGITS] = "logits", [SPRY_OP_EXCHANGE] = "exchange",
    };
    return (size_t)op < SPRY_COUNT(names) ? names[op] : "unknown";
}

void spry_op_watch_flush(spry_op_watch *watch)
{
    spry_trace_add_all(watch->trace, watch->spans, watch->n_spans);
    watch->n_spans = 0;
}

void spry_op_watch_add(spry_op_watch *watch, spry_op op, spry_dtype type, const char *kernels, double bytes,
                       double products)
{
    spry_op_watch_until(watch, spry_clock_ns(), op, type, kernels, bytes, products);
}

void spry_op_watch_until(spry_op_watch *watch, uint64_t now, spry_op op, spry_dtype type, const char *kernels,
                         double bytes, double products)
{
    const spry_op_place place = strcmp(kernels, SPRY_OP_ON_GPU) == 0    ? SPRY_PLACE_GPU
                                : strcmp(kernels, SPRY_OP_ON_HOST) == 0 ? SPRY_PLACE_HOST
                                                                        : SPRY_PLACE_CPU;
    spry_op_figures *figures = &watch->ops[place][op][type];
    figures->ns += now - watch->last_ns;
    figures->calls++;
    figures->bytes += bytes;
    figures->products += products;
    if (watch->trace) {
        watch->spans[watch->n_spans++] = (spry_trace_span){.name = spry_op_name(op),
                                                           .category = "op",
                                                           .lane = watch->lane,
                                                           .begin_ns = watch->last_ns,
                                                           .end_ns = now,
                                                           .kernel = kernels,
                                                           .type = spry_dtype_name(type)};
        if (watch->n_spans == SPRY_OP_SPANS)
            spry_op_watch_flush(watch);
    }
    watch->last_ns = now;
}

/* The work of attention, for the op watch of any device. */

/* The number of keys that the rows of a segment see, summed over the rows. */
static double seen_keys(const spry_segment *g, uint32_t window)
{
    double keys = 0;
    for (uint32_t i = 0; i < g->n_rows; i++) {
        uint32_t all = g->first_position + i + 1;
        keys += window && all > window ? window : all;
    }
    return keys;
}

void spry_device_attention_work(double *bytes, double *products, const spry_segment *segments, size_t n_segments,
                                const spry_config *config, const spry_kv_pool *pool, uint32_t layer)
{
    uint32_t window = config->sliding[layer] ? config->window : 0;
    double tokens = 0;
    *products = 0;
    for (size_t s = 0; s < n_segments; s++) {
        const spry_segment *g = &segments[s];
        uint32_t end = g->first_position + g->n_rows, most = window ? window + g->n_rows - 1 : end;
        *products += seen_keys(g, window) * config->n_heads * config->head_dim * 2;
        tokens += end < most ? end : most;
    }
    *bytes = tokens * (double)pool->page_bytes / SPRY_PAGE_TOKENS / config->n_layers;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static const spry_device_kind *kinds[4] = {&spry_device_kind_cpu, &spry_device_kind_cuda, &spry_device_kind_vulkan};

void spry_device_add_kind(const spry_device_kind *kind)
{
    kinds[SPRY_COUNT(kinds) - 1] = kind;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Checks that both parts of a composed device are known. */
static spry_status find_parts(const spry_device_kind **kind, const char *name, spry_error *error)
{
    const char *plus = strchr(name, '+');
    char first[64];
    snprintf(first, sizeof first, "%.*s", (int)(plus - name), name);
    spry_status status = spry_device_find(kind, first, error);
    if (!status && strchr(plus + 1, '+'))
        status = spry_fail(error, SPRY_ERR_INPUT, "device '%.40s': a model is split over two devices at most", name);
    if (!status)
        status = spry_device_find(kind, plus + 1, error);
    *kind = status ? NULL : &spry_device_kind_split;
    return status;
}

spry_status spry_device_find(const spry_device_kind **kind, const char *name, spry_error *error)
{
    char known[128] = "";
    size_t length = strcspn(name, ":"), used = 0;
    if (strchr(name, '+'))
        return find_parts(kind, name, error);
    for (size_t i = 0; i < SPRY_COUNT(kinds) && kinds[i]; i++) {
        if (strlen(kinds[i]->name) == length && !memcmp(kinds[i]->name, name, length)) {
            bool ranks = kinds[i] == &spry_device_kind_cpu && spry_ranks_shared(); /* the CPUs of all ranks */
            *kind = ranks ? &spry_device_kind_ranks : kinds[i];
            return SPRY_OK;
        }
        int written = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", kinds[i]->name);
        used += written > 0 && used + (size_t)written < sizeof known ? (size_t)written : 0;
    }
    *kind = NULL;
    return spry_fail(error, SPRY_ERR_INPUT, "device '%.40s' is not known; known are %s", name, known);
}

/* The text after the colon; for a composed device its whole name. */
static const char *piece_of(const char *name)
{
    const char *colon = strchr(name, ':');
    return strchr(name, '+') ? name : colon ? colon + 1 : "";
}

spry_status spry_device_only(const spry_device_kind *kind, const char *piece, spry_error *error)
{
    if (!*piece)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT, "device '%s:%.40s' is not known; there is one, %s", kind->name, piece,
                     kind->name);
}

uint32_t spry_device_chunk(const spry_device_kind *kind)
{
    return kind->chunk;
}

size_t spry_device_total(const char *name)
{
    const spry_device_kind *kind;
    return spry_device_find(&kind, name, NULL) || !kind->total ? 0 : kind->total(piece_of(name));
}

size_t spry_device_available(const char *name)
{
    const spry_device_kind *kind;
    return spry_device_find(&kind, name, NULL) || !kind->available ? 0 : kind->available(piece_of(name));
}

bool spry_device_is_host(const char *name)
{
    const spry_device_kind *kind;
    return !spry_device_find(&kind, name, NULL) && kind->is_host && kind->is_host(piece_of(name));
}

void spry_device_explain(const char *name, spry_error *why)
{
    const spry_device_kind *kind;
    spry_fail(why, SPRY_ERR_DEVICE, "no such hardware or driver here");
    if (!spry_device_find(&kind, name, NULL) && kind->explain)
        kind->explain(piece_of(name), why);
}

spry_status spry_device_check(const spry_device_kind *kind, const spry_config *config, spry_error *error)
{
    uint32_t lacking = spry_config_features(config) & ~kind->features;
    char names[SPRY_ERROR_MAX];
    if (!lacking)
        return SPRY_OK;
    spry_features_describe(names, sizeof names, lacking);
    return spry_fail(error, SPRY_ERR_UNSUPPORTED, "device '%s' does not compute what %s models need: %.300s",
                     kind->name, config->arch->name, names);
}

spry_status spry_device_check_pages(const spry_device_kind *kind, const spry_device_setup *setup, spry_error *error)
{
    if (setup->pool->shape.type != SPRY_Q4_0 || kind->nibbles)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                     "device '%s' does not compute keys and values of kv-type q4_0: take q8_0, or --device cpu",
                     kind->name);
}

bool spry_device_nibbles(const spry_device_kind *kind)
{
    return kind->nibbles;
}

spry_status spry_device_check_adapters(const spry_device_kind *kind, const spry_step_limits *limits, spry_error *error)
{
    if (!limits->n_adapters || kind->adapters)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                     "device '%s' does not compute adapters: merge them into the model (spry convert --lora), or use "
                     "one CPU",
                     kind->name);
}

spry_status spry_device_check_named(const char *name, const spry_config *config, spry_error *error)
{
    const spry_device_kind *kind;
    char part[64];
    spry_status status = SPRY_OK;
    for (size_t length; !status; name += length + 1) {
        length = strcspn(name, "+");
        snprintf(part, sizeof part, "%.*s", (int)length, name);
        status = spry_device_find(&kind, part, error);
        if (!status)
            status = spry_device_check(kind, config, error);
        if (!name[length])
            break;
    }
    return status;
}

const char *spry_device_auto(const spry_config *config, const spry_step_limits *limits, spry_error *why)
{
    static const char *const gpus[] = {"cuda:0", "vulkan:0"}; /* the first that is there is used */
    if (spry_ranks_shared()) {
        spry_fail(why, SPRY_ERR_DEVICE, "processes share the model");
        return NULL;
    }
    for (size_t i = 0; i < SPRY_COUNT(gpus); i++) {
        const spry_device_kind *kind;
        if (spry_device_find(&kind, gpus[i], why) || spry_device_is_host(gpus[i]) || !spry_device_total(gpus[i]))
            continue;
        if (!config || (!spry_device_check(kind, config, why) && !spry_device_check_adapters(kind, limits, why)))
            return gpus[i];
        return NULL;
    }
    spry_device_explain(gpus[0], why);
    return NULL;
}

uint32_t spry_device_layers(const spry_device *device)
{
    return device->split_layers;
}

spry_status spry_device_open(spry_device **out, const char *name, const spry_device_setup *setup, spry_error *error)
{
    const spry_device_kind *kind;
    *out = NULL;
    spry_status status = spry_device_find(&kind, name, error);
    if (!status)
        status = spry_device_check(kind, setup->config, error);
    if (!status)
        status = spry_device_check_adapters(kind, &setup->limits, error);
    if (!status)
        status = spry_device_check_pages(kind, setup, error);
    return status ? status : kind->open(out, piece_of(name), setup, error);
}

bool spry_whisper_device_takes_rows(const char *name)
{
    const spry_device_kind *kind;
    return !spry_device_find(&kind, name, NULL) && kind->whisper_rows && kind->total(piece_of(name));
}

spry_status spry_whisper_device_open(spry_whisper_device **out, const char *name, const spry_whisper_setup *setup,
                                     const spry_log *log, spry_error *error)
{
    const spry_device_kind *kind;
    *out = NULL;
    spry_status status = spry_device_find(&kind, name, error);
    if (status)
        return status;
    bool there = !kind->total || kind->total(piece_of(name));
    if (kind->open_whisper && there)
        return kind->open_whisper(out, piece_of(name), setup, error);
    if (!there)
        spry_log_write(
            log, SPRY_LOG_WARN,
            "%s: no such hardware or driver here, or a program without its kernels; the CPU computes instead", name);
    else if (kind != &spry_device_kind_ranks)
        spry_log_write(log, SPRY_LOG_WARN, "device '%s' does not compute Whisper models; the CPU computes instead",
                       kind->name);
    return spry_device_kind_cpu.open_whisper(out, "", setup, error);
}

bool spry_device_taps(const spry_device_kind *kind)
{
    return kind->taps;
}

bool spry_device_towers(const spry_device_kind *kind)
{
    return kind->towers;
}

const char *spry_device_kind_name(const spry_device_kind *kind)
{
    return kind->name;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static spry_status wait_all(spry_device *device, spry_error *error)
{
    spry_status status = SPRY_OK;
    while (device->under_way) {
        spry_status each = spry_device_wait(device, status ? NULL : error);
        status = status ? status : each;
    }
    return status;
}

void spry_device_close(spry_device *device)
{
    if (!device)
        return;
    wait_all(device, NULL);
    device->ops->close(device);
}

bool spry_device_estimate(const spry_device_kind *kind, spry_device_memory *memory, const spry_device_setup *setup,
                          const spry_device_use *use)
{
    *memory = (spry_device_memory){0};
    return kind->estimate(memory, setup, use);
}

void spry_device_identify(const spry_device_kind *kind, char identity[SPRY_DEVICE_IDENTITY],
                          const spry_device_setup *setup)
{
    if (kind->identify)
        kind->identify(identity, SPRY_DEVICE_IDENTITY, setup);
    else
        snprintf(identity, SPRY_DEVICE_IDENTITY, "%s revision %d", kind->name, SPRY_KERNEL_REVISION);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Rows that see all of their text are computed together with all of it, and give no logits. A tower's are windows of
 * one picture, which its caller puts into one step. */
static spry_status check_whole(const spry_segment *g, const spry_config *c, spry_error *error)
{
    if (!c->bidirectional)
        return SPRY_OK;
    if (spry_segment_logits(g))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s models give embeddings, not text: they have no next token",
                         c->arch->name);
    if (!c->arch->tower && (g->first_position || g->n_rows != g->table->n_tokens))
        return spry_fail(error, SPRY_ERR_CONTEXT, "%s models compute a text of %zu tokens in one step, not %u of them",
                         c->arch->name, g->table->n_tokens, g->n_rows);
    return SPRY_OK;
}

spry_status spry_device_check_picture(const spry_device *d, const spry_picture *p, spry_error *error)
{
    if (!d->pictures || (p->two_way && !d->two_way))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "this device does not compute pictures; use --device cpu");
    if (p->n_embd != d->config->n_embd || p->n_deep > d->config->n_layers - d->split_layers ||
        (p->columns && !d->config->rope_axes && !d->config->arch->tower))
        return spry_fail(
            error, SPRY_ERR_INPUT,
            "a picture of %u floats a row, %u more layers and %u columns is not for a %s model of %u floats "
            "and %u layers on this device",
            p->n_embd, p->n_deep, p->columns, d->config->arch->name, d->config->n_embd,
            d->config->n_layers - d->split_layers);
    if (p->columns && p->n_rows % p->columns && !d->config->arch->tower) /* which may have a class row */
        return spry_fail(error, SPRY_ERR_INPUT, "a picture of %u rows has no columns of %u", p->n_rows, p->columns);
    if (p->two_way && p->n_rows > d->limits.max_rows)
        return spry_fail(error, SPRY_ERR_CONTEXT, "a picture of %u rows does not fit a step of %u", p->n_rows,
                         d->limits.max_rows);
    return SPRY_OK;
}

/* `inputs`: the step's rows come from the layers before. */
static spry_status check_picture_rows(const spry_device *d, const spry_segment *g, bool inputs, spry_error *error)
{
    const spry_picture *p = g->picture;
    bool inside = !p || ((size_t)g->picture_row + g->n_rows <= p->n_rows && g->picture_row <= g->first_position);
    if (!inside || (p && p->two_way && g->n_rows != p->n_rows))
        return spry_fail(error, SPRY_ERR_INPUT, "rows %u to %zu of a picture of %u", g->picture_row,
                         (size_t)g->picture_row + g->n_rows, p->n_rows);
    return p && !inputs ? spry_device_check_picture(d, p, error) : SPRY_OK;
}

static spry_status check_tokens(const spry_device *d, const spry_segment *g, spry_error *error)
{
    for (uint32_t i = 0; i < g->n_rows; i++)
        if (g->tokens[i] < 0 || (uint32_t)g->tokens[i] >= d->config->n_vocab)
            return spry_fail(error, SPRY_ERR_INPUT, "token id %d is outside the vocabulary of %u", g->tokens[i],
                             d->config->n_vocab);
    return SPRY_OK;
}

/* `drawn`: NULL, or the indices of the draws that give the tokens. */
static spry_status check_step(const spry_device *d, const spry_device_step *step, const uint32_t *drawn, size_t *logits,
                              size_t *hidden, spry_error *error)
{
    size_t rows = 0;
    *logits = *hidden = 0;
    for (size_t s = 0; s < step->n_segments; s++) {
        const spry_segment *g = &step->segments[s];
        if ((size_t)g->first_position + g->n_rows > g->table->n_tokens)
            return spry_fail(error, SPRY_ERR_CONTEXT, "a step reaches position %zu of a sequence of %zu tokens",
                             (size_t)g->first_position + g->n_rows, g->table->n_tokens);
        if (drawn && (g->n_rows != 1 || drawn[s] >= d->n_draws))
            return spry_fail(error, SPRY_ERR_INPUT, "%u rows after draw %u of a step with %zu", g->n_rows, drawn[s],
                             d->n_draws);
        spry_status status = drawn ? SPRY_OK : check_tokens(d, g, error);
        if (!status)
            status = check_picture_rows(d, g, step->inputs != NULL, error);
        if (!status)
            status = check_whole(g, d->config, error);
        if (status)
            return status;
        rows += g->n_rows;
        *logits += spry_segment_logits(g);
        *hidden += g->want == SPRY_WANT_HIDDEN ? g->n_rows : 0;
    }
    if (d->config->n_draft_in && !step->inputs)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "a head that drafts computes tokens with hidden states, and there are none");
    *hidden += rows * d->config->n_taps;
    if (rows > d->limits.max_rows || *logits > d->limits.max_logits)
        return spry_fail(error, SPRY_ERR_INPUT, "a step of %zu rows (%zu with logits) passes the limit of %u (%u)",
                         rows, *logits, d->limits.max_rows, d->limits.max_logits);
    return SPRY_OK;
}

static spry_status check_draws(spry_draw *const *draws, size_t n, size_t n_logits, spry_error *error)
{
    for (size_t i = 0; i < n; i++)
        if (draws[i]->row >= n_logits || draws[i]->max_top > SPRY_TOP_LOGPROBS_MAX)
            return spry_fail(error, SPRY_ERR_INPUT, "a draw of row %zu (%u alternatives) in a step of %zu with logits",
                             draws[i]->row, draws[i]->max_top, n_logits);
    return SPRY_OK;
}

/* After a step, states are kept for the beginning of the page that holds the last row. */
static void advance_states(const spry_device_step *step)
{
    for (size_t s = 0; s < step->n_segments; s++) {
        const spry_segment *g = &step->segments[s];
        if (g->n_rows && g->table->state)
            g->table->state_from = spry_kv_table_find(g->table, g->first_position + g->n_rows - 1)->start;
    }
}

spry_status spry_device_submit(spry_device *device, const spry_device_step *step, spry_error *error)
{
    size_t logits, hidden;
    spry_status status = wait_all(device, error);
    if (!status)
        status = check_step(device, step, NULL, &logits, &hidden, error);
    if (!status)
        status = check_draws(step->draws, step->n_draws, logits, error);
    if (status)
        return status;
    device->n_logits = device->n_hidden = 0;
    device->sampling_ns = device->attention_ns = 0;
    status = device->ops->submit(device, step, error);
    if (status)
        return status;
    advance_states(step);
    device->under_way = 1;
    device->n_draws = least(step->n_draws, device->limits.max_logits);
    device->n_logits = logits;
    device->n_hidden = hidden;
    return SPRY_OK;
}

bool spry_device_goes_ahead(const spry_device *device)
{
    return device->ops->submit_after;
}

spry_status spry_device_submit_after(spry_device *device, const spry_device_step *step, const uint32_t *drawn,
                                     spry_error *error)
{
    size_t logits, hidden;
    if (!device->ops->submit_after || device->under_way != 1)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "a step after %u others: this device cannot", device->under_way);
    spry_status status = check_step(device, step, drawn, &logits, &hidden, error);
    if (!status)
        status = check_draws(step->draws, step->n_draws, logits, error);
    if (!status)
        status = device->ops->submit_after(device, step, drawn, error);
    if (status)
        return status;
    advance_states(step);
    device->under_way = 2;
    device->n_draws = least(step->n_draws, device->limits.max_logits);
    device->logits_after = logits;
    device->n_logits = device->n_hidden = 0;
    return SPRY_OK;
}

spry_status spry_device_wait(spry_device *device, spry_error *error)
{
    if (!device->under_way)
        return SPRY_OK;
    device->under_way--;
    spry_status status = device->ops->wait(device, error);
    if (!device->under_way && device->logits_after) {
        device->n_logits = device->logits_after;
        device->logits_after = 0;
    }
    if (status)
        device->n_logits = device->n_hidden = 0;
    return status;
}

spry_status spry_device_draw(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error)
{
    spry_status status = wait_all(device, error);
    if (!status)
        status = check_draws(draws, n, device->n_logits, error);
    return status ? status : device->ops->draw(device, draws, n, error);
}

static spry_status check_rows(size_t first, size_t count, size_t there, const char *what, spry_error *error)
{
    if (count <= there && first <= there - count)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT, "%s of rows %zu to %zu were asked for, the step gave %zu", what, first,
                     first + count, there);
}

spry_status spry_device_logits(spry_device *device, const float **logits, size_t first, size_t count, spry_error *error)
{
    *logits = NULL;
    spry_status status = wait_all(device, error);
    if (!status)
        status = check_rows(first, count, device->n_logits, "logits", error);
    return status ? status : device->ops->logits(device, logits, first, count, error);
}

spry_status spry_device_hidden(spry_device *device, const float **hidden, size_t first, size_t count, spry_error *error)
{
    *hidden = NULL;
    spry_status status = wait_all(device, error);
    if (!status)
        status = check_rows(first, count, device->n_hidden, "hidden states", error);
    return status ? status : device->ops->hidden(device, hidden, first, count, error);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

spry_kv_mover spry_device_mover(spry_device *device)
{
    return device->ops->mover(device);
}

void spry_device_attach(spry_device *device, spry_kv_pool *pool)
{
    pool->mover = device->ops->mover(device);
    if (pool->states) /* devices without them refuse the model */
        pool->states->pool.mover = device->ops->state_mover(device);
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

uint64_t spry_device_sampling_ns(const spry_device *device)
{
    return device->sampling_ns;
}

bool spry_device_placed_weights(const spry_device *device)
{
    return device->placed_weights;
}

uint64_t spry_device_attention_ns(const spry_device *device)
{
    return device->attention_ns;
}

uint64_t spry_device_waits(spry_device *device)
{
    return device->ops->waits ? device->ops->waits(device) : 0;
}

void spry_device_set_trace(spry_device *device, spry_trace *trace, uint32_t lane)
{
    device->ops->set_trace(device, trace, lane);
}

void spry_device_set_watch(spry_device *device, spry_op_watch *watch)
{
    device->ops->set_watch(device, watch);
}

void spry_device_set_threads(spry_device *device, spry_threads *threads)
{
    device->ops->set_threads(device, threads);
}

bool spry_device_measure(spry_device *device, spry_device_memory *memory)
{
    *memory = (spry_device_memory){0};
    return device->ops->measure(device, memory);
}

bool spry_device_measure_pages(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages)
{
    *bytes = 0;
    return device->ops->measure_pages(device, bytes, pages, n_pages);
}
