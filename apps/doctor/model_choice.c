/* The rules for each use, in one table, and their sentences. */
#include "doctor/model_choice.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

static const double memory_share = 0.7; /* of the available memory: longer contexts and other programs need the rest */

/* The requirements of a use. */
typedef struct rule {
    const char *name;
    double decode_tps, ttft_ms; /* minimum; maximum, 0: any */
    double prefill_tps;         /* minimum */
    bool special;               /* only models made for this use */
    bool schemas;               /* prefers models that follow schemas */
    const char *note;           /* a further remark; NULL: none */
} rule;

static const rule rules[SPRY_USE_COUNT] = {
    [SPRY_USE_FAST] = {.name = "fast", .decode_tps = 25, .ttft_ms = 2000},
    [SPRY_USE_BALANCED] = {.name = "balanced", .decode_tps = 10, .ttft_ms = 8000},
    [SPRY_USE_BEST] = {.name = "best", .decode_tps = 3},
    /* as fast as people read */
    [SPRY_USE_CHAT] = {.name = "chat", .decode_tps = 8, .ttft_ms = 4000},
    [SPRY_USE_CODE] = {.name = "code", .decode_tps = 12, .ttft_ms = 8000, .special = true},
    [SPRY_USE_STRUCTURED] = {.name = "structured",
                             .decode_tps = 15,
                             .ttft_ms = 4000,
                             .schemas = true,
                             .note = "a schema (--json-schema) makes the syntax right with any model"},
    /* speech takes about 4 tokens/s; what counts is how soon the first clause is there */
    [SPRY_USE_VOICE] = {.name = "voice",
                        .decode_tps = 12,
                        .ttft_ms = 1000,
                        .note = "spoken turns are short, and what was said before is cached"},
    [SPRY_USE_EMBEDDINGS] = {.name = "embeddings", .prefill_tps = 100, .special = true},
};

/* From the most precise; types that are slower and no more precise than another are omitted. */
static const char *const types[] = {"f16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"};

/* Repositories that have a shape's model, as published, and in every type of the list above (NULL: not known). Models
 * for one use are before the general ones. */
static const struct source {
    const char *shape, *published, *quantised;
    spry_use use;      /* SPRY_USE_COUNT: any but special ones */
    const char *model; /* the model's name if other models have the same shape */
} sources[] = {
#define FOR(use, model) use, model
    {"qwen2.5-0.5b", "Qwen/Qwen2.5-Coder-0.5B-Instruct", "bartowski/Qwen2.5-Coder-0.5B-Instruct-GGUF",
     FOR(SPRY_USE_CODE, "Qwen2.5-Coder-0.5B")},
    {"qwen2.5-1.5b", "Qwen/Qwen2.5-Coder-1.5B-Instruct", "bartowski/Qwen2.5-Coder-1.5B-Instruct-GGUF",
     FOR(SPRY_USE_CODE, "Qwen2.5-Coder-1.5B")},
    {"qwen2.5-3b", "Qwen/Qwen2.5-Coder-3B-Instruct", "bartowski/Qwen2.5-Coder-3B-Instruct-GGUF",
     FOR(SPRY_USE_CODE, "Qwen2.5-Coder-3B")},
    {"qwen2.5-7b", "Qwen/Qwen2.5-Coder-7B-Instruct", "bartowski/Qwen2.5-Coder-7B-Instruct-GGUF",
     FOR(SPRY_USE_CODE, "Qwen2.5-Coder-7B")},
    {"qwen3-30b-a3b", "Qwen/Qwen3-Coder-30B-A3B-Instruct", "bartowski/Qwen_Qwen3-Coder-30B-A3B-Instruct-GGUF",
     FOR(SPRY_USE_CODE, "Qwen3-Coder-30B-A3B")},
    {"qwen3-0.6b", "Qwen/Qwen3-Embedding-0.6B", NULL, FOR(SPRY_USE_EMBEDDINGS, "Qwen3-Embedding-0.6B")},
    {"qwen3-4b", "Qwen/Qwen3-Embedding-4B", NULL, FOR(SPRY_USE_EMBEDDINGS, "Qwen3-Embedding-4B")},
    {"qwen3-8b", "Qwen/Qwen3-Embedding-8B", NULL, FOR(SPRY_USE_EMBEDDINGS, "Qwen3-Embedding-8B")},
#undef FOR
#define GENERAL SPRY_USE_COUNT, NULL
    {"qwen3-0.6b", "Qwen/Qwen3-0.6B", "bartowski/Qwen_Qwen3-0.6B-GGUF", GENERAL},
    {"qwen3-1.7b", "Qwen/Qwen3-1.7B", "bartowski/Qwen_Qwen3-1.7B-GGUF", GENERAL},
    {"qwen3-4b", "Qwen/Qwen3-4B", "bartowski/Qwen_Qwen3-4B-GGUF", GENERAL},
    {"qwen3-8b", "Qwen/Qwen3-8B", "bartowski/Qwen_Qwen3-8B-GGUF", GENERAL},
    {"qwen3-14b", "Qwen/Qwen3-14B", "bartowski/Qwen_Qwen3-14B-GGUF", GENERAL},
    {"qwen3-32b", "Qwen/Qwen3-32B", "bartowski/Qwen_Qwen3-32B-GGUF", GENERAL},
    {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "bartowski/Qwen_Qwen3-30B-A3B-GGUF", GENERAL},
    {"qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct", "bartowski/Qwen2.5-0.5B-Instruct-GGUF", GENERAL},
    {"qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B-Instruct", "bartowski/Qwen2.5-1.5B-Instruct-GGUF", GENERAL},
    {"qwen2.5-3b", "Qwen/Qwen2.5-3B-Instruct", "bartowski/Qwen2.5-3B-Instruct-GGUF", GENERAL},
    {"qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct", "bartowski/Qwen2.5-7B-Instruct-GGUF", GENERAL},
    {"llama3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", "bartowski/Llama-3.2-1B-Instruct-GGUF", GENERAL},
    {"llama3.2-3b", "meta-llama/Llama-3.2-3B-Instruct", "bartowski/Llama-3.2-3B-Instruct-GGUF", GENERAL},
    {"llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", GENERAL},
    {"llama3.1-70b", "meta-llama/Llama-3.1-70B-Instruct", "bartowski/Meta-Llama-3.1-70B-Instruct-GGUF", GENERAL},
    {"mistral-7b", "mistralai/Mistral-7B-Instruct-v0.3", "bartowski/Mistral-7B-Instruct-v0.3-GGUF", GENERAL},
    {"mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1", NULL, GENERAL},
    {"gemma-2b", "google/gemma-2b-it", NULL, GENERAL},
    {"gemma-7b", "google/gemma-7b-it", NULL, GENERAL},
    {"gemma2-2b", "google/gemma-2-2b-it", "bartowski/gemma-2-2b-it-GGUF", GENERAL},
    {"gemma2-9b", "google/gemma-2-9b-it", "bartowski/gemma-2-9b-it-GGUF", GENERAL},
    {"gemma2-27b", "google/gemma-2-27b-it", "bartowski/gemma-2-27b-it-GGUF", GENERAL},
    {"gemma3-1b", "google/gemma-3-1b-it", "bartowski/google_gemma-3-1b-it-GGUF", GENERAL},
    {"gemma3-4b", "google/gemma-3-4b-it", "bartowski/google_gemma-3-4b-it-GGUF", GENERAL},
    {"gemma3-12b", "google/gemma-3-12b-it", "bartowski/google_gemma-3-12b-it-GGUF", GENERAL},
    {"gemma3-27b", "google/gemma-3-27b-it", "bartowski/google_gemma-3-27b-it-GGUF", GENERAL},
    {"phi3-mini", "microsoft/Phi-3-mini-4k-instruct", NULL, GENERAL},
    {"phi4", "microsoft/phi-4", "bartowski/phi-4-GGUF", GENERAL},
    {"gpt-oss-20b", "openai/gpt-oss-20b", NULL, GENERAL},
    {"gpt-oss-120b", "openai/gpt-oss-120b", NULL, GENERAL},
    {"glm4-9b", "THUDM/GLM-4-9B-0414", "bartowski/THUDM_GLM-4-9B-0414-GGUF", GENERAL},
    {"glm4-32b", "THUDM/GLM-4-32B-0414", "bartowski/THUDM_GLM-4-32B-0414-GGUF", GENERAL},
#undef GENERAL
};

/* Where a shape's model for a use comes from; NULL: there is none. */
static const struct source *find_source(spry_use use, const char *shape)
{
    spry_use wanted = rules[use].special ? use : SPRY_USE_COUNT;
    for (size_t i = 0; i < SPRY_COUNT(sources); i++)
        if (sources[i].use == wanted && strcmp(sources[i].shape, shape) == 0)
            return &sources[i];
    return NULL;
}

static void name_source(spry_model_choice *choice)
{
    const spry_candidate *c = choice->chosen;
    const struct source *from = find_source(choice->use, c->shape);
    char type[16] = "";
    for (size_t i = 0; c->type[i] && i + 1 < sizeof type; i++)
        type[i] = (char)toupper((unsigned char)c->type[i]);
    bool floats = strcmp(c->type, "f16") == 0;
    choice->model = from ? from->model : NULL;
    if (from && (floats || from->quantised))
        snprintf(choice->pull, sizeof choice->pull, "hf:%s%s%s", floats ? from->published : from->quantised,
                 floats ? "" : ":", floats ? "" : type);
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
    return p->decode_tps >= r->decode_tps && p->prefill_tps >= r->prefill_tps &&
           (r->ttft_ms == 0 || p->ttft_1k_ms <= r->ttft_ms);
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

/* Models whose judgements differ by less follow schemas equally well: the figures come from several publishers. */
static const double schema_slack = 0.05;

static bool suits(const rule *r, spry_use use, const spry_candidate *c)
{
    return c->fits && (!r->special || find_source(use, c->shape)) && quick_enough(r, &c->predicted);
}

/* The least judgement that a candidate needs; 0 where schemas do not matter or none is judged. */
static double least_schema(const rule *r, spry_use use, const spry_candidate *candidates, size_t count)
{
    double best = 0;
    for (size_t i = 0; r->schemas && i < count; i++)
        if (suits(r, use, &candidates[i]) && candidates[i].schema > best)
            best = candidates[i].schema;
    return best - schema_slack;
}

/* "at least 25 tokens/s and a first token within 2 s of a prompt of 1,000" */
static void describe(char *out, size_t size, const rule *r)
{
    if (r->prefill_tps > 0)
        snprintf(out, size, "at least %.0f tokens/s of text", r->prefill_tps);
    else if (r->ttft_ms > 0)
        snprintf(out, size, "at least %.0f tokens/s and the first token of a prompt of 1,000 within %.0f s",
                 r->decode_tps, r->ttft_ms / 1e3);
    else
        snprintf(out, size, "at least %.0f tokens/s", r->decode_tps);
}

/* The sentence for a chosen model. */
static void explain(spry_model_choice *choice, const rule *r, const char *asked, size_t memory)
{
    const spry_prediction *p = &choice->chosen->predicted;
    const double gb = 1e9;
    int length =
        snprintf(choice->why, sizeof choice->why, "the largest model%s, in its most precise type, with %s: about ",
                 r->special ? " made for this" : "", asked);
    size_t used = length > 0 ? (size_t)length : 0;
    if (r->prefill_tps > 0)
        snprintf(choice->why + used, sizeof choice->why - used, "%.0f tokens/s, in %.1f of %.1f GB of memory",
                 p->prefill_tps, p->memory_bytes / gb, (double)memory / gb);
    else
        snprintf(choice->why + used, sizeof choice->why - used,
                 "%.0f tokens/s, the first after %.1f s, in %.1f of %.1f GB of memory%s%s", p->decode_tps,
                 p->ttft_1k_ms / 1e3, p->memory_bytes / gb, (double)memory / gb, r->note ? "; " : "",
                 r->note ? r->note : "");
    used = strlen(choice->why);
    if (r->schemas && choice->chosen->schema > 0)
        snprintf(choice->why + used, sizeof choice->why - used,
                 "; of the models that follow schemas best, %.0f %% (%s)", 100 * choice->chosen->schema,
                 choice->chosen->schema_source);
}

void spry_choice_make(spry_model_choice *choice, spry_use use, const spry_candidate *candidates, size_t count,
                      size_t memory)
{
    const rule *r = &rules[use];
    char asked[128];
    bool any_fits = false;
    const double schema = least_schema(r, use, candidates, count);
    *choice = (spry_model_choice){.use = use};
    for (size_t i = 0; i < count; i++) {
        const spry_candidate *c = &candidates[i];
        any_fits = any_fits || (c->fits && (!r->special || find_source(use, c->shape)));
        if (suits(r, use, c) && c->schema >= schema && better(c, choice->chosen))
            choice->chosen = c;
    }
    describe(asked, sizeof asked, r);
    if (choice->chosen) {
        name_source(choice);
        explain(choice, r, asked, memory);
    } else if (any_fits) {
        snprintf(choice->why, sizeof choice->why, "no known model reaches %s on this machine", asked);
    } else {
        snprintf(choice->why, sizeof choice->why, "no known model fits %.0f %% of the %.1f GB of memory",
                 memory_share * 100, (double)memory / 1e9);
    }
}

/* ---- GPUs ------------------------------------------------------------------------------------------------------- */

/* Constants are fitted to what was measured on one H200 (docs/GPU.md): a step reads what it needs at four fifths of the
 * memory's speed and waits for its phases besides; a long prefill reaches a sixth of what matrix instructions could do.
 */
static const double read_share = 0.8, step_seconds = 0.65e-3, multiply_share = 0.16, gpu_memory_share = 0.94;

spry_gpu_prediction spry_predict_gpu(const spry_gpu *gpu, const spry_prediction *model)
{
    const spry_model_size *s = &model->size;
    double used = s->weight_bytes > 0 ? 1 - (s->expert_bytes - s->expert_token_bytes) / s->weight_bytes : 1;
    double seconds = s->file_bytes * used / (read_share * gpu->read_gb_s * 1e9) + step_seconds;
    double peak = spry_gpu_peak(gpu);
    double needs = s->file_bytes + s->kv_bytes + s->scratch_bytes;
    bool computes = peak > 0 && gpu->read_gb_s > 0 && s->parameters > 0;
    return (spry_gpu_prediction){.decode_tps = computes ? 1 / seconds : 0,
                                 .prefill_tps = computes ? multiply_share * peak / (2 * s->parameters * used) : 0,
                                 .fits = needs <= gpu_memory_share * (double)gpu->bytes};
}
