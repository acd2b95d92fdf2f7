/* Help pages: usage, about, options, examples. */
#include "cli/usage.h"

#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/settings_profile.h"
#include "cli/terminal.h"
#include "platform/environment.h"
#include "platform/child.h"

enum { TABLES_MAX = 12, PAGE_BYTES = 1 << 16, WIDTH_MIN = 20, WIDTH_MAX = 100, SENTENCE_BYTES = 1024 };

static const spry_option general_options[] = {
    SPRY_OPTION(spry_usage_general, "help", FLAG, help, .letter = 'h', .common = true, .flag_only = true,
                .help = "Show the options that most users need", .group = "Help"),
    SPRY_OPTION(spry_usage_general, "help-all", FLAG, help_all, .common = true, .flag_only = true,
                .help = "Show all options"),
    SPRY_OPTION(spry_usage_general, "profile", STRING, profile, .metavar = "FILE",
                .help = "Settings of this machine, which flags override; none: no profile. Default: spry/profile.json "
                        "in the user's data folder, where it is there; docs/DOCTOR.md describes it"),
    SPRY_OPTION(spry_usage_general, "sandbox", FLAG, sandbox,
                .help =
                    "Let the server, and programs that read pictures, sounds and PDFs, speak or offer tools, do only "
                    "what they need, where the system can enforce it; docs/SECURITY.md"),
};

spry_option_table spry_usage_general_table(spry_usage_general *general)
{
    return (spry_option_table){general_options, SPRY_COUNT(general_options), general};
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

spry_help_style spry_usage_style(void)
{
    size_t width = spry_terminal_width(stdout);
    return (spry_help_style){.width = width > WIDTH_MAX   ? WIDTH_MAX
                                      : width < WIDTH_MIN ? WIDTH_MIN
                                                          : width,
                             .heading = spry_style_begin(stdout, SPRY_STYLE_BOLD),
                             .flag = spry_style_begin(stdout, SPRY_STYLE_CODE),
                             .end = spry_style_end(stdout)};
}

/* Rows of the terminal that a page takes: its newlines, and those that the terminal adds to long lines. */
static size_t page_rows(spry_view page, size_t width)
{
    size_t rows = 0, column = 0;
    for (size_t i = 0; i < page.size; i++) {
        if (page.data[i] == '\x1b')
            while (i < page.size && page.data[i] != 'm')
                i++;
        else if (page.data[i] == '\n' || column == width) {
            rows++;
            column = page.data[i] == '\n' ? 0 : 1;
        } else
            column++;
    }
    return rows;
}

/* False: no pager was started, and the page is not shown. The reader may leave before the end. */
static bool show_paged(spry_view page)
{
    static const char usual[] = "if command -v less >/dev/null; then exec less -R; else exec cat; fi";
    enum { NOT_FOUND = 127 };
    const char *pager = spry_environment_pager();
    if (!isatty(STDOUT_FILENO) || !pager || page_rows(page, spry_terminal_width(stdout)) < spry_terminal_height(stdout))
        return false;
    fflush(stdout);
    FILE *pipe = popen(pager[0] ? pager : usual, "w");
    if (!pipe)
        return false;
    signal(SIGINT, SIG_IGN); /* Ctrl-C is the pager's */
    fwrite(page.data, 1, page.size, pipe);
    int status = pclose(pipe);
    signal(SIGINT, SIG_DFL);
    return !WIFEXITED(status) || WEXITSTATUS(status) != NOT_FOUND;
}

int spry_usage_page(spry_buffer *page)
{
    spry_view text = spry_buffer_view(page);
    bool failed = page->failed;
    if (!failed && !show_paged(text))
        spry_out_write(text.data, text.size);
    spry_buffer_deinit(page);
    if (!failed)
        return spry_out_finish(SPRY_EXIT_OK);
    spry_complain("not enough memory for the help page");
    return SPRY_EXIT_FAILURE;
}

/* Appends up to `most` lines, each after two spaces. */
static void append_examples(spry_buffer *out, const char *text, size_t most)
{
    for (; *text && most; most--) {
        size_t size = strcspn(text, "\n");
        spry_buffer_format(out, "  %.*s\n", (int)size, text);
        text += size + (text[size] == '\n');
    }
}

/* Appends up to `most` paragraphs with blank lines between them. */
static void append_paragraphs(spry_buffer *out, const char *text, size_t most, size_t width)
{
    for (; *text && most; most--) {
        size_t size = strcspn(text, "\n");
        spry_text_wrap(out, (spry_view){text, size}, 0, width);
        spry_buffer_text(out, "\n");
        text += size + (text[size] == '\n');
    }
}

/* The short page, or with `all` everything. A command with few options has them all on its short page. */
static int show(const spry_usage *usage, const spry_option_table *tables, size_t n_tables, bool all)
{
    enum { FEW_OPTIONS = 16, EXAMPLES = 3 };
    spry_buffer page;
    spry_help_style style = spry_usage_style();
    size_t n_options = 0;
    char line[SENTENCE_BYTES];
    for (size_t i = 0; i < n_tables; i++)
        n_options += tables[i].count;
    style.common = !all && n_options > FEW_OPTIONS;
    spry_buffer_init(&page, PAGE_BYTES);
    snprintf(line, sizeof line, "Usage: spry %s %s", usage->command, usage->arguments);
    append_paragraphs(&page, line, 1, style.width);
    append_paragraphs(&page, usage->about, all ? SIZE_MAX : 1, style.width);
    spry_options_help(&page, tables, n_tables, &style);
    spry_buffer_format(&page, "\n%sExamples:%s\n", style.heading, style.end);
    append_examples(&page, usage->examples, all ? SIZE_MAX : EXAMPLES);
    if (all)
        snprintf(line, sizeof line,
                 "A variable sets an option where no flag does: SPRY_ and its name in capitals, with _ for -, for "
                 "example SPRY_PROFILE=none.");
    else if (style.common)
        snprintf(line, sizeof line, "spry %s --help-all shows all %zu options; spry help OPTION explains one.",
                 usage->command, n_options);
    else
        snprintf(line, sizeof line, "spry help OPTION explains an option.");
    spry_buffer_text(&page, "\n");
    spry_text_wrap(&page, spry_view_of(line), 0, style.width);
    return spry_usage_page(&page);
}

void spry_usage_markdown(spry_buffer *out, const spry_usage *usage, const spry_option_table *tables, size_t n_tables)
{
    spry_buffer_format(out, "\n## spry %s\n\n`spry %s %s`\n\n", usage->command, usage->command, usage->arguments);
    append_paragraphs(out, usage->about, SIZE_MAX, SIZE_MAX);
    spry_options_markdown(out, tables, n_tables);
    spry_buffer_format(out, "\n### Examples\n\n```\n%s\n```\n", usage->examples);
}

static spry_usage_visit visit;
static void *visit_user;

void spry_usage_set_visit(spry_usage_visit new_visit, void *user)
{
    visit = new_visit;
    visit_user = user;
}

bool spry_usage_visiting(void)
{
    return visit != NULL;
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

/* Whether the arguments ask for help, `all` or the short page. Checked before parsing, because the page shows the
 * values in the structs as defaults. */
static bool asks_for_help(bool *all, int argc, char **argv)
{
    bool asks = argc > 1 && strcmp(argv[1], "-h") == 0;
    *all = false;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        *all = *all || strcmp(argv[i], "--help-all") == 0;
        asks = asks || *all || strcmp(argv[i], "--help") == 0;
    }
    return asks;
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

/* Whether an option of this name is given. */
static bool is_set(const spry_option_table *tables, size_t n_tables, const char *name)
{
    char value[8] = "";
    for (size_t i = 0; i < n_tables; i++) {
        const spry_option *option = spry_options_find(&tables[i], name);
        if (option)
            spry_options_print(value, sizeof value, &tables[i], option);
    }
    return strcmp(value, "true") == 0;
}

/* Which settings come from the profile; programs that want JSON know. */
static void tell_profile(const spry_usage *usage, const spry_option_table *tables, size_t n_tables)
{
    spry_buffer settings;
    spry_buffer_init(&settings, PAGE_BYTES);
    spry_settings_profile_in_force(&settings, tables, n_tables, usage->command);
    if (settings.size && !is_set(tables, n_tables, "json"))
        spry_complain("from the profile: %s (spry doctor --explain says why)", settings.data);
    spry_buffer_deinit(&settings);
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
        tell_profile(usage, tables, n_tables);
    if (!status)
        spry_environment_each("SPRY_", check_variable, &(variable_check){tables, n_tables});
    return status;
}

bool spry_usage_parse(int *code, const spry_usage *usage, const spry_option_table *tables, size_t n_tables,
                      spry_option_list *positionals, int argc, char **argv)
{
    spry_usage_general general = {.sandbox = true};
    spry_option_table all[TABLES_MAX];
    size_t n_all = 0;
    for (; n_all < n_tables && n_all + 1 < TABLES_MAX; n_all++)
        all[n_all] = tables[n_all];
    all[n_all++] = spry_usage_general_table(&general);
    if (visit) {
        visit(visit_user, usage, all, n_all);
        *code = SPRY_EXIT_OK;
        return false;
    }
    bool everything, help = asks_for_help(&everything, argc, argv);
    spry_error error;
    spry_status status = help ? SPRY_OK : parse(usage, all, n_all, positionals, argc, argv, &error);
    if (status != SPRY_OK) {
        *code = status == SPRY_ERR_MEMORY ? spry_complain_error(&error) : spry_usage_wrong(usage, "%s", error.message);
        return false;
    }
    if (!help && !general.sandbox)
        spry_sandbox_switch_off();
    if (!help && !general.help && !general.help_all)
        return true;
    everything = everything || general.help_all;
    general = (spry_usage_general){.sandbox = true};
    *code = show(usage, all, n_all, everything);
    return false;
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
