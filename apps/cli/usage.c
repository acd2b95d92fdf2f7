/* Help pages: usage, about, options, examples. */
#include "cli/usage.h"

#include <stdarg.h>
#include <string.h>

#include "cli/settings_profile.h"
#include "cli/terminal.h"
#include "platform/environment.h"

enum { TABLES_MAX = 12, PAGE_BYTES = 1 << 16, WIDTH_MAX = 100, SENTENCE_BYTES = 1024 };

static const spry_option general_options[] = {
    {.name = "help",
     .letter = 'h',
     .kind = SPRY_OPTION_FLAG,
     .offset = offsetof(spry_usage_general, help),
     .flag_only = true,
     .help = "Show this help",
     .group = "Help"},
    {.name = "profile",
     .kind = SPRY_OPTION_STRING,
     .offset = offsetof(spry_usage_general, profile),
     .metavar = "FILE",
     .help = "Settings of this machine, which flags override; none: no profile. Default: spry/profile.json in the "
             "user's data folder, where it is there; docs/DOCTOR.md describes it"},
};

spry_option_table spry_usage_general_table(spry_usage_general *general)
{
    return (spry_option_table){general_options, SPRY_COUNT(general_options), general};
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Appends one line of text as a paragraph wrapped to `width`. */
static void wrap_paragraph(spry_buffer *out, spry_view text, size_t width)
{
    size_t column = 0;
    for (size_t i = 0; i < text.size;) {
        size_t word = 0;
        while (i + word < text.size && text.data[i + word] != ' ')
            word++;
        if (column && column + 1 + word > width) {
            spry_buffer_text(out, "\n");
            column = 0;
        } else if (column) {
            spry_buffer_text(out, " ");
            column++;
        }
        spry_buffer_append(out, text.data + i, word);
        column += word;
        i += word + 1;
    }
    spry_buffer_text(out, "\n");
}

/* Calls wrap_paragraph or copies, line by line, with `prefix` before each. */
static void append_lines(spry_buffer *out, const char *text, const char *prefix, size_t width)
{
    while (*text) {
        spry_view line = {text, strcspn(text, "\n")};
        if (width) {
            wrap_paragraph(out, line, width);
        } else {
            spry_buffer_text(out, prefix);
            spry_buffer_append(out, line.data, line.size);
            spry_buffer_text(out, "\n");
        }
        text += line.size;
        if (*text) {
            text++;
            if (width)
                spry_buffer_text(out, "\n");
        }
    }
}

static void make_page(spry_buffer *out, const spry_usage *usage, const spry_option_table *tables, size_t n_tables)
{
    size_t width = spry_terminal_width(stdout);
    width = width > WIDTH_MAX ? WIDTH_MAX : width < 40 ? 40 : width;
    spry_buffer_format(out, "Usage: spry %s %s\n\n", usage->command, usage->arguments);
    append_lines(out, usage->about, "", width);
    spry_buffer_text(out, "\n");
    spry_options_help(out, tables, n_tables, width);
    spry_buffer_text(out, "\n");
    append_lines(out,
                 "A variable sets an option where no flag does: SPRY_ and its name in capitals, with _ for -, for "
                 "example SPRY_PROFILE=none.",
                 "", width);
    spry_buffer_text(out, "\nExamples:\n");
    append_lines(out, usage->examples, "  ", 0);
}

static void make_markdown(spry_buffer *out, const spry_usage *usage, const spry_option_table *tables, size_t n_tables)
{
    spry_buffer_format(out, "## spry %s\n\n`spry %s %s`\n\n", usage->command, usage->command, usage->arguments);
    for (const char *text = usage->about; *text; text += strspn(text, "\n")) {
        size_t size = strcspn(text, "\n");
        spry_buffer_append(out, text, size);
        spry_buffer_text(out, "\n\n");
        text += size;
    }
    spry_options_markdown(out, tables, n_tables);
    spry_buffer_text(out, "\n### Examples\n\n```\n");
    append_lines(out, usage->examples, "", 0);
    spry_buffer_text(out, "```\n");
}

static int show(const spry_usage *usage, const spry_option_table *tables, size_t n_tables, bool markdown)
{
    spry_buffer page;
    spry_buffer_init(&page, PAGE_BYTES);
    (markdown ? make_markdown : make_page)(&page, usage, tables, n_tables);
    spry_out_write(spry_buffer_view(&page).data, page.size);
    bool failed = page.failed;
    spry_buffer_deinit(&page);
    if (failed) {
        spry_complain("not enough memory for the help page");
        return SPRY_EXIT_FAILURE;
    }
    return spry_out_finish(SPRY_EXIT_OK);
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

/* Checked before parsing, because the page shows the values in the structs as defaults. */
static bool asks_for_help(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "-h") == 0)
        return true;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0)
            return true;
    return false;
}

/* The value of --profile, which is needed before the arguments are parsed. A value never begins with two dashes, so an
 * argument that does is an option. */
static const char *find_profile(int argc, char **argv)
{
    static const char flag[] = "--profile";
    const char *found = spry_environment_setting("SPRY_PROFILE");
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], flag) == 0 && i + 1 < argc)
            found = argv[i + 1];
        else if (strncmp(argv[i], flag, sizeof flag - 1) == 0 && argv[i][sizeof flag - 1] == '=')
            found = argv[i] + sizeof flag;
    }
    return found;
}

/* With --verbose: which profile is in use. */
static void tell_profile(const spry_option_table *tables, size_t n_tables)
{
    const spry_settings_profile *profile = spry_settings_profile_get();
    for (size_t i = 0; i < n_tables; i++) {
        const spry_option *verbose = spry_options_find(&tables[i], "verbose");
        char value[8] = "";
        if (verbose)
            spry_options_print(value, sizeof value, &tables[i], verbose);
        if (strcmp(value, "true") == 0 && profile->section)
            spry_complain("settings of machine %s come from %s", profile->id, profile->path);
        else if (strcmp(value, "true") == 0 && profile->document)
            spry_complain("%s has no section for this machine, %s, and is not used", profile->path, profile->id);
    }
}

typedef struct variable_check {
    const spry_option_table *tables;
    size_t n_tables;
} variable_check;

static void check_variable(void *user, const char *name)
{
    const variable_check *c = user;
    char near[SENTENCE_BYTES];
    if (spry_options_misspelt(near, sizeof near, c->tables, c->n_tables, name))
        spry_complain("the variable %s sets nothing: did you mean %s?", name, near);
}

static spry_status parse(const spry_usage *usage, const spry_option_table *tables, size_t n_tables,
                         spry_option_list *positionals, int argc, char **argv, spry_error *error)
{
    spry_status status = SPRY_OK;
    bool concerned = spry_settings_profile_concerns(tables, n_tables);
    if (concerned)
        status = spry_settings_profile_load(find_profile(argc, argv), strcmp(usage->command, "doctor") == 0, error);
    if (!status && concerned)
        status = spry_settings_profile_apply(tables, n_tables, usage->command, usage->exact, error);
    if (!status)
        status = spry_options_variables(tables, n_tables, spry_environment_setting, error);
    if (!status)
        status = spry_options_parse(tables, n_tables, positionals, argc, argv, error);
    if (!status && concerned)
        tell_profile(tables, n_tables);
    if (!status)
        spry_environment_each("SPRY_", check_variable, &(variable_check){tables, n_tables});
    return status;
}

bool spry_usage_parse(int *code, const spry_usage *usage, const spry_option_table *tables, size_t n_tables,
                      spry_option_list *positionals, int argc, char **argv)
{
    spry_usage_general general = {0};
    spry_option_table all[TABLES_MAX];
    size_t n_all = 0;
    for (; n_all < n_tables && n_all + 1 < TABLES_MAX; n_all++)
        all[n_all] = tables[n_all];
    all[n_all++] = spry_usage_general_table(&general);
    bool markdown = argc == 2 && strcmp(argv[1], SPRY_USAGE_MARKDOWN) == 0;
    bool help = asks_for_help(argc, argv);
    spry_error error;
    spry_status status = SPRY_OK;
    if (!markdown && !help)
        status = parse(usage, all, n_all, positionals, argc, argv, &error);
    if (status != SPRY_OK) {
        *code = spry_usage_wrong(usage, "%s", error.message);
        return false;
    }
    if (markdown || help || general.help) {
        general.help = false;
        *code = show(usage, all, n_all, markdown);
        return false;
    }
    return true;
}

int spry_usage_wrong(const spry_usage *usage, const char *format, ...)
{
    char sentence[SENTENCE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    spry_complain("%s (spry %s --help explains)", sentence, usage->command);
    return SPRY_EXIT_USAGE;
}
