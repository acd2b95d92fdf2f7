/* The rules for each use, in one table, and their sentences. */
#include "doctor/model_choice.h"

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

const char *spry_use_name(spry_use use)
{
    return rules[use].name;
}

bool spry_prediction_fits(const spry_prediction *prediction, size_t memory)
{
    return prediction->memory_bytes <= memory_share * (double)memory;
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
