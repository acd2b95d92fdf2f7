/* The two output formats of a document. */
#include "report/report_doc.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "report/html_page.h"

enum { SENTENCE_MAX = 4096 };

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* An integer with commas. */
static void print_whole(char out[SPRY_DOC_VALUE], double value)
{
    char digits[SPRY_DOC_VALUE];
    const int length = snprintf(digits, sizeof digits, "%.0f", value);
    size_t to = 0;
    for (int i = 0; i < length && to + 2 < SPRY_DOC_VALUE; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
            out[to++] = ',';
        out[to++] = digits[i];
    }
    out[to] = '\0';
}

/* Three digits. */
static void print_speed(char out[SPRY_DOC_VALUE], double value)
{
    const double size = fabs(value);
    if (size >= 99.95 || size == 0)
        print_whole(out, value);
    else
        snprintf(out, SPRY_DOC_VALUE, "%.*f", size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3, value);
}

/* The largest unit, each a thousand of the one before, that gives at least 1. */
static void print_scaled(char out[SPRY_DOC_VALUE], double value, const char *const *units, size_t n_units)
{
    size_t unit = 0;
    for (; unit + 1 < n_units && value >= 999.5; unit++)
        value /= 1000;
    char number[SPRY_DOC_VALUE];
    print_speed(number, value);
    snprintf(out, SPRY_DOC_VALUE, "%.20s%s", number, units[unit]);
}

const char *spry_doc_print(char out[SPRY_DOC_VALUE], spry_doc_unit unit, double value)
{
    static const char *const bytes[] = {" bytes", " kB", " MB", " GB", " TB"};
    static const char *const times[] = {" µs", " ms", " s"};
    static const char *const units[] = {
        [SPRY_DOC_SPEED] = "",    [SPRY_DOC_GB_S] = " GB/s", [SPRY_DOC_PRODUCTS] = " G/s",
        [SPRY_DOC_JOULES] = " J", [SPRY_DOC_WATTS] = " W",
    };
    if (!isfinite(value))
        snprintf(out, SPRY_DOC_VALUE, "–");
    else if (unit == SPRY_DOC_COUNT)
        print_whole(out, value);
    else if (unit == SPRY_DOC_SHARE)
        snprintf(out, SPRY_DOC_VALUE, "%.*f %%", fabs(value) >= 0.9995 ? 0 : 1, fmin(100 * value, 1e12));
    else if (unit == SPRY_DOC_TIMES)
        snprintf(out, SPRY_DOC_VALUE, "%.2f×", fmin(value, 1e12));
    else if (unit == SPRY_DOC_BYTES)
        print_scaled(out, value, bytes, value < 999.5 ? 1 : SPRY_COUNT(bytes));
    else if (unit == SPRY_DOC_MS)
        print_scaled(out, value < 0.1 ? value * 1e3 : value, value < 0.1 ? times : times + 1, value < 0.1 ? 1 : 2);
    else
        print_scaled(out, value, &units[unit], 1);
    return out;
}

const char *spry_doc_plural(char out[SPRY_DOC_VALUE], double count, const char *what)
{
    char number[SPRY_DOC_VALUE];
    print_whole(number, count);
    snprintf(out, SPRY_DOC_VALUE, "%.25s %.12s%s", number, what, count == 1 ? "" : "s");
    return out;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void escape_markdown(spry_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\`*_[]<>|&#~", *text))
            spry_buffer_append(out, "\\", 1);
        spry_buffer_append(out, (unsigned char)*text < ' ' ? " " : text, 1);
    }
}

static void escape(spry_doc *doc, const char *text)
{
    if (doc->markdown)
        escape_markdown(doc->out, text);
    else
        spry_page_escape(doc->out, text);
}

/* `before` and `behind` are written around the escaped text, unescaped. */
static void write_words(spry_doc *doc, const char *before, const char *behind, const char *format, va_list args)
{
    char text[SENTENCE_MAX];
    const int length = vsnprintf(text, sizeof text, format, args);
    for (size_t end = sizeof text - 1; length >= (int)sizeof text && end > 0 && (text[end - 1] & 0x80); end--)
        text[end - 1] = '\0'; /* no partial character at the end */
    spry_buffer_text(doc->out, before);
    escape(doc, text);
    spry_buffer_text(doc->out, behind);
}

void spry_doc_heading(spry_doc *doc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_words(doc, doc->markdown ? "\n### " : "<h3>", doc->markdown ? "\n" : "</h3>\n", format, args);
    va_end(args);
}

void spry_doc_say(spry_doc *doc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_words(doc, doc->markdown ? "\n" : "<p>", doc->markdown ? "\n" : "</p>\n", format, args);
    va_end(args);
}

void spry_doc_warn(spry_doc *doc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_words(doc, doc->markdown ? "\n**Note:** " : "<p class=\"note\">", doc->markdown ? "\n" : "</p>\n", format,
                args);
    va_end(args);
}

static void end_section(spry_doc *doc)
{
    if (doc->in_section && !doc->markdown)
        spry_buffer_text(doc->out, "</section>\n");
    doc->in_section = false;
}

void spry_doc_section(spry_doc *doc, const char *title)
{
    end_section(doc);
    doc->in_section = true;
    spry_buffer_text(doc->out, doc->markdown ? "\n## " : "<section><h2>");
    escape(doc, title);
    spry_buffer_text(doc->out, doc->markdown ? "\n" : "</h2>\n");
}

void spry_doc_begin(spry_doc *doc, spry_buffer *out, bool markdown, const char *title)
{
    *doc = (spry_doc){.out = out, .markdown = markdown};
    if (!markdown)
        spry_page_begin(out, title);
    spry_buffer_text(out, markdown ? "# " : "<h1>");
    escape(doc, title);
    spry_buffer_text(out, markdown ? "\n" : "</h1>\n");
}

void spry_doc_end(spry_doc *doc, const char *footer)
{
    end_section(doc);
    spry_buffer_text(doc->out, doc->markdown ? "\n---\n\n" : "<footer>");
    escape(doc, footer);
    spry_buffer_text(doc->out, doc->markdown ? "\n" : "</footer>\n");
    if (!doc->markdown)
        spry_page_end(doc->out);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

void spry_doc_table(spry_doc *doc, const spry_doc_column *columns, size_t count)
{
    doc->n_columns = count < SPRY_DOC_COLUMNS ? count : SPRY_DOC_COLUMNS;
    doc->at = 0;
    memcpy(doc->columns, columns, doc->n_columns * sizeof *columns);
    spry_buffer_text(doc->out,
                     doc->markdown
                         ? "\n|"
                         : "<div class=\"scroll\" role=\"group\" aria-label=\"table\" tabindex=\"0\"><table>\n<tr>");
    for (size_t i = 0; i < doc->n_columns; i++) {
        if (!doc->markdown)
            spry_buffer_text(doc->out, columns[i].is_text ? "<th class=\"t\">" : "<th>");
        escape(doc, columns[i].title);
        spry_buffer_text(doc->out, doc->markdown ? "|" : "</th>");
    }
    spry_buffer_text(doc->out, doc->markdown ? "\n|" : "</tr>\n");
    for (size_t i = 0; i < doc->n_columns && doc->markdown; i++)
        spry_buffer_text(doc->out, columns[i].is_text ? "---|" : "---:|");
    spry_buffer_text(doc->out, doc->markdown ? "\n" : "");
}

static void begin_cell(spry_doc *doc)
{
    const spry_doc_column *column = &doc->columns[doc->at];
    if (doc->markdown)
        spry_buffer_text(doc->out, doc->at == 0 ? "|" : "");
    else
        spry_buffer_format(doc->out, "%s<td%s>", doc->at == 0 ? "<tr>" : "",
                           column->wraps     ? " class=\"t w\""
                           : column->is_text ? " class=\"t\""
                                             : "");
}

static void end_cell(spry_doc *doc)
{
    spry_buffer_text(doc->out, doc->markdown ? "|" : "</td>");
    if (++doc->at < doc->n_columns)
        return;
    doc->at = 0;
    spry_buffer_text(doc->out, doc->markdown ? "\n" : "</tr>\n");
}

void spry_doc_cell(spry_doc *doc, const char *format, ...)
{
    va_list args;
    begin_cell(doc);
    va_start(args, format);
    write_words(doc, "", "", format, args);
    va_end(args);
    end_cell(doc);
}

void spry_doc_value(spry_doc *doc, spry_doc_unit unit, double value)
{
    char text[SPRY_DOC_VALUE];
    spry_doc_cell(doc, "%s", spry_doc_print(text, unit, value));
}

/* Less than 2 % is neither better nor worse. */
void spry_doc_compared(spry_doc *doc, spry_doc_unit unit, double value, double first, int better)
{
    char text[SPRY_DOC_VALUE], ratio[SPRY_DOC_VALUE];
    begin_cell(doc);
    escape(doc, spry_doc_print(text, unit, value));
    if (isfinite(value) && isfinite(first) && first > 0) {
        const double times = value / first, gain = better * (times - 1);
        spry_doc_print(ratio, SPRY_DOC_TIMES, times);
        if (doc->markdown)
            spry_buffer_format(doc->out, " (%s)", ratio);
        else
            spry_buffer_format(doc->out, " <small class=\"%s\">%s %s</small>",
                               gain > 0.02    ? "good"
                               : gain < -0.02 ? "bad"
                                              : "soft",
                               times > 1.02   ? "▲"
                               : times < 0.98 ? "▼"
                                              : "=",
                               ratio);
    }
    end_cell(doc);
}

void spry_doc_table_end(spry_doc *doc)
{
    spry_buffer_text(doc->out, doc->markdown ? "" : "</table></div>\n");
}

/* ---- side by side ------------------------------------------------------------------------------------------------ */

void spry_doc_beside(spry_doc *doc)
{
    if (!doc->markdown)
        spry_buffer_text(doc->out, doc->is_beside ? "</div><div>" : "<div class=\"tables\"><div>");
    doc->is_beside = true;
}

void spry_doc_beside_end(spry_doc *doc)
{
    if (doc->is_beside && !doc->markdown)
        spry_buffer_text(doc->out, "</div></div>\n");
    doc->is_beside = false;
}

spry_buffer *spry_doc_drawing(spry_doc *doc)
{
    return doc->markdown ? NULL : doc->out;
}
