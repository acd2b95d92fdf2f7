/* Help pages: usage, about, options, examples. */
#include "cli/usage.h"

#include <stdarg.h>
#include <string.h>

#include "cli/terminal.h"

enum { TABLES_MAX = 12, PAGE_BYTES = 1 << 16, WIDTH_MAX = 100, SENTENCE_BYTES = 1024 };

typedef struct general_settings {
    bool help;
} general_settings;

static const spry_option general_options[] = {
    {.name = "help",
     .letter = 'h',
     .kind = SPRY_OPTION_FLAG,
     .offset = offsetof(general_settings, help),
     .help = "Show this help",
     .group = "Help"},
};

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

bool spry_usage_parse(int *code, const spry_usage *usage, const spry_option_table *tables, size_t n_tables,
                      spry_option_list *positionals, int argc, char **argv)
{
    general_settings general = {0};
    spry_option_table all[TABLES_MAX];
    size_t n_all = 0;
    for (; n_all < n_tables && n_all + 1 < TABLES_MAX; n_all++)
        all[n_all] = tables[n_all];
    all[n_all++] = (spry_option_table){general_options, SPRY_COUNT(general_options), &general};
    bool markdown = argc == 2 && strcmp(argv[1], SPRY_USAGE_MARKDOWN) == 0;
    bool help = asks_for_help(argc, argv);
    spry_error error;
    spry_status status = SPRY_OK;
    if (!markdown && !help)
        status = spry_options_parse(all, n_all, positionals, argc, argv, &error);
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
