/* The result as an HTML page: two plots and the table. */
#include <stdio.h>

#include "eval/eval_span.h"
#include "report/report_page.h"

/* A number with its text, as the page shows it in a table. */
#define NUMBER(...) json_pack("{s:o}", "text", json_sprintf(__VA_ARGS__))

/* Whether an earlier repair has the same number of tokens. */
static bool is_repeated(const spry_eval_span_report *r, size_t repair)
{
    for (size_t i = 0; i < repair; i++)
        if (r->repairs[i].tokens == r->repairs[repair].tokens)
            return true;
    return false;
}

/* The points of one order, from left to right, by the time to the first token. */
static json_t *points_of(const spry_eval_span_report *r, size_t order, bool top)
{
    const spry_eval_span_result *results = r->orders[order].results;
    size_t sorted[SPRY_EVAL_REPAIRS], count = 0;
    json_t *points = json_array();
    for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++) {
        if (is_repeated(r, i))
            continue;
        size_t at = count++;
        for (; at > 0 && results[sorted[at - 1]].ttft_ratio > results[i].ttft_ratio; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = i;
    }
    for (size_t i = 0; i < count; i++) {
        const spry_eval_span_result *result = &results[sorted[i]];
        json_array_append_new(points, json_pack("{s:f, s:f, s:s}", "x", result->ttft_ratio, "y",
                                                top ? result->top1 : result->divergence.mean, "label",
                                                r->repairs[sorted[i]].name));
    }
    return points;
}

static json_t *chart(const spry_eval_span_report *r, const char *caption, bool top)
{
    json_t *series = json_array();
    for (size_t kind = 0; kind < r->n_orders; kind++) {
        const size_t n_orders = r->orders[kind].n_orders;
        json_t *name = kind == 0 ? json_string("documents in their own order")
                                 : json_sprintf("in %zu other %s", n_orders, n_orders == 1 ? "order" : "orders");
        json_array_append_new(series, json_pack("{s:o, s:o}", "name", name, "points", points_of(r, kind, top)));
    }
    json_t *made =
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:o}", "type", "xy", "caption", caption, "axis",
                  "time to the first token, of full prefill", "xUnit", "share", "line", true, "series", series);
    if (top)
        json_object_update_new(made, json_pack("{s:s, s:f}", "yUnit", "share", "from", 0.95));
    return made;
}

static json_t *rows_of(const spry_eval_span_report *r)
{
    json_t *rows = json_array();
    for (size_t kind = 0; kind < r->n_orders; kind++) {
        const spry_eval_span_order *order = &r->orders[kind];
        json_array_append_new(rows, json_pack("[s, s, s, s, s, s, o, o, s]", order->name, "full prefill", "", "", "",
                                              "", NUMBER("%.1f ms", order->full_ttft_ms), NUMBER("100 %%"), ""));
        for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++) {
            const spry_eval_span_result *result = &order->results[i];
            const spry_eval_summary *d = &result->divergence;
            json_array_append_new(
                rows, json_pack("[s, s, o, o, o, o, o, o, o]", order->name, r->repairs[i].name, NUMBER("%.6f", d->mean),
                                NUMBER("%.6f", d->p99), NUMBER("%.6f", d->max), NUMBER("%.1f %%", 100 * result->top1),
                                NUMBER("%.1f ms", result->ttft_ms), NUMBER("%.0f %%", 100 * result->ttft_ratio),
                                NUMBER("%.0f", result->repaired_tokens)));
        }
    }
    return rows;
}

static json_t *describe(const spry_eval_span_report *r)
{
    const spry_eval_corpus *c = r->corpus;
    return json_sprintf(
        "%zu %s of %zu to %zu tokens and %zu %s: prompts of %.0f tokens. Each document was computed once, alone; "
        "labels "
        "say how much of each was computed again in place. A page is %zu tokens; 15 %% is of the mean document, in "
        "whole pages: %zu tokens. Lower and further left is better in the first plot, higher and further left in the "
        "second.",
        c->documents.count, c->documents.count == 1 ? "document" : "documents", c->shortest_document,
        c->longest_document, c->questions.count, c->questions.count == 1 ? "question" : "questions", r->prompt_tokens,
        r->page_tokens, r->repairs[SPRY_EVAL_REPAIR_SHARE].tokens);
}

void spry_eval_span_plot(spry_buffer *out, const spry_eval_span_report *r)
{
    const size_t questions = r->corpus->questions.count;
    json_t *table = json_pack("{s:[s, s, s, s, s, s, s, s, s], s:o, s:[o, o]}", "columns", "order", "repair", "KL mean",
                              "99 %", "max", "top-1", "TTFT", "of full", "repaired", "rows", rows_of(r), "charts",
                              chart(r, "Mean KL divergence from full prefill, in nats", false),
                              chart(r, "Predictions with the same top token", true));
    json_t *footer = json_sprintf(
        "TTFT: median of %zu runs for each line, %zu where shuffled; documents were computed before and nothing else "
        "was. Full prefill found nothing. Repaired: tokens of documents computed in place, of a prompt.",
        questions, questions * (r->n_orders > 1 ? r->orders[1].n_orders : 0));
    json_t *data = json_pack("{s:{s:o, s:[{s:s, s:[o, o]}], s:o}}", "document", "title",
                             json_sprintf("Reused spans: %s", r->model), "sections", "title", "Result", "blocks",
                             describe(r), table, "footer", footer);
    spry_report_page(out, data);
    json_decref(data);
}
