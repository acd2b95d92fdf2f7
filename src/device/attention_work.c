/* How much work attention is, for the op watch of any device. */
#include "device/device_impl.h"

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
