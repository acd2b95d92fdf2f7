/* The document as a whole: its title, what has to be known before anything is compared, the order of its sections. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "html_page.h"
#include "model/op_watch.h"
#include "report.h"

static spry_report_section *const sections[] = {
    spry_report_summary,        spry_report_first_token, spry_report_requests, spry_report_speed,
    spry_report_between_tokens, spry_report_residency,   spry_report_roofline, spry_report_cache,
    spry_report_memory,         spry_report_energy,      spry_report_policy,   spry_report_machine,
};

/* ---- colours ----------------------------------------------------------------------------------------------------- */

size_t spry_report_part_colour(size_t part)
{
    static const unsigned char colours[SPRY_PART_COUNT] = {
        [SPRY_PART_READ] = 11,  [SPRY_PART_TEMPLATE] = 5, [SPRY_PART_TOKENIZE] = 6, [SPRY_PART_QUEUE] = 4,
        [SPRY_PART_LOOKUP] = 3, [SPRY_PART_RESTORE] = 10, [SPRY_PART_PREFILL] = 0,  [SPRY_PART_DRAFT] = 8,
        [SPRY_PART_DECODE] = 2, [SPRY_PART_SAMPLING] = 1, [SPRY_PART_GRAMMAR] = 9,  [SPRY_PART_DETOKENIZE] = 7,
        [SPRY_PART_WRITE] = 13, [SPRY_PART_OTHERS] = 12,
    };
    return part < SPRY_PART_COUNT ? colours[part] : SPRY_PAGE_PIECES - 1;
}

size_t spry_report_op_rank(const char *op)
{
    size_t rank = 0;
    while (rank < SPRY_OP_COUNT && strcmp(op, spry_op_name((spry_op)rank)) != 0)
        rank++;
    return rank;
}

size_t spry_report_op_colour(const char *op)
{
    static const unsigned char colours[SPRY_OP_COUNT + 1] = {
        [SPRY_OP_LAYOUT] = 4, [SPRY_OP_EMBED] = 11, [SPRY_OP_NORM] = 5,   [SPRY_OP_QKV] = 0,     [SPRY_OP_ROPE] = 6,
        [SPRY_OP_ATTEND] = 9, [SPRY_OP_OUT] = 7,    [SPRY_OP_ADD] = 12,   [SPRY_OP_GATE_UP] = 2, [SPRY_OP_GATE] = 8,
        [SPRY_OP_DOWN] = 10,  [SPRY_OP_ROUTE] = 3,  [SPRY_OP_LOGITS] = 1, [SPRY_OP_COUNT] = 13,
    };
    return colours[spry_report_op_rank(op)];
}

void spry_report_legend(spry_doc *doc, const spry_report *report, spry_report_kind kind)
{
    spry_buffer *out = spry_doc_drawing(doc);
    if (!out || spry_report_count(report, kind) < 2)
        return;
    spry_buffer_text(out, "<ul class=\"legend\">\n");
    const spry_report_input *input;
    for (size_t at = 0; (input = spry_report_next(report, kind, &at));) {
        spry_buffer_text(out, "<li>");
        spry_plot_swatch(out, input->series);
        spry_buffer_text(out, " ");
        spry_page_escape(out, input->name);
        spry_buffer_text(out, "</li>\n");
    }
    spry_buffer_text(out, "</ul>\n");
}

/* ---- what is compared with what ---------------------------------------------------------------------------------- */

static const char *machine_of(const spry_report_input *input, bool name)
{
    const bool bench = input->kind == SPRY_REPORT_BENCH;
    const char *cpu = spry_report_text(input->json, bench ? "machine.cpu" : "cpu.name");
    const char *id = spry_report_text(input->json, bench ? "machine.id" : "id");
    return name || !id ? cpu : id;
}

static const char *model_of(const spry_report_input *input, bool name)
{
    const char *id = input->kind == SPRY_REPORT_BENCH ? spry_report_text(input->json, "model_id") : NULL;
    return name || !id ? spry_report_text(input->json, "model") : id;
}

/* Says so where not all inputs are of one `what`. */
static void warn_of_mixture(spry_doc *doc, const spry_report *report, const char *what,
                            const char *(*of)(const spry_report_input *input, bool name))
{
    const spry_report_input *kept[SPRY_REPORT_INPUTS];
    char names[1024] = "";
    size_t count = 0, size = 0;
    for (size_t i = 0; i < report->count; i++) {
        const spry_report_input *input = &report->inputs[i];
        if (!of(input, false))
            continue;
        size_t same = 0;
        while (same < count && strcmp(of(kept[same], false), of(input, false)) != 0)
            same++;
        if (same < count)
            continue;
        kept[count++] = input;
        const int length = snprintf(names + size, sizeof names - size, "%s%s: %.60s", count > 1 ? "; " : "",
                                    input->name, of(input, true));
        size += length > 0 && (size_t)length < sizeof names - size ? (size_t)length : 0;
        names[size] = '\0';
    }
    if (count > 1)
        spry_doc_warn(doc, "These files come from %zu different %s, so differences between them may be the %s (%s).",
                      count, what, what, names);
}

static void make_title(char *out, size_t size, const spry_report *report)
{
    const size_t benches = spry_report_count(report, SPRY_REPORT_BENCH);
    const spry_report_input *first = &report->inputs[0];
    size_t at = 0;
    const spry_report_input *bench = spry_report_next(report, SPRY_REPORT_BENCH, &at);
    if (benches == 1)
        snprintf(out, size, "%s: where the time goes", spry_report_text(bench->json, "model"));
    else if (report->count == 2)
        snprintf(out, size, "%s and %s side by side", first->name, report->inputs[1].name);
    else if (report->count > 2)
        snprintf(out, size, "%s and %zu others side by side", first->name, report->count - 1);
    else if (first->kind == SPRY_REPORT_MACHINE)
        snprintf(out, size, "%s", spry_report_text(first->json, "cpu.name"));
    else
        snprintf(out, size, "%s: where the time goes", first->name);
}

void spry_report_write(spry_buffer *out, const spry_report *report, bool markdown)
{
    spry_doc doc;
    char title[2100];
    make_title(title, sizeof title, report);
    spry_doc_begin(&doc, out, markdown, title);
    warn_of_mixture(&doc, report, "machines", machine_of);
    warn_of_mixture(&doc, report, "models", model_of);
    for (size_t i = 0; i < SPRY_COUNT(sections); i++)
        sections[i](&doc, report);
    spry_doc_end(&doc, "Written by spry " SPRY_VERSION " report.");
}
