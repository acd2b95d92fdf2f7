/* spry-check: every kernel of every table this machine has against a plainer one. See check.h. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check/check.h"

static const check_op ops[] = {
    {check_decode, bench_decode},   {check_encode, bench_encode},           {check_matmul, bench_matmul},
    {check_attend, bench_attend},   {check_rms_norm, bench_rms_norm},       {check_rope, bench_rope},
    {check_softmax, bench_softmax}, {check_elementwise, bench_elementwise},
};

static const char help[] =
    "spry-check [options] [NAME]: compares every kernel with a plainer one.\n"
    "  NAME         only ops and types whose name contains it (\"matmul\", \"q4_0\", \"matmul q4_0\")\n"
    "  --cpu MASK   only this table of kernels; default: all this machine has\n"
    "  --bench      measure speed instead\n"
    "  --seed N     other random shapes and numbers; default 1\n"
    "  --help       this text\n";

/* The handler cannot be handed the run. */
static const check *running;

static void write_text(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

static void on_fault(int signal)
{
    (void)signal;
    write_text("FAIL ");
    write_text(running->ops->name);
    write_text(" ");
    write_text(running->name);
    write_text(" (");
    write_text(running->detail);
    write_text("): touched memory outside its buffers, or wrote to an input\n");
    _exit(1);
}

typedef struct arguments {
    const char *mask, *filter;
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
        else if (!strcmp(arg, "--seed") && has_value)
            args->seed = strtoull(argv[++i], NULL, 10);
        else if (arg[0] != '-' && !args->filter)
            args->filter = arg;
        else
            return false;
    }
    return true;
}

/* Runs all ops of one table; false when something failed or the filter left nothing. */
static bool run_table(const arguments *args, const char *mask)
{
    spry_error error;
    check c = {.filter = args->filter, .random = args->seed};
    if (spry_ops_get(&c.ref, "ref", &error) || spry_ops_get(&c.ops, mask, &error)) {
        fprintf(stderr, "spry-check: %s\n", error.message);
        return false;
    }
    running = &c;
    for (size_t i = 0; i < SPRY_COUNT(ops); i++)
        (args->bench ? ops[i].bench : ops[i].check)(&c);
    if (c.n_checked == 0)
        fprintf(stderr, "spry-check: nothing is named \"%s\"\n", args->filter);
    else if (!args->bench)
        printf("%s: %zu checks, %zu values compared, %zu failed\n", c.ops->name, c.n_checked, c.n_values, c.n_failed);
    return c.n_checked > 0 && c.n_failed == 0;
}

static bool run_all_tables(const arguments *args)
{
    bool ok = true;
    for (const char *names = spry_ops_names(); *names;) {
        char mask[32];
        size_t length = strcspn(names, ",");
        snprintf(mask, sizeof mask, "%.*s", (int)length, names);
        ok = run_table(args, mask) && ok;
        names += length;
        names += strspn(names, ", ");
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
    return (args.mask ? run_table(&args, args.mask) : run_all_tables(&args)) ? 0 : 1;
}
