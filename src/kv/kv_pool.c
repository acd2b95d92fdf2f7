/* Pages: free list, reference counts; and the set of position offsets, small and reference-counted, with linear
 * search because tables are edited rarely. */
#include "kv/kv_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "kv/kv_states.h"

/* ---- position offsets -------------------------------------------------------------------------------------------- */

void spry_kv_turns_init(spry_kv_turns *turns)
{
    memset(turns, 0, sizeof *turns);
    turns->end = 1;
}

bool spry_kv_turn_take(spry_kv_turns *turns, uint32_t *number, int32_t delta)
{
    uint32_t free = SPRY_KV_TURNS_MAX;
    *number = 0;
    if (!delta)
        return true;
    for (uint32_t i = 1; i < turns->end; i++) {
        if (turns->references[i] && turns->deltas[i] == delta) {
            turns->references[ *number = i]++;
            return true;
        }
        if (!turns->references[i] && free == SPRY_KV_TURNS_MAX)
            free = i;
    }
    if (free == SPRY_KV_TURNS_MAX && turns->end < SPRY_KV_TURNS_MAX)
        free = turns->end++;
    if (free == SPRY_KV_TURNS_MAX)
        return false;
    turns->deltas[free] = delta;
    turns->references[free] = 1;
    *number = free;
    return true;
}

void spry_kv_turn_release(spry_kv_turns *turns, uint32_t number)
{
    if (number)
        turns->references[number]--;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static bool kind_bytes(size_t *bytes, const spry_kv_shape *shape, size_t n_layers, size_t n_kv_heads, size_t head_dim)
{
    size_t head, heads;
    return spry_dtype_size(&head, shape->type, head_dim) &&
           spry_checked_mul(&heads, n_kv_heads, spry_kv_sides(shape)) && spry_checked_mul(&heads, heads, n_layers) &&
           spry_checked_mul(bytes, heads, head);
}

bool spry_kv_token_bytes(size_t *bytes, const spry_kv_shape *shape)
{
    const spry_kv_kind *other = &shape->other;
    size_t more = 0;
    return kind_bytes(bytes, shape, shape->n_layers, shape->n_kv_heads, shape->head_dim) &&
           (!other->n_layers || kind_bytes(&more, shape, other->n_layers, other->n_kv_heads, other->head_dim)) &&
           spry_checked_add(bytes, *bytes, more);
}

spry_kv_place spry_kv_place_of(const spry_kv_pool *pool, bool other, size_t layer)
{
    const spry_kv_shape *s = &pool->shape;
    spry_kv_place place = {.n_heads = other ? s->other.n_kv_heads : s->n_kv_heads,
                           .head_dim = other ? s->other.head_dim : s->head_dim};
    spry_dtype_size(&place.token_bytes, s->type, place.head_dim);
    place.head_bytes = place.token_bytes * SPRY_PAGE_TOKENS;
    size_t side = place.head_bytes * place.n_heads;
    place.keys = (other ? spry_kv_offset(pool, s->n_layers, 0) : 0) + layer * spry_kv_sides(s) * side;
    place.values = place.keys + side;
    return place;
}

/* Lists the free pages; the first of them is taken first. */
static void list_free(spry_kv_pool *pool)
{
    pool->n_free = 0;
    for (size_t page = pool->n_pages; page-- > 0;)
        if (!pool->references[page])
            pool->free[pool->n_free++] = (uint32_t)page;
}

static spry_status make_lists(spry_kv_pool *pool, spry_error *error)
{
    pool->references = calloc(pool->n_pages, sizeof *pool->references);
    pool->free = calloc(pool->n_pages, sizeof *pool->free);
    pool->held = calloc(pool->n_pages, sizeof *pool->held);
    if (!pool->references || !pool->free || !pool->held) {
        spry_kv_pool_deinit(pool);
        return spry_fail_memory(error, "the KV pool", pool->n_pages * 2 * sizeof *pool->free);
    }
    list_free(pool);
    spry_kv_turns_init(&pool->turns);
    return SPRY_OK;
}

spry_status spry_kv_pool_init(spry_kv_pool *pool, const spry_kv_shape *shape, size_t n_pages, spry_error *error)
{
    *pool = (spry_kv_pool){.shape = *shape, .n_pages = n_pages};
    size_t token_all, whole;
    size_t block = spry_dtype_block(shape->type), other_dim = shape->other.n_layers ? shape->other.head_dim : 0;
    if (shape->head_dim % block || other_dim % block)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "kv-type %s needs a head size that is a multiple of %zu, not %zu",
                         spry_dtype_name(shape->type), block, shape->head_dim % block ? shape->head_dim : other_dim);
    if (!spry_dtype_size(&pool->token_bytes, shape->type, shape->head_dim) || !spry_kv_token_bytes(&token_all, shape) ||
        !spry_checked_mul(&pool->page_bytes, token_all, SPRY_PAGE_TOKENS) ||
        !spry_checked_mul(&whole, pool->page_bytes, n_pages) || n_pages > UINT32_MAX)
        return spry_fail(error, SPRY_ERR_MEMORY, "a KV pool of %zu pages is larger than any memory", n_pages);
    pool->head_bytes = pool->token_bytes * SPRY_PAGE_TOKENS;
    pool->side_bytes = pool->head_bytes * shape->n_kv_heads;
    pool->other_bytes = pool->page_bytes - spry_kv_offset(pool, shape->n_layers, 0);
    spry_status status = make_lists(pool, error);
    if (!status && shape->state)
        status = spry_kv_states_create(pool, error);
    if (status)
        spry_kv_pool_deinit(pool);
    return status;
}

spry_status spry_kv_pool_init_plain(spry_kv_pool *pool, size_t page_bytes, size_t n_pages, spry_error *error)
{
    size_t whole;
    *pool = (spry_kv_pool){.page_bytes = page_bytes, .n_pages = n_pages};
    if (!spry_checked_mul(&whole, page_bytes, n_pages) || n_pages > UINT32_MAX)
        return spry_fail(error, SPRY_ERR_MEMORY, "%zu recurrent states are larger than any memory", n_pages);
    return make_lists(pool, error);
}

void spry_kv_pool_deinit(spry_kv_pool *pool)
{
    spry_kv_states_destroy(pool);
    free(pool->references);
    free(pool->free);
    free(pool->held);
    *pool = (spry_kv_pool){0};
}

bool spry_kv_page_take(spry_kv_pool *pool, uint32_t *page)
{
    if (!pool->n_free)
        return false;
    *page = pool->free[--pool->n_free];
    pool->references[*page] = 1;
    pool->n_held += !pool->held[*page];
    pool->held[*page] = true;
    return true;
}

void spry_kv_page_ref(spry_kv_pool *pool, uint32_t page)
{
    pool->references[page]++;
}

void spry_kv_page_unref(spry_kv_pool *pool, uint32_t page)
{
    if (--pool->references[page] > 0)
        return;
    spry_kv_state_drop(pool, page);
    pool->free[pool->n_free++] = page;
}

void spry_kv_page_unref_copied(spry_kv_pool *pool, uint32_t page)
{
    pool->references[page] = 0;
    spry_kv_state_drop(pool, page);
    memmove(pool->free + 1, pool->free, pool->n_free++ * sizeof *pool->free);
    pool->free[0] = page;
}

/* By runs of free pages, because a page need not consist of whole pages of the system. */
void spry_kv_pool_release(spry_kv_pool *pool)
{
    if (!pool->mover.release)
        return;
    for (size_t first = 0, end; first < pool->n_pages; first = end + 1) {
        size_t held = 0;
        for (end = first; end < pool->n_pages && !pool->references[end]; end++) {
            held += pool->held[end];
            pool->held[end] = false;
        }
        if (held)
            pool->mover.release(pool->mover.self, (uint32_t)first, end - first);
        pool->n_held -= held;
    }
    list_free(pool);
    if (pool->states)
        spry_kv_pool_release(&pool->states->pool);
}
