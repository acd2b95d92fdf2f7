/* spry-check: every kernel of every table this machine has against a plainer one. See check.h. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check/check.h"

static const check_op ops[] = {
    {check_decode, bench_decode}, {check_encode, bench_encode},         {check_encode_act, bench_encode_act},
    {check_matmul, bench_matmul}, {check_attend, bench_attend},         {check_rms_norm, bench_rms_norm},
    {check_rope, bench_rope},     {check_softmax, bench_softmax},       {check_elementwise, bench_elementwise},
    {check_weigh, bench_weigh},   {check_layer_norm, bench_layer_norm}, {check_recur, bench_recur},
};

/* Tables of this architecture that a machine may lack. */
static const char *const optional_tables[] = {
#if defined(__x86_64__)
    "avx2", "avx512bw", "avxvnni", "avxvnni-512", "avx512", "avx512bf16", "amx", "amx-emulated",
#elif defined(__aarch64__)
    "neon",
    "dotprod",
    "i8mm",
    "bf16",
#endif
};

static const char help[] =
    "spry-check [options] [NAME]: compares every kernel with a plainer one.\n"
    "  NAME         only ops and types whose name contains it (\"matmul\", \"q4_0\", \"matmul q4_0\")\n"
    "  --cpu MASK   only this table of kernels; default: all this machine has, and AMX emulated\n"
    "  --bench      measure speed instead\n"
    "  --threads N,N  measure instead how fast products of one row read weights on N threads,\n"
    "               beside a plain loop; with the best table unless --cpu names one\n"
    "  --seed N     other random shapes and numbers; default 1\n"
    "  --help       this text\n";

/* Of all tables so far. */
typedef struct totals {
    size_t n_passed, n_failed, n_skipped;
} totals;

/* The handler cannot be handed these. */
static const check *running;
static totals all;

static void write_totals(int file, const totals *t)
{
    char line[100];
    int length =
        snprintf(line, sizeof line, "%zu passed, %zu failed, %zu skipped\n", t->n_passed, t->n_failed, t->n_skipped);
    if (write(file, line, (size_t)length) < 0)
        return;
}

/* The fault is a kernel's, so that printing is not in the middle of anything. */
static void on_fault(int signal)
{
    (void)signal;
    fprintf(stderr, "FAIL %s %s (%s): touched memory outside its buffers, or wrote to an input\n", running->ops->name,
            running->name, running->detail);
    totals t = all;
    t.n_passed += running->n_checked - running->n_failed;
    t.n_failed += running->n_failed + 1;
    write_totals(STDOUT_FILENO, &t);
    _exit(1);
}

typedef struct arguments {
    const char *mask, *filter, *threads;
    uint64_t seed;
    bool bench, help;
} arguments;

static bool parse_arguments(arguments *args, int argc, char **argv)
{
    *args = (arguments){.seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        bool has_value = i + 1 < argc;
        if (!strcmp(arg, "--help"))
            args->help = true;
        else if (!strcmp(arg, "--bench"))
            args->bench = true;
        else if (!strcmp(arg, "--cpu") && has_value)
            args->mask = argv[++i];
        else if (!strcmp(arg, "--threads") && has_value)
            args->threads = argv[++i];
        else if (!strcmp(arg, "--seed") && has_value)
            args->seed = strtoull(argv[++i], NULL, 10);
        else if (arg[0] != '-' && !args->filter)
            args->filter = arg;
        else
            return false;
    }
    return true;
}

/* The table of a mask, or of an instruction set that is emulated. */
static spry_status find_table(const spry_ops **out, const char *mask, spry_error *error)
{
#if defined(__x86_64__)
    const spry_ops *needed;
    if (!strcmp(mask, check_avxvnni_512.name) && !spry_ops_get(&needed, "avx512", NULL)) {
        *out = &check_avxvnni_512;
        return SPRY_OK;
    }
    if (!strcmp(mask, check_amx_emulated.name) && !spry_ops_get(&needed, "avx512bf16", NULL)) {
        *out = &check_amx_emulated;
        return SPRY_OK;
    }
#endif
    return spry_ops_get(out, mask, error);
}

/* Runs all ops of one table; false when there is none, or the filter left nothing. */
static bool run_table(const arguments *args, const char *mask)
{
    spry_error error;
    check c = {.filter = args->filter, .random = args->seed};
    if (spry_ops_get(&c.ref, "ref", &error) || find_table(&c.ops, mask, &error)) {
        fprintf(stderr, "spry-check: %s\n", error.message);
        return false;
    }
    running = &c;
    if (args->threads) {
        all.n_passed++;
        bool ok = bench_threads(&c, args->threads);
        if (!ok)
            fprintf(stderr, "spry-check: --threads takes numbers of threads, as 1,2,4, and 64 MB for each\n");
        return ok;
    }
    for (size_t i = 0; i < SPRY_COUNT(ops); i++)
        (args->bench ? ops[i].bench : ops[i].check)(&c);
    if (!args->bench)
        printf("%s: %zu checks, %zu values compared, %zu failed\n", c.ops->name, c.n_checked, c.n_values, c.n_failed);
    fflush(stdout);
    all.n_passed += c.n_checked - c.n_failed;
    all.n_failed += c.n_failed;
    return true;
}

static bool run_all_tables(const arguments *args)
{
    bool ok = run_table(args, "ref");
    for (size_t i = 0; ok && i < SPRY_COUNT(optional_tables); i++) {
        const spry_ops *table;
        if (!find_table(&table, optional_tables[i], NULL)) {
            ok = run_table(args, optional_tables[i]);
        } else {
            printf("SKIPPED %s: this machine does not have it\n", optional_tables[i]);
            fflush(stdout);
            all.n_skipped++;
        }
    }
    return ok;
}

int main(int argc, char **argv)
{
    arguments args;
    if (!parse_arguments(&args, argc, argv)) {
        fputs(help, stderr);
        return 2;
    }
    if (args.help) {
        fputs(help, stdout);
        return 0;
    }
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    if (args.threads && !args.mask)
        args.mask = "auto";
    if (!(args.mask ? run_table(&args, args.mask) : run_all_tables(&args)))
        return 2;
    if (all.n_passed + all.n_failed == 0) {
        fprintf(stderr, "spry-check: nothing is named \"%s\"\n", args.filter);
        return 2;
    }
    if (!args.bench && !args.threads)
        write_totals(STDOUT_FILENO, &all);
    return all.n_failed ? 1 : 0;
}
