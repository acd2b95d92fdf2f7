/* What a completion took, and small helpers for those who write replies. */
#include <stdlib.h>

#include "base/utf8.h"
#include "platform/clock.h"
#include "server/http/http_server.h"
#include "server/request/completion_internal.h"

static double since_ms(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e6 : 0;
}

void spry_completion_count(const spry_completion *c, spry_usage_counts *counts)
{
    *counts = (spry_usage_counts){0};
    for (uint32_t i = 0; i < c->n; i++) {
        const spry_result *r = &c->choices[i].job.result;
        counts->generated += r->generated_tokens;
        counts->drafted += r->drafts.drafted;
        counts->accepted += r->drafts.accepted;
        if (i % c->n_each)
            continue; /* a prompt counts once */
        counts->prompt += c->prompts[i / c->n_each].count;
        counts->cached += r->reused_tokens;
        counts->span += r->span_tokens;
        counts->repaired += r->repaired_tokens;
    }
}

static double lap_ms(const spry_completion *c, spry_part part)
{
    return (double)c->costs.laps.ns[part] / 1e6;
}

/* Of several answers, times are the first one's. */
json_t *spry_completion_timings(const spry_completion *c)
{
    const spry_choice *first = &c->choices[0];
    const spry_result *r = &first->job.result;
    spry_usage_counts n;
    spry_completion_count(c, &n);
    json_t *timings = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "load_ms",
        (double)c->exchange->load_ns / 1e6, "queue_ms", first->job.queue_ms, "template_ms",
        lap_ms(c, SPRY_PART_TEMPLATE), "tokenize_ms", lap_ms(c, SPRY_PART_TOKENIZE), "lookup_ms", r->lookup_ms,
        "restore_ms", r->restore_ms, "prefill_ms", r->prefill_ms, "first_step_ms", r->first_step_ms, "decode_ms",
        r->decode_ms, "prompt_tokens", (json_int_t)n.prompt, "cached_tokens", (json_int_t)n.cached, "span_tokens",
        (json_int_t)n.span, "repaired_tokens", (json_int_t)n.repaired, "generated_tokens", (json_int_t)n.generated,
        "drafted_tokens", (json_int_t)n.drafted, "accepted_tokens", (json_int_t)n.accepted);
    spry_completion_parts(c, timings, n.generated);
    return timings;
}

void spry_completion_account(spry_completion *c)
{
    spry_usage_counts n;
    spry_completion_count(c, &n);
    spry_model_counts counts = {.requests = 1,
                                .failed = c->error.status != SPRY_OK && !c->gone,
                                .cancelled = c->gone,
                                .prompt_tokens = n.prompt,
                                .cached_tokens = n.cached,
                                .span_tokens = n.span,
                                .generated_tokens = n.generated};
    for (uint32_t i = 0; i < c->n; i++) {
        const spry_choice *choice = &c->choices[i];
        if (choice->submitted)
            spry_histogram_add(&counts.queue, choice->job.queue_ms / 1e3);
        uint64_t first_ns = atomic_load(&choice->status.first_ns);
        if (first_ns)
            spry_histogram_add(&counts.first_token, since_ms(c->exchange->began_ns, first_ns) / 1e3);
        spry_histogram_merge(&counts.between_tokens, &choice->gaps);
        spry_model_counts_add_drafts(&counts, &choice->job.result.drafts);
    }
    spry_registry_add_counts(&c->exchange->server->registry, c->model->name, &counts);
    spry_http_log(c->exchange->server,
                  "request=%llu model=%.100s answers=%u prompt=%zu cached=%zu generated=%zu queue_ms=%.1f "
                  "prefill_ms=%.1f decode_ms=%.1f error=\"%s\"",
                  (unsigned long long)c->exchange->number, c->model->name, c->n, n.prompt, n.cached, n.generated,
                  c->choices[0].job.queue_ms, c->choices[0].job.result.prefill_ms, c->choices[0].job.result.decode_ms,
                  c->error.status != SPRY_OK ? c->error.message : "");
}

const char *spry_choice_finish(const spry_choice *choice)
{
    if (choice->n_calls)
        return "tool_calls";
    spry_finish finish = choice->job.result.finish;
    bool length = choice->owner->silent || finish == SPRY_FINISH_LENGTH || finish == SPRY_FINISH_CONTEXT;
    return length ? "length" : "stop";
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

json_t *spry_view_json(spry_view text)
{
    json_t *string = json_stringn(text.data, text.size);
    if (string)
        return string;
    spry_buffer valid; /* memory is short, or it is not UTF-8 */
    spry_buffer_init(&valid, 3 * text.size + 1);
    spry_utf8_append_valid(&valid, text);
    string = json_stringn(spry_buffer_view(&valid).data, valid.size);
    spry_buffer_deinit(&valid);
    return string;
}

json_t *spry_buffer_json(const spry_buffer *text)
{
    return spry_view_json(spry_buffer_view(text));
}

static void append_json(spry_completion *c, const char *before, json_t *json, const char *behind)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (!text) {
        c->out.failed = true;
        return;
    }
    spry_buffer_text(&c->out, before);
    spry_buffer_text(&c->out, text);
    spry_buffer_text(&c->out, behind);
    free(text);
}

void spry_completion_event(spry_completion *c, json_t *json)
{
    append_json(c, "data: ", json, "\n\n");
}

void spry_completion_line(spry_completion *c, json_t *json)
{
    append_json(c, "", json, "\n");
}
