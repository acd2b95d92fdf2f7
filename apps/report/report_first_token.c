/* The time to the first token by part, cold and warm, and the savings of the cache. */
#include <math.h>
#include <stdio.h>

#include "report/report.h"

static const struct {
    const char *name, *ms, *parts;
} kinds[] = {{"cold", "ttft.cold_ms", "ttft.parts_ms"}, {"warm", "ttft.warm_ms", "ttft.warm_parts_ms"}};

static double part_of(const json_t *bench, size_t kind, size_t part)
{
    return spry_report_number(spry_report_at(bench, kinds[kind].parts), spry_part_name((spry_part)part));
}

/* The next bench with a measured first token. */
static const spry_report_input *next_measured(const spry_report *report, size_t *at)
{
    const spry_report_input *input = spry_report_next(report, SPRY_REPORT_BENCH, at);
    while (input && !spry_report_at(input->json, "ttft"))
        input = spry_report_next(report, SPRY_REPORT_BENCH, at);
    return input;
}

/* Of the kinds from `kind` on. */
static double longest(const spry_report *report, size_t kind)
{
    const spry_report_input *input;
    double most = 0;
    for (size_t at = 0; (input = next_measured(report, &at));)
        for (size_t i = kind; i < SPRY_COUNT(kinds); i++)
            most = fmax(most, spry_report_number(input->json, kinds[i].ms));
    return most;
}

/* ---- the bars ---------------------------------------------------------------------------------------------------- */

void spry_report_draw_parts(spry_rows *rows, const char *name, const char *sum, const double ms[SPRY_PART_COUNT])
{
    spry_rows_piece pieces[SPRY_PART_COUNT];
    char titles[SPRY_PART_COUNT][80], text[SPRY_DOC_VALUE];
    size_t count = 0;
    double end = 0;
    for (size_t part = 0; part < SPRY_PART_COUNT; part++) {
        if (!(ms[part] > 0))
            continue;
        const char *part_name = spry_part_name((spry_part)part);
        snprintf(titles[count], sizeof titles[count], "%s %s", part_name, spry_doc_print(text, SPRY_DOC_MS, ms[part]));
        pieces[count] = (spry_rows_piece){part_name, titles[count], spry_report_part_colour(part), end, end + ms[part]};
        end = pieces[count++].end;
    }
    spry_rows_add(rows, name, sum, pieces, count);
}

void spry_report_draw_part_names(spry_buffer *out, const double most[SPRY_PART_COUNT])
{
    spry_buffer_text(out, "<ul class=\"legend\">\n");
    for (size_t part = 0; part < SPRY_PART_COUNT; part++)
        if (most[part] > 0) {
            spry_buffer_text(out, "<li>");
            spry_rows_swatch(out, spry_report_part_colour(part));
            spry_buffer_format(out, " %s</li>\n", spry_part_name((spry_part)part));
        }
    spry_buffer_text(out, "</ul>\n");
}

/* If its parts were not measured, everything is "other". */
static void draw_row(spry_rows *rows, const spry_report *report, const spry_report_input *input, size_t kind)
{
    const double whole = spry_report_number(input->json, kinds[kind].ms);
    double ms[SPRY_PART_COUNT] = {0};
    char name[SPRY_REPORT_ROW], sum[SPRY_DOC_VALUE];
    for (size_t part = 0; part < SPRY_PART_COUNT; part++)
        ms[part] = part_of(input->json, kind, part);
    if (!spry_report_at(input->json, kinds[kind].parts))
        ms[SPRY_PART_OTHERS] = whole;
    spry_report_row_name(name, report, input, kinds[kind].name);
    spry_report_draw_parts(rows, name, spry_doc_print(sum, SPRY_DOC_MS, whole), ms);
}

static void draw_legend(spry_buffer *out, const spry_report *report)
{
    const spry_report_input *input;
    double most[SPRY_PART_COUNT] = {0};
    for (size_t at = 0; (input = next_measured(report, &at));)
        for (size_t part = 0; part < SPRY_PART_COUNT; part++)
            most[part] = fmax(most[part], fmax(part_of(input->json, 0, part), part_of(input->json, 1, part)));
    spry_report_draw_part_names(out, most);
}

/* The kinds from `kind` on. */
static void draw(spry_buffer *out, const spry_report *report, const char *caption, size_t kind)
{
    spry_rows rows;
    spry_axis x = {.unit = " ms"};
    const spry_report_input *input;
    spry_axis_cover(&x, 0, longest(report, kind));
    spry_rows_begin(&rows, out, caption, &x);
    for (size_t i = kind; i < SPRY_COUNT(kinds); i++)
        for (size_t at = 0; (input = next_measured(report, &at));)
            if (spry_report_number(input->json, kinds[i].ms) > 0)
                draw_row(&rows, report, input, i);
    spry_rows_end(&rows);
}

/* Warm requests again, enlarged, if they are too short to see beside cold ones. */
static void draw_all(spry_buffer *out, const spry_report *report)
{
    const double cold = longest(report, 0), warm = longest(report, 1);
    draw_legend(out, report);
    draw(out, report, "From the request to its first token", 0);
    if (warm > 0 && warm < 0.4 * cold)
        draw(out, report, "Warm ones, enlarged", 1);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void write_line(spry_doc *doc, const spry_report *report, const char *name, size_t part)
{
    const spry_report_input *input;
    double values[2 * SPRY_REPORT_INPUTS], most = 0;
    size_t count = 0;
    for (size_t at = 0; (input = next_measured(report, &at));)
        for (size_t kind = 0; kind < SPRY_COUNT(kinds); kind++) {
            values[count] = part < SPRY_PART_COUNT ? part_of(input->json, kind, part)
                                                   : spry_report_number(input->json, kinds[kind].ms);
            most = fmax(most, values[count++]);
        }
    if (!(most > 0))
        return;
    spry_doc_cell(doc, "%s", name);
    for (size_t i = 0; i < count; i++)
        spry_doc_compared(doc, SPRY_DOC_MS, values[i], i > 1 && part == SPRY_PART_COUNT ? values[i % 2] : NAN, -1);
}

static void write_table(spry_doc *doc, const spry_report *report)
{
    spry_doc_column columns[1 + 2 * SPRY_REPORT_INPUTS] = {{"Part", true, false}};
    char titles[2 * SPRY_REPORT_INPUTS][SPRY_REPORT_NAME + 16];
    const spry_report_input *input;
    size_t count = 0;
    for (size_t at = 0; (input = next_measured(report, &at));)
        for (size_t kind = 0; kind < SPRY_COUNT(kinds); kind++) {
            snprintf(titles[count], sizeof titles[count], "%s, %s", input->name, kinds[kind].name);
            columns[1 + count].title = titles[count];
            count++;
        }
    spry_doc_table(doc, columns, 1 + count);
    for (size_t part = 0; part < SPRY_PART_COUNT; part++)
        write_line(doc, report, spry_part_name((spry_part)part), part);
    write_line(doc, report, "whole", SPRY_PART_COUNT);
    spry_doc_table_end(doc);
}

static bool has_reason(const spry_report *report)
{
    const spry_report_input *input;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        if (!spry_report_at(input->json, "ttft") && spry_report_text(input->json, "why_no_ttft"))
            return true;
    return false;
}

void spry_report_first_token(spry_doc *doc, const spry_report *report)
{
    const bool measured = longest(report, 0) > 0;
    const spry_report_input *input;
    if (!measured && !has_reason(report))
        return;
    spry_doc_section(doc, "Time to the first token");
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
        const char *why = spry_report_text(input->json, "why_no_ttft");
        char tokens[SPRY_DOC_VALUE];
        if (spry_report_at(input->json, "ttft"))
            spry_doc_say(doc, "%s: a prompt of %s tokens, first uncached (cold), then again (warm).", input->name,
                         spry_doc_print(tokens, SPRY_DOC_COUNT, spry_report_number(input->json, "ttft.prompt_tokens")));
        else if (why)
            spry_doc_say(doc, "%s: not measured: %s", input->name, why);
    }
    if (measured && spry_doc_drawing(doc))
        draw_all(spry_doc_drawing(doc), report);
    if (measured)
        write_table(doc, report);
}

/* ---- what the cache spared --------------------------------------------------------------------------------------- */

static void draw_hits(spry_buffer *out, const spry_report *report)
{
    const spry_axis x = {.unit = " %", .scale = 100, .least = 0, .most = 1, .step = 0.25};
    spry_rows rows;
    const spry_report_input *input;
    spry_rows_begin(&rows, out, "Tokens of the warm prompt that were not computed again", &x);
    for (size_t at = 0; (input = next_measured(report, &at));) {
        const double hits = spry_report_number(input->json, "ttft.hit_tokens");
        const double misses = spry_report_number(input->json, "ttft.miss_tokens");
        if (!(hits + misses > 0))
            continue;
        const double share = hits / (hits + misses);
        char titles[2][80], sum[SPRY_DOC_VALUE];
        snprintf(titles[0], sizeof titles[0], "cached: %.0f tokens", hits);
        snprintf(titles[1], sizeof titles[1], "computed: %.0f tokens", misses);
        const spry_rows_piece pieces[] = {{"found", titles[0], 2, 0, share}, {"computed", titles[1], 0, share, 1}};
        spry_rows_add(&rows, input->name, spry_doc_print(sum, SPRY_DOC_SHARE, share), pieces, SPRY_COUNT(pieces));
    }
    spry_rows_end(&rows);
}

void spry_report_cache(spry_doc *doc, const spry_report *report)
{
    static const spry_doc_column columns[] = {
        {"File", true, false},  {"Found", false, false}, {"Computed", false, false}, {"Cached, share", false, false},
        {"Cold", false, false}, {"Warm", false, false},  {"Saved", false, false}};
    const spry_report_input *input;
    bool any = false;
    for (size_t at = 0; (input = next_measured(report, &at));)
        any |=
            spry_report_number(input->json, "ttft.hit_tokens") + spry_report_number(input->json, "ttft.miss_tokens") >
            0;
    if (!any)
        return;
    spry_doc_section(doc, "Cache");
    if (spry_doc_drawing(doc))
        draw_hits(spry_doc_drawing(doc), report);
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t at = 0; (input = next_measured(report, &at));) {
        const double hits = spry_report_number(input->json, "ttft.hit_tokens");
        const double misses = spry_report_number(input->json, "ttft.miss_tokens");
        const double cold = spry_report_number(input->json, "ttft.cold_ms");
        const double warm = spry_report_number(input->json, "ttft.warm_ms");
        spry_doc_cell(doc, "%s", input->name);
        spry_doc_value(doc, SPRY_DOC_COUNT, hits);
        spry_doc_value(doc, SPRY_DOC_COUNT, misses);
        spry_doc_value(doc, SPRY_DOC_SHARE, hits + misses > 0 ? hits / (hits + misses) : NAN);
        spry_doc_value(doc, SPRY_DOC_MS, cold);
        spry_doc_value(doc, SPRY_DOC_MS, warm);
        spry_doc_value(doc, SPRY_DOC_TIMES, warm > 0 ? cold / warm : NAN);
    }
    spry_doc_table_end(doc);
}
