/* The first token as a user waits for it: a new process of this program opens the model, reads a short prompt and
 * writes one token. It shares nothing with the measuring process except the system's file cache. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "platform/clock.h"

enum { ARGUMENTS_MAX = 64, VALUE_TEXT = 64 };

static const char program[] = "/proc/self/exe";
static const char prompt[] = "Once upon a time";

typedef struct arguments {
    char *list[ARGUMENTS_MAX]; /* ends with NULL */
    size_t count;
    char texts[ARGUMENTS_MAX][VALUE_TEXT];
} arguments;

static void add(arguments *a, const char *text)
{
    if (a->count + 1 < ARGUMENTS_MAX)
        a->list[a->count++] = (char *)text; /* exec does not modify them */
}

/* `--name=value` for every engine option with a value, so that the new process has the same settings. */
static void add_engine_options(arguments *a, spry_engine_flags *flags)
{
    spry_option_table table = spry_engine_flags_table(flags);
    for (size_t i = 0; i < table.count && a->count + 1 < ARGUMENTS_MAX; i++) {
        char value[VALUE_TEXT], *text = a->texts[a->count];
        const char *unset = table.options[i].unset;
        spry_options_print(value, sizeof value, &table, &table.options[i]);
        int length = snprintf(text, VALUE_TEXT, "--%s=%s", table.options[i].name, value);
        if (value[0] && !(unset && strcmp(value, unset) == 0) && length < VALUE_TEXT &&
            table.options[i].kind != SPRY_OPTION_FLAG)
            add(a, text);
    }
}

/* Starts `spry run` with its standard output connected to `output`; 0 or an errno value. */
static int start(pid_t *child, spry_bench_settings *settings, const spry_model_source *source, int output)
{
    arguments a = {0};
    const char *const fixed[] = {"spry", "run",           "-p", prompt,         "--raw",         "-n",
                                 "1",    "--temperature", "0",  "--ignore-end", "--profile=none"};
    for (size_t i = 0; i < SPRY_COUNT(fixed); i++)
        add(&a, fixed[i]);
    add_engine_options(&a, &settings->engine);
    add(&a, "--");
    add(&a, source->path ? source->path : source->name);
    posix_spawn_file_actions_t actions;
    int problem = posix_spawn_file_actions_init(&actions);
    if (problem)
        return problem;
    problem = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!problem)
        problem = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (!problem)
        problem = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!problem)
        problem = posix_spawn(child, program, &actions, NULL, a.list, environ);
    posix_spawn_file_actions_destroy(&actions);
    return problem;
}

/* Reads to the end; returns the time of the first byte, 0 when there is none. */
static uint64_t drain(int input)
{
    char bytes[4096];
    uint64_t first = 0;
    for (;;) {
        ssize_t got = read(input, bytes, sizeof bytes);
        if (got > 0 && !first)
            first = spry_clock_ns();
        if (got == 0 || (got < 0 && errno != EINTR))
            return first;
    }
}

spry_status spry_bench_first_token(double *ms, spry_bench_settings *settings, const spry_model_source *source,
                                   spry_error *error)
{
    int ends[2], code = 0;
    pid_t child;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return spry_fail(error, SPRY_ERR_FILE, "cannot make a pipe: %s", strerror(errno));
    uint64_t began = spry_clock_ns();
    int problem = start(&child, settings, source, ends[1]);
    close(ends[1]);
    uint64_t first = problem ? 0 : drain(ends[0]);
    close(ends[0]);
    if (problem)
        return spry_fail(error, SPRY_ERR_FILE, "%s cannot be started: %s", program, strerror(problem));
    while (waitpid(child, &code, 0) < 0 && errno == EINTR)
        ;
    if (!first || !WIFEXITED(code) || WEXITSTATUS(code) != 0)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "spry run gives no answer with this model");
    *ms = (double)(first - began) / 1e6;
    return SPRY_OK;
}
