/* One iteration over all weights counts, a second one packs. */
#include "device/cpu/packing.h"

#include <string.h>

#include "base/checked.h"
#include "kernels/narrow.h"
#include "kernels/packed.h"
#include "model/arch.h"
#include "platform/memory.h"

typedef struct packer {
    spry_weights *weights;
    const spry_config *config;
    const spry_ops *ops;
    spry_threads *threads;
    unsigned char *memory;             /* NULL: only count */
    size_t used, dropped;              /* packed bytes; bytes of matrices that need not stay in memory */
    const unsigned char *first, *last; /* their range in the file */
    bool mapped, overflow;
    bool all; /* weights that are not packed are copied */
    spry_rounded_acts acts;
    bool apart;                /* experts are packed when they are used */
    struct late_packing *late; /* NULL: all matrices are packed at once */
} packer;

/* What late packing of all matrices needs. */
typedef struct late_packing {
    spry_late_store *store;
    spry_arena *arena;
    size_t largest; /* bytes of a group */
    bool short_of_memory;
} late_packing;

typedef struct pack_job {
    const spry_weight *w;
    unsigned char *out;
    size_t group, n_groups;
    bool drop; /* release the pages of rows as soon as they are packed */
} pack_job;

enum { DROP_BYTES = 4 << 20 }; /* maximum of file bytes resident beside their packed form */

static void pack_part(void *context, size_t worker, size_t n_workers)
{
    const pack_job *job = context;
    const spry_weight *w = job->w;
    size_t begin, end, kept;
    spry_threads_part(&begin, &end, job->n_groups, 1, worker, n_workers);
    kept = begin;
    for (size_t g = begin; g < end; g++) {
        size_t first = g * job->group, left = w->n_out - first, n_rows = left < job->group ? left : job->group;
        spry_weight_pack_group(job->out + g * w->group_bytes, w, first, job->group);
        size_t done = (first + n_rows - kept * job->group) * w->row_bytes;
        if (job->drop && (done >= DROP_BYTES || g + 1 == end)) {
            spry_memory_drop(w->data + kept * job->group * w->row_bytes, done);
            kept = g + 1;
        }
    }
}

/* Packed rows are not read again by this engine. Other readers of the same file get the pages from disk again, and
 * quantised rows belong to this engine alone. */
static bool can_drop(const packer *p)
{
    return p->weights->quantized_bytes || (p->mapped && !p->weights->copied_bytes);
}

/* Reserves bytes; NULL while only counting. */
static unsigned char *reserve(packer *p, size_t bytes)
{
    unsigned char *room = p->memory ? p->memory + p->used : NULL;
    if (!spry_checked_align(&bytes, bytes, 64) || !spry_checked_add(&p->used, p->used, bytes))
        p->overflow = true;
    return room;
}

/* Copies weights in file layout, if they must be in the device's memory. Counting alone (no memory) writes nothing: it
 * runs while others read the weights. */
static void copy_bytes(packer *p, const void **data, size_t bytes)
{
    if (!p->all || !*data)
        return;
    unsigned char *room = reserve(p, bytes);
    if (room)
        *data = memcpy(room, *data, bytes);
}

static void copy_floats(packer *p, const float **floats, size_t count)
{
    const void *data = *floats;
    copy_bytes(p, &data, count * sizeof **floats);
    if (data != *floats)
        *floats = data;
}

static void copy_rows(packer *p, spry_weight *w)
{
    const void *data = w->data;
    copy_bytes(p, &data, w->n_out * w->row_bytes);
    if (data != w->data)
        w->data = data;
}

static size_t group_bytes(const spry_weight *w, size_t group)
{
    return spry_packed_row_bytes(w->type) * group * (w->n_in / spry_dtype_block(w->type));
}

bool spry_weight_packed_bytes(size_t *bytes, const spry_weight *w, const spry_ops *ops)
{
    size_t group = w->data ? ops->matmul[w->type].group : 0;
    *bytes = 0;
    return !group || spry_checked_mul(bytes, group_bytes(w, group), (w->n_out + group - 1) / group);
}

typedef struct narrow_job {
    const spry_weight *w;
    atomic_bool lost; /* a value that the narrow type has not */
} narrow_job;

static void narrow_part(void *context, size_t worker, size_t n_workers)
{
    narrow_job *job = context;
    const spry_weight *w = job->w;
    const unsigned char *rows = w->data - w->n_before * w->row_bytes;
    size_t begin, end;
    spry_threads_part(&begin, &end, w->n_before + w->n_out + w->n_behind, 1, worker, n_workers);
    for (size_t row = begin; row < end && !atomic_load_explicit(&job->lost, memory_order_relaxed); row++)
        if (!spry_narrow_exact(rows + row * w->row_bytes, w->n_in))
            atomic_store_explicit(&job->lost, true, memory_order_relaxed);
}

/* The layout of its groups. Their type is that of the whole matrix, so that any number of ranks gives the same bits. */
static void choose_groups(spry_weight *w, const spry_ops *ops, spry_threads *threads)
{
    spry_dtype narrow = ops->matmul[w->type].narrow;
    narrow_job job = {.w = w};
    if (w->group_bytes) /* an expert that is packed again */
        return;
    if (narrow)
        spry_threads_run(threads, narrow_part, &job);
    w->group_type = narrow && !job.lost ? narrow : w->type;
    w->group_bytes = group_bytes(w, ops->matmul[w->type].group);
}

void spry_weight_pack(spry_weight *w, unsigned char *out, const spry_ops *ops, spry_threads *threads, bool drop)
{
    choose_groups(w, ops, threads);
    size_t group = ops->matmul[w->type].group;
    pack_job job = {.w = w, .out = out, .group = group, .n_groups = (w->n_out + group - 1) / group, .drop = drop};
    spry_threads_run(threads, pack_part, &job);
    w->packed = out;
}

/* Reserves the groups of a matrix, to be packed by steps. */
static void pack_later(packer *p, spry_weight *w, unsigned char *memory)
{
    late_packing *late = p->late;
    choose_groups(w, p->ops, p->threads);
    w->late = spry_arena_alloc(late->arena, 1, sizeof *w->late);
    late->short_of_memory = late->short_of_memory || !w->late;
    late->largest = w->group_bytes > late->largest ? w->group_bytes : late->largest;
    if (!w->late)
        return;
    *w->late = (spry_late_pack){.store = late->store, .memory = memory, .drop = can_drop(p)};
    late->store->n_left++;
}

/* Whether F16 weights are packed as BF16 is not known yet: they count as if not. */
static void count_acts(packer *p, const spry_weight *w)
{
    const spry_matmul_kernel *kernel = &p->ops->matmul[w->type];
    p->acts.integers = p->acts.integers || (w->data && kernel->integer);
    p->acts.halves = p->acts.halves || (w->data && kernel->halve);
}

/* `now`: it is not multiplied by spry_pass_products alone. */
static void pack_when(packer *p, spry_weight *w, bool now)
{
    const spry_matmul_kernel *kernel = &p->ops->matmul[w->type];
    size_t bytes;
    copy_floats(p, &w->bias, w->n_out);
    count_acts(p, w);
    if (!w->data || !kernel->group) {
        copy_rows(p, w);
        return;
    }
    if (!spry_weight_packed_bytes(&bytes, w, p->ops)) {
        p->overflow = true;
        return;
    }
    unsigned char *out = reserve(p, bytes);
    if (out && p->late && !now)
        pack_later(p, w, out);
    else if (out)
        spry_weight_pack(w, out, p->ops, p->threads, can_drop(p));
    if (!can_drop(p))
        return;
    const unsigned char *end = w->data + w->n_out * w->row_bytes;
    p->first = !p->first || w->data < p->first ? w->data : p->first;
    p->last = !p->last || end > p->last ? end : p->last;
    p->dropped += w->n_out * w->row_bytes;
}

static void pack(packer *p, spry_weight *w)
{
    pack_when(p, w, false);
}

/* An expert that is packed when it is used: its rows need not stay in memory, and are needed again. */
static void leave(packer *p, const spry_weight *w)
{
    count_acts(p, w);
    p->dropped += w->n_out * w->row_bytes;
}

static void pack_expert(packer *p, spry_layer *l, uint32_t e)
{
    spry_weight *const matrices[] = {&l->expert_gate[e], &l->expert_up[e], &l->expert_down[e]};
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        if (p->apart)
            leave(p, matrices[i]);
        else
            pack(p, matrices[i]);
}

static void pack_side(packer *p, spry_side *s)
{
    size_t n = p->config->n_streams;
    spry_weight *const matrices[] = {&s->laurel_l, &s->laurel_r, &s->router, &s->gate, &s->proj};
    const float **const wide[] = {&s->laurel_norm, &s->router_norm, &s->post_norm, &s->correct_scale};
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        pack(p, matrices[i]);
    for (size_t i = 0; i < SPRY_COUNT(wide); i++)
        copy_floats(p, wide[i], p->config->n_embd);
    copy_floats(p, &s->predict, n * n * n);
    copy_floats(p, &s->correct, n * n);
}

static void pack_layer(packer *p, spry_layer *l)
{
    spry_weight *const matrices[] = {&l->q_a,         &l->q,        &l->k,        &l->v,           &l->o,
                                     &l->gate,        &l->up,       &l->down,     &l->shared_gate, &l->shared_up,
                                     &l->shared_down, &l->conv_in,  &l->conv_out, &l->delta_qkv,   &l->delta_gate,
                                     &l->delta_ba,    &l->delta_out};
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        pack(p, matrices[i]);
    for (uint32_t e = 0; l->expert_gate && e < p->config->n_experts; e++)
        pack_expert(p, l, e);
    for (uint32_t h = 0; l->k_b && h < p->config->n_heads; h++) {
        pack_when(p, &l->k_b[h], true);
        pack_when(p, &l->v_b[h], true);
    }
    copy_floats(p, &l->q_a_norm, p->config->n_q_rank);
    copy_floats(p, &l->kv_a_norm, p->config->n_kv_rank);
    pack(p, &l->router);
    pack(p, &l->shared_router);
    const float **const wide[] = {&l->attn_norm,           &l->ffn_norm,          &l->attn_norm_bias,
                                  &l->ffn_norm_bias,       &l->attn_post_norm,    &l->ffn_post_norm,
                                  &l->attn_post_norm_bias, &l->ffn_post_norm_bias};
    for (size_t i = 0; i < SPRY_COUNT(wide); i++)
        copy_floats(p, wide[i], p->config->n_embd);
    spry_qk_norm kind = p->config->arch->qk_norm;
    bool rows = kind == SPRY_QK_NORM_ROW || kind == SPRY_QK_NORM_EACH;
    if (l->side)
        pack_side(p, l->side);
    copy_floats(p, &l->choice_bias, p->config->n_experts);
    copy_floats(p, &l->sinks, p->config->n_heads);
    copy_floats(p, &l->conv, (size_t)p->config->n_embd * p->config->n_conv);
    copy_floats(p, &l->conv_bias, p->config->n_embd);
    copy_floats(p, &l->delta_conv, spry_config_delta_mixed(p->config) * p->config->n_conv);
    copy_floats(p, &l->delta_dt, p->config->n_delta_heads);
    copy_floats(p, &l->delta_fading, p->config->n_delta_heads);
    copy_floats(p, &l->delta_norm, p->config->delta_value_dim);
    copy_floats(p, &l->q_norm, rows ? l->q.n_out : p->config->head_dim);
    copy_floats(p, &l->k_norm, rows ? l->k.n_out : p->config->head_dim);
}

static bool is_tied(const spry_weights *w)
{
    return w->embedding.data == w->output.data && w->embedding.n_out == w->output.n_out;
}

/* The embedding is read row by row, never multiplied; if it is also the output matrix, the packed groups serve both. */
static void pack_all(packer *p)
{
    spry_weights *w = p->weights;
    bool tied = is_tied(w);
    for (uint32_t i = 0; i < p->config->n_layers; i++)
        pack_layer(p, &w->layers[i]);
    pack(p, &w->output);
    copy_floats(p, &w->output_norm, p->config->n_embd);
    copy_floats(p, &w->output_norm_bias, p->config->n_embd);
    copy_floats(p, &w->embedding_norm, p->config->n_embd);
    copy_floats(p, &w->embedding_norm_bias, p->config->n_embd);
    copy_rows(p, &w->positions);
    copy_rows(p, &w->token_types);
    for (uint32_t i = 1; w->stream_in && i < p->config->n_streams; i++) {
        pack(p, &w->stream_in[i - 1]);
        pack(p, &w->stream_out[i - 1]);
    }
    if (w->layer_projection.data) {
        pack(p, &w->layer_projection);
        copy_rows(p, &w->layer_embedding);
        copy_floats(p, &w->layer_norm, p->config->n_layer_embd);
    }
    if (!tied)
        copy_rows(p, &w->embedding);
    else if (p->memory)
        w->embedding = w->output;
}

bool spry_weights_packed_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                               const spry_ops *ops)
{
    packer p = {.weights = (spry_weights *)weights, .config = config, .ops = ops}; /* counting changes nothing */
    pack_all(&p);
    *bytes = p.used;
    return !p.overflow;
}

spry_rounded_acts spry_weights_rounded_acts(const spry_weights *weights, const spry_config *config, const spry_ops *ops)
{
    packer p = {.weights = (spry_weights *)weights, .config = config, .ops = ops};
    pack_all(&p);
    return p.acts;
}

bool spry_weights_resident_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                                 const spry_ops *ops, bool mapped, size_t expert_bytes)
{
    packer p = {
        .weights = (spry_weights *)weights, .config = config, .ops = ops, .mapped = mapped, .apart = expert_bytes > 0};
    pack_all(&p);
    return !p.overflow && spry_checked_add(bytes, p.used, weights->bytes - p.dropped) &&
           spry_checked_add(bytes, *bytes, expert_bytes);
}

/* Packing leaves some pages where matrices meet, or where the system read ahead. */
static void give_back(const packer *p, const spry_weights *files, spry_late_store *late)
{
    const spry_weight *embedding = &files->embedding;
    if (!p->mapped || files->quantized_bytes)
        return;
    if (p->first && !files->several_files && late->n_left) {
        late->first = p->first;
        late->last = p->last;
    } else if (p->first && !files->several_files) {
        spry_memory_drop(p->first, (size_t)(p->last - p->first));
    }
    bool shared = embedding->n_out != files->output.n_out; /* among processes: one reads few of its rows */
    if (embedding->data && !is_tied(files) && !p->all &&
        !shared) /* a tied one is read as a whole by every step, packed or not */
        spry_memory_fetch(embedding->data, embedding->n_out * embedding->row_bytes);
}

/* A list of matrices, to be modified; false when memory is short. */
static bool copy_list(spry_weight **list, spry_arena *arena, size_t n)
{
    spry_weight *copy = *list ? spry_arena_alloc(arena, n, sizeof *copy) : NULL;
    if (copy)
        *list = memcpy(copy, *list, n * sizeof *copy);
    return !*list || copy;
}

bool spry_weights_copy_lists(spry_weights *w, spry_arena *arena, const spry_config *config)
{
    size_t n_layers = config->n_layers, n_streams = config->n_streams ? config->n_streams - 1 : 0;
    spry_layer *layers = spry_arena_alloc(arena, n_layers, sizeof *layers);
    bool whole = layers && copy_list(&w->stream_in, arena, n_streams) && copy_list(&w->stream_out, arena, n_streams);
    if (!whole)
        return false;
    memcpy(layers, w->layers, n_layers * sizeof *layers);
    w->layers = layers;
    for (size_t i = 0; whole && i < n_layers; i++) {
        spry_layer *l = &layers[i];
        whole = copy_list(&l->expert_gate, arena, config->n_experts) &&
                copy_list(&l->expert_up, arena, config->n_experts) &&
                copy_list(&l->expert_down, arena, config->n_experts) && copy_list(&l->k_b, arena, config->n_heads) &&
                copy_list(&l->v_b, arena, config->n_heads);
        spry_side *side = whole && l->side ? spry_arena_alloc(arena, 1, sizeof *side) : NULL;
        if (side)
            l->side = memcpy(side, l->side, sizeof *side);
        whole = whole && (!l->side || side);
    }
    return whole;
}

/* A drafter is opened with one thread and then uses those of its engine. */
static size_t n_rooms(const spry_threads *threads)
{
    size_t count = spry_threads_count(threads), usable = spry_threads_usable();
    return count > usable ? count : usable;
}

spry_status spry_weights_place(spry_placed_weights *placed, const spry_device_setup *setup, bool all, spry_error *error)
{
    *placed = (spry_placed_weights){.weights = *setup->weights};
    late_packing late = {.store = &placed->late, .arena = &placed->arena};
    packer p = {.weights = &placed->weights,
                .config = setup->config,
                .ops = setup->ops,
                .threads = setup->threads,
                .mapped = setup->mapped,
                .all = all,
                .apart = !all && setup->expert_bytes > 0};
    spry_arena_init(&placed->arena);
    if (!spry_weights_copy_lists(&placed->weights, &placed->arena, setup->config))
        return spry_fail_memory(error, "the lists of weights", setup->config->n_layers * sizeof(spry_layer));
    pack_all(&p);
    if (p.overflow)
        return spry_fail(error, SPRY_ERR_MEMORY, "packed weights would be larger than any memory");
    if (p.used) {
        placed->bytes = p.used;
        p.memory = placed->memory = spry_memory_map(p.used);
        p.late = !all && p.used >= setup->late_bytes ? &late : NULL;
        p.used = 0;
        if (!p.memory)
            return spry_fail_memory(error, "packed weights", placed->bytes);
        pack_all(&p);
    }
    if (late.short_of_memory)
        return spry_fail_memory(error, "the lists of weights", placed->late.n_left * sizeof(spry_late_pack));
    give_back(&p, setup->weights, &placed->late);
    return placed->late.n_left ? spry_late_store_init(&placed->late, n_rooms(setup->threads), late.largest, error)
                               : SPRY_OK;
}

void spry_weights_unplace(spry_placed_weights *placed)
{
    if (placed->memory)
        spry_memory_unmap(placed->memory, placed->bytes);
    spry_late_store_deinit(&placed->late);
    spry_arena_deinit(&placed->arena);
    *placed = (spry_placed_weights){0};
}
