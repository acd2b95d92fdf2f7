/* The memory for probes, and the probes that are not products. */
#include "insight/speed_probe.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kv_layout.h"
#include "platform/clock.h"
#include "platform/memory.h"

enum { TRY_NS = 6000000, FILLING = 0x11 }; /* a byte that gives an ordinary number in every type */

double spry_probe_time(spry_threads *threads, spry_threads_fn fn, void *job, double amount)
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
    const size_t n_keys = KEYS / 2;                                   /* as in the middle of a prompt */
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
    return spry_probe_time(bed->threads, small_part, &job, (double)SPRY_PROBE_ROWS * SPRY_PROBE_WIDTH);
}

static void nothing(void *context, size_t worker, size_t n_workers)
{
    (void)context;
    (void)worker;
    (void)n_workers;
}

double spry_probe_sync(spry_probe_bed *bed)
{
    return spry_probe_time(bed->threads, nothing, NULL, 1);
}
