/* Prints options: values, help for a terminal, tables for the documentation. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/options.h"

enum { COLUMN_MAX = 34, CELL_MAX = 256, TWO_COLUMNS_MIN = 60 };

void spry_options_print(char *out, size_t size, const spry_option_table *table, const spry_option *option)
{
    const char *field = (const char *)table->target + option->offset;
    bool flag;
    uint32_t narrow;
    uint64_t wide;
    size_t bytes;
    float real;
    const char *string;
    char number[SPRY_NUMBER_TEXT] = "";
    switch (option->kind) {
    case SPRY_OPTION_FLAG:
        memcpy(&flag, field, sizeof flag);
        snprintf(out, size, "%s", flag ? "true" : "false");
        return;
    case SPRY_OPTION_STRING:
    case SPRY_OPTION_CHOICE:
        memcpy(&string, field, sizeof string);
        snprintf(out, size, "%s", string ? string : "");
        return;
    case SPRY_OPTION_U32:
        memcpy(&narrow, field, sizeof narrow);
        if (option->unset && narrow == UINT32_MAX)
            break;
        snprintf(number, sizeof number, "%" PRIu32, narrow);
        break;
    case SPRY_OPTION_U64:
        memcpy(&wide, field, sizeof wide);
        snprintf(number, sizeof number, "%" PRIu64, wide);
        break;
    case SPRY_OPTION_SIZE:
        memcpy(&bytes, field, sizeof bytes);
        if (option->unset && bytes == SIZE_MAX)
            break;
        spry_number_print_bytes(number, bytes);
        break;
    case SPRY_OPTION_FLOAT:
        memcpy(&real, field, sizeof real);
        if (option->unset && isnan(real))
            break;
        spry_number_print(number, (double)real);
        break;
    case SPRY_OPTION_LIST: break;
    }
    snprintf(out, size, "%s", number[0] || !option->unset ? number : option->unset);
}

static const char *metavar(const spry_option *option)
{
    if (option->metavar)
        return option->metavar;
    switch (option->kind) {
    case SPRY_OPTION_FLAG: return "";
    case SPRY_OPTION_U32:
    case SPRY_OPTION_U64: return "N";
    case SPRY_OPTION_SIZE: return "SIZE";
    case SPRY_OPTION_FLOAT: return "X";
    case SPRY_OPTION_CHOICE: return "NAME";
    case SPRY_OPTION_STRING:
    case SPRY_OPTION_LIST: return "TEXT";
    }
    return "";
}

static bool is_on(const spry_option_table *table, const spry_option *option)
{
    char value[8] = "";
    if (option->kind == SPRY_OPTION_FLAG)
        spry_options_print(value, sizeof value, table, option);
    return strcmp(value, "true") == 0;
}

/* "-k, --top-k N"; a flag that is on by default is shown as --no-name. */
static void print_flag(char out[CELL_MAX], const spry_option_table *table, const spry_option *option)
{
    char letter[8] = "";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    const char *value = metavar(option);
    snprintf(out, CELL_MAX, "%s--%s%s%s%s%s%s", letter, is_on(table, option) ? "[no-]" : "", option->name,
             option->alias ? ", --" : "", option->alias ? option->alias : "", *value ? " " : "", value);
}

/* The help sentence followed by values and default, when they add information. */
static void print_meaning(char *out, size_t size, const spry_option_table *table, const spry_option *option)
{
    char values[SPRY_OPTION_VALUES_MAX] = "", current[CELL_MAX];
    bool bounded = option->min != 0 || option->max != 0;
    if (bounded || option->kind == SPRY_OPTION_CHOICE || option->kind == SPRY_OPTION_LIST)
        spry_options_values(values, sizeof values, option);
    spry_options_print(current, sizeof current, table, option);
    bool has_default = *current && (option->kind != SPRY_OPTION_FLAG || is_on(table, option));
    const char *shown = option->kind == SPRY_OPTION_FLAG ? "on" : current;
    snprintf(out, size, "%s%s%s%s%s%s%s", option->help, *values || has_default ? " (" : "", values,
             *values && has_default ? "; " : "", has_default ? "default " : "", has_default ? shown : "",
             *values || has_default ? ")" : "");
}

static void pad(spry_buffer *out, size_t from, size_t to)
{
    for (; from < to; from++)
        spry_buffer_text(out, " ");
}

void spry_text_wrap(spry_buffer *out, spry_view text, size_t indent, size_t width)
{
    size_t at = indent;
    for (size_t i = 0; i < text.size;) {
        size_t word = 0;
        while (i + word < text.size && text.data[i + word] != ' ')
            word++;
        if (at > indent && at + 1 + word > width) {
            spry_buffer_text(out, "\n");
            pad(out, 0, indent);
            at = indent;
        } else if (at > indent) {
            spry_buffer_text(out, " ");
            at++;
        }
        spry_buffer_append(out, text.data + i, word);
        at += word;
        for (i += word; i < text.size && text.data[i] == ' ';)
            i++;
    }
    spry_buffer_text(out, "\n");
}

/* Options without a letter are aligned with the long names of the others. */
static size_t flag_indent(const spry_option *option)
{
    return option->letter ? 2 : 6;
}

/* Whether an earlier table has an option of this name, which is the one that the command line sets. */
static bool is_shadowed(const spry_option_table *tables, size_t table, const spry_option *option)
{
    for (size_t t = 0; t < table; t++)
        for (size_t i = 0; i < tables[t].count; i++)
            if (strcmp(tables[t].options[i].name, option->name) == 0)
                return true;
    return false;
}

/* Where lines are short, a meaning begins below its flag. */
static size_t left_column(const spry_option_table *tables, size_t n_tables, const spry_help_style *style)
{
    size_t widest = 0;
    if (style->width < TWO_COLUMNS_MIN)
        return style->width < 40 ? 4 : 6;
    for (size_t t = 0; t < n_tables; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            char flag[CELL_MAX];
            if (style->common && !tables[t].options[i].common)
                continue;
            print_flag(flag, &tables[t], &tables[t].options[i]);
            size_t size = flag_indent(&tables[t].options[i]) + strlen(flag) + 2;
            if (size > widest && size <= COLUMN_MAX)
                widest = size;
        }
    }
    return widest;
}

static bool starts_group(const char **group, const spry_option *option)
{
    bool starts = option->group && (!*group || strcmp(*group, option->group) != 0);
    if (starts)
        *group = option->group;
    return starts;
}

spry_view spry_options_clause(const spry_option *option)
{
    size_t size = 0;
    const char *help = option->help;
    while (help[size] && help[size] != ';' && !(help[size] == '.' && help[size + 1] == ' '))
        size++;
    return (spry_view){help, size};
}

/* The first clause and the default, as the short page shows them. */
static void print_brief(char *out, size_t size, const spry_option_table *table, const spry_option *option)
{
    char current[CELL_MAX];
    spry_options_print(current, sizeof current, table, option);
    bool shown = *current && strcmp(current, "0") != 0 && (option->kind != SPRY_OPTION_FLAG || is_on(table, option));
    snprintf(out, size, "%.*s%s%s%s", SPRY_VIEW_ARG(spry_options_clause(option)), shown ? " (default " : "",
             !shown                             ? ""
             : option->kind == SPRY_OPTION_FLAG ? "on"
                                                : current,
             shown ? ")" : "");
}

void spry_options_help(spry_buffer *out, const spry_option_table *tables, size_t n_tables, const spry_help_style *style)
{
    size_t column = left_column(tables, n_tables, style);
    const char *group = NULL, *last = NULL;
    for (size_t t = 0; t < n_tables; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            const spry_option *option = &tables[t].options[i];
            starts_group(&group, option);
            if (is_shadowed(tables, t, option) || (style->common && !option->common))
                continue;
            if (group && (!last || strcmp(group, last) != 0)) {
                spry_buffer_format(out, "%s%s%s:%s\n", last ? "\n" : "", style->heading, group, style->end);
                last = group;
            }
            char flag[CELL_MAX], meaning[2 * SPRY_OPTION_VALUES_MAX];
            print_flag(flag, &tables[t], option);
            (style->common ? print_brief : print_meaning)(meaning, sizeof meaning, &tables[t], option);
            size_t indent = style->width < TWO_COLUMNS_MIN ? 2 : flag_indent(option), end = indent + strlen(flag);
            pad(out, 0, indent);
            spry_buffer_format(out, "%s%s%s", style->flag, flag, style->end);
            if (end + 2 > column) {
                spry_buffer_text(out, "\n");
                end = 0;
            }
            pad(out, end, column);
            spry_text_wrap(out, spry_view_of(meaning), column, style->width);
        }
    }
}

void spry_options_explain(spry_buffer *out, const spry_option_table *table, const spry_option *option,
                          const spry_help_style *style)
{
    enum { INDENT = 4 };
    char flag[CELL_MAX], meaning[2 * SPRY_OPTION_VALUES_MAX], variable[CELL_MAX], key[CELL_MAX];
    print_flag(flag, table, option);
    print_meaning(meaning, sizeof meaning, table, option);
    spry_buffer_format(out, "%s%s%s\n", style->flag, flag, style->end);
    pad(out, 0, INDENT);
    spry_text_wrap(out, spry_view_of(meaning), INDENT, style->width);
    spry_options_variable(variable, sizeof variable, option->name);
    spry_options_key(key, sizeof key, option->name);
    if (option->flag_only)
        return;
    snprintf(meaning, sizeof meaning, "variable %s, JSON key %s", variable, key);
    pad(out, 0, INDENT);
    spry_text_wrap(out, spry_view_of(meaning), INDENT, style->width);
}

/* A table cell must not contain an unescaped bar. */
static void append_cell(spry_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            spry_buffer_text(out, "\\");
        spry_buffer_append(out, text, 1);
    }
}

static void append_names(spry_buffer *out, const spry_option *option, bool as_key)
{
    const char *const names[] = {option->name, option->alias};
    for (size_t i = 0; i < SPRY_COUNT(names) && names[i]; i++) {
        char key[CELL_MAX];
        spry_options_key(key, sizeof key, names[i]);
        spry_buffer_format(out, "%s`%s%s`", i == 0 ? "" : ", ", as_key ? "" : "--", as_key ? key : names[i]);
    }
    if (option->letter && !as_key)
        spry_buffer_format(out, ", `-%c`", option->letter);
}

static void append_variable(spry_buffer *out, const spry_option *option)
{
    char name[CELL_MAX];
    spry_options_variable(name, sizeof name, option->name);
    if (option->flag_only)
        spry_buffer_text(out, " | ");
    else
        spry_buffer_format(out, "`%s` | ", name);
}

void spry_options_markdown(spry_buffer *out, const spry_option_table *tables, size_t n_tables)
{
    const char *group = NULL;
    for (size_t t = 0; t < n_tables; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            const spry_option *option = &tables[t].options[i];
            bool first = t == 0 && i == 0;
            if (is_shadowed(tables, t, option))
                continue;
            bool heading = starts_group(&group, option);
            if (heading)
                spry_buffer_format(out, "%s### %s\n\n", first ? "" : "\n", group);
            if (heading || first)
                spry_buffer_text(out, "| flag | variable | JSON key | values | default | meaning |\n"
                                      "|---|---|---|---|---|---|\n");
            char values[SPRY_OPTION_VALUES_MAX], current[CELL_MAX];
            spry_options_values(values, sizeof values, option);
            spry_options_print(current, sizeof current, &tables[t], option);
            spry_buffer_text(out, "| ");
            append_names(out, option, false);
            spry_buffer_text(out, " | ");
            append_variable(out, option);
            append_names(out, option, true);
            spry_buffer_text(out, " | ");
            append_cell(out, values);
            spry_buffer_text(out, " | ");
            append_cell(out, current);
            spry_buffer_text(out, " | ");
            append_cell(out, option->help);
            spry_buffer_text(out, " |\n");
        }
    }
}
