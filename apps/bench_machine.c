/* Two limits no engine passes: how fast all threads together read memory, and how fast the kernel multiplies what lies
 * in cache already. Both are the best of several tries, because a limit is what is possible. */
#include <string.h>

#include "bench.h"
#include "kernels/packed.h"
#include "platform/clock.h"
#include "platform/memory.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

enum { READ_TRIES = 8, LINE_WORDS = 8 };

/* More than the caches that a thread has for itself or shares, however many threads there are. */
static const size_t read_bytes_min = 128 << 20, read_bytes_a_thread = 64 << 20, read_bytes_max = (size_t)4 << 30;

typedef struct read_job {
    uint64_t *memory;
    size_t bytes, words;
    uint64_t sums[1024]; /* of each worker, so that no compiler leaves the reading out */
} read_job;

static void fill_part(void *context, size_t worker, size_t n_workers)
{
    const read_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->words, LINE_WORDS, worker, n_workers);
    for (size_t i = begin; i < end; i++)
        job->memory[i] = i;
}

static void read_part(void *context, size_t worker, size_t n_workers)
{
    read_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->words, LINE_WORDS, worker, n_workers);
    uint64_t sum = 0;
    for (size_t i = begin; i < end; i++) /* compilers read this in vectors, as fast as memory goes */
        sum += job->memory[i];
    job->sums[worker] = sum;
}

static spry_status measure_reading(double *gb_s, spry_threads *threads, spry_error *error)
{
    read_job job = {.bytes = read_bytes_min};
    size_t most = spry_memory_total() / 8;
    most = most && most < read_bytes_max ? most : read_bytes_max;
    while (job.bytes < read_bytes_a_thread * spry_threads_count(threads) && job.bytes * 2 <= most)
        job.bytes *= 2;
    while (!(job.memory = spry_memory_map(job.bytes)) && job.bytes > read_bytes_min / 8)
        job.bytes /= 2;
    if (!job.memory)
        return spry_fail_memory(error, "measuring how fast memory is read", job.bytes);
    job.words = job.bytes / sizeof *job.memory;
    spry_threads_run(threads, fill_part, &job);
    *gb_s = 0;
    for (int i = 0; i < READ_TRIES; i++) {
        uint64_t start = spry_clock_ns();
        spry_threads_run(threads, read_part, &job);
        double speed = (double)job.bytes / (double)(spry_clock_ns() - start);
        *gb_s = speed > *gb_s ? speed : *gb_s;
    }
    spry_memory_unmap(job.memory, job.bytes);
    return SPRY_OK;
}

/* ---- multiplying ------------------------------------------------------------------------------------------------- */

/* A tile that fits any second-level cache, whatever the type. */
enum { TILE_IN = 1024, TILE_OUT = 64, TILE_ROWS = 64, MULTIPLY_TRIES = 5, TRY_NS = 40000000, FILLING = 0x11 };

/* Every worker has its own copy of weights, activations and results, one after another. */
typedef struct multiply_job {
    const spry_ops *ops;
    spry_dtype type;
    unsigned char *memory;
    size_t weight_stride, weight_bytes, act_stride, act_bytes, worker_bytes;
    size_t calls;
} multiply_job;

static spry_matmul tile_of(const multiply_job *job, size_t worker)
{
    unsigned char *weight = job->memory + worker * job->worker_bytes, *act = weight + job->weight_bytes;
    void *out = act + job->act_bytes;
    return (spry_matmul){.out = out,
                         .out_stride = TILE_OUT,
                         .weight = weight,
                         .weight_stride = job->weight_stride,
                         .act = act,
                         .act_stride = job->act_stride,
                         .n_rows = TILE_ROWS,
                         .n_in = TILE_IN};
}

/* The bits do not matter to the kernels' speed as long as they are ordinary numbers. */
static void prepare_tile(void *context, size_t worker, size_t n_workers)
{
    const multiply_job *job = context;
    unsigned char *weight = job->memory + worker * job->worker_bytes, *act = weight + job->weight_bytes;
    float row[TILE_IN];
    (void)n_workers;
    memset(weight, FILLING, job->weight_bytes);
    for (size_t i = 0; i < TILE_IN; i++)
        row[i] = (float)(i % 17) - 8;
    for (size_t r = 0; r < TILE_ROWS; r++)
        if (job->ops->matmul[job->type].integer)
            job->ops->encode_act((void *)(act + r * job->act_stride), row, TILE_IN);
        else
            memcpy(act + r * job->act_stride, row, sizeof row);
}

static void multiply_tile(void *context, size_t worker, size_t n_workers)
{
    const multiply_job *job = context;
    spry_matmul m = tile_of(job, worker);
    (void)n_workers;
    for (size_t i = 0; i < job->calls; i++)
        job->ops->matmul[job->type].run(&m, 0, TILE_OUT);
}

static void size_tile(multiply_job *job)
{
    const spry_matmul_kernel *kernel = &job->ops->matmul[job->type];
    size_t blocks = TILE_IN / spry_dtype_block(job->type);
    job->weight_stride = blocks * spry_dtype_bytes(job->type);
    job->weight_bytes = job->weight_stride * TILE_OUT;
    if (kernel->group) {
        job->weight_stride = blocks * spry_packed_row_bytes(job->type) * kernel->group;
        job->weight_bytes = job->weight_stride * (TILE_OUT / kernel->group);
    }
    job->act_stride = kernel->integer ? TILE_IN / SPRY_ACT_BLOCK * sizeof(spry_act_block) : TILE_IN * sizeof(float);
    job->act_bytes = job->act_stride * TILE_ROWS;
    job->worker_bytes = job->weight_bytes + job->act_bytes + TILE_ROWS * TILE_OUT * sizeof(float);
}

/* Nanoseconds of one round of calls on all threads. */
static double time_round(multiply_job *job, spry_threads *threads)
{
    uint64_t start = spry_clock_ns();
    spry_threads_run(threads, multiply_tile, job);
    return (double)(spry_clock_ns() - start);
}

static spry_status measure_multiplying(double *g_s, const spry_ops *ops, spry_dtype type, spry_threads *threads,
                                       spry_error *error)
{
    size_t workers = spry_threads_count(threads);
    multiply_job job = {.ops = ops, .type = type, .calls = 1};
    size_tile(&job);
    job.memory = spry_memory_map(job.worker_bytes * workers);
    if (!job.memory)
        return spry_fail_memory(error, "measuring how fast the kernels multiply", job.worker_bytes * workers);
    spry_threads_run(threads, prepare_tile, &job);
    while (time_round(&job, threads) < TRY_NS / 2 && job.calls < (1 << 20))
        job.calls *= 2;
    *g_s = 0;
    for (int i = 0; i < MULTIPLY_TRIES; i++) {
        double products = (double)job.calls * (double)workers * TILE_ROWS * TILE_OUT * TILE_IN;
        double speed = products / time_round(&job, threads);
        *g_s = speed > *g_s ? speed : *g_s;
    }
    spry_memory_unmap(job.memory, job.worker_bytes * workers);
    return SPRY_OK;
}

spry_status spry_bench_machine_measure(spry_bench_machine *machine, const char *cpu, spry_dtype type, spry_error *error)
{
    const spry_ops *ops;
    spry_threads *threads = NULL;
    spry_status status = spry_ops_get(&ops, cpu, error);
    if (!status)
        status = spry_threads_create(&threads, machine->threads, error);
    if (!status)
        status = measure_reading(&machine->read_gb_s, threads, error);
    if (!status)
        status = measure_multiplying(&machine->multiply_g_s, ops, type, threads, error);
    spry_threads_destroy(threads);
    return status;
}
