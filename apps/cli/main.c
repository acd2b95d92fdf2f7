/* The entry point: finds the command and runs it. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "platform/memory.h"
#include "spry_serve.h"

/* Replaces an alias by its command; `out` has room for one argument more than argv. */
static char **without_alias(char **out, int *argc, char **argv)
{
    for (const struct spry_command_alias *alias = spry_command_aliases; alias->name; alias++)
        if (strcmp(argv[1], alias->name) == 0) {
            int n = 0;
            out[n++] = argv[0];
            out[n++] = (char *)(uintptr_t)alias->command;
            if (alias->argument)
                out[n++] = (char *)(uintptr_t)alias->argument;
            for (int k = 2; k <= *argc; k++)
                out[n++] = argv[k];
            *argc = n - 1;
            return out;
        }
    return argv;
}

static void on_quit(const char *why)
{
    spry_complain("%s", why);
}

/* Started by mpirun, rank 0 runs the command and the others compute for it; `batch` divides its work itself. */
static int run_ranks(const spry_command *command, int argc, char **argv)
{
    spry_error error;
    uint32_t size, rank = spry_ranks_number(&size);
    if (command->run == spry_cmd_batch)
        return spry_trace_file_close(command->run(argc, argv));
    spry_ranks_share();
    if (!rank)
        return spry_trace_file_close(command->run(argc, argv));
    signal(SIGINT, SIG_IGN); /* rank 0 decides when to end */
    signal(SIGTERM, SIG_IGN);
    if (!spry_ranks_serve(&error))
        return SPRY_EXIT_OK;
    spry_complain("%s", error.message);
    return SPRY_EXIT_FAILURE;
}

static int run_command(const spry_command *command, int argc, char **argv)
{
    spry_error error;
    if (spry_ranks_join(on_quit, &error)) {
        spry_complain("%s", error.message);
        return SPRY_EXIT_FAILURE;
    }
    int code = run_ranks(command, argc, argv);
    spry_ranks_leave();
    return code;
}

int main(int argc, char **argv)
{
    /* A closed pipe or a file size limit is detected by the failing write, so that the answer is ended cleanly and no
     * partial file remains. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    spry_memory_limit_arenas();
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return spry_commands_overview();
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-v") == 0 || strcmp(argv[1], "-V") == 0 ||
        strcmp(argv[1], "version") == 0) {
        spry_out_format("spry %s\n", spry_version());
        return spry_out_finish(SPRY_EXIT_OK);
    }
    if (strcmp(argv[1], "help") == 0)
        return spry_cmd_help(argc - 1, argv + 1);
    char **words = calloc((size_t)argc + 2, sizeof *words);
    if (words)
        argv = without_alias(words, &argc, argv);
    const spry_command *command = spry_command_find(argv[1]);
    int code = command ? run_command(command, argc - 1, argv + 1) : spry_command_unknown(argv[1]);
    free(words);
    return code;
}
