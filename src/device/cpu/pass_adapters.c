/* LoRA adapters: out += scale * b * (a * in), for each row with the adapters of its own segment. Rows in a step may
 * have different ones. The weights stay as they are, so rows without adapters cost nothing and keep their bits.
 *
 * The narrow products come first, split over their outputs, then what is added, split over the outputs of the matrix.
 * A row's sums have one order: adapter after adapter, rank after rank. */
#include "device/cpu/pass_state.h"
#include "device/cpu/team.h"
#include "kernels/ref/ref.h"

typedef struct adapt_job {
    const spry_pass *pass;
    const spry_product *products;
    size_t n_products, n_rows;
    const float *in;
} adapt_job;

static const spry_adapter_scales *scales_of(const spry_pass *p, size_t row)
{
    return p->scales[p->row_numbers ? p->row_numbers[row] : row];
}

/* Whether rows with these scales go through an adapter of the matrix. */
static bool uses(const spry_weight *w, const spry_adapter_scales *scales, size_t adapter)
{
    return w->adapters[adapter].rank && (scales->of[adapter] < 0 || scales->of[adapter] > 0);
}

static float *narrow_row(const adapt_job *job, size_t product, size_t row)
{
    const spry_pass *p = job->pass;
    return p->narrow + (product * p->limits.max_rows + row) * p->limits.adapter_ranks;
}

/* Rows from `first` on with the same scales. */
static size_t run_length(const adapt_job *job, size_t first)
{
    const spry_adapter_scales *scales = scales_of(job->pass, first);
    size_t row = first + 1;
    while (row < job->n_rows && scales_of(job->pass, row) == scales)
        row++;
    return row - first;
}

/* The part of rows [first, first + n) times a of every adapter they go through. */
static void narrow_rows(const adapt_job *job, size_t product, size_t first, size_t n, size_t worker, size_t n_workers)
{
    const spry_weight *w = job->products[product].w;
    const spry_adapter_scales *scales = scales_of(job->pass, first);
    float *out = narrow_row(job, product, first);
    for (size_t i = 0; i < job->pass->limits.n_adapters; i++) {
        const spry_adapter_pair *pair = &w->adapters[i];
        size_t begin, end;
        if (!uses(w, scales, i))
            continue;
        const spry_matmul m = {.out = out,
                               .out_stride = job->pass->limits.adapter_ranks,
                               .weight = pair->a,
                               .weight_stride = w->n_in * sizeof *pair->a,
                               .act = job->in + first * w->n_in,
                               .act_stride = w->n_in * sizeof(float),
                               .n_rows = n,
                               .n_in = w->n_in};
        spry_threads_part(&begin, &end, pair->rank, 1, worker, n_workers);
        spry_ref_matmul_f32(&m, begin, end);
        out += pair->rank;
    }
}

static void narrow_part(void *context, size_t worker, size_t n_workers)
{
    const adapt_job *job = context;
    for (size_t i = 0; i < job->n_products; i++)
        for (size_t row = 0, n; job->products[i].w->adapters && row < job->n_rows; row += n) {
            n = run_length(job, row);
            if (scales_of(job->pass, row))
                narrow_rows(job, i, row, n, worker, n_workers);
        }
}

static void add_row(const adapt_job *job, size_t product, size_t row, size_t begin, size_t end)
{
    const spry_product *to = &job->products[product];
    const spry_adapter_scales *scales = scales_of(job->pass, row);
    const float *narrow = narrow_row(job, product, row);
    for (size_t i = 0; i < job->pass->limits.n_adapters; i++) {
        const spry_adapter_pair *pair = &to->w->adapters[i];
        if (!uses(to->w, scales, i))
            continue;
        for (size_t j = 0; j < pair->rank; j++)
            job->pass->ops->add_scaled(to->out + row * to->stride + begin, pair->b + j * to->w->n_out + begin,
                                       *narrow++ * (scales->of[i] * pair->scale), end - begin);
    }
}

static void add_part(void *context, size_t worker, size_t n_workers)
{
    const adapt_job *job = context;
    for (size_t i = 0; i < job->n_products; i++) {
        size_t begin, end;
        spry_threads_part(&begin, &end, job->products[i].w->n_out, SPRY_OUTPUT_GRAIN, worker, n_workers);
        for (size_t row = 0; job->products[i].w->adapters && begin < end && row < job->n_rows; row++)
            if (scales_of(job->pass, row))
                add_row(job, i, row, begin, end);
    }
}

enum { WORTH_WAKING = 1 << 16 }; /* products; below this, waking the other threads costs more */

static void run_part(spry_pass *p, spry_threads_fn part, adapt_job *job, size_t width)
{
    if (job->n_rows * p->limits.adapter_ranks * width >= WORTH_WAKING)
        spry_threads_run(p->threads, part, job);
    else
        part(job, 0, 1);
}

void spry_pass_adapt(spry_pass *p, const spry_product *products, size_t n_products, const float *in, size_t n_rows)
{
    adapt_job job = {p, products, n_products, n_rows, in};
    bool any = false;
    for (size_t i = 0; i < n_products; i++)
        any = any || products[i].w->adapters;
    if (!any)
        return;
    run_part(p, narrow_part, &job, n_products * products[0].w->n_in);
    run_part(p, add_part, &job, n_products * products[0].w->n_out);
}
