/* Products: the most important probes. Matrix heights are chosen for about a millisecond, so that slow kernels are
 * measured quickly too. */
#include <string.h>

#include "insight/speed_probe.h"
#include "kernels/packed.h"
#include "platform/clock.h"
#include "platform/memory.h"

enum { OUTPUT_GRAIN = 16, ALIGNMENT = 64 };
enum { N_IN = 2048, LEAST_OUT = 32, MANY_OUT = 1024, ONE_OUT = 2048, CACHED_OUT = 512, CALL_NS = 1000000 };

typedef struct product_job {
    const spry_matmul_kernel *kernel;
    spry_matmul product;
    size_t n_out;
    size_t worker_bytes; /* 0: workers share the outputs of a matrix; otherwise the distance between the workers'
                          * copies */
    size_t calls;        /* kernel calls per run of all workers */
} product_job;

static size_t matrix_bytes(const product_job *job)
{
    size_t group = job->kernel->group ? job->kernel->group : 1;
    return (job->n_out + group - 1) / group * job->product.weight_stride;
}

static product_job job_of(const spry_ops *ops, spry_dtype type, size_t n_in, size_t n_out, size_t n_rows)
{
    const spry_matmul_kernel *kernel = &ops->matmul[type];
    size_t blocks = n_in / spry_dtype_block(type);
    return (product_job){.kernel = kernel,
                         .n_out = n_out,
                         .calls = 1,
                         .product = {.out_stride = n_out,
                                     .weight_stride = kernel->group
                                                          ? blocks * spry_packed_row_bytes(type) * kernel->group
                                                          : blocks * spry_dtype_bytes(type),
                                     .act_stride = kernel->integer ? n_in / SPRY_ACT_BLOCK * sizeof(spry_act_block)
                                                                   : n_in * sizeof(float),
                                     .n_rows = n_rows,
                                     .n_in = n_in}};
}

static void product_part(void *context, size_t worker, size_t n_workers)
{
    const product_job *job = context;
    spry_matmul m = job->product;
    size_t begin = 0, end = job->n_out, own = worker * job->worker_bytes;
    m.out += own / sizeof *m.out;
    m.weight = (const unsigned char *)m.weight + own;
    m.act = (const unsigned char *)m.act + own;
    if (!job->worker_bytes)
        spry_threads_part(&begin, &end, job->n_out, OUTPUT_GRAIN, worker, n_workers);
    for (size_t i = 0; begin < end && i < job->calls; i++)
        job->kernel->run(&m, begin, end);
}

/* ---- as a pass does them ----------------------------------------------------------------------------------------- */

static product_job job_on(spry_probe_bed *bed, spry_dtype type, size_t n_out, size_t n_rows)
{
    product_job job = job_of(bed->ops, type, N_IN, n_out, n_rows);
    job.product.out = bed->results;
    job.product.out_stride = SPRY_PROBE_WIDTH;
    job.product.weight = bed->memory;
    job.product.act = job.kernel->integer ? (const void *)bed->act : bed->rows;
    return job;
}

/* Moves to the next matrix, which was not used recently. */
static void move_on(product_job *job, spry_probe_bed *bed)
{
    size_t bytes = (matrix_bytes(job) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bed->at + bytes > bed->bytes)
        bed->at = 0;
    job->product.weight = (job->kernel->group ? bed->memory : bed->plain) + bed->at;
    bed->at += bytes;
}

static void encode_part(void *context, size_t worker, size_t n_workers)
{
    const spry_probe_bed *bed = context;
    const size_t blocks = N_IN / SPRY_ACT_BLOCK;
    size_t begin, end;
    spry_threads_part(&begin, &end, SPRY_PROBE_ROWS, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++)
        bed->ops->encode_act(bed->act + row * blocks, bed->rows + row * N_IN, N_IN);
}

/* Nanoseconds for the next matrix. Its rows come from all threads' caches, and its results go to new addresses, as in a
 * forward pass. */
static double run_next(product_job *job, spry_probe_bed *bed)
{
    move_on(job, bed);
    if (job->product.n_rows > 1) {
        size_t column = (size_t)(job->product.out - bed->results) + job->n_out;
        job->product.out = bed->results + (column + job->n_out > SPRY_PROBE_WIDTH ? 0 : column);
        spry_threads_run(bed->threads, encode_part, bed);
    }
    uint64_t start = spry_clock_ns();
    spry_threads_run(bed->threads, product_part, job);
    return (double)(spry_clock_ns() - start);
}

/* The height that takes a millisecond. */
static size_t choose_height(spry_probe_bed *bed, spry_dtype type, size_t n_rows, size_t most)
{
    size_t n_out = LEAST_OUT;
    for (; n_out < most; n_out *= 2) {
        product_job job = job_on(bed, type, n_out, n_rows);
        run_next(&job, bed);
        if (run_next(&job, bed) > CALL_NS)
            break;
    }
    return n_out;
}

static double matrices_a_ns(product_job *job, spry_probe_bed *bed)
{
    enum { TRY_NS = 8 * CALL_NS };
    double ns = 0, count = 0;
    for (; ns < TRY_NS; count++)
        ns += run_next(job, bed);
    return count / ns;
}

double spry_probe_multiply(spry_probe_bed *bed, spry_dtype type)
{
    if (!bed->many_out[type])
        bed->many_out[type] = choose_height(bed, type, SPRY_PROBE_ROWS, MANY_OUT);
    product_job job = job_on(bed, type, bed->many_out[type], SPRY_PROBE_ROWS);
    return matrices_a_ns(&job, bed) * SPRY_PROBE_ROWS * N_IN * (double)job.n_out;
}

double spry_probe_decode(spry_probe_bed *bed, spry_dtype type)
{
    if (!bed->one_out[type])
        bed->one_out[type] = choose_height(bed, type, 1, ONE_OUT);
    product_job job = job_on(bed, type, bed->one_out[type], 1);
    return matrices_a_ns(&job, bed) * (double)matrix_bytes(&job);
}

double spry_probe_cached(spry_probe_bed *bed, spry_dtype type)
{
    size_t n_out = bed->one_out[type] && bed->one_out[type] < CACHED_OUT ? bed->one_out[type] : CACHED_OUT;
    product_job job = job_on(bed, type, n_out, 1);
    spry_threads_run(bed->threads, product_part, &job);
    return spry_probe_time(bed->threads, product_part, &job, (double)matrix_bytes(&job));
}

/* ---- the limit --------------------------------------------------------------------------------------------------- */

/* A tile that fits any second-level cache, for every type. */
enum { TILE_IN = 1024, TILE_OUT = 64, TILE_ROWS = 64, PEAK_TRIES = 5, PEAK_NS = 40000000, FILLING = 0x11 };

typedef struct tile_filling {
    const spry_ops *ops;
    const product_job *job;
    unsigned char *memory;
} tile_filling;

/* The kernels' speed does not depend on the bits as long as they are ordinary numbers. */
static void fill_tile(void *context, size_t worker, size_t n_workers)
{
    const tile_filling *filling = context;
    const product_job *job = filling->job;
    unsigned char *weight = filling->memory + worker * job->worker_bytes, *act = weight + matrix_bytes(job);
    float row[TILE_IN];
    (void)n_workers;
    memset(weight, FILLING, matrix_bytes(job));
    for (size_t i = 0; i < TILE_IN; i++)
        row[i] = (float)(i % 17) - 8;
    for (size_t r = 0; r < TILE_ROWS; r++, act += job->product.act_stride)
        if (job->kernel->integer)
            filling->ops->encode_act((void *)act, row, TILE_IN);
        else
            memcpy(act, row, sizeof row);
}

static double time_calls(product_job *job, spry_threads *threads)
{
    uint64_t start = spry_clock_ns();
    spry_threads_run(threads, product_part, job);
    return (double)(spry_clock_ns() - start);
}

spry_status spry_probe_multiply_peak(double *g_s, const spry_ops *ops, spry_dtype type, spry_threads *threads,
                                     spry_error *error)
{
    size_t workers = spry_threads_count(threads);
    product_job job = job_of(ops, type, TILE_IN, TILE_OUT, TILE_ROWS);
    size_t act_bytes = job.product.act_stride * TILE_ROWS;
    job.worker_bytes = matrix_bytes(&job) + act_bytes + TILE_ROWS * TILE_OUT * sizeof(float);
    unsigned char *memory = spry_memory_map(job.worker_bytes * workers);
    if (!memory)
        return spry_fail_memory(error, "measuring how fast the kernels multiply", job.worker_bytes * workers);
    job.product.weight = memory;
    job.product.act = memory + matrix_bytes(&job);
    job.product.out = (float *)(void *)(memory + matrix_bytes(&job) + act_bytes);
    spry_threads_run(threads, fill_tile, &(tile_filling){ops, &job, memory});
    while (time_calls(&job, threads) < PEAK_NS / 2 && job.calls < (1 << 20))
        job.calls *= 2;
    *g_s = 0;
    for (int i = 0; i < PEAK_TRIES; i++) {
        double products = (double)job.calls * (double)workers * TILE_ROWS * TILE_OUT * TILE_IN;
        double speed = products / time_calls(&job, threads);
        *g_s = speed > *g_s ? speed : *g_s;
    }
    spry_memory_unmap(memory, job.worker_bytes * workers);
    return SPRY_OK;
}
