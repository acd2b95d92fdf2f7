/* How fast products of one row read weights on several threads: in turns with a plain loop over other bytes of the same
 * memory, so that neither a neighbour nor a lucky turn decides. A figure is the time that a tenth of the turns are
 * below. Outputs are handed out as in a forward pass. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "kernels/packed.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/threads.h"

enum { COUNTS_MAX = 16, TURNS = 80, MOST_IN = 3072, UNIT = 16 /* outputs */, BLOCK_BYTES = 64 * 1024 };
static const size_t turn_bytes = 8 << 20, least_bytes = (size_t)512 << 20, bytes_a_thread = 64 << 20;
static const size_t inputs[] = {1024, MOST_IN};
static const double wanted = 0.9;

typedef struct streams {
    unsigned char *memory;
    size_t bytes, at; /* at: the next bytes to be read */
    spry_threads *pools[COUNTS_MAX];
    size_t n_pools;
    float row[MOST_IN], *out;
    spry_act_block act[MOST_IN / SPRY_ACT_BLOCK];
    size_t group_bytes; /* of the pattern at the beginning of the memory */
    atomic_uint_fast64_t sum;
    char below[2000]; /* what is slower than wanted */
} streams;

typedef struct turn {
    streams *s;
    const spry_matmul_kernel *kernel;
    spry_matmul m;
    size_t n_out;
    const uint64_t *words; /* of the plain loop */
    size_t n_words;
} turn;

static void multiply_units(void *context, size_t begin, size_t end)
{
    const turn *t = context;
    size_t last = end * UNIT;
    t->kernel->run(&t->m, begin * UNIT, last < t->n_out ? last : t->n_out);
}

static void read_part(void *context, size_t part, size_t n_parts)
{
    enum { SUMS = 32 };
    const turn *t = context;
    size_t begin, end;
    uint64_t sums[SUMS] = {0}, all = 0;
    spry_threads_part(&begin, &end, t->n_words, SUMS, part, n_parts);
    for (size_t i = begin; i + SUMS <= end; i += SUMS)
        for (size_t j = 0; j < SUMS; j++)
            sums[j] += t->words[i + j];
    for (size_t j = 0; j < SUMS; j++)
        all += sums[j];
    atomic_fetch_add(&t->s->sum, all);
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double tenth(double *times)
{
    qsort(times, TURNS, sizeof *times, ascending);
    return times[TURNS / 10];
}

static const unsigned char *next_bytes(streams *s, size_t bytes)
{
    if (s->at + bytes > s->bytes)
        s->at = 0;
    const unsigned char *at = s->memory + s->at;
    s->at += (bytes + 63) / 64 * 64;
    return at;
}

/* GB/s of the product and of the plain loop. */
static void take_turns(double *product, double *plain, turn *t, spry_threads *threads, size_t bytes, size_t stride)
{
    double products[TURNS], reads[TURNS];
    size_t block = BLOCK_BYTES / (UNIT * stride);
    for (size_t i = 0; i < TURNS; i++) {
        t->words = (const void *)next_bytes(t->s, bytes);
        t->n_words = bytes / sizeof *t->words;
        uint64_t start = spry_clock_ns();
        spry_threads_run(threads, read_part, t);
        uint64_t between = spry_clock_ns();
        t->m.weight = next_bytes(t->s, bytes);
        spry_threads_share(threads, multiply_units, t, (t->n_out + UNIT - 1) / UNIT, block ? block : 1);
        products[i] = (double)(spry_clock_ns() - between);
        reads[i] = (double)(between - start);
    }
    *product = (double)bytes / tenth(products);
    *plain = (double)bytes / tenth(reads);
}

static void bench_pool(check *c, streams *s, spry_dtype type, size_t n_in, spry_threads *threads)
{
    const spry_matmul_kernel *kernel = &c->ops->matmul[type];
    size_t n = spry_threads_count(threads), group = kernel->group ? kernel->group : 1;
    size_t blocks = n_in / spry_dtype_block(type);
    size_t row_bytes = blocks * (kernel->group ? spry_packed_row_bytes(type) : spry_dtype_bytes(type));
    turn t = {.s = s, .kernel = kernel, .n_out = turn_bytes * n / row_bytes / UNIT * UNIT};
    t.m = (spry_matmul){.out = s->out,
                        .out_stride = t.n_out,
                        .weight_stride = row_bytes * group,
                        .act = kernel->integer ? (const void *)s->act : s->row,
                        .act_stride = kernel->integer ? n_in / SPRY_ACT_BLOCK * sizeof *s->act : n_in * sizeof *s->row,
                        .n_rows = 1,
                        .n_in = n_in};
    double product, plain;
    take_turns(&product, &plain, &t, threads, t.n_out * row_bytes, row_bytes);
    printf("  %6.1f %3.0f %%", product, 100 * product / plain);
    size_t used = strlen(s->below);
    if (product < wanted * plain)
        snprintf(s->below + used, sizeof s->below - used, "%s%s %zu x%zu", used ? ", " : "", spry_dtype_name(type),
                 n_in, n);
}

/* The pattern again and again, each worker its part. */
static void repeat_part(void *context, size_t part, size_t n_parts)
{
    streams *s = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, s->bytes - s->group_bytes, s->group_bytes, part, n_parts);
    for (size_t at = begin, left; at < end; at += s->group_bytes) {
        left = end - at;
        memcpy(s->memory + s->group_bytes + at, s->memory, left < s->group_bytes ? left : s->group_bytes);
    }
}

static void fill_memory(check *c, streams *s, spry_dtype type)
{
    size_t group = c->ops->matmul[type].group, row_bytes = check_bytes(type, MOST_IN);
    guarded rows = guarded_create(SPRY_PACK_MAX_ROWS * row_bytes);
    check_fill_type(c, rows.data, type, SPRY_PACK_MAX_ROWS * MOST_IN);
    s->group_bytes = group ? spry_packed_row_bytes(type) * group * (MOST_IN / spry_dtype_block(type)) : rows.size;
    if (group)
        spry_pack_group(type, s->memory, rows.data, row_bytes, MOST_IN, group, group);
    else
        memcpy(s->memory, rows.data, rows.size);
    spry_threads_run(s->pools[s->n_pools - 1], repeat_part, s);
    guarded_destroy(c, &rows);
}

static void bench_types(check *c, streams *s)
{
    printf("%s: GB/s of one row's products, share of a plain loop's\n%-9s %6s", c->ops->name, "type", "inputs");
    for (size_t i = 0; i < s->n_pools; i++)
        printf("  %3zu thread%s", spry_threads_count(s->pools[i]), spry_threads_count(s->pools[i]) == 1 ? " " : "s");
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++) {
        spry_dtype type = (spry_dtype)id;
        if (!spry_dtype_known(id) || (!check_is_ref(c) && c->ops->matmul[id].run == c->ref->matmul[id].run) ||
            !check_begin(c, "%s", spry_dtype_name(type)))
            continue;
        fill_memory(c, s, type);
        for (size_t i = 0; i < SPRY_COUNT(inputs); i++) {
            printf("\n%-9s %6zu", spry_dtype_name(type), inputs[i]);
            for (size_t p = 0; p < s->n_pools; p++)
                bench_pool(c, s, type, inputs[i], s->pools[p]);
            fflush(stdout);
        }
    }
    printf("\nbelow %.0f %%: %s\n", 100 * wanted, *s->below ? s->below : "none");
}

/* Creates the pools of a list as "1,2,4". */
static bool create_pools(streams *s, const char *counts, size_t *most)
{
    char *end = NULL;
    for (*most = 0; s->n_pools < COUNTS_MAX; counts = end + 1) {
        size_t n = strtoull(counts, &end, 10);
        if (end == counts || !n || spry_threads_create(&s->pools[s->n_pools], n, NULL))
            return false;
        s->n_pools++;
        *most = n > *most ? n : *most;
        if (*end != ',')
            return !*end;
    }
    return false;
}

bool bench_threads(check *c, const char *counts)
{
    streams *s = calloc(1, sizeof *s);
    size_t most = 0;
    bool ok = s && create_pools(s, counts, &most);
    size_t out_bytes = turn_bytes * most / 32; /* rows of 1,024 values have at least 128 bytes */
    if (ok) {
        s->bytes = bytes_a_thread * most > least_bytes ? bytes_a_thread * most : least_bytes;
        s->memory = spry_memory_map(s->bytes);
        s->out = spry_memory_map(out_bytes);
        ok = s->memory && s->out;
    }
    if (ok) {
        check_fill(c, s->row, MOST_IN, 1);
        spry_act_encode(s->act, s->row, MOST_IN);
        bench_types(c, s);
    }
    for (size_t i = 0; s && i < s->n_pools; i++)
        spry_threads_destroy(s->pools[i]);
    if (s && s->memory)
        spry_memory_unmap(s->memory, s->bytes);
    if (s && s->out)
        spry_memory_unmap(s->out, out_bytes);
    free(s);
    return ok;
}
