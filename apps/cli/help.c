/* The list of commands, and `spry help`: overview, pages of commands, one option, and the pages of the documentation.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "server/fields/fields.h"

const spry_command spry_commands[] = {
    {"run", "Answer a prompt, or chat", spry_cmd_run},
    {"chats", "List, show, resume, delete and export stored chats", spry_cmd_chats},
    {"voice", "Talk with a model, or write down speech", spry_cmd_voice},
    {"serve", "Answer requests over HTTP", spry_cmd_serve},
    {"launch", "Start a coding agent with a local model", spry_cmd_launch},
    {"pull", "Copy or download a model into the models folder", spry_cmd_pull},
    {"models", "List and remove models of the models folder", spry_cmd_models},
    {"batch", "Answer a file of requests", spry_cmd_batch},
    {"tokenize", "Convert text to token ids and back", spry_cmd_tokenize},
    {"logits", "Write a model's logits for given token ids", spry_cmd_logits},
    {"inspect", "Show the contents of a model file and the memory it needs", spry_cmd_inspect},
    {"convert", "Convert a model to GGUF, optionally quantised", spry_cmd_convert},
    {"eval", "Measure how well a model predicts a text", spry_cmd_eval},
    {"sample", "Sample tokens from given logits", spry_cmd_sample},
    {"grammar", "Check a text against a grammar or JSON schema", spry_cmd_grammar},
    {"bench", "Measure the speed of a model on this machine", spry_cmd_bench},
    {"doctor", "Show what this machine can do and which model to run", spry_cmd_doctor},
    {"report", "Make a report of measurements", spry_cmd_report},
    {"completions", "Print the completions of a shell: bash, zsh or fish", spry_cmd_completions},
    {"help", "Show a command's options, or explain one: spry help run", spry_cmd_help},
    {0},
};

const struct spry_command_alias spry_command_aliases[] = {
    {"list", "models", NULL},       {"ls", "models", NULL},
    {"rm", "models", "remove"},     {"remove", "models", "remove"},
    {"delete", "models", "remove"}, {"show", "inspect", NULL},
    {"info", "inspect", NULL},      {"chat", "run", NULL},
    {"server", "serve", NULL},      {"start", "serve", NULL},
    {"download", "pull", NULL},     {"quantize", "convert", NULL},
    {"quantise", "convert", NULL},  {0},
};

/* Words of other programs that are no commands here, and what serves instead. */
static const struct {
    const char *word, *instead;
} elsewhere[] = {
    {"ps", "a server lists its loaded models at /api/ps: curl http://127.0.0.1:8080/api/ps"},
    {"stop", "a server unloads a model that is not used (spry serve --keep-alive), or at once: curl "
             "http://127.0.0.1:8080/models/unload -d '{\"model\": \"NAME\"}'"},
    {"create", "a server derives models, with a system message and settings of their own: POST /api/create "
               "(docs/api/ollama.md); spry run --system sets one for an answer"},
    {"cp",
     "a server copies derived models: POST /api/copy (docs/api/ollama.md); other models are files, which spry pull "
     "FILE NAME copies"},
    {"push", "spry publishes no models; spry convert and spry inspect prepare a file for a hub's own tools"},
    {"signin", "spry needs no account"},
    {"login", "spry needs no account"},
    {"embed", "a server computes embeddings: POST /v1/embeddings (docs/SERVER.md)"},
    {"update", "spry is updated as it was installed: by its package, or with git pull and make"},
};

static const char *instead_of(const char *word)
{
    for (size_t i = 0; i < SPRY_COUNT(elsewhere); i++)
        if (strcmp(word, elsewhere[i].word) == 0)
            return elsewhere[i].instead;
    return NULL;
}

const spry_command *spry_command_find(const char *name)
{
    for (const spry_command *command = spry_commands; command->name; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

static const char *nearest_command(const char *name)
{
    spry_option names[SPRY_COUNT(spry_commands)];
    memset(names, 0, sizeof names);
    for (size_t i = 0; spry_commands[i].name; i++)
        names[i].name = spry_commands[i].name;
    const spry_option_table table = {names, SPRY_COUNT(names) - 1, NULL};
    return spry_options_nearest(&table, 1, spry_view_of(name));
}

int spry_command_unknown(const char *name)
{
    const char *near = nearest_command(name), *instead = instead_of(name);
    if (instead)
        spry_complain("%s", instead);
    else if (near)
        spry_complain("unknown command '%.100s'; did you mean '%s'? (spry help lists all)", name, near);
    else
        spry_complain("unknown command '%.100s' (spry help lists all)", name);
    return SPRY_EXIT_USAGE;
}

void spry_command_visit(const spry_command *command, spry_usage_visit visit, void *user)
{
    char name[32], flag[] = "--help";
    snprintf(name, sizeof name, "%s", command->name);
    char *argv[] = {name, flag, NULL};
    if (command->run == spry_cmd_help)
        return;
    spry_usage_set_visit(visit, user);
    command->run(2, argv);
    spry_usage_set_visit(NULL, NULL);
}

void spry_commands_each(spry_usage_visit visit, void *user)
{
    for (const spry_command *command = spry_commands; command->name; command++)
        spry_command_visit(command, visit, user);
}

int spry_commands_overview(void)
{
    enum { NARROW = 60 };
    const spry_help_style style = spry_usage_style();
    spry_buffer page;
    spry_buffer_init(&page, 1 << 14);
    spry_text_wrap(&page, SPRY_VIEW("spry runs language models on this machine."), 0, style.width);
    spry_buffer_format(&page, "\nUsage: spry COMMAND [arguments]\n\n%sCommands:%s\n", style.heading, style.end);
    for (const spry_command *command = spry_commands; command->name; command++) {
        if (style.width < NARROW)
            spry_buffer_format(&page, "  %s%s%s\n    ", style.flag, command->name, style.end);
        else
            spry_buffer_format(&page, "  %s%-12s%s", style.flag, command->name, style.end);
        spry_text_wrap(&page, spry_view_of(command->summary), style.width < NARROW ? 4 : 14, style.width);
    }
    spry_buffer_format(&page,
                       "\n%sExamples:%s\n"
                       "  spry run                                   chat with the bundled model\n"
                       "  spry run -p 'Tell me a tale.'              one answer\n"
                       "  spry inspect model.gguf                    what is in a file\n"
                       "\nspry --version prints the version.\n",
                       style.heading, style.end);
    return spry_usage_page(&page);
}

/* ---- one option -------------------------------------------------------------------------------------------------- */

enum { TEXTS_MAX = 24, TEXT_BYTES = 1 << 14, COMMANDS_BYTES = 512, NAME_BYTES = 64 };

/* The texts of an option, which commands may define differently, and the commands that have each. */
typedef struct option_search {
    const char *name; /* without dashes; one letter: of a short option */
    spry_buffer texts[TEXTS_MAX];
    char commands[TEXTS_MAX][COMMANDS_BYTES];
    size_t count;
    char near[NAME_BYTES]; /* a similar name; empty: none */
} option_search;

static bool is_named(const spry_option *option, const char *name)
{
    if (name[0] && !name[1])
        return option->letter == name[0];
    return strcmp(option->name, name) == 0 || (option->alias && strcmp(option->alias, name) == 0);
}

static void add_text(option_search *search, const char *command, const spry_option_table *table,
                     const spry_option *option)
{
    const spry_help_style style = spry_usage_style();
    spry_buffer *text = &search->texts[search->count];
    size_t i = 0;
    spry_buffer_init(text, TEXT_BYTES);
    spry_options_explain(text, table, option, &style);
    if (text->failed || !text->data)
        return spry_buffer_deinit(text);
    while (i < search->count && strcmp(search->texts[i].data, text->data) != 0)
        i++;
    size_t used = i < search->count ? strlen(search->commands[i]) : 0;
    snprintf(search->commands[i] + used, COMMANDS_BYTES - used, "%s%s", used ? ", " : "of spry ", command);
    if (i < search->count)
        spry_buffer_deinit(text);
    else
        search->count++;
}

static void search_page(void *user, const spry_usage *usage, const spry_option_table *tables, size_t n_tables)
{
    option_search *search = user;
    for (size_t t = 0; t < n_tables; t++)
        for (size_t i = 0; i < tables[t].count; i++)
            if (is_named(&tables[t].options[i], search->name) && search->count < TEXTS_MAX) {
                add_text(search, usage->command, &tables[t], &tables[t].options[i]);
                return;
            }
    const char *near = spry_options_nearest(tables, n_tables, spry_view_of(search->name));
    if (near && !search->near[0])
        snprintf(search->near, sizeof search->near, "%s", near);
}

/* `given` may begin with dashes. */
static int explain_option(const char *given)
{
    const char *name = given + strspn(given, "-");
    const spry_help_style style = spry_usage_style();
    option_search search = {.name = name};
    spry_buffer page;
    spry_commands_each(search_page, &search);
    if (!search.count && name == given && (instead_of(given) || nearest_command(given)))
        return spry_command_unknown(given);
    if (!search.count) {
        if (search.near[0])
            spry_complain("there is no command or option '%.100s'; did you mean --%s? (spry help lists commands)",
                          given, search.near);
        else
            spry_complain("there is no command or option '%.100s' (spry help lists commands)", given);
        return SPRY_EXIT_USAGE;
    }
    spry_buffer_init(&page, TEXTS_MAX * TEXT_BYTES);
    for (size_t i = 0; i < search.count; i++) {
        spry_buffer_format(&page, "%s%s    ", i ? "\n" : "", search.texts[i].data);
        spry_text_wrap(&page, spry_view_of(search.commands[i]), 4, style.width);
        spry_buffer_deinit(&search.texts[i]);
    }
    return spry_usage_page(&page);
}

/* ---- documentation ----------------------------------------------------------------------------------------------- */

static void add_markdown(void *user, const spry_usage *usage, const spry_option_table *tables, size_t n_tables)
{
    spry_usage_markdown(user, usage, tables, n_tables);
}

/* docs/OPTIONS.md */
static void make_options_page(spry_buffer *out)
{
    spry_buffer_text(
        out,
        "# The options of every command\n"
        "\n"
        "Generated by `spry help --markdown`; a test compares it with the program. The JSON key is the name of the\n"
        "setting in JSON requests and in profiles ([DOCTOR.md](DOCTOR.md)). A variable of the environment sets an\n"
        "option, for example of a container: defaults are overridden by the machine's profile, that by variables,\n"
        "and these by flags. An empty variable counts as unset; flags are true, false, 1, 0, on, off, yes or no.\n");
    spry_commands_each(add_markdown, out);
}

int spry_cmd_help(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    if (argc < 2 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return spry_commands_overview();
    if (strcmp(name, "--markdown") == 0 || strcmp(name, "--fields") == 0) {
        spry_buffer page;
        spry_buffer_init(&page, SIZE_MAX / 2);
        (name[2] == 'm' ? make_options_page : spry_fields_print)(&page);
        return spry_usage_page(&page);
    }
    for (const struct spry_command_alias *alias = spry_command_aliases; alias->name; alias++)
        if (strcmp(name, alias->name) == 0)
            name = alias->command;
    const spry_command *command = spry_command_find(name);
    if (!command || command->run == spry_cmd_help)
        return command ? spry_commands_overview() : explain_option(argv[1]);
    char flag[] = "--help", *help_argv[] = {argv[1], flag, NULL, NULL};
    if (argc > 2) { /* spry help chats list */
        help_argv[1] = argv[2];
        help_argv[2] = flag;
    }
    return command->run(argc > 2 ? 3 : 2, help_argv);
}
