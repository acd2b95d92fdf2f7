/* spry completions: the scripts of three shells, which ask the program for the words that may come next. So one
 * function completes commands, flags, their words, files and models for all shells, from the tables that parse the
 * arguments. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "platform/file.h"
#include "platform/model_names.h"
#include "pull/catalogue.h"

enum { WORDS_MAX = 1024, PATH_BYTES = 4096 };

static const spry_usage usage = {
    .command = "completions",
    .arguments = "bash|zsh|fish",
    .about =
        "Prints the completions of a shell. `make install` puts them in the shells' folders.\n"
        "The scripts run `spry completions -- WORD...`, which prints the words that the last WORD may become, each "
        "with a tab and a description, or :files or :folders.",
    .examples = "source <(spry completions bash)\n"
                "spry completions zsh > ~/.zfunc/_spry\n"
                "spry completions fish > ~/.config/fish/completions/spry.fish",
};

/* Bash splits words at = and :, so the script joins them again, and removes the part before the last of these. */
static const struct {
    const char *shell, *text;
} scripts[] = {
    {"bash",
     "_spry() {\n"
     "    local words=() i word joined=0 line found=() prefix\n"
     "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
     "        word=${COMP_WORDS[i]}\n"
     "        if ((${#words[@]} && (joined || i > 1))) && [[ $joined = 1 || $word = [=:] ]]; then\n"
     "            words[${#words[@]}-1]+=$word\n"
     "            joined=0\n"
     "            [[ $word = [=:] ]] && joined=1\n"
     "        else\n"
     "            words+=(\"$word\")\n"
     "        fi\n"
     "    done\n"
     "    word=${words[${#words[@]}-1]}\n"
     "    prefix=${word%\"${word##*[=:]}\"}\n"
     "    COMPREPLY=()\n"
     "    while IFS= read -r line; do\n"
     "        case $line in\n"
     "        :files) compopt -o filenames 2>/dev/null\n"
     "            while IFS= read -r i; do COMPREPLY+=(\"$i\"); done < <(compgen -f -- \"${word#\"$prefix\"}\") ;;\n"
     "        :folders) compopt -o filenames 2>/dev/null\n"
     "            while IFS= read -r i; do COMPREPLY+=(\"$i\"); done < <(compgen -d -- \"${word#\"$prefix\"}\") ;;\n"
     "        *) line=${line%%$'\\t'*}\n"
     "            COMPREPLY+=(\"${line#\"$prefix\"}\") ;;\n"
     "        esac\n"
     "    done < <(\"${COMP_WORDS[0]}\" completions -- \"${words[@]}\" 2>/dev/null)\n"
     "}\n"
     "complete -F _spry spry\n"},
    {"zsh", "#compdef spry\n"
            "_spry() {\n"
            "    local line\n"
            "    local -a found\n"
            "    for line in ${(f)\"$(${words[1]} completions -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"}; do\n"
            "        case $line in\n"
            "        :files) _files ;;\n"
            "        :folders) _files -/ ;;\n"
            "        *) found+=(\"${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}\") ;;\n"
            "        esac\n"
            "    done\n"
            "    (( $#found )) && _describe spry found\n"
            "}\n"
            "if [ \"$funcstack[1]\" = _spry ]; then _spry \"$@\"; else compdef _spry spry; fi\n"},
    {"fish", "function __spry_words\n"
             "    set -l given (commandline -opc) (commandline -ct)\n"
             "    for line in ($given[1] completions -- $given[2..-1] 2>/dev/null)\n"
             "        switch $line\n"
             "            case :files\n"
             "                __fish_complete_path (commandline -ct)\n"
             "            case :folders\n"
             "                __fish_complete_directories (commandline -ct)\n"
             "            case '*'\n"
             "                echo $line\n"
             "        end\n"
             "    end\n"
             "end\n"
             "complete -c spry -f -a '(__spry_words)'\n"},
};

/* ---- words ------------------------------------------------------------------------------------------------------- */

typedef struct completion {
    const char *const *words; /* of the command line after `spry`; the last one is completed */
    size_t count;
    const char *begun; /* the last word, or its part after "--name=" */
    char before[128];  /* "--name=", or "" */
} completion;

static void offer(const completion *c, const char *word, spry_view about)
{
    if (strncmp(word, c->begun, strlen(c->begun)) != 0)
        return;
    spry_out_quote("%s%s", c->before, word); /* names of files may have any bytes */
    spry_out_format("%s%.*s\n", about.size ? "\t" : "", SPRY_VIEW_ARG(about));
}

typedef struct name_offer {
    void (*offer)(void *user, const char *name, const char *about);
    void *user;
} name_offer;

static void offer_name(void *context, const char *called, const char *path)
{
    const name_offer *names = context;
    (void)path;
    names->offer(names->user, called, "model");
}

void spry_complete_models(void (*offer_model)(void *user, const char *name, const char *about), void *user)
{
    spry_buffer folder;
    json_t *models = NULL;
    const json_t *model;
    size_t i;
    spry_buffer_init(&folder, PATH_BYTES);
    spry_path_user_data(&folder, "models");
    offer_model(user, SPRY_BUNDLED_MODEL, "model");
    offer_model(user, SPRY_BUNDLED_DRAFTER, "model");
    if (folder.size && !folder.failed)
        spry_model_names_each(folder.data, offer_name, &(name_offer){offer_model, user});
    spry_buffer_deinit(&folder);
    if (spry_catalogue_load(&models, NULL) == SPRY_OK)
        json_array_foreach(models, i, model)
            offer_model(user, json_string_value(json_object_get(model, "name")), "to download");
    json_decref(models);
}

static void offer_model(void *user, const char *name, const char *about)
{
    offer(user, name, spry_view_of(about));
}

static bool has_text(const char *text, const char *part)
{
    return text && strstr(text, part);
}

static void offer_values(completion *c, const spry_option *option)
{
    for (const char *const *word = option->choices; word && *word; word++)
        offer(c, *word, (spry_view){0});
    if (option->kind == SPRY_OPTION_FLAG) {
        offer(c, "true", (spry_view){0});
        offer(c, "false", (spry_view){0});
    }
    if (has_text(option->metavar, "MODEL") || strcmp(option->name, "model") == 0)
        spry_complete_models(offer_model, c);
    if (has_text(option->metavar, "FILE") || has_text(option->metavar, "PATH"))
        spry_out_format(":files\n");
    if (has_text(option->metavar, "DIR"))
        spry_out_format(":folders\n");
}

static const spry_option *find_flag(const spry_option_table *tables, size_t n_tables, const char *word, size_t size)
{
    for (size_t t = 0; t < n_tables; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const spry_option *option = &tables[t].options[i];
            if (size == 2 && word[0] == '-' && option->letter && option->letter == word[1])
                return option;
            const char *const names[] = {option->name, option->alias};
            for (size_t k = 0; k < SPRY_COUNT(names) && names[k]; k++)
                if (size == strlen(names[k]) + 2 && strncmp(word, "--", 2) == 0 &&
                    strncmp(word + 2, names[k], size - 2) == 0)
                    return option;
        }
    return NULL;
}

static void offer_flags(const completion *c, const spry_option_table *tables, size_t n_tables)
{
    for (size_t t = 0; t < n_tables; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const spry_option *option = &tables[t].options[i];
            char flag[80];
            snprintf(flag, sizeof flag, "--%s", option->name);
            offer(c, flag, spry_options_clause(option));
            snprintf(flag, sizeof flag, "--no-%s", option->name);
            if (option->kind == SPRY_OPTION_FLAG && strncmp(c->begun, "--no-", 5) == 0)
                offer(c, flag, spry_options_clause(option));
        }
}

/* Words that a command's usage names in small letters, such as list|show, are its first argument. */
static void offer_arguments(completion *c, const char *arguments)
{
    static const char small[] = "abcdefghijklmnopqrstuvwxyz";
    for (const char *at = arguments; c->count == 2 && *at;) {
        size_t size = strspn(at, small);
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)size, at);
        if (size && strcmp(word, "options") != 0 && strcmp(word, "arguments") != 0)
            offer(c, word, (spry_view){0});
        at += size;
        while (*at && !strchr(small, *at))
            at += at[0] == '-' ? strcspn(at, " ]|") : 1;
    }
    if (has_text(arguments, "MODEL") || has_text(arguments, "NAME") || has_text(arguments, "SOURCE"))
        spry_complete_models(offer_model, c);
    if (has_text(arguments, "MODEL") || has_text(arguments, "FILE") || has_text(arguments, "INPUT"))
        spry_out_format(":files\n");
}

static bool is_page_of(const completion *c, const char *command)
{
    char both[64];
    snprintf(both, sizeof both, "%.30s %.30s", c->words[0], c->count > 2 ? c->words[1] : "");
    return strcmp(both, command) == 0;
}

typedef struct page_choice {
    completion *c;
    bool done;
} page_choice;

static void complete_page(completion *c, const spry_usage *page, const spry_option_table *tables, size_t n_tables)
{
    const char *last = c->words[c->count - 1], *equals = strchr(last, '=');
    const char *previous = c->words[c->count - 2];
    const spry_option *option = find_flag(tables, n_tables, previous, strlen(previous));
    if (last[0] == '-' && equals) {
        option = find_flag(tables, n_tables, last, (size_t)(equals - last));
        snprintf(c->before, sizeof c->before, "%.*s", (int)(equals + 1 - last), last);
        c->begun = equals + 1;
        if (option)
            offer_values(c, option);
    } else if (c->count > 2 && option && option->kind != SPRY_OPTION_FLAG)
        offer_values(c, option);
    else if (last[0] == '-')
        offer_flags(c, tables, n_tables);
    else
        offer_arguments(c, page->arguments);
}

/* Completes by the page of the subcommand (`chats list`), where the words name one, else of the command. */
static void visit_page(void *user, const spry_usage *page, const spry_option_table *tables, size_t n_tables)
{
    page_choice *choice = user;
    bool own = strchr(page->command, ' ') != NULL;
    completion inside = *choice->c;
    if (choice->done || (own && !is_page_of(choice->c, page->command)))
        return;
    if (!own && choice->c->count > 2 && strcmp(page->command, "chats") == 0 && choice->c->words[1][0] != '-')
        return; /* a page of a subcommand follows */
    complete_page(&inside, page, tables, n_tables);
    choice->done = true;
}

static void complete_words(completion *c)
{
    const char *name = c->words[0];
    if (c->count == 1 || (c->count == 2 && strcmp(name, "help") == 0)) {
        for (const spry_command *command = spry_commands; command->name; command++)
            offer(c, command->name, spry_view_of(command->summary));
        return;
    }
    for (const struct spry_command_alias *alias = spry_command_aliases; alias->name; alias++)
        if (strcmp(name, alias->name) == 0)
            name = alias->command;
    const spry_command *command = spry_command_find(name);
    if (command)
        spry_command_visit(command, visit_page, &(page_choice){.c = c});
}

int spry_cmd_completions(int argc, char **argv)
{
    const char *given[WORDS_MAX];
    spry_option_list words = {given, WORDS_MAX, 0};
    int code;
    bool asked = argc > 2 && strcmp(argv[1], "--") == 0;
    if (!spry_usage_parse(&code, &usage, NULL, 0, &words, argc, argv))
        return code;
    if (asked) {
        completion c = {.words = given, .count = words.count, .begun = given[words.count - 1]};
        complete_words(&c);
        return spry_out_finish(SPRY_EXIT_OK);
    }
    for (size_t i = 0; i < SPRY_COUNT(scripts) && words.count == 1; i++)
        if (strcmp(given[0], scripts[i].shell) == 0) {
            spry_out_format("%s", scripts[i].text);
            return spry_out_finish(SPRY_EXIT_OK);
        }
    return spry_usage_wrong(&usage, "name one shell: bash, zsh or fish");
}
