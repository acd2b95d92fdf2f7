/* Steps as CUDA graphs. */
#include <string.h>

#include "device/cuda/cuda_state.h"

/* A step whose key came before is launched as one CUDA graph: everything that differs between such steps is in the
 * upload, and the kernels' arguments depend only on the key. A graph is captured when a key comes for the second time.
 */

enum { GRAPH_ROWS = 64 }; /* larger steps take longer than their launches */

static spry_cuda_graph_key key_of(const spry_cuda_device *d)
{
    return (spry_cuda_graph_key){.alone = d->alone,
                                 .adapted = d->adapted,
                                 .n_segments = d->config->n_delta_layers ? d->n_segments : 0,
                                 .n_rows = d->n_rows,
                                 .n_decode_rows = d->n_decode_rows,
                                 .n_decode_tiles = d->n_decode_tiles,
                                 .n_prefill_tiles = d->n_prefill_tiles,
                                 .n_chunks = d->n_chunks,
                                 .longest_prefill_tile = d->longest_prefill_tile,
                                 .n_kv_splits = d->n_kv_splits,
                                 .n_logits = d->n_logits,
                                 .n_wanted = d->n_wanted,
                                 .n_rotations = d->pool->turns.end,
                                 .upload = d->upload.memory};
}

/* Finds the graph of a key; a new key replaces the least recently used one. */
static spry_cuda_graph *find_graph(spry_cuda_device *d, const spry_cuda_graph_key *shape)
{
    spry_cuda_graph *oldest = &d->graphs[0];
    for (size_t i = 0; i < SPRY_CUDA_GRAPHS; i++) {
        spry_cuda_graph *g = &d->graphs[i];
        if (!memcmp(&g->shape, shape, sizeof *shape))
            return g;
        oldest = g->used < oldest->used ? g : oldest;
    }
    spry_cuda_graph_destroy(&d->context, oldest->exec);
    *oldest = (spry_cuda_graph){.shape = *shape};
    return oldest;
}

static void capture(spry_cuda_device *d, spry_cuda_graph *g, void (*run)(spry_cuda_device *d))
{
    spry_cuda_capture_begin(&d->context);
    run(d);
    g->exec = spry_cuda_capture_end(&d->context);
}

void spry_cuda_run_graph(spry_cuda_device *d, void (*run)(spry_cuda_device *d))
{
    if (d->watch || d->sees || d->n_rows > GRAPH_ROWS) {
        run(d);
        return;
    }
    spry_cuda_graph_key shape = key_of(d);
    spry_cuda_graph *g = find_graph(d, &shape);
    bool known = g->used;
    g->used = ++d->graph_clock;
    if (known && !g->exec)
        capture(d, g, run);
    if (g->exec)
        spry_cuda_graph_launch(&d->context, g->exec);
    else
        run(d);
}

void spry_cuda_graphs_deinit(spry_cuda_device *d)
{
    for (size_t i = 0; i < SPRY_CUDA_GRAPHS; i++)
        spry_cuda_graph_destroy(&d->context, d->graphs[i].exec);
    memset(d->graphs, 0, sizeof d->graphs);
}
