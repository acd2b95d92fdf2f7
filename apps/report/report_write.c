/* The whole document: title, warnings about comparability, order of sections. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/html_page.h"
#include "report/report.h"
#include "spry_tools.h"

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
        [SPRY_OP_LAYOUT] = 4, [SPRY_OP_EMBED] = 11, [SPRY_OP_NORM] = 5,   [SPRY_OP_QKV] = 0,       [SPRY_OP_ROPE] = 6,
        [SPRY_OP_ATTEND] = 9, [SPRY_OP_OUT] = 7,    [SPRY_OP_ADD] = 12,   [SPRY_OP_GATE_UP] = 2,   [SPRY_OP_GATE] = 8,
        [SPRY_OP_DOWN] = 10,  [SPRY_OP_ROUTE] = 3,  [SPRY_OP_LOGITS] = 1, [SPRY_OP_EXCHANGE] = 13, [SPRY_OP_COUNT] = 13,
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

/* A property that distinguishes inputs, and its display name. Empty if it has none. */
typedef struct trait {
    char id[160], name[120];
} trait;

static void set_trait(trait *t, const char *id, const char *name)
{
    name = name ? name : "";
    spry_report_cut(t->name, SPRY_REPORT_WORDS, name);
    spry_report_cut(t->id, sizeof t->id, id ? id : name);
}

static void machine_of(trait *t, const spry_report_input *input)
{
    const bool bench = input->kind == SPRY_REPORT_BENCH;
    set_trait(t, spry_report_text(input->json, bench ? "machine.id" : "id"),
              spry_report_text(input->json, bench ? "machine.cpu" : "cpu.name"));
}

static void model_of(trait *t, const spry_report_input *input)
{
    set_trait(t, spry_report_text(input->json, "model_id"), spry_report_text(input->json, "model"));
}

/* Settings that affect speed. */
static void settings_of(trait *t, const spry_report_input *input)
{
    const json_t *settings = input->kind == SPRY_REPORT_BENCH ? spry_report_at(input->json, "settings") : NULL;
    const char *kv_type = spry_report_text(settings, "kv_type"), *quantize = spry_report_text(settings, "quantize");
    char type[16], made[16];
    *t = (trait){.id = ""};
    if (!settings)
        return;
    snprintf(t->name, sizeof t->name, "chunk %.0f, kv %s, %.0f tokens%s%s", spry_report_number(settings, "chunk"),
             spry_report_cut(type, sizeof type, kv_type ? kv_type : "-"), spry_report_number(settings, "tokens"),
             quantize ? ", quantized to " : "", spry_report_cut(made, sizeof made, quantize ? quantize : ""));
    spry_report_cut(t->id, sizeof t->id, t->name);
}

/* Warns when the inputs have different values of `what`. */
static void warn_of_mixture(spry_doc *doc, const spry_report *report, const char *what,
                            void (*of)(trait *t, const spry_report_input *input))
{
    trait kept[SPRY_REPORT_INPUTS];
    spry_buffer names;
    size_t count = 0;
    spry_buffer_init(&names, 1 << 16);
    for (size_t i = 0; i < report->count; i++) {
        trait *t = &kept[count];
        size_t same = 0;
        of(t, &report->inputs[i]);
        while (same < count && strcmp(kept[same].id, t->id) != 0)
            same++;
        if (same < count || !t->id[0])
            continue;
        spry_buffer_format(&names, "%s%s: %s", count ? "; " : "", report->inputs[i].name, t->name);
        count++;
    }
    if (count > 1)
        spry_doc_warn(doc, "These files come from %zu different %s, so differences between them may be the %s (%s).",
                      count, what, what, spry_buffer_view(&names).data);
    spry_buffer_deinit(&names);
}

void spry_report_say_left_out(spry_doc *doc, size_t count)
{
    char rows[SPRY_DOC_VALUE];
    if (count)
        spry_doc_say(doc, "Left out: %s more, for which there is no room here.",
                     spry_doc_plural(rows, (double)count, "row"));
}

static void warn_of_left_out(spry_doc *doc, size_t count)
{
    char points[SPRY_DOC_VALUE];
    if (count)
        spry_doc_warn(doc, "Left out: %s of the files, as a report shows at most %d different ones.",
                      spry_doc_plural(points, (double)count, "point"), SPRY_REPORT_KEYS);
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
    warn_of_mixture(&doc, report, "settings", settings_of);
    warn_of_left_out(&doc, spry_report_keys_left_out(report));
    for (size_t i = 0; i < SPRY_COUNT(sections); i++)
        sections[i](&doc, report);
    spry_doc_end(&doc, "Written by spry " SPRY_VERSION " report.");
}
