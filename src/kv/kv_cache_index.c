/* Chained hash tables (by key, by parent, by content) and lists by last use, all threaded through one array of nodes.
 */
#include <string.h>

#include "kv/kv_cache_state.h"
#include "kv/kv_content.h"

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static spry_kv_list *list_of(spry_kv_cache *c, uint32_t node)
{
    return spry_kv_in_host(c, node) ? &c->host.list : &c->list;
}

void spry_kv_node_unlist(spry_kv_cache *c, uint32_t node)
{
    const spry_kv_node *n = &c->nodes[node];
    spry_kv_list *list = list_of(c, node);
    *(n->newer == SPRY_KV_NO_NODE ? &list->newest : &c->nodes[n->newer].older) = n->older;
    *(n->older == SPRY_KV_NO_NODE ? &list->oldest : &c->nodes[n->older].newer) = n->newer;
}

void spry_kv_node_list(spry_kv_cache *c, uint32_t node, uint64_t now_ns)
{
    spry_kv_node *n = &c->nodes[node];
    spry_kv_list *list = list_of(c, node);
    n->used_ns = now_ns;
    n->newer = SPRY_KV_NO_NODE;
    n->older = list->newest;
    *(list->newest == SPRY_KV_NO_NODE ? &list->oldest : &c->nodes[list->newest].newer) = node;
    list->newest = node;
}

void spry_kv_node_touch(spry_kv_cache *c, uint32_t node, uint64_t now_ns)
{
    spry_kv_node_unlist(c, node);
    spry_kv_node_list(c, node, now_ns);
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

/* What points to a node in each of its chains. */
static uint32_t *link_by_key(const spry_kv_cache *c, uint32_t node)
{
    uint32_t *at = spry_kv_bucket(c, c->by_key, c->nodes[node].key);
    while (*at != node)
        at = &c->nodes[*at].next_by_key;
    return at;
}

static uint32_t *link_by_parent(const spry_kv_cache *c, uint32_t node)
{
    uint32_t *at = spry_kv_bucket(c, c->by_parent, c->nodes[node].parent);
    while (*at != node)
        at = &c->nodes[*at].next_by_parent;
    return at;
}

static uint32_t *link_by_content(const spry_kv_cache *c, uint32_t node)
{
    uint32_t *at = spry_kv_content_bucket(c, c->nodes[node].content);
    while (*at != node)
        at = &c->nodes[*at].next_by_content;
    return at;
}

static uint64_t *count_of(spry_kv_cache *c, uint32_t node)
{
    return spry_kv_in_host(c, node) ? &c->figures.host_pages : &c->figures.pages;
}

void spry_kv_node_remove(spry_kv_cache *c, uint32_t node)
{
    spry_kv_node *n = &c->nodes[node];
    *link_by_key(c, node) = n->next_by_key;
    *link_by_parent(c, node) = n->next_by_parent;
    if (n->by_content)
        *link_by_content(c, node) = n->next_by_content;
    spry_kv_node_unlist(c, node);
    n->count = 0;
    --*count_of(c, node);
}

void spry_kv_node_move(spry_kv_cache *c, uint32_t to, uint32_t from)
{
    *link_by_key(c, from) = to;
    *link_by_parent(c, from) = to;
    if (c->nodes[from].by_content)
        *link_by_content(c, from) = to;
    spry_kv_node_unlist(c, from);
    c->nodes[to] = c->nodes[from];
    c->nodes[from].count = 0;
    spry_kv_node_list(c, to, c->nodes[to].used_ns);
    --*count_of(c, from);
    ++*count_of(c, to);
}

void spry_kv_node_insert(spry_kv_cache *c, uint32_t page, spry_kv_key key, spry_kv_key parent, const int32_t *tokens,
                         size_t count, uint64_t now_ns)
{
    spry_kv_node *n = &c->nodes[page];
    *n = (spry_kv_node){.key = key, .parent = parent, .count = (uint32_t)count};
    memcpy(n->tokens, tokens, count * sizeof *tokens);
    uint32_t *first = spry_kv_bucket(c, c->by_key, key);
    n->next_by_key = *first;
    *first = page;
    first = spry_kv_bucket(c, c->by_parent, parent);
    n->next_by_parent = *first;
    *first = page;
    spry_kv_node_list(c, page, now_ns);
    c->figures.pages++;
    c->figures.inserted++;
}

void spry_kv_node_index_content(spry_kv_cache *c, uint32_t page, spry_kv_key root, uint32_t position)
{
    spry_kv_node *n = &c->nodes[page];
    if (!c->by_content || n->count != SPRY_PAGE_TOKENS)
        return;
    n->content = spry_kv_content(n->tokens);
    n->root = root;
    n->position = position;
    n->by_content = true;
    uint32_t *first = spry_kv_content_bucket(c, n->content);
    n->next_by_content = *first;
    *first = page;
}

static bool holds(const spry_kv_node *n, spry_kv_key parent, const int32_t *tokens, size_t count)
{
    return n->count == count && spry_kv_key_equal(n->parent, parent) &&
           !memcmp(n->tokens, tokens, count * sizeof *tokens);
}

uint32_t spry_kv_node_find(const spry_kv_cache *c, spry_kv_key key, spry_kv_key parent, const int32_t *tokens,
                           size_t count)
{
    uint32_t node = *spry_kv_bucket(c, c->by_key, key);
    while (node != SPRY_KV_NO_NODE &&
           !(spry_kv_key_equal(c->nodes[node].key, key) && holds(&c->nodes[node], parent, tokens, count)))
        node = c->nodes[node].next_by_key;
    return node;
}
