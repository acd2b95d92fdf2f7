#include "device/ranks/rank_part.h"

#include <string.h>

#include "device/ranks/ranks.h"
#include "model/arch.h"

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Leaves the rows of a matrix, if there is one, that this rank computes. */
static void keep_rows(spry_weight *w, size_t begin, size_t end)
{
    if (!w->data)
        return;
    w->data += begin * w->row_bytes;
    w->n_before += begin;
    w->n_behind += w->n_out - end;
    w->bias = w->bias ? w->bias + begin : NULL;
    w->n_out = end - begin;
}

static void share(const spry_team *team, spry_weight *w)
{
    size_t starts[SPRY_TEAM_MAX + 1];
    spry_team_outputs(starts, team, w->n_out);
    keep_rows(w, starts[team->rank], starts[team->rank + 1]);
}

static void share_layer(const spry_team *team, spry_layer *l)
{
    const spry_config *c = team->whole;
    spry_weight *const matrices[] = {&l->o,           &l->gate,      &l->up,         &l->down,
                                     &l->shared_gate, &l->shared_up, &l->shared_down};
    spry_team_heads heads = spry_team_heads_of(team, team->rank);
    size_t each = c->arch->latent ? c->nope_dim + c->rope_dim : c->head_dim;
    keep_rows(&l->q, heads.q_begin * each, heads.q_end * each);
    keep_rows(&l->k, heads.kv_begin * c->head_dim, heads.kv_end * c->head_dim);
    keep_rows(&l->v, heads.kv_begin * c->head_dim, heads.kv_end * c->head_dim);
    if (c->arch->latent) {
        l->k_b += heads.q_begin;
        l->v_b += heads.q_begin;
    }
    if (l->q_norm && c->arch->qk_norm == SPRY_QK_NORM_EACH) {
        l->q_norm += heads.q_begin * c->head_dim;
        l->k_norm += heads.kv_begin * c->head_dim;
    }
    l->sinks = l->sinks ? l->sinks + heads.q_begin : NULL;
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        share(team, matrices[i]);
    for (uint32_t e = 0; l->expert_gate && e < c->n_experts; e++) {
        share(team, &l->expert_gate[e]);
        share(team, &l->expert_up[e]);
        share(team, &l->expert_down[e]);
    }
}

static spry_status share_weights(spry_rank_part *p, const spry_weights *whole, spry_error *error)
{
    p->weights = *whole;
    if (!spry_weights_copy_lists(&p->weights, &p->arena, p->team.whole))
        return spry_fail_memory(error, "the lists of weights", p->team.whole->n_layers * sizeof(spry_layer));
    for (uint32_t i = 0; i < p->team.whole->n_layers; i++)
        share_layer(&p->team, &p->weights.layers[i]);
    share(&p->team, &p->weights.output);
    return SPRY_OK;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

size_t spry_rank_page_bytes(size_t *bytes, const spry_rank_part *part)
{
    size_t sum = 0;
    for (size_t rank = 0; rank < part->team.size; sum += bytes[rank++]) {
        spry_team_heads heads = spry_team_heads_of(&part->team, rank);
        bytes[rank] = part->outside->page_bytes / part->outside->shape.n_kv_heads * (heads.kv_end - heads.kv_begin);
    }
    return sum;
}

void spry_rank_page_take(void *own, const spry_rank_part *part, const void *whole)
{
    spry_team_heads heads = spry_team_heads_of(&part->team, part->team.rank);
    const unsigned char *from = (const unsigned char *)whole + heads.kv_begin * part->pool.head_bytes;
    unsigned char *to = own;
    size_t sides = spry_kv_sides(&part->pool.shape) * part->pool.shape.n_layers, bytes = part->pool.side_bytes;
    for (size_t i = 0; i < sides; i++, to += bytes, from += part->outside->side_bytes)
        memcpy(to, from, bytes);
}

void spry_rank_page_put(void *whole, const spry_rank_part *part, size_t rank, const void *own)
{
    spry_team_heads heads = spry_team_heads_of(&part->team, rank);
    size_t sides = spry_kv_sides(&part->pool.shape) * part->pool.shape.n_layers,
           bytes = (heads.kv_end - heads.kv_begin) * part->pool.head_bytes;
    unsigned char *to = (unsigned char *)whole + heads.kv_begin * part->pool.head_bytes;
    const unsigned char *from = own;
    for (size_t i = 0; i < sides; i++, from += bytes, to += part->outside->side_bytes)
        memcpy(to, from, bytes);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void gather(spry_team *team, void *all, const void *own, const size_t *bytes, bool to_first)
{
    (void)team;
    spry_ranks_link()->gather(all, own, bytes, to_first);
}

static spry_status take_heads(spry_rank_part *p, const spry_device_setup *setup, spry_error *error)
{
    const spry_config *c = setup->config;
    if (p->team.size > c->n_heads)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "the model has %u heads, too few for %zu ranks: start at most %u",
                         c->n_heads, p->team.size, c->n_heads);
    spry_team_heads heads = spry_team_heads_of(&p->team, p->team.rank);
    p->config = *c;
    p->config.n_heads = (uint32_t)(heads.q_end - heads.q_begin);
    p->config.n_kv_heads = (uint32_t)(heads.kv_end - heads.kv_begin);
    spry_kv_shape shape = setup->pool->shape;
    shape.n_kv_heads = p->config.n_kv_heads;
    return spry_kv_pool_init(&p->pool, &shape, setup->pool->n_pages, error);
}

spry_status spry_rank_part_open(spry_rank_part *part, const spry_device_setup *setup, spry_error *error)
{
    const spry_rank_link *link = spry_ranks_link();
    *part = (spry_rank_part){.team = {link->rank, link->size, setup->config, gather}, .outside = setup->pool};
    spry_arena_init(&part->arena);
    spry_status status = take_heads(part, setup, error);
    if (!status)
        status = share_weights(part, setup->weights, error);
    spry_device_setup own = *setup;
    own.config = &part->config;
    own.weights = &part->weights;
    own.pool = &part->pool;
    if (!status)
        status = spry_cpu_device_init(&part->cpu, &own, false, &part->team, error);
    if (status)
        spry_rank_part_close(part);
    return status;
}

void spry_rank_part_close(spry_rank_part *part)
{
    spry_cpu_device_deinit(&part->cpu);
    spry_kv_pool_deinit(&part->pool);
    spry_arena_deinit(&part->arena);
}
