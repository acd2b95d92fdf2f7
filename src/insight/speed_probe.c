/* The memory for probes, and the probes that are not products. */
#include "insight/speed_probe.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kv_layout.h"
#include "kernels/packed.h"
#include "platform/clock.h"
#include "platform/memory.h"

enum { TRY_NS = 6000000, FILLING = 0x11 }; /* a byte that gives an ordinary number in every type */

/* Calls `fn` on all threads for some milliseconds; billions per second, where one call processes `amount`. */
static double probe_time(spry_threads *threads, spry_threads_fn fn, void *job, double amount)
{
    uint64_t start = spry_clock_ns(), ns;
    double done = 0;
    do {
        spry_threads_run(threads, fn, job);
        done += amount;
        ns = spry_clock_ns() - start;
    } while (ns < TRY_NS);
    return done / (double)ns;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static const size_t read_bytes_min = 128 << 20, read_bytes_a_thread = 64 << 20, read_bytes_max = (size_t)4 << 30;

enum { LINE_WORDS = 8 };

typedef struct read_job {
    uint64_t *memory;
    size_t words, times;
    uint64_t sums[1024]; /* per worker, so that the compiler cannot remove the reads */
} read_job;

static void fill_part(void *context, size_t worker, size_t n_workers)
{
    const read_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->words, LINE_WORDS, worker, n_workers);
    memset(job->memory + begin, FILLING, (end - begin) * sizeof *job->memory);
}

static void fill(void *memory, size_t bytes, spry_threads *threads)
{
    read_job job = {.memory = memory, .words = bytes / sizeof *job.memory};
    spry_threads_run(threads, fill_part, &job);
}

unsigned char *spry_probe_memory(size_t *bytes, spry_threads *threads)
{
    size_t most = spry_memory_total() / 8;
    most = most && most < read_bytes_max ? most : read_bytes_max;
    *bytes = read_bytes_min;
    while (*bytes < read_bytes_a_thread * spry_threads_count(threads) && *bytes * 2 <= most)
        *bytes *= 2;
    unsigned char *memory = spry_memory_map(*bytes);
    while (!memory && *bytes > read_bytes_min / 8)
        memory = spry_memory_map(*bytes /= 2);
    if (memory)
        fill(memory, *bytes, threads);
    return memory;
}

static void read_part(void *context, size_t worker, size_t n_workers)
{
    read_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->words, LINE_WORDS, worker, n_workers);
    uint64_t sum = 0;
    for (size_t t = 0; t < job->times; t++) {
        for (size_t i = begin; i < end; i++) /* compilers vectorise this to memory speed */
            sum += job->memory[i];
        job->sums[worker] = sum;
    }
}

double spry_probe_read(const unsigned char *memory, size_t bytes, size_t times, spry_threads *threads)
{
    read_job job = {.memory = (uint64_t *)(void *)memory, .words = bytes / sizeof(uint64_t), .times = times};
    uint64_t start = spry_clock_ns();
    spry_threads_run(threads, read_part, &job);
    return (double)bytes * (double)times / (double)(spry_clock_ns() - start);
}

/* ---- the bed ----------------------------------------------------------------------------------------------------- */

/* The shape of keys and values in most models. */
enum {
    HEAD_DIM = 128,
    KV_HEADS = 8,
    GROUP = 4,
    HEADS = KV_HEADS * GROUP,
    HEAD_BYTES = SPRY_PAGE_TOKENS * HEAD_DIM * 2
};
enum { SIDE_BYTES = KV_HEADS * HEAD_BYTES, LAYER_BYTES = 2 * SIDE_BYTES };

spry_status spry_probe_bed_init(spry_probe_bed *bed, const spry_ops *ops, spry_threads *threads, spry_error *error)
{
    const size_t rows = (size_t)SPRY_PROBE_ROWS * SPRY_PROBE_WIDTH, act = rows / SPRY_ACT_BLOCK;
    const size_t pages = SPRY_PROBE_ROWS / SPRY_PAGE_TOKENS * LAYER_BYTES;
    *bed = (spry_probe_bed){.ops = ops, .threads = threads};
    bed->working_bytes = 3 * rows * sizeof(float) + act * sizeof *bed->act + pages;
    bed->memory = spry_probe_memory(&bed->bytes, threads);
    bed->plain = malloc(bed->bytes);
    bed->rows = spry_memory_map(bed->working_bytes);
    if (!bed->memory || !bed->plain || !bed->rows) {
        spry_probe_bed_deinit(bed);
        return spry_fail_memory(error, "measuring how fast the machine is", 2 * bed->bytes);
    }
    fill(bed->plain, bed->bytes, threads);
    bed->more_rows = bed->rows + rows;
    bed->results = bed->more_rows + rows;
    bed->act = (spry_act_block *)(void *)(bed->results + rows);
    bed->pages = (unsigned char *)(bed->act + act);
    for (size_t i = 0; i < rows; i++)
        bed->rows[i] = bed->more_rows[i] = (float)(i % 17) / 8 - 1;
    ops->encode_act(bed->act, bed->rows, rows);
    return SPRY_OK;
}

void spry_probe_bed_deinit(spry_probe_bed *bed)
{
    if (bed->memory)
        spry_memory_unmap(bed->memory, bed->bytes);
    if (bed->rows)
        spry_memory_unmap(bed->rows, bed->working_bytes);
    free(bed->plain);
    bed->memory = bed->plain = NULL;
    bed->rows = NULL;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* The memory is pages of several layers, and the sequence uses all of them. */
enum { PAGES = 16, KEYS = PAGES * SPRY_PAGE_TOKENS, ROWS_AT_ONCE = 16 };

typedef struct attend_job {
    const spry_ops *ops;
    spry_attend attend;
    spry_kv_entry entries[PAGES];
    size_t n_rows, layer;
} attend_job;

/* Rows and heads are distributed as in a forward pass. */
static void attend_part(void *context, size_t worker, size_t n_workers)
{
    const attend_job *job = context;
    size_t n_items = (job->n_rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE * KV_HEADS, item, end;
    spry_threads_part(&item, &end, n_items, 1, worker, n_workers);
    for (size_t n; item < end; item += n) {
        size_t skip = item / KV_HEADS * ROWS_AT_ONCE, head = item % KV_HEADS;
        n = end - item < KV_HEADS - head ? end - item : KV_HEADS - head;
        spry_attend a = job->attend;
        a.out += skip * a.row_stride;
        a.query += skip * a.row_stride;
        a.first_position += (uint32_t)skip;
        a.n_rows = job->n_rows - skip < ROWS_AT_ONCE ? job->n_rows - skip : ROWS_AT_ONCE;
        a.key_offset = job->layer * LAYER_BYTES;
        a.value_offset = a.key_offset + SIDE_BYTES;
        job->ops->attend(&a, head, head + n);
    }
}

/* The last rows of a sequence of `n_keys`, in one layer after another, so that nothing is cached. Calls per second. */
static double attend_calls(spry_probe_bed *bed, size_t n_rows, size_t n_keys)
{
    size_t n_layers = bed->bytes / PAGES / LAYER_BYTES;
    attend_job job = {.ops = bed->ops, .n_rows = n_rows};
    for (uint32_t i = 0; i < PAGES; i++)
        job.entries[i] = (spry_kv_entry){i, i * SPRY_PAGE_TOKENS, SPRY_PAGE_TOKENS, 0};
    job.attend = (spry_attend){.out = bed->results,
                               .query = bed->rows,
                               .row_stride = HEADS * HEAD_DIM,
                               .first_position = (uint32_t)(n_keys - n_rows),
                               .head_dim = HEAD_DIM,
                               .group = GROUP,
                               .scale = 0.1f,
                               .type = SPRY_F16,
                               .pages = bed->memory,
                               .page_bytes = n_layers * LAYER_BYTES,
                               .head_bytes = HEAD_BYTES,
                               .token_bytes = HEAD_DIM * 2,
                               .entries = job.entries,
                               .n_entries = PAGES};
    uint64_t start = spry_clock_ns(), ns;
    double calls = 0;
    do {
        spry_threads_run(bed->threads, attend_part, &job);
        job.layer = (job.layer + 1) % n_layers;
        calls++;
        ns = spry_clock_ns() - start;
    } while (ns < TRY_NS);
    return calls / (double)ns;
}

double spry_probe_attend_many(spry_probe_bed *bed)
{
    const size_t n_keys = KEYS / 2;                                   /* the average of a prompt of KEYS tokens */
    const double keys = (double)n_keys - (SPRY_PROBE_ROWS - 1) / 2.0; /* average keys per row */
    return attend_calls(bed, SPRY_PROBE_ROWS, n_keys) * SPRY_PROBE_ROWS * keys * HEADS * HEAD_DIM * 2;
}

double spry_probe_attend_one(spry_probe_bed *bed)
{
    return attend_calls(bed, 1, KEYS) * PAGES * LAYER_BYTES;
}

/* ---- between products -------------------------------------------------------------------------------------------- */

static void norm_row(const spry_probe_bed *bed, size_t row)
{
    float *x = bed->results + row * SPRY_PROBE_WIDTH, *h = bed->more_rows + row * SPRY_PROBE_WIDTH;
    const float *weight = bed->rows;
    bed->ops->rms_norm(h, bed->rows + row * SPRY_PROBE_WIDTH, weight, SPRY_PROBE_WIDTH, 1e-6f);
    bed->ops->add(x, h, SPRY_PROBE_WIDTH);
}

/* Queries, keys and values of a row are adjacent. */
enum { QUERY_HEADS = SPRY_PROBE_WIDTH / HEAD_DIM - 2 * KV_HEADS };

static void rope_row(const spry_probe_bed *bed, size_t row)
{
    float *q = bed->more_rows + row * SPRY_PROBE_WIDTH, *k = q + QUERY_HEADS * HEAD_DIM, *v = k + KV_HEADS * HEAD_DIM;
    static const float cosine[HEAD_DIM / 2] = {0}, sine[HEAD_DIM / 2] = {0};
    bed->ops->rope(q, cosine, sine, QUERY_HEADS + KV_HEADS, HEAD_DIM, HEAD_DIM / 2, false);
    unsigned char *page = bed->pages + row / SPRY_PAGE_TOKENS * LAYER_BYTES;
    size_t token = row % SPRY_PAGE_TOKENS;
    for (size_t head = 0; head < KV_HEADS; head++, page += HEAD_BYTES) {
        spry_kv_store_key(bed->ops, SPRY_F16, page, token, k + head * HEAD_DIM, HEAD_DIM);
        bed->ops->encode[SPRY_F16](page + SIDE_BYTES + token * HEAD_DIM * 2, v + head * HEAD_DIM, HEAD_DIM);
    }
}

static void gate_row(const spry_probe_bed *bed, size_t row)
{
    size_t at = row * SPRY_PROBE_WIDTH;
    bed->ops->gate[SPRY_GATE_SILU](bed->results + at, bed->rows + at, bed->more_rows + at, SPRY_PROBE_WIDTH);
}

static void encode_row(const spry_probe_bed *bed, size_t row)
{
    bed->ops->encode_act(bed->act + row * (SPRY_PROBE_WIDTH / SPRY_ACT_BLOCK), bed->rows + row * SPRY_PROBE_WIDTH,
                         SPRY_PROBE_WIDTH);
}

typedef struct small_job {
    const spry_probe_bed *bed;
    void (*run)(const spry_probe_bed *bed, size_t row);
} small_job;

static void small_part(void *context, size_t worker, size_t n_workers)
{
    const small_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, SPRY_PROBE_ROWS, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++)
        job->run(job->bed, row);
}

double spry_probe_small(spry_probe_bed *bed, spry_small_op op)
{
    static void (*const rows[SPRY_SMALL_COUNT])(const spry_probe_bed *, size_t) = {
        [SPRY_SMALL_NORM] = norm_row,
        [SPRY_SMALL_ROPE] = rope_row,
        [SPRY_SMALL_GATE] = gate_row,
        [SPRY_SMALL_ENCODE] = encode_row,
    };
    small_job job = {bed, rows[op]};
    return probe_time(bed->threads, small_part, &job, (double)SPRY_PROBE_ROWS * SPRY_PROBE_WIDTH);
}

static void nothing(void *context, size_t worker, size_t n_workers)
{
    (void)context;
    (void)worker;
    (void)n_workers;
}

double spry_probe_sync(spry_probe_bed *bed)
{
    return probe_time(bed->threads, nothing, NULL, 1);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Products: the most important probes. Matrix heights are chosen for about a millisecond, so that slow kernels are
 * measured quickly too. */

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
    enum { CALLS_NS = 8 * CALL_NS };
    double ns = 0, count = 0;
    for (; ns < CALLS_NS; count++)
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
    return probe_time(bed->threads, product_part, &job, (double)matrix_bytes(&job));
}

/* ---- the limit --------------------------------------------------------------------------------------------------- */

/* A tile that fits any second-level cache, for every type. */
enum { TILE_IN = 1024, TILE_OUT = 64, TILE_ROWS = 64, PEAK_TRIES = 5, PEAK_NS = 40000000 };

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
