/* Traces: the first requests in detail, until their first token, and the time of all requests by part. */
#include <math.h>
#include <stdio.h>

#include "report/report.h"

static void name_request(char *out, size_t size, const spry_report_request *request, size_t index)
{
    snprintf(out, size, "request %.0f", isfinite(request->number) ? request->number : (double)index + 1);
}

static void draw_request(spry_rows *rows, const spry_report_request *request, size_t index)
{
    char name[48], sum[SPRY_DOC_VALUE];
    name_request(name, sizeof name, request, index);
    spry_report_draw_parts(rows, name, spry_doc_print(sum, SPRY_DOC_MS, request->first_ms), request->parts_ms);
}

static void draw_requests(spry_buffer *out, const spry_report_trace *trace)
{
    spry_rows rows;
    spry_axis x = {.unit = " ms"};
    double longest = 0, most[SPRY_PART_COUNT] = {0};
    for (size_t i = 0; i < trace->n_shown; i++) {
        double sum = 0;
        for (size_t part = 0; part < SPRY_PART_COUNT; part++) {
            sum += trace->shown[i].parts_ms[part];
            most[part] = fmax(most[part], trace->shown[i].parts_ms[part]);
        }
        longest = fmax(longest, sum);
    }
    if (!(longest > 0))
        return;
    spry_report_draw_part_names(out, most);
    spry_axis_cover(&x, 0, longest);
    spry_rows_begin(&rows, out, "From each request to its first token", &x);
    for (size_t i = 0; i < trace->n_shown; i++)
        draw_request(&rows, &trace->shown[i], i);
    spry_rows_end(&rows);
}

static void write_requests(spry_doc *doc, const spry_report_trace *trace)
{
    static const spry_doc_column columns[] = {{"Request", true, false},    {"Prompt tokens", false, false},
                                              {"Generated", false, false}, {"First token", false, false},
                                              {"Whole", false, false},     {"Tokens/s", false, false}};
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < trace->n_shown; i++) {
        const spry_report_request *request = &trace->shown[i];
        const double answering_ms = request->whole_ms - request->first_ms;
        char name[48];
        name_request(name, sizeof name, request, i);
        spry_doc_cell(doc, "%s", name);
        spry_doc_value(doc, SPRY_DOC_COUNT, request->prompt_tokens);
        spry_doc_value(doc, SPRY_DOC_COUNT, request->generated_tokens);
        spry_doc_value(doc, SPRY_DOC_MS, request->first_ms);
        spry_doc_value(doc, SPRY_DOC_MS, request->whole_ms);
        spry_doc_value(doc, SPRY_DOC_SPEED,
                       answering_ms > 0 && request->generated_tokens > 1
                           ? 1e3 * (request->generated_tokens - 1) / answering_ms
                           : NAN);
    }
    spry_doc_table_end(doc);
}

static void write_parts(spry_doc *doc, const spry_report_trace *trace)
{
    static const spry_doc_column columns[] = {
        {"Part", true, false},    {"In all", false, false},      {"Share", false, false},  {"Requests", false, false},
        {"Median", false, false}, {"95 % within", false, false}, {"Longest", false, false}};
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t part = 0; part < SPRY_PART_COUNT; part++) {
        const spry_spread *spread = &trace->parts[part];
        if (!spread->count)
            continue;
        spry_doc_cell(doc, "%s", spry_part_name((spry_part)part));
        spry_doc_value(doc, SPRY_DOC_MS, spread->sum);
        spry_doc_value(doc, SPRY_DOC_SHARE, trace->covered_ms > 0 ? spread->sum / trace->covered_ms : NAN);
        spry_doc_value(doc, SPRY_DOC_COUNT, (double)spread->count);
        spry_doc_value(doc, SPRY_DOC_MS, spry_spread_at(spread, 0.5));
        spry_doc_value(doc, SPRY_DOC_MS, spry_spread_at(spread, 0.95));
        spry_doc_value(doc, SPRY_DOC_MS, spread->most);
    }
    spry_doc_table_end(doc);
}

static void write_turns(spry_doc *doc, const spry_report_trace *trace)
{
    static const spry_doc_column columns[] = {{"After the end of speech", true, false},
                                              {"Turns", false, false},
                                              {"Median", false, false},
                                              {"95 % within", false, false},
                                              {"Longest", false, false}};
    spry_doc_heading(doc, "Spoken turns");
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < SPRY_TURN_ENDS; i++) {
        const spry_spread *spread = &trace->turns[i];
        if (!spread->count)
            continue;
        spry_doc_cell(doc, "%s", spry_turn_end_names[i]);
        spry_doc_value(doc, SPRY_DOC_COUNT, (double)spread->count);
        spry_doc_value(doc, SPRY_DOC_MS, spry_spread_at(spread, 0.5));
        spry_doc_value(doc, SPRY_DOC_MS, spry_spread_at(spread, 0.95));
        spry_doc_value(doc, SPRY_DOC_MS, spread->most);
    }
    spry_doc_table_end(doc);
}

void spry_report_requests(spry_doc *doc, const spry_report *report)
{
    const spry_report_input *input;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_TRACE, &at));) {
        const spry_report_trace *trace = input->trace;
        char title[SPRY_REPORT_NAME + 32], count[SPRY_DOC_VALUE], share[SPRY_DOC_VALUE];
        if (!trace->requests)
            continue;
        snprintf(title, sizeof title, "Requests of %s", input->name);
        spry_doc_section(doc, title);
        spry_doc_say(
            doc, "%s; the parts below are %s of the time.", spry_doc_plural(count, (double)trace->requests, "request"),
            spry_doc_print(share, SPRY_DOC_SHARE, trace->whole_ms > 0 ? trace->covered_ms / trace->whole_ms : NAN));
        if (trace->requests > trace->n_shown)
            spry_doc_say(doc, "The first %zu are shown one by one.", trace->n_shown);
        if (spry_doc_drawing(doc))
            draw_requests(spry_doc_drawing(doc), trace);
        spry_doc_beside(doc);
        spry_doc_heading(doc, "One by one");
        write_requests(doc, trace);
        spry_doc_beside(doc);
        spry_doc_heading(doc, "What all of them spent their time on");
        write_parts(doc, trace);
        spry_doc_beside_end(doc);
        if (trace->turns[0].count)
            write_turns(doc, trace);
    }
}
