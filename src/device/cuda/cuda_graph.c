/* Steps of a shape that came before are launched as one graph: everything that differs between them lies in the upload,
 * and what kernels are given depends on the shape alone. A shape becomes a graph when it comes a second time. Where
 * that was chosen, the layers of a row are one kernel in it (cuda_phases.c). */
#include <string.h>

#include "device/cuda/cuda_state.h"

enum { GRAPH_ROWS = 64 }; /* longer steps take longer than launching them */

static spry_cuda_shape shape_of(const spry_cuda_device *d)
{
    return (spry_cuda_shape){.alone = d->alone,
                             .adapted = d->adapted,
                             .n_segments = d->config->n_delta_layers ? d->n_segments : 0,
                             .n_rows = d->n_rows,
                             .n_few = d->n_few,
                             .n_pieces = d->n_pieces,
                             .n_runs = d->n_runs,
                             .n_chunks = d->n_chunks,
                             .longest_run = d->longest_run,
                             .n_spread = d->n_spread,
                             .n_logits = d->n_logits,
                             .n_wanted = d->n_wanted,
                             .n_turns = d->pool->turns.end,
                             .upload = d->upload.memory};
}

/* The graph of a shape; one that was not seen before takes the place of the one unused for longest. */
static spry_cuda_graph *find_graph(spry_cuda_device *d, const spry_cuda_shape *shape)
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
    spry_cuda_list list;
    bool listed = run == spry_cuda_run && d->n_rows == 1 && spry_cuda_chosen(d, SPRY_CHOICE_LAUNCHES) == 2 &&
                  spry_cuda_list_make(&list, d, (size_t)(g - d->graphs));
    spry_cuda_capture_begin(&d->context);
    d->list = listed ? &list : NULL;
    run(d);
    d->list = NULL;
    g->exec = spry_cuda_capture_end(&d->context);
}

void spry_cuda_run_graph(spry_cuda_device *d, void (*run)(spry_cuda_device *d))
{
    if (d->watch || d->n_rows > GRAPH_ROWS || spry_cuda_chosen(d, SPRY_CHOICE_LAUNCHES) == 1) {
        run(d);
        return;
    }
    spry_cuda_shape shape = shape_of(d);
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
