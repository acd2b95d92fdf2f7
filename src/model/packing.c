/* A walk over all matrices, first to count, then to pack. */
#include "model/packing.h"

#include "base/checked.h"
#include "kernels/packed.h"
#include "platform/memory.h"

typedef struct packer {
    spry_weights *weights;
    const spry_config *config;
    const spry_ops *ops;
    spry_threads *threads;
    unsigned char *memory;             /* NULL: only count */
    size_t used, dropped;              /* packed bytes; bytes of matrices that need not stay */
    const unsigned char *first, *last; /* where those begin and end in the file */
    bool mapped, overflow;
    bool integers; /* some kernel is of integers */
} packer;

typedef struct pack_job {
    const spry_weight *w;
    unsigned char *out;
    size_t group, group_bytes, n_groups;
    bool drop; /* the rows' pages, as soon as they are packed */
} pack_job;

enum { DROP_BYTES = 4 << 20 }; /* of a file that may be resident beside their packed form */

static void pack_part(void *context, size_t worker, size_t n_workers)
{
    const pack_job *job = context;
    const spry_weight *w = job->w;
    size_t begin, end, kept;
    spry_threads_part(&begin, &end, job->n_groups, 1, worker, n_workers);
    kept = begin;
    for (size_t g = begin; g < end; g++) {
        size_t first = g * job->group, left = w->n_out - first, n_rows = left < job->group ? left : job->group;
        spry_pack_group(w->type, job->out + g * job->group_bytes, w->data + first * w->row_bytes, w->row_bytes, w->n_in,
                        n_rows, job->group);
        size_t done = (first + n_rows - kept * job->group) * w->row_bytes;
        if (job->drop && (done >= DROP_BYTES || g + 1 == end)) {
            spry_memory_drop(w->data + kept * job->group * w->row_bytes, done);
            kept = g + 1;
        }
    }
}

/* Rows that have been packed are not read again by this engine; others may read the same file, where they come back,
 * and what was quantised is nobody else's. */
static bool can_drop(const packer *p)
{
    return p->weights->quantized_bytes || (p->mapped && !p->weights->copied_bytes);
}

static void pack(packer *p, spry_weight *w)
{
    const spry_matmul_kernel *kernel = &p->ops->matmul[w->type];
    size_t group = kernel->group, bytes;
    if (!w->data || !group)
        return;
    p->integers = p->integers || kernel->integer;
    pack_job job = {.w = w, .group = group, .n_groups = (w->n_out + group - 1) / group, .drop = can_drop(p)};
    job.group_bytes = spry_packed_row_bytes(w->type) * group * (w->n_in / spry_dtype_block(w->type));
    if (!spry_checked_mul(&bytes, job.group_bytes, job.n_groups) || !spry_checked_align(&bytes, bytes, 64) ||
        !spry_checked_add(&bytes, bytes, p->used)) {
        p->overflow = true;
        return;
    }
    if (p->memory) {
        job.out = p->memory + p->used;
        spry_threads_run(p->threads, pack_part, &job);
        w->packed = job.out;
        w->group_bytes = job.group_bytes;
    }
    p->used = bytes;
    if (!job.drop)
        return;
    const unsigned char *end = w->data + w->n_out * w->row_bytes;
    p->first = !p->first || w->data < p->first ? w->data : p->first;
    p->last = !p->last || end > p->last ? end : p->last;
    p->dropped += w->n_out * w->row_bytes;
}

static void pack_layer(packer *p, spry_layer *l)
{
    spry_weight *const matrices[] = {&l->q,  &l->k,    &l->v,           &l->o,         &l->gate,
                                     &l->up, &l->down, &l->shared_gate, &l->shared_up, &l->shared_down};
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        pack(p, matrices[i]);
    for (uint32_t e = 0; l->expert_gate && e < p->config->n_experts; e++) {
        pack(p, &l->expert_gate[e]);
        pack(p, &l->expert_up[e]);
        pack(p, &l->expert_down[e]);
    }
    pack(p, &l->router);
    pack(p, &l->shared_router);
}

static bool is_tied(const spry_weights *w)
{
    return w->embedding.data == w->output.data;
}

/* The embedding is read row by row, never multiplied by; where it is the output matrix, too, that one's groups serve
 * for both. */
static void pack_all(packer *p)
{
    spry_weights *w = p->weights;
    for (uint32_t i = 0; i < p->config->n_layers; i++)
        pack_layer(p, &w->layers[i]);
    pack(p, &w->output);
    if (p->memory && is_tied(w))
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

bool spry_weights_need_integers(const spry_weights *weights, const spry_config *config, const spry_ops *ops)
{
    packer p = {.weights = (spry_weights *)weights, .config = config, .ops = ops};
    pack_all(&p);
    return p.integers;
}

bool spry_weights_resident_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                                 const spry_ops *ops, bool mapped)
{
    packer p = {.weights = (spry_weights *)weights, .config = config, .ops = ops, .mapped = mapped};
    pack_all(&p);
    return !p.overflow && spry_checked_add(bytes, p.used, weights->bytes - p.dropped);
}

/* Packing leaves a page here and there where matrices meet, or where the system read further than it was asked to. */
static void settle(const packer *p)
{
    const spry_weight *embedding = &p->weights->embedding;
    if (!p->mapped || p->weights->quantized_bytes)
        return;
    if (p->first)
        spry_memory_drop(p->first, (size_t)(p->last - p->first));
    if (!is_tied(p->weights)) /* otherwise every step reads all of it, as it is or packed */
        spry_memory_fetch(embedding->data, embedding->n_out * embedding->row_bytes);
}

spry_status spry_weights_pack(spry_weights *weights, const spry_config *config, const spry_ops *ops,
                              spry_threads *threads, bool mapped, spry_error *error)
{
    packer p = {.weights = weights, .config = config, .ops = ops, .threads = threads, .mapped = mapped};
    size_t bytes;
    if (!spry_weights_packed_bytes(&bytes, weights, config, ops))
        return spry_fail(error, SPRY_ERR_MEMORY, "packed weights would be larger than any memory");
    if (!bytes) {
        settle(&p);
        return SPRY_OK;
    }
    p.memory = weights->packed = spry_memory_map(bytes);
    weights->packed_bytes = bytes;
    if (!p.memory)
        return spry_fail_memory(error, "packed weights", bytes);
    pack_all(&p);
    settle(&p);
    return SPRY_OK;
}

void spry_weights_unpack(spry_weights *weights)
{
    if (weights->packed)
        spry_memory_unmap(weights->packed, weights->packed_bytes);
    weights->packed = NULL;
}
