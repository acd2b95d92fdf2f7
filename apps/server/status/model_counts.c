#include "server/status/model_counts.h"

#include <stddef.h>

#define VALUES(field) offsetof(spry_model_counts, field), sizeof(((spry_model_counts *)0)->field) / sizeof(uint64_t)

const spry_counter_field spry_counter_fields[SPRY_COUNTER_FIELDS] = {
    {"requests_total", "Requests that reached the model, also those it refused", VALUES(requests), NULL, 0},
    {"requests_failed_total", "Requests that failed or were refused", VALUES(failed), NULL, 0},
    {"requests_cancelled_total", "Requests whose client disconnected", VALUES(cancelled), NULL, 0},
    {"prompt_tokens_total", "Prompt tokens", VALUES(prompt_tokens), NULL, 0},
    {"prompt_cached_tokens_total", "Prompt tokens found in the cache", VALUES(cached_tokens), NULL, 0},
    {"prompt_span_tokens_total", "Prompt tokens in fragments", VALUES(span_tokens), NULL, 0},
    {"generated_tokens_total", "Generated tokens", VALUES(generated_tokens), NULL, 0},
    {"first_call_tokens_total", "Tokens of answers until their first tool call was complete", VALUES(first_call_tokens),
     NULL, 0},
    {"prompt_microseconds_total", "Time of computing prompts", VALUES(prompt_us), NULL, 0},
    {"decode_microseconds_total", "Time of decoding answers", VALUES(decode_us), NULL, 0},
    {"drafted_tokens_total", "Draft tokens", VALUES(drafted_tokens), NULL, 0},
    {"accepted_tokens_total", "Accepted draft tokens", VALUES(accepted_tokens), NULL, 0},
    {"draft_tried_total",
     "Draft tokens that were verified, every earlier one of their step being accepted, by position", VALUES(tried_at),
     "position", 1},
    {"draft_accepted_total", "Accepted draft tokens, by position in their step", VALUES(accepted_at), "position", 1},
    {"draft_steps_total", "Decode steps, by number of draft tokens", VALUES(draft_lengths), "length", 0},
    {"draft_refused_p50_total", "Answers with drafts, by the median of refused tokens a step", VALUES(refused_p50),
     "tokens", 0},
    {"draft_refused_p95_total", "Answers with drafts, by the 95th percentile of refused tokens a step",
     VALUES(refused_p95), "tokens", 0},
};

const spry_histogram_field spry_histogram_fields[SPRY_HISTOGRAM_FIELDS] = {
    {"time_to_first_token_seconds", "Time from a request to its first text", offsetof(spry_model_counts, first_token)},
    {"inter_token_seconds", "Time between two pieces of text", offsetof(spry_model_counts, between_tokens)},
    {"queue_seconds", "Time an answer waited in the queue", offsetof(spry_model_counts, queue)},
    {"time_to_first_call_seconds", "Time from a request to its first complete tool call",
     offsetof(spry_model_counts, first_call)},
};

const uint64_t *spry_model_counts_values(const spry_model_counts *counts, const spry_counter_field *field)
{
    return (const uint64_t *)(const void *)((const char *)counts + field->offset);
}

const spry_histogram *spry_model_counts_histogram(const spry_model_counts *counts, const spry_histogram_field *field)
{
    return (const spry_histogram *)(const void *)((const char *)counts + field->offset);
}

void spry_model_counts_add_drafts(spry_model_counts *counts, const spry_draft_report *drafts)
{
    counts->drafted_tokens += drafts->drafted;
    counts->accepted_tokens += drafts->accepted;
    for (size_t i = 0; i < SPRY_DRAFT_MOST; i++) {
        counts->tried_at[i] += drafts->tried_at[i];
        counts->accepted_at[i] += drafts->accepted_at[i];
    }
    for (size_t i = 0; i <= SPRY_DRAFT_MOST; i++)
        counts->draft_lengths[i] += drafts->lengths[i];
    if (drafts->steps > drafts->lengths[0]) {
        counts->refused_p50[drafts->refused_p50]++;
        counts->refused_p95[drafts->refused_p95]++;
    }
}

uint64_t spry_model_counts_drafts(const spry_model_counts *counts)
{
    uint64_t n = 0;
    for (size_t i = 1; i <= SPRY_DRAFT_MOST; i++)
        n += counts->draft_lengths[i];
    return n;
}

void spry_model_counts_merge(spry_model_counts *into, const spry_model_counts *from)
{
    into->longest = from->longest > into->longest ? from->longest : into->longest;
    for (size_t i = 0; i < SPRY_COUNTER_FIELDS; i++) {
        const spry_counter_field *field = &spry_counter_fields[i];
        uint64_t *sums = (uint64_t *)(void *)((char *)into + field->offset);
        for (size_t k = 0; k < field->n_values; k++)
            sums[k] += spry_model_counts_values(from, field)[k];
    }
    for (size_t i = 0; i < SPRY_HISTOGRAM_FIELDS; i++) {
        const spry_histogram_field *field = &spry_histogram_fields[i];
        spry_histogram_merge((spry_histogram *)(void *)((char *)into + field->offset),
                             spry_model_counts_histogram(from, field));
    }
}
