/* Encoding and writing, a bounded batch of rows at a time, on all workers. */
#include "model/gguf_export.h"

#include <stdlib.h>

#include "model/export_plan.h"

enum { BATCH_VALUES = 1 << 20 };

typedef struct batch {
    const spry_ops *ops;
    const spry_weight *from;
    const spry_export_item *item;
    size_t first_row, n_rows, row_bytes;
    float *floats;      /* [n_rows, n_in] */
    unsigned char *out; /* [n_rows, row_bytes] */
} batch;

static void encode_part(void *context, size_t worker, size_t n_workers)
{
    const batch *b = context;
    size_t begin, end, n = b->from->n_in;
    spry_threads_part(&begin, &end, b->n_rows, 1, worker, n_workers);
    for (size_t i = begin; i < end; i++) {
        size_t row = spry_export_source_row(b->item->permute_head, b->first_row + i);
        b->ops->decode[b->from->type](b->floats + i * n, b->from->data + row * b->from->row_bytes, n);
        b->ops->encode[b->item->as.type](b->out + i * b->row_bytes, b->floats + i * n, n);
    }
}

static spry_status write_piece(spry_gguf_writer *writer, const spry_export *options, const spry_ops *ops,
                               const spry_export_item *item, const spry_weight *from, size_t *done, size_t total,
                               spry_error *error)
{
    size_t rows_at_once = from->n_in < BATCH_VALUES ? BATCH_VALUES / from->n_in : 1, row_bytes;
    if (rows_at_once > from->n_out)
        rows_at_once = from->n_out;
    if (!spry_dtype_size(&row_bytes, item->as.type, from->n_in))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "tensor '%.*s': rows of %zu are not whole blocks of %s",
                         SPRY_VIEW_ARG(item->as.name), from->n_in, spry_dtype_name(item->as.type));
    batch b = {.ops = ops, .from = from, .item = item, .row_bytes = row_bytes};
    b.floats = malloc(rows_at_once * from->n_in * sizeof *b.floats);
    b.out = malloc(rows_at_once * row_bytes);
    spry_status status = SPRY_OK;
    if (!b.floats || !b.out)
        status = spry_fail_memory(error, "a batch of rows", rows_at_once * from->n_in * sizeof *b.floats);
    for (b.first_row = 0; !status && b.first_row < from->n_out; b.first_row += b.n_rows) {
        b.n_rows = from->n_out - b.first_row < rows_at_once ? from->n_out - b.first_row : rows_at_once;
        spry_threads_run(options->threads, encode_part, &b);
        status = spry_gguf_writer_data(writer, b.out, b.n_rows * row_bytes, error);
        *done += b.n_rows * row_bytes;
        if (!status && options->progress && !options->progress(options->user, *done, total))
            status = spry_fail(error, SPRY_ERR_CANCELLED, "interrupted; nothing was written");
    }
    free(b.floats);
    free(b.out);
    return status;
}

static size_t item_bytes(const spry_export_item *item)
{
    size_t bytes = 0;
    const size_t *dims = item->as.dims;
    spry_dtype_size(&bytes, item->as.type, dims[0] * dims[1] * dims[2] * dims[3]);
    return bytes;
}

static spry_status write_plan(const spry_export_plan *plan, spry_gguf_writer *writer, const char *path,
                              spry_error *error)
{
    const spry_ops *ops;
    spry_status status = spry_ops_get(&ops, "auto", error);
    if (status)
        return status;
    size_t done = 0, total = 0;
    if (!spry_export_metadata(plan, writer))
        return spry_fail_memory(error, "a file's metadata", 0);
    for (size_t i = 0; i < plan->count; i++) {
        spry_gguf_writer_tensor(writer, &plan->items[i].as);
        total += item_bytes(&plan->items[i]);
    }
    status = spry_gguf_writer_begin(writer, path, error);
    for (size_t i = 0; !status && i < plan->count; i++)
        for (size_t piece = 0; !status && piece < plan->items[i].n_pieces; piece++)
            status = write_piece(writer, plan->options, ops, &plan->items[i], &plan->items[i].pieces[piece], &done,
                                 total, error);
    return status ? status : spry_gguf_writer_finish(writer, error);
}

spry_status spry_model_export(const spry_model *model, const char *path, const spry_export *options, spry_error *error)
{
    spry_export_plan plan;
    spry_gguf_writer *writer = NULL;
    spry_status status = spry_export_plan_init(&plan, model, options, error);
    if (!status)
        status = spry_gguf_writer_create(&writer, error);
    if (!status)
        status = write_plan(&plan, writer, path, error);
    spry_gguf_writer_destroy(writer);
    spry_export_plan_deinit(&plan);
    return status;
}
