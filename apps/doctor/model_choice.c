/* The rules for each use, in one table, and their sentences. */
#include "doctor/model_choice.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

static const double memory_share = 0.7; /* of the available memory: other programs and a longer context need some */

/* The requirements of a use. */
typedef struct rule {
    const char *name;
    double decode_tps, ttft_ms; /* minimum; maximum, 0: any */
} rule;

static const rule rules[SPRY_USE_COUNT] = {
    [SPRY_USE_FAST] = {"fast", 25, 2000},
    [SPRY_USE_BALANCED] = {"balanced", 10, 8000},
    [SPRY_USE_BEST] = {"best", 3, 0},
};

/* From the most precise; types that are slower and no more precise than another are omitted. */
static const char *const types[] = {"f16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"};

/* Repositories that have a shape's model, as published, and in every type of the list above. */
static const struct {
    const char *shape, *published, *quantised;
} sources[] = {
    {"qwen3-0.6b", "Qwen/Qwen3-0.6B", "bartowski/Qwen_Qwen3-0.6B-GGUF"},
    {"qwen3-1.7b", "Qwen/Qwen3-1.7B", "bartowski/Qwen_Qwen3-1.7B-GGUF"},
    {"qwen3-4b", "Qwen/Qwen3-4B", "bartowski/Qwen_Qwen3-4B-GGUF"},
    {"qwen3-8b", "Qwen/Qwen3-8B", "bartowski/Qwen_Qwen3-8B-GGUF"},
    {"qwen3-14b", "Qwen/Qwen3-14B", "bartowski/Qwen_Qwen3-14B-GGUF"},
    {"qwen3-32b", "Qwen/Qwen3-32B", "bartowski/Qwen_Qwen3-32B-GGUF"},
    {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "bartowski/Qwen_Qwen3-30B-A3B-GGUF"},
    {"qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct", "bartowski/Qwen2.5-0.5B-Instruct-GGUF"},
    {"qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B-Instruct", "bartowski/Qwen2.5-1.5B-Instruct-GGUF"},
    {"qwen2.5-3b", "Qwen/Qwen2.5-3B-Instruct", "bartowski/Qwen2.5-3B-Instruct-GGUF"},
    {"qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct", "bartowski/Qwen2.5-7B-Instruct-GGUF"},
    {"llama3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", "bartowski/Llama-3.2-1B-Instruct-GGUF"},
    {"llama3.2-3b", "meta-llama/Llama-3.2-3B-Instruct", "bartowski/Llama-3.2-3B-Instruct-GGUF"},
    {"llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"},
    {"llama3.1-70b", "meta-llama/Llama-3.1-70B-Instruct", "bartowski/Meta-Llama-3.1-70B-Instruct-GGUF"},
};

static void name_source(char out[128], const spry_candidate *c)
{
    char type[16] = "";
    for (size_t i = 0; c->type[i] && i + 1 < sizeof type; i++)
        type[i] = (char)toupper((unsigned char)c->type[i]);
    bool floats = strcmp(c->type, "f16") == 0;
    for (size_t i = 0; i < SPRY_COUNT(sources); i++)
        if (strcmp(sources[i].shape, c->shape) == 0)
            snprintf(out, 128, "hf:%s%s%s", floats ? sources[i].published : sources[i].quantised, floats ? "" : ":",
                     floats ? "" : type);
}

const char *spry_use_name(spry_use use)
{
    return rules[use].name;
}

bool spry_prediction_fits(const spry_prediction *prediction, size_t memory)
{
    return prediction->memory_bytes <= memory_share * (double)memory;
}

spry_expert_prediction spry_predict_experts(const spry_prediction *p, size_t memory)
{
    const spry_model_size *size = &p->size;
    double dense = p->memory_bytes - size->expert_bytes, most = (double)memory / 2, giga = 1e9;
    if (!(size->expert_bytes > 0) || p->memory_bytes <= 0.75 * (double)memory || dense >= most)
        return (spry_expert_prediction){0};
    double kept = most - dense < size->expert_bytes ? most - dense : size->expert_bytes;
    double read = size->expert_token_bytes * (1 - kept / size->expert_bytes);
    return (spry_expert_prediction){
        .kept_bytes = kept, .read_bytes = read, .decode_tps = 1 / (1 / p->decode_tps + read / giga)};
}

spry_status spry_candidates_predict(spry_candidate candidates[SPRY_CANDIDATES_MAX], size_t *count,
                                    const spry_machine_speed *speed, size_t memory, spry_error *error)
{
    spry_status status = SPRY_OK;
    *count = 0;
    for (size_t s = 0; !status && spry_shape_names[s]; s++) {
        if (!spry_shape_published(spry_shape_names[s]))
            continue;
        for (size_t t = 0; !status && t < SPRY_COUNT(types) && *count < SPRY_CANDIDATES_MAX; t++) {
            spry_candidate *c = &candidates[*count];
            *c = (spry_candidate){.shape = spry_shape_names[s], .type = types[t]};
            status = spry_predict_shape(&c->predicted, speed, c->shape, c->type, error);
            c->fits = spry_prediction_fits(&c->predicted, memory);
            *count += !status;
        }
    }
    return status;
}

static bool quick_enough(const rule *r, const spry_prediction *p)
{
    return p->decode_tps >= r->decode_tps && (r->ttft_ms == 0 || p->ttft_1k_ms <= r->ttft_ms);
}

static size_t rank_of(const char *type)
{
    size_t rank = 0;
    while (rank < SPRY_COUNT(types) && strcmp(types[rank], type) != 0)
        rank++;
    return rank;
}

/* More parameters, then the more precise type. */
static bool better(const spry_candidate *a, const spry_candidate *b)
{
    if (!b || a->predicted.size.parameters != b->predicted.size.parameters)
        return !b || a->predicted.size.parameters > b->predicted.size.parameters;
    return rank_of(a->type) < rank_of(b->type);
}

/* "at least 25 tokens/s and a first token within 2 s of a prompt of 1,000" */
static void describe(char *out, size_t size, const rule *r)
{
    if (r->ttft_ms > 0)
        snprintf(out, size, "at least %.0f tokens/s and the first token of a prompt of 1,000 within %.0f s",
                 r->decode_tps, r->ttft_ms / 1e3);
    else
        snprintf(out, size, "at least %.0f tokens/s", r->decode_tps);
}

void spry_choice_make(spry_model_choice *choice, spry_use use, const spry_candidate *candidates, size_t count,
                      size_t memory)
{
    const rule *r = &rules[use];
    const double gb = 1e9;
    char asked[128];
    bool any_fits = false;
    *choice = (spry_model_choice){.use = use};
    for (size_t i = 0; i < count; i++) {
        any_fits = any_fits || candidates[i].fits;
        if (candidates[i].fits && quick_enough(r, &candidates[i].predicted) && better(&candidates[i], choice->chosen))
            choice->chosen = &candidates[i];
    }
    describe(asked, sizeof asked, r);
    if (choice->chosen) {
        const spry_prediction *p = &choice->chosen->predicted;
        name_source(choice->pull, choice->chosen);
        snprintf(
            choice->why, sizeof choice->why,
            "the largest model, in its most precise type, with %s: about %.0f tokens/s, the first after %.1f s, in "
            "%.1f of %.1f GB of memory",
            asked, p->decode_tps, p->ttft_1k_ms / 1e3, p->memory_bytes / gb, (double)memory / gb);
    } else if (any_fits) {
        snprintf(choice->why, sizeof choice->why, "no known model reaches %s on this machine", asked);
    } else {
        snprintf(choice->why, sizeof choice->why, "no known model fits %.0f %% of the %.1f GB of memory",
                 memory_share * 100, (double)memory / gb);
    }
}
