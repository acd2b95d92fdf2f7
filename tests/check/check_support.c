/* The parts of check.h that know nothing of ops. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check/check.h"

enum { POISON = 0xff, MAX_COMPLAINTS = 5 };

/* ---- names and complaints --------------------------------------------------------------------------------------- */

bool check_begin(check *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->name, sizeof c->name, format, args);
    va_end(args);
    c->detail[0] = 0;
    c->n_complaints = 0;
    return !c->filter || strcasestr(c->name, c->filter);
}

void check_end(check *c)
{
    c->n_checked++;
    if (c->n_complaints)
        c->n_failed++;
}

void check_detail(check *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->detail, sizeof c->detail, format, args);
    va_end(args);
}

void check_complain(check *c, const char *format, ...)
{
    if (++c->n_complaints > MAX_COMPLAINTS)
        return;
    char sentence[256];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    fprintf(stderr, "FAIL %s %s (%s): %s\n", c->ops->name, c->name, c->detail, sentence);
}

void check_close(check *c, size_t index, double got, double expected, double tolerance)
{
    c->n_values++;
    if (isnan(got) && isnan(expected))
        return;
    if (!(fabs(got - expected) <= tolerance))
        check_complain(c, "value %zu is %.9g, expected %.9g, off by %.3g where %.3g is allowed", index, got, expected,
                       fabs(got - expected), tolerance);
}

void check_same(check *c, const char *what, const void *a, const void *b, size_t n)
{
    c->n_values++;
    if (memcmp(a, b, n))
        check_complain(c, "%s changed the result", what);
}

/* ---- random ----------------------------------------------------------------------------------------------------- */

/* splitmix64 */
uint64_t check_random(check *c)
{
    uint64_t z = c->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

size_t check_between(check *c, size_t least, size_t most)
{
    return least + check_random(c) % (most - least + 1);
}

float check_uniform(check *c)
{
    return (float)(check_random(c) >> 40) * 0x1p-23f - 1;
}

void check_fill(check *c, float *out, size_t n, float size)
{
    for (size_t i = 0; i < n; i++)
        out[i] = check_uniform(c) * size;
}

/* ---- guarded buffers -------------------------------------------------------------------------------------------- */

guarded guarded_create(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    guarded g = {.size = size, .map_size = (size / page + 1) * page};
    g.map = mmap(NULL, g.map_size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map + g.map_size, page, PROT_NONE)) {
        perror("spry-check: cannot map a buffer");
        exit(2);
    }
    g.data = g.map + g.map_size - size;
    memset(g.map, POISON, g.map_size);
    return g;
}

guarded guarded_floats(size_t n)
{
    return guarded_create(n * sizeof(float));
}

void guarded_freeze(guarded *g)
{
    if (mprotect(g->map, g->map_size, PROT_READ)) {
        perror("spry-check: cannot protect a buffer");
        exit(2);
    }
}

void guarded_destroy(check *c, guarded *g)
{
    if (!check_is_poison(g->map, (size_t)(g->data - g->map)))
        check_complain(c, "something before the start of a buffer was written");
    munmap(g->map, g->map_size + (size_t)sysconf(_SC_PAGESIZE));
}

bool check_is_poison(const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != POISON)
            return false;
    return true;
}

/* ---- benchmarks ------------------------------------------------------------------------------------------------- */

/* The processor's time, of which a busy machine takes nothing away. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double seconds_of(const spry_ops *ops, const bench_work *work, size_t calls)
{
    double start = now();
    for (size_t i = 0; i < calls; i++)
        work->call(ops, work->context);
    return now() - start;
}

/* Seconds of one call: the best of a few runs, each long enough for the clock. */
static double seconds_per_call(const spry_ops *ops, const bench_work *work)
{
    enum { RUNS = 5 };
    const double run_seconds = 0.01, all_seconds = 0.15;
    size_t calls = 1;
    double seconds = seconds_of(ops, work, calls), best, all = 0;
    while (seconds < run_seconds)
        seconds = seconds_of(ops, work, calls *= 2);
    best = seconds;
    for (int run = 0; run < RUNS && all < all_seconds; run++, all += seconds) {
        seconds = seconds_of(ops, work, calls);
        best = fmin(best, seconds);
    }
    return best / (double)calls;
}

/* Ref comes first and every other table is compared with it: its times are kept. */
static double ref_seconds_per_call(const check *c, const bench_work *work)
{
    enum { MAX_NAMES = 200 };
    static struct {
        char name[sizeof c->name];
        double seconds;
    } known[MAX_NAMES];
    static size_t n_known;
    for (size_t i = 0; i < n_known; i++)
        if (!strcmp(known[i].name, c->name))
            return known[i].seconds;
    double seconds = seconds_per_call(c->ref, work);
    if (n_known < MAX_NAMES) {
        memcpy(known[n_known].name, c->name, sizeof c->name);
        known[n_known++].seconds = seconds;
    }
    return seconds;
}

void check_bench(check *c, const bench_work *work)
{
    double ref_seconds = ref_seconds_per_call(c, work);
    double seconds = check_is_ref(c) ? ref_seconds : seconds_per_call(c->ops, work);
    printf("%-8s %-24s %9.2f GB/s", c->ops->name, c->name, work->bytes / seconds * 1e-9);
    if (work->products != 0)
        printf(" %9.2f G products/s", work->products / seconds * 1e-9);
    else
        printf(" %22s", "");
    printf(" %8.2fx ref\n", ref_seconds / seconds);
    fflush(stdout);
    c->n_checked++;
}
