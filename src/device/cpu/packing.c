/* Converts weights to the layout of the kernels. */
#include "device/cpu/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "model/arch.h"
#include "platform/memory.h"

/* ---- packing by the first steps ---------------------------------------------------------------------------------- */

/* Groups are packed a few at a time, so that they are still in the cache when they are multiplied. */

enum {
    CHUNK_BYTES = 256 << 10,   /* bytes of groups that are packed at a time */
    LATE_DROP_BYTES = 1 << 20, /* maximum bytes of rows in the file that stay in memory beside their packed form, for
                                * each worker */
};

/* Creates buffers for `n_rooms` workers, each for at least one group of `group_bytes`. A zeroed store needs no
 * deinit. */
static spry_status late_store_init(spry_late_store *s, size_t n_rooms, size_t group_bytes, spry_error *error)
{
    s->room_bytes = group_bytes > CHUNK_BYTES ? group_bytes : CHUNK_BYTES;
    s->n_rooms = n_rooms;
    s->rooms = spry_memory_map(n_rooms * s->room_bytes);
    s->taken = calloc(n_rooms, sizeof *s->taken);
    if (s->rooms && s->taken)
        return SPRY_OK;
    spry_late_store_deinit(s);
    return spry_fail_memory(error, "rooms for packing", n_rooms * group_bytes);
}

void spry_late_store_deinit(spry_late_store *s)
{
    spry_memory_unmap(s->rooms, s->n_rooms * s->room_bytes);
    free(s->taken);
    *s = (spry_late_store){0};
}

/* Takes a free buffer and returns its number; n_rooms: all are in use. */
static size_t take_room(spry_late_store *s)
{
    size_t i = 0;
    while (i < s->n_rooms && atomic_exchange(&s->taken[i], true))
        i++;
    return i;
}

/* Packs groups [first, end). Packing prefetches the group after the current one, but a prefetch has no effect on pages
 * that are not mapped yet; so for groups before `touch` pages are mapped by reading a byte. */
static void pack_groups(unsigned char *out, const spry_weight *w, size_t group, size_t first, size_t end, size_t touch)
{
    for (size_t g = first; g < end; g++, out += w->group_bytes) {
        const unsigned char *rows = w->data + g * group * w->row_bytes;
        size_t left = w->n_out - g * group;
        if (g + 1 < touch)
            (void)*(const volatile unsigned char *)(rows + (left < 2 * group ? left : 2 * group) * w->row_bytes - 1);
        spry_weight_pack_group(out, w, g * group, group);
    }
}

void spry_late_multiply(const spry_weight *w, const spry_matmul_kernel *kernel, const spry_matmul *m, size_t begin,
                        size_t end)
{
    const spry_late_pack *late = w->late;
    spry_late_store *store = late->store;
    size_t group = kernel->group, last = (end + group - 1) / group, most = CHUNK_BYTES / w->group_bytes;
    size_t room = late->keep ? store->n_rooms : take_room(store), kept = begin;
    most = most ? most : 1;
    for (size_t g = begin / group, n; g < last; g += n) {
        n = last - g < most ? last - g : most;
        unsigned char *groups =
            room < store->n_rooms ? store->rooms + room * store->room_bytes : late->memory + g * w->group_bytes;
        spry_matmul part = *m;
        size_t first = g * group, stop = (g + n) * group < end ? (g + n) * group : end;
        pack_groups(groups, w, group, g, g + n, late->keep ? 0 : last);
        part.weight = groups;
        part.weight_stride = w->group_bytes;
        part.out += first;
        kernel->run(&part, 0, stop - first);
        if (late->keep && late->drop && ((stop - kept) * w->row_bytes >= LATE_DROP_BYTES || stop == end)) {
            spry_memory_drop_file(w->data + kept * w->row_bytes, (stop - kept) * w->row_bytes);
            kept = stop;
        }
    }
    if (room < store->n_rooms)
        atomic_store(&store->taken[room], false);
}

bool spry_late_multiplied(const spry_weight *w)
{
    spry_late_pack *late = w->late;
    if (!late || late->packed)
        return false;
    if (!late->keep) {
        late->keep = true;
        return true;
    }
    late->packed = late->memory;
    if (late->drop) /* two workers may have shared these pages */
        spry_memory_drop_file(w->data, w->n_out * w->row_bytes);
    spry_late_store *store = late->store;
    if (--store->n_left)
        return true;
    if (store->first) /* pages at the border of two matrices, or that the system has read ahead */
        spry_memory_drop_file(store->first, (size_t)(store->last - store->first));
    spry_memory_drop(store->rooms, store->n_rooms * store->room_bytes);
    return true;
}

/* ---- packing when a device is opened ----------------------------------------------------------------------------- */

/* A first pass over all weights counts bytes, a second one packs. */

typedef struct packer {
    spry_weights *weights;
    const spry_config *config;
    const spry_ops *ops;
    spry_threads *threads;
    unsigned char *memory;             /* NULL: this pass only counts */
    size_t used, dropped;              /* packed bytes; bytes of matrices that need not stay in memory */
    const unsigned char *first, *last; /* first and last byte of these matrices in the file */
    bool mapped, overflow;
    bool all;  /* weights that are not packed are copied, too */
    bool lent; /* the embedding and the output matrix belong to another device */
    spry_rounded_acts acts;
    bool apart;                /* experts are packed when they are used */
    struct late_packing *late; /* NULL: all matrices are packed now */
} packer;

/* What packing by the first steps needs, for all matrices. */
typedef struct late_packing {
    spry_late_store *store;
    spry_arena *arena;
    size_t largest; /* bytes of the largest group */
    bool short_of_memory;
} late_packing;

/* True if the rows' pages can be released. This engine does not read packed rows again; other readers of the same file
 * get the pages from disk again, and quantised rows belong to this engine alone. */
static bool can_drop(const packer *p)
{
    return p->weights->quantized_bytes || (p->mapped && !p->weights->copied_bytes);
}

/* Reserves bytes; returns NULL while only counting. */
static unsigned char *reserve(packer *p, size_t bytes)
{
    unsigned char *room = p->memory ? p->memory + p->used : NULL;
    if (!spry_checked_align(&bytes, bytes, 64) || !spry_checked_add(&p->used, p->used, bytes))
        p->overflow = true;
    return room;
}

/* Copies weights in file layout if they must be in the device's memory. While only counting it writes nothing, because
 * other threads may read the weights. */
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

/* Reserves memory for the groups of a matrix that steps will pack. */
static void pack_later(packer *p, spry_weight *w, unsigned char *memory)
{
    late_packing *late = p->late;
    spry_weight_choose_groups(w, p->ops, p->threads);
    w->late = spry_arena_alloc(late->arena, 1, sizeof *w->late);
    late->short_of_memory = late->short_of_memory || !w->late;
    late->largest = w->group_bytes > late->largest ? w->group_bytes : late->largest;
    if (!w->late)
        return;
    *w->late = (spry_late_pack){.store = late->store, .memory = memory, .drop = can_drop(p)};
    late->store->n_left++;
}

/* Counts the kinds of activations. Whether F16 weights become BF16 is not known yet; they count as F16. */
static void count_acts(packer *p, const spry_weight *w)
{
    const spry_matmul_kernel *kernel = &p->ops->matmul[w->type];
    p->acts.integers = p->acts.integers || (w->data && kernel->integer);
    p->acts.halves = p->acts.halves || (w->data && kernel->halve);
}

/* Packs a matrix now or later. `now`: other functions than spry_pass_products multiply by it, too. */
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

/* Handles an expert that is packed when it is used: its rows can leave memory and are read again. */
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
    pack(p, &s->gate);
    pack(p, &s->proj);
    copy_floats(p, &s->post_norm, p->config->n_embd);
    if (!n)
        return;
    spry_weight *const matrices[] = {&s->laurel_l, &s->laurel_r, &s->router};
    const float **const wide[] = {&s->laurel_norm, &s->router_norm, &s->correct_scale};
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        pack(p, matrices[i]);
    for (size_t i = 0; i < SPRY_COUNT(wide); i++)
        copy_floats(p, wide[i], p->config->n_embd);
    copy_floats(p, &s->predict, n * n * n);
    copy_floats(p, &s->correct, n * n);
}

/* Packs the block of a layer, or takes the packed matrices of the layer that stores it. */
static void pack_block(packer *p, spry_layer *l, uint32_t index)
{
    uint32_t from = p->config->block_layer[index];
    spry_layer *first = &p->weights->layers[from];
    spry_weight *const own[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    spry_weight *const whole[] = {&first->q, &first->k, &first->v, &first->o, &first->gate, &first->up, &first->down};
    for (size_t i = 0; i < SPRY_COUNT(own); i++) {
        spry_weight *low = own[i]->low;
        if (from == index)
            pack(p, own[i]);
        else if (p->memory)
            *own[i] = *whole[i];
        if (p->memory)
            own[i]->low = low;
        for (size_t k = 0; low && k < 2; k++)
            pack(p, &low[k]);
    }
    pack(p, &l->block_out);
    copy_floats(p, &l->block_norm, 2 * (size_t)p->config->n_embd);
}

static void copy_hyper(packer *p, spry_hyper *h, size_t n_scales)
{
    copy_floats(p, &h->base, h->mix.n_out);
    copy_floats(p, &h->scale, n_scales);
}

static void copy_compressed(packer *p, spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    const void *experts = l->token_experts;
    copy_floats(p, &l->join_added, c->rates[index] * l->join_values.n_out);
    copy_floats(p, &l->join_norm, c->head_dim);
    copy_floats(p, &l->index_join_added, c->rates[index] * l->index_join_values.n_out);
    copy_hyper(p, &l->attn_hyper, 3);
    copy_hyper(p, &l->ffn_hyper, 3);
    copy_bytes(p, &experts, (size_t)c->n_vocab * c->n_experts_used * sizeof *l->token_experts);
    if (experts != l->token_experts)
        l->token_experts = experts;
}

static void pack_layer(packer *p, spry_layer *l)
{
    uint32_t index = (uint32_t)(l - p->weights->layers);
    bool block = spry_config_has_block(p->config, index);
    spry_weight *const matrices[] = {
        &l->join_values,   &l->join_gates,   &l->index_join_values, &l->index_join_gates, &l->attn_hyper.mix,
        &l->ffn_hyper.mix, &l->index_q,      &l->index_k,           &l->index_weights,    &l->q_a,
        &l->shared_gate,   &l->shared_up,    &l->shared_down,       &l->conv_in,          &l->conv_out,
        &l->delta_qkv[0],  &l->delta_qkv[1], &l->delta_qkv[2],      &l->latent_in,        &l->latent_out,
        &l->delta_gate,    &l->delta_b,      &l->delta_a,           &l->delta_out,        &l->attn_gate};
    spry_weight *const usual[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    if (block)
        pack_block(p, l, index);
    for (size_t i = 0; !block && i < SPRY_COUNT(usual); i++)
        pack(p, usual[i]);
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        pack(p, matrices[i]);
    for (uint32_t e = 0; l->expert_gate && e < p->config->n_experts; e++)
        pack_expert(p, l, e);
    for (uint32_t h = 0; l->k_b && h < p->config->n_heads; h++) {
        pack_when(p, &l->k_b[h], true);
        pack_when(p, &l->v_b[h], true);
    }
    copy_floats(p, &l->q_a_norm, p->config->n_q_rank);
    copy_floats(p, &l->kv_a_norm, p->config->arch->compressed ? p->config->head_dim : p->config->n_kv_rank);
    if (p->config->arch->compressed)
        copy_compressed(p, l, index);
    for (uint32_t g = 0; l->out_groups && g < p->config->n_out_groups; g++)
        pack(p, &l->out_groups[g]);
    copy_floats(p, &l->index_k_norm, p->config->index_dim);
    copy_floats(p, &l->index_k_norm_bias, p->config->index_dim);
    pack(p, &l->router);
    pack(p, &l->shared_router);
    const float **const wide[] = {&l->attn_norm,           &l->ffn_norm,           &l->attn_norm_bias,
                                  &l->ffn_norm_bias,       &l->attn_post_norm,     &l->ffn_post_norm,
                                  &l->attn_post_norm_bias, &l->ffn_post_norm_bias, &l->router_norm,
                                  &l->expert_norm,         &l->expert_post_norm,   &l->dense_post_norm};
    for (size_t i = 0; i < SPRY_COUNT(wide); i++)
        copy_floats(p, wide[i], p->config->n_embd);
    spry_qk_norm kind = p->config->arch->qk_norm;
    bool rows = kind == SPRY_QK_NORM_ROW || kind == SPRY_QK_NORM_EACH;
    if (l->side)
        pack_side(p, l->side);
    copy_floats(p, &l->choice_bias, p->config->n_experts);
    copy_floats(p, &l->expert_scale, p->config->n_experts);
    copy_floats(p, &l->output_scale, 1);
    copy_floats(p, &l->sinks, p->config->n_heads);
    copy_floats(p, &l->conv, (size_t)p->config->n_embd * p->config->n_conv);
    copy_floats(p, &l->conv_bias, p->config->n_embd);
    copy_floats(p, &l->delta_conv, spry_config_delta_mixed(p->config) * p->config->n_conv);
    copy_floats(p, &l->delta_dt, p->config->n_delta_heads);
    copy_floats(p, &l->delta_fading, p->config->n_delta_heads);
    copy_floats(p, &l->delta_conv_bias, spry_config_delta_mixed(p->config));
    copy_floats(p, &l->delta_skip, p->config->n_delta_heads);
    copy_floats(p, &l->delta_norm,
                p->config->delta_value_dim * (p->config->arch->mamba ? p->config->n_delta_heads : 1));
    size_t dim = spry_config_heads(p->config, index).head_dim;
    copy_floats(p, &l->q_norm, rows ? l->q.n_out : dim);
    copy_floats(p, &l->k_norm, rows ? l->k.n_out : dim);
}

static bool is_tied(const spry_weights *w)
{
    return w->embedding.data == w->output.data && w->embedding.n_out == w->output.n_out;
}

/* Packs all weights. The embedding is read row by row and never multiplied; if it is also the output matrix, the packed
 * groups serve both uses. */
static void pack_all(packer *p)
{
    spry_weights *w = p->weights;
    bool tied = is_tied(w);
    for (uint32_t i = 0; i < p->config->n_layers; i++)
        pack_layer(p, &w->layers[i]);
    pack(p, &w->draft_in);
    pack(p, &w->hyper.mix);
    copy_hyper(p, &w->hyper, 1);
    copy_floats(p, &w->draft_embedding_norm, p->config->n_embd);
    copy_floats(p, &w->draft_hidden_norm, p->config->n_embd);
    copy_floats(p, &w->output_norm, p->config->n_embd);
    if (p->lent) {
        count_acts(p, &w->output);
        return;
    }
    pack(p, &w->output);
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
    packer p = {.weights = (spry_weights *)weights, .config = config, .ops = ops}; /* a pass that only counts changes
                                                                                    * nothing */
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

/* Releases the pages that packing has left: at the borders of matrices, or read ahead by the system. */
static void give_back(const packer *p, const spry_weights *files, spry_late_store *late)
{
    const spry_weight *embedding = &files->embedding;
    if (!p->mapped || files->quantized_bytes)
        return;
    if (p->first && !files->several_files && late->n_left) {
        late->first = p->first;
        late->last = p->last;
    } else if (p->first && !files->several_files) {
        spry_memory_drop_file(p->first, (size_t)(p->last - p->first));
    }
    bool shared = embedding->n_out != files->output.n_out; /* if the matrix is divided among processes, this one reads
                                                            * few rows of the embedding */
    if (embedding->data && !is_tied(files) && !p->all &&
        !shared) /* a tied embedding is read completely by every step, packed or not */
        spry_memory_fetch(embedding->data, embedding->n_out * embedding->row_bytes);
}

/* Copies a list of matrices, so that it can be modified; false when memory is short. */
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
        whole = whole && copy_list(&l->out_groups, arena, config->n_out_groups);
        spry_weight *const shared[] = {&l->q, &l->k, &l->v, &l->gate, &l->up};
        for (size_t k = 0; k < SPRY_COUNT(shared); k++)
            whole = whole && copy_list(&shared[k]->low, arena, 2);
        spry_side *side = whole && l->side ? spry_arena_alloc(arena, 1, sizeof *side) : NULL;
        if (side)
            l->side = memcpy(side, l->side, sizeof *side);
        whole = whole && (!l->side || side);
    }
    return whole;
}

/* Number of buffers. A drafter is opened with one thread and later uses the threads of its engine. */
static size_t n_rooms(const spry_threads *threads)
{
    size_t count = spry_threads_count(threads), usable = spry_threads_usable();
    return count > usable ? count : usable;
}

spry_status spry_weights_place(spry_placed_weights *placed, const spry_device_setup *setup, bool all,
                               const spry_weights *lender, spry_error *error)
{
    *placed = (spry_placed_weights){.weights = *setup->weights};
    if (lender) {
        placed->weights.embedding = lender->embedding;
        placed->weights.output = lender->output;
    }
    late_packing late = {.store = &placed->late, .arena = &placed->arena};
    packer p = {.weights = &placed->weights,
                .config = setup->config,
                .ops = setup->ops,
                .threads = setup->threads,
                .mapped = setup->mapped,
                .all = all,
                .lent = lender,
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
    if (!lender)
        give_back(&p, setup->weights, &placed->late);
    return placed->late.n_left ? late_store_init(&placed->late, n_rooms(setup->threads), late.largest, error) : SPRY_OK;
}

void spry_weights_unplace(spry_placed_weights *placed)
{
    if (placed->memory)
        spry_memory_unmap(placed->memory, placed->bytes);
    spry_late_store_deinit(&placed->late);
    spry_arena_deinit(&placed->arena);
    *placed = (spry_placed_weights){0};
}

/* ---- experts of a model larger than memory ----------------------------------------------------------------------- */

/* Uses are counted for every expert, even for those that are not packed now, so that an expert that is selected often
 * gets packed and stays so even if many others are used in between. */

enum { MATRICES = 3 };

static void matrices_of(spry_weight *out[MATRICES], const spry_layer *l, uint32_t expert)
{
    out[0] = &l->expert_gate[expert];
    out[1] = &l->expert_up[expert];
    out[2] = &l->expert_down[expert];
}

/* Each matrix begins at a multiple of 64. */
static bool packed_bytes(size_t *bytes, const spry_weight *w, const spry_ops *ops)
{
    return spry_weight_packed_bytes(bytes, w, ops) && spry_checked_align(bytes, *bytes, 64);
}

bool spry_expert_bytes(size_t *largest, size_t *all, const spry_weights *weights, const spry_config *config,
                       const spry_ops *ops)
{
    *largest = *all = 0;
    for (size_t i = 0; i < (size_t)config->n_layers * config->n_experts; i++) {
        const spry_layer *l = &weights->layers[i / config->n_experts];
        spry_weight *matrices[MATRICES];
        size_t sum = 0;
        if (!l->expert_gate)
            continue;
        matrices_of(matrices, l, (uint32_t)(i % config->n_experts));
        for (size_t m = 0; m < MATRICES; m++) {
            size_t bytes, file = matrices[m]->n_out * matrices[m]->row_bytes;
            if (!packed_bytes(&bytes, matrices[m], ops) || !spry_checked_add(&sum, sum, bytes) ||
                !spry_checked_add(all, *all, bytes ? bytes : file))
                return false;
        }
        *largest = sum > *largest ? sum : *largest;
    }
    return true;
}

spry_status spry_expert_store_init(spry_expert_store *s, spry_layer *layers, const spry_device_setup *setup,
                                   size_t budget, spry_error *error)
{
    size_t n = (size_t)setup->config->n_layers * setup->config->n_experts, all, each, places;
    *s = (spry_expert_store){.layers = layers, .config = setup->config, .ops = setup->ops};
    if (!spry_expert_bytes(&each, &all, setup->weights, setup->config, setup->ops))
        return spry_fail(error, SPRY_ERR_MEMORY, "packed experts would be larger than any memory");
    if (!each)
        return SPRY_OK;
    places = budget / each ? budget / each : 1;
    places = places < n ? places : n;
    s->n_places = (uint32_t)places;
    s->place_bytes = each;
    s->bytes = places * each; /* at most the budget, but at least one expert */
    s->drop = setup->mapped && !setup->weights->copied_bytes;
    s->holds = calloc(places, sizeof *s->holds);
    s->place = malloc(n * sizeof *s->place);
    s->uses = calloc(n, sizeof *s->uses);
    s->memory = s->holds && s->place && s->uses ? spry_memory_map(s->bytes) : NULL;
    if (!s->memory) {
        spry_expert_store_deinit(s);
        return spry_fail_memory(error, "packed experts", places * each);
    }
    for (size_t i = 0; i < n; i++)
        s->place[i] = s->n_places;
    return SPRY_OK;
}

void spry_expert_store_deinit(spry_expert_store *s)
{
    if (s->memory)
        spry_memory_unmap(s->memory, s->bytes);
    free(s->holds);
    free(s->place);
    free(s->uses);
    *s = (spry_expert_store){0};
}

static void set_packed(const spry_expert_store *s, uint32_t id, unsigned char *at, spry_threads *threads)
{
    spry_weight *matrices[MATRICES];
    matrices_of(matrices, &s->layers[id / s->config->n_experts], id % s->config->n_experts);
    for (size_t m = 0; m < MATRICES; m++) {
        size_t bytes = 0;
        packed_bytes(&bytes, matrices[m], s->ops); /* cannot fail: the same sizes were counted before */
        if (at && bytes)
            spry_weight_pack(matrices[m], at, s->ops, threads, s->drop);
        else
            matrices[m]->packed = NULL;
        at = at ? at + bytes : NULL;
    }
}

/* Finds a slot for an expert: a free one, or that of the expert used least. */
static uint32_t free_place(spry_expert_store *s)
{
    if (s->n_full < s->n_places)
        return s->n_full++;
    uint32_t least = 0;
    for (uint32_t i = 1; i < s->n_places; i++)
        if (s->uses[s->holds[i]] < s->uses[s->holds[least]])
            least = i;
    set_packed(s, s->holds[least], NULL, NULL);
    s->place[s->holds[least]] = s->n_places;
    return least;
}

void spry_expert_store_take(spry_expert_store *s, spry_threads *threads, uint32_t layer, uint32_t expert)
{
    uint32_t id = layer * s->config->n_experts + expert;
    s->uses[id]++;
    if (s->place[id] < s->n_places)
        return;
    if (++s->n_packed % (4 * (uint64_t)s->n_places) == 0)
        for (size_t i = 0; i < (size_t)s->config->n_layers * s->config->n_experts; i++)
            s->uses[i] /= 2;
    uint32_t at = free_place(s);
    s->holds[at] = id;
    s->place[id] = at;
    set_packed(s, id, s->memory + at * s->place_bytes, threads);
}
