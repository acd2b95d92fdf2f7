/* The result as a table in 80 columns, and as one JSON object. */
#include <stdlib.h>

#include <jansson.h>

#include "base/error.h"
#include "cli/terminal.h"
#include "eval/eval_span.h"

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void print_head(const spry_eval_span_report *r)
{
    const spry_eval_corpus *c = r->corpus;
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    spry_out_format("%s%s%s\n", bold, r->model, plain);
    spry_out_format("%zu %s of %zu to %zu tokens, %zu %s, prompts of %.0f tokens\n", c->documents.count,
                    c->documents.count == 1 ? "document" : "documents", c->shortest_document, c->longest_document,
                    c->questions.count, c->questions.count == 1 ? "question" : "questions", r->prompt_tokens);
    spry_out_format("\n%s%-9s%-8s%9s%9s%9s%8s%11s%8s%9s%s\n", bold, "order", "repair", "KL mean", "99 %", "max",
                    "top-1", "TTFT", "of full", "repaired", plain);
}

static void print_order(const spry_eval_span_report *r, const spry_eval_span_order *order)
{
    spry_out_format("%-9s%-8s%35s%8.1f ms%8.2f%9s\n", order->name, "full", "", order->full_ttft_ms, 1.0, "");
    for (size_t i = 0; i < SPRY_EVAL_REPAIRS; i++) {
        const spry_eval_span_result *result = &order->results[i];
        const spry_eval_summary *d = &result->divergence;
        spry_out_format("%-9s%-8s%9.6f%9.6f%9.6f%6.1f %%%8.1f ms%8.2f%9.0f\n", "", r->repairs[i].name, d->mean, d->p99,
                        d->max, 100 * result->top1, result->ttft_ms, result->ttft_ratio, result->repaired_tokens);
    }
}

void spry_eval_span_print(const spry_eval_span_report *r)
{
    const spry_eval_span_order *shuffled = &r->orders[1];
    print_head(r);
    for (size_t i = 0; i < r->n_orders; i++)
        print_order(r, &r->orders[i]);
    spry_out_format("\nKL and top-1: against full prefill, over %zu predictions", r->orders[0].results[0].positions);
    if (r->n_orders > 1)
        spry_out_format(" and %zu in %zu other %s", shuffled->results[0].positions, shuffled->n_orders,
                        shuffled->n_orders == 1 ? "order" : "orders");
    spry_out_format(".\nTTFT: documents were computed before, each alone, and nothing else; medians, and\n"
                    "so is its share of full prefill's, taken prompt by prompt.\n");
    spry_out_format("A page is %zu tokens. 15 %% is of the mean document: %zu tokens for each, and first\n"
                    "and spread as many: the first pages of each document, or pages spread over it.\n",
                    r->page_tokens, r->repairs[SPRY_EVAL_REPAIR_SHARE].tokens);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *divergence_to_json(const spry_eval_summary *d)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "mean", d->mean, "median", d->median, "p99", d->p99, "max", d->max);
}

static json_t *result_to_json(const spry_eval_span_order *order, const spry_eval_span_result *r,
                              const spry_eval_repair *repair)
{
    const size_t modes = SPRY_REPAIR_FIRST | SPRY_REPAIR_SPREAD;
    json_t *tokens =
        repair->tokens == SPRY_REPAIR_ALL ? json_null() : json_integer((json_int_t)(repair->tokens & ~modes));
    return json_pack("{s:s, s:s, s:o, s:o, s:f, s:b, s:I, s:f, s:f, s:f, s:f}", "order", order->name, "repair",
                     repair->name, "repair_tokens", tokens, "kl", divergence_to_json(&r->divergence), "top1", r->top1,
                     "identical", (int)r->identical, "positions", (json_int_t)r->positions, "ttft_ms", r->ttft_ms,
                     "ttft_ratio", r->ttft_ratio, "repaired_tokens", r->repaired_tokens, "computed_tokens",
                     r->computed_tokens);
}

static json_t *report_to_json(const spry_eval_span_report *r)
{
    const spry_eval_corpus *c = r->corpus;
    json_t *results = json_array(), *full = json_object();
    for (size_t i = 0; i < r->n_orders; i++) {
        const spry_eval_span_order *order = &r->orders[i];
        json_object_set_new(full, order->name, json_real(order->full_ttft_ms));
        for (size_t j = 0; j < SPRY_EVAL_REPAIRS; j++)
            json_array_append_new(results, result_to_json(order, &order->results[j], &r->repairs[j]));
    }
    size_t shuffles = r->n_orders > 1 ? r->orders[1].n_orders : 0;
    return json_pack("{s:o?, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:f}", "model", json_string(r->model),
                     "documents", (json_int_t)c->documents.count, "document_tokens", (json_int_t)c->document_tokens,
                     "questions", (json_int_t)c->questions.count, "prompt_tokens", r->prompt_tokens, "page_tokens",
                     (json_int_t)r->page_tokens, "tokens", (json_int_t)r->tokens, "shuffles", (json_int_t)shuffles,
                     "seed", (json_int_t)r->seed, "full_ttft_ms", full, "results", results, "seconds", r->seconds);
}

spry_status spry_eval_span_print_json(const spry_eval_span_report *report, spry_error *error)
{
    json_t *object = report_to_json(report);
    char *text = object ? json_dumps(object, JSON_REAL_PRECISION(12)) : NULL;
    json_decref(object);
    if (!text)
        return spry_fail_memory(error, "the result as JSON", 0);
    spry_out_format("%s\n", text);
    free(text);
    return SPRY_OK;
}
