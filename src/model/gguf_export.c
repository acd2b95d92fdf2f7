/* Encoding and writing, a bounded batch of rows at a time, on all workers. */
#include "model/gguf_export.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "model/export_plan.h"
#include "model/matrix_walk.h"

enum { BATCH_VALUES = 1 << 20 };

/* Matrices that adapters change, by where their rows lie: a tensor of a file may hold several. */
typedef struct merge {
    const spry_adapters *adapters;
    spry_adapter_scales scales;
    const spry_weight **list; /* ascending; NULL: nothing is merged */
    size_t count, capacity;
    atomic_size_t n_rows; /* that were changed */
} merge;

typedef struct batch {
    const spry_ops *ops;
    merge *merge;
    const spry_weight *from;
    const spry_export_item *item;
    size_t first_row, n_rows, row_bytes;
    float *floats;      /* [n_rows, n_in] */
    unsigned char *out; /* [n_rows, row_bytes] */
} batch;

/* Adds adapters to a row that lies at `at`. */
static void merge_row(merge *m, float *row, const unsigned char *at)
{
    size_t first = 0;
    for (size_t end = m->count; first < end;) { /* the first matrix behind it */
        size_t middle = first + (end - first) / 2;
        if (m->list[middle]->data <= at)
            first = middle + 1;
        else
            end = middle;
    }
    const spry_weight *w = first ? m->list[first - 1] : NULL;
    size_t index = w ? (size_t)(at - w->data) / w->row_bytes : 0;
    if (!w || index >= w->n_out)
        return;
    spry_adapters_add_row(row, w, index, m->adapters, &m->scales);
    atomic_fetch_add(&m->n_rows, 1);
}

static void add_matrix(void *context, const spry_matrix *matrix)
{
    merge *m = context;
    if (matrix->weight->adapters && m->count < m->capacity)
        m->list[m->count] = matrix->weight;
    m->count += matrix->weight->adapters != NULL;
}

static int by_place(const void *a, const void *b)
{
    const unsigned char *first = (*(const spry_weight *const *)a)->data,
                        *second = (*(const spry_weight *const *)b)->data;
    return first < second ? -1 : first > second;
}

static spry_status merge_init(merge *m, const spry_model *model, spry_error *error)
{
    spry_weights *weights = (spry_weights *)&model->weights; /* only read */
    if (model->config.tied && weights->output.adapters)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: an adapter changes the output matrix, which is also the embedding: it cannot be merged",
                         model->name);
    *m = (merge){.adapters = &model->adapters, .scales = spry_adapters_default(&model->adapters)};
    spry_matrices_each(weights, &model->config, add_matrix, m);
    m->capacity = m->count;
    m->list = calloc(m->capacity + 1, sizeof(spry_weight *));
    if (!m->list)
        return spry_fail_memory(error, "the list of matrices", m->capacity * sizeof *m->list);
    m->count = 0;
    spry_matrices_each(weights, &model->config, add_matrix, m);
    qsort(m->list, m->count, sizeof(spry_weight *), by_place);
    return SPRY_OK;
}

/* Every matrix was found: none was copied when the model was opened, or is left out of the file. */
static spry_status merge_check(const merge *m, const spry_model *model, spry_error *error)
{
    size_t n_rows = 0;
    for (size_t i = 0; i < m->count; i++)
        n_rows += m->list[i]->n_out;
    if (n_rows == m->n_rows)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                     "%s: adapters change %zu rows, of which %zu have a place of their own in the file", model->name,
                     n_rows, m->n_rows);
}

static void encode_part(void *context, size_t worker, size_t n_workers)
{
    const batch *b = context;
    size_t begin, end, n = b->from->n_in;
    spry_threads_part(&begin, &end, b->n_rows, 1, worker, n_workers);
    for (size_t i = begin; i < end; i++) {
        size_t row = spry_export_source_row(b->item->permute_head, b->first_row + i);
        b->ops->decode[b->from->type](b->floats + i * n, b->from->data + row * b->from->row_bytes, n);
        merge_row(b->merge, b->floats + i * n, b->from->data + row * b->from->row_bytes);
        b->ops->encode[b->item->as.type](b->out + i * b->row_bytes, b->floats + i * n, n);
    }
}

static spry_status write_piece(spry_gguf_writer *writer, merge *merged, const spry_export *options, const spry_ops *ops,
                               const spry_export_item *item, const spry_weight *from, size_t *done, size_t total,
                               spry_error *error)
{
    size_t rows_at_once = from->n_in < BATCH_VALUES ? BATCH_VALUES / from->n_in : 1, row_bytes;
    if (rows_at_once > from->n_out)
        rows_at_once = from->n_out;
    if (!spry_dtype_size(&row_bytes, item->as.type, from->n_in))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "tensor '%.*s': rows of %zu are not whole blocks of %s",
                         SPRY_VIEW_ARG(item->as.name), from->n_in, spry_dtype_name(item->as.type));
    batch b = {.ops = ops, .merge = merged, .from = from, .item = item, .row_bytes = row_bytes};
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

static spry_status write_plan(const spry_export_plan *plan, spry_gguf_writer *writer, merge *merged, const char *path,
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
            status = write_piece(writer, merged, plan->options, ops, &plan->items[i], &plan->items[i].pieces[piece],
                                 &done, total, error);
    if (!status)
        status = merge_check(merged, plan->model, error);
    return status ? status : spry_gguf_writer_finish(writer, error);
}

spry_status spry_model_export(const spry_model *model, const char *path, const spry_export *options, spry_error *error)
{
    spry_export_plan plan;
    spry_gguf_writer *writer = NULL;
    merge merged = {0};
    spry_status status = spry_export_plan_init(&plan, model, options, error);
    if (!status && options->merges)
        status = merge_init(&merged, model, error);
    if (!status)
        status = spry_gguf_writer_create(&writer, error);
    if (!status)
        status = write_plan(&plan, writer, &merged, path, error);
    spry_gguf_writer_destroy(writer);
    free(merged.list);
    spry_export_plan_deinit(&plan);
    return status;
}
