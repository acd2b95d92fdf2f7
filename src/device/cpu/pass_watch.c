/* The work of each op, for the op watch. */
#include "device/cpu/pass_state.h"

void spry_pass_charge(spry_pass *p, spry_op op)
{
    if (p->watch)
        spry_op_watch_add(p->watch, op, SPRY_F32, p->ops->name, 0, 0);
}

void spry_pass_took_products(spry_pass *p, spry_op op, const spry_product *products, size_t n_products, size_t n_rows)
{
    double bytes = 0, multiplied = 0;
    if (!p->watch)
        return;
    for (size_t i = 0; i < n_products; i++) {
        const spry_weight *w = products[i].w;
        bytes += spry_weight_read_bytes(w, p->ops->matmul[w->type].group);
        multiplied += (double)w->n_out * (double)w->n_in * (double)n_rows;
    }
    spry_op_watch_add(p->watch, op, products[0].w->type, p->ops->name, bytes, multiplied);
}

/* Keys that the rows of a segment see, one row after the other. */
static double seen_keys(const spry_segment *g, uint32_t window)
{
    double keys = 0;
    for (uint32_t i = 0; i < g->n_rows; i++) {
        uint32_t all = g->first_position + i + 1;
        keys += window && all > window ? window : all;
    }
    return keys;
}

void spry_pass_took_attention(spry_pass *p, uint32_t layer)
{
    const spry_config *c = p->config;
    double products = 0, tokens = 0;
    uint32_t window = c->sliding[layer] ? c->window : 0;
    if (!p->watch)
        return;
    for (size_t s = 0; s < p->n_segments; s++) {
        const spry_segment *g = &p->segments[s];
        uint32_t end = g->first_position + g->n_rows, most = window ? window + g->n_rows - 1 : end;
        products += seen_keys(g, window) * c->n_heads * c->head_dim * 2;
        tokens += end < most ? end : most;
    }
    double token_bytes = (double)p->pool->page_bytes / SPRY_PAGE_TOKENS / c->n_layers;
    spry_op_watch_add(p->watch, SPRY_OP_ATTEND, p->pool->shape.type, p->ops->name, tokens * token_bytes, products);
}
