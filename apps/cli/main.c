/* spry: finds the command and runs it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/trace_file.h"
#include "cli/usage.h"

static const struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "Answer a prompt, or chat", spry_cmd_run},
    {"chats", "List, show, resume, delete and export stored chats", spry_cmd_chats},
    {"serve", "Answer requests over HTTP", spry_cmd_serve},
    {"pull", "Bring a model into the models folder", spry_cmd_pull},
    {"batch", "Answer a file of requests", spry_cmd_batch},
    {"tokenize", "Turn text into token ids and back", spry_cmd_tokenize},
    {"logits", "Write a model's logits for given token ids", spry_cmd_logits},
    {"inspect", "Show what is in a model file and what memory it needs", spry_cmd_inspect},
    {"convert", "Write a GGUF file, quantised if asked", spry_cmd_convert},
    {"eval", "Measure how well a model predicts a text", spry_cmd_eval},
    {"sample", "Draw tokens from given logits", spry_cmd_sample},
    {"grammar", "Try a grammar or JSON schema on a text", spry_cmd_grammar},
    {"bench", "Measure how fast a model runs here", spry_cmd_bench},
    {"doctor", "Say what this machine can do and which model to run", spry_cmd_doctor},
    {"report", "Make a page of what was measured", spry_cmd_report},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < SPRY_COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    spry_option names[SPRY_COUNT(commands)];
    memset(names, 0, sizeof names);
    for (size_t i = 0; i < SPRY_COUNT(commands); i++)
        names[i].name = commands[i].name;
    const spry_option_table table = {names, SPRY_COUNT(names), NULL};
    const char *near = spry_options_nearest(&table, 1, spry_view_of(name));
    if (near)
        spry_complain("unknown command '%.100s'; did you mean '%s'? (spry help lists all)", name, near);
    else
        spry_complain("unknown command '%.100s' (spry help lists all)", name);
    return SPRY_EXIT_USAGE;
}

static int show_overview(void)
{
    spry_out_format("spry runs language models on this machine.\n\n"
                    "Usage: spry COMMAND [arguments]\n\nCommands:\n");
    for (size_t i = 0; i < SPRY_COUNT(commands); i++)
        spry_out_format("  %-10s %s\n", commands[i].name, commands[i].summary);
    spry_out_format("  %-10s %s\n", "help", "Show a command's options: spry help run");
    spry_out_format("\nExamples:\n"
                    "  spry run                                   chat with the bundled model\n"
                    "  spry run -p 'Tell me a tale.'              one answer\n"
                    "  spry inspect model.gguf                    what is in a file\n"
                    "\nspry --version prints the version.\n");
    return spry_out_finish(SPRY_EXIT_OK);
}

/* docs/OPTIONS.md, whole. */
static int show_markdown(void)
{
    spry_out_format(
        "# The options of every command\n\n"
        "Written by `spry help --markdown`; a test compares it with the program. The JSON key is how the same "
        "setting is\nspelt where settings come as JSON.\n");
    for (size_t i = 0; i < SPRY_COUNT(commands); i++) {
        char name[32], markdown[] = SPRY_USAGE_MARKDOWN;
        snprintf(name, sizeof name, "%s", commands[i].name);
        char *argv[] = {name, markdown, NULL};
        spry_out_format("\n");
        int code = commands[i].run(2, argv);
        if (code != SPRY_EXIT_OK)
            return code;
    }
    return spry_out_finish(SPRY_EXIT_OK);
}

static int help(int argc, char **argv)
{
    if (argc < 2)
        return show_overview();
    if (strcmp(argv[1], "--markdown") == 0)
        return show_markdown();
    const struct command *command = find_command(argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    char flag[] = "--help";
    char *help_argv[] = {argv[1], flag, NULL};
    return command->run(2, help_argv);
}

int main(int argc, char **argv)
{
    /* A reader who leaves, or a limit on the size of files, is noticed by the write that fails, so that the answer can
     * be ended in order and nothing half written stays. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return show_overview();
    if (strcmp(argv[1], "--version") == 0) {
        spry_out_format("spry %s\n", spry_version());
        return spry_out_finish(SPRY_EXIT_OK);
    }
    if (strcmp(argv[1], "help") == 0)
        return help(argc - 1, argv + 1);
    const struct command *command = find_command(argv[1]);
    return command ? spry_trace_file_close(command->run(argc - 1, argv + 1)) : unknown_command(argv[1]);
}
