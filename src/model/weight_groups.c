/* A matrix in the groups of rows that kernels read, in place of its layout in the file. */
#include "model/weight_groups.h"

#include <stdatomic.h>

#include "base/number.h"
#include "kernels/packed.h"
#include "platform/memory.h"

void spry_weight_pack_group(void *out, const spry_weight *w, size_t first, size_t group)
{
    size_t left = w->n_out - first;
    spry_pack_group(w->group_type, out, w->data + first * w->row_bytes, w->row_bytes, w->n_in,
                    left < group ? left : group, group);
    if (w->group_type != w->type)
        spry_narrow(out, group * w->n_in);
}

typedef struct pack_job {
    const spry_weight *w;
    unsigned char *out;
    size_t group, n_groups;
    bool drop; /* release the pages of rows as soon as they are packed */
} pack_job;

enum { DROP_BYTES = 4 << 20 }; /* maximum bytes of the file that stay in memory beside their packed form */

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
            spry_memory_drop_file(w->data + kept * job->group * w->row_bytes, done);
            kept = g + 1;
        }
    }
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
    atomic_bool lost; /* there is a value that the narrow type cannot represent */
} narrow_job;

static void narrow_part(void *context, size_t worker, size_t n_workers)
{
    narrow_job *job = context;
    const spry_weight *w = job->w;
    const unsigned char *rows = w->data - w->n_before * w->row_bytes;
    size_t begin, end;
    spry_threads_part(&begin, &end, w->n_before + w->n_out + w->n_after, 1, worker, n_workers);
    for (size_t row = begin; row < end && !atomic_load_explicit(&job->lost, memory_order_relaxed); row++)
        if (!spry_narrow_exact(rows + row * w->row_bytes, w->n_in))
            atomic_store_explicit(&job->lost, true, memory_order_relaxed);
}

void spry_weight_choose_groups(spry_weight *w, const spry_ops *ops, spry_threads *threads)
{
    spry_dtype narrow = ops->matmul[w->type].narrow;
    narrow_job job = {.w = w};
    if (w->group_bytes) /* an expert that was packed before */
        return;
    if (narrow)
        spry_threads_run(threads, narrow_part, &job);
    w->group_type = narrow && !job.lost ? narrow : w->type;
    w->group_bytes = group_bytes(w, ops->matmul[w->type].group);
}

void spry_weight_pack(spry_weight *w, unsigned char *out, const spry_ops *ops, spry_threads *threads, bool drop)
{
    spry_weight_choose_groups(w, ops, threads);
    size_t group = ops->matmul[w->type].group;
    pack_job job = {.w = w, .out = out, .group = group, .n_groups = (w->n_out + group - 1) / group, .drop = drop};
    spry_threads_run(threads, pack_part, &job);
    w->packed = out;
}
