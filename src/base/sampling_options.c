/* Ranges live in the table and nowhere else: spry_sampling_check reads them from it. */
#include "base/sampling_options.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/options.h"

#define OPTION(...) SPRY_OPTION(spry_sampling, __VA_ARGS__)

static const char *const scopes[] = {"generated", "all", NULL};

static const spry_option options[] = {
    OPTION("temperature", FLOAT, temperature, .alias = "temp", .common = true, .max = 100,
           .unset = "the model's own, or 0.8",
           .help = "Divide logits by this: lower is more certain, 0 always takes the most probable token",
           .group = "Sampling"),
    OPTION("top-k", U32, top_k, .negative_unset = true, .unset = "the model's own, or 0",
           .help = "Keep only the N most probable tokens; 0 keeps all"),
    OPTION("top-p", FLOAT, top_p, .max = 1, .unset = "the model's own, or 0.95",
           .help = "Keep only the most probable tokens whose probabilities together reach X; 1 keeps all"),
    OPTION("min-p", FLOAT, min_p, .max = 1, .unset = "the model's own, or 0.05",
           .help = "Keep only tokens at least X times as probable as the most probable one; 0 keeps all"),
    OPTION("typical-p", FLOAT, typical_p, .alias = "typical", .max = 1,
           .help = "Keep only tokens about as surprising as expected, until they together reach X; 1 keeps all"),
    OPTION("repeat-penalty", FLOAT, repeat_penalty, .alias = "repetition-penalty", .min = 0.01, .max = 100,
           .unset = "the model's own, or 1",
           .help = "Divide the positive logits of tokens seen before by this and multiply the negative ones; 1 is off"),
    OPTION("presence-penalty", FLOAT, presence_penalty, .min = -100, .max = 100,
           .help = "Subtract this from the logit of every token seen before; 0 is off"),
    OPTION("frequency-penalty", FLOAT, frequency_penalty, .min = -100, .max = 100,
           .help = "Subtract this from a token's logit for each time it was seen before; 0 is off"),
    OPTION("penalty-window", U32, penalty_window, .alias = "repeat-last-n", .negative_unset = true,
           .help = "Only the last N tokens count as seen before; 0 counts all"),
    OPTION("penalty-scope", CHOICE, penalty_scope, .choices = scopes, .metavar = "SCOPE",
           .help = "Tokens that count as seen before: generated tokens, or all tokens including the prompt"),
    OPTION("seed", U64, seed, .negative_unset = true,
           .help = "Start of the random numbers: the same seed draws the same tokens"),
};

spry_option_table spry_sampling_options(spry_sampling *settings)
{
    return (spry_option_table){options, SPRY_COUNT(options), settings};
}

void spry_sampling_default(spry_sampling *settings)
{
    *settings = (spry_sampling){.temperature = 1, .top_p = 1, .typical_p = 1, .repeat_penalty = 1};
    settings->penalty_scope = scopes[0];
}

bool spry_sampling_counts_prompt(const spry_sampling *settings)
{
    return settings->penalty_scope && strcmp(settings->penalty_scope, "all") == 0;
}

spry_status spry_sampling_check(const spry_sampling *settings, size_t n_vocab, spry_error *error)
{
    spry_sampling copy = *settings;
    spry_option_table table = spry_sampling_options(&copy);
    spry_status status = spry_options_check(&table, error);
    if (status == SPRY_OK && !spry_sized_zero(settings->reserved, sizeof settings->reserved))
        status = spry_fail(error, SPRY_ERR_INPUT, "spry_sampling.reserved is not zero");
    const char *scope = settings->penalty_scope;
    if (status == SPRY_OK && scope && strcmp(scope, scopes[0]) != 0 && strcmp(scope, scopes[1]) != 0)
        status = spry_fail(error, SPRY_ERR_INPUT, "penalty_scope is '%.20s', but must be generated or all", scope);
    for (size_t i = 0; i < settings->n_bias && status == SPRY_OK; i++) {
        spry_logit_bias bias = settings->bias[i];
        if (bias.token < 0 || (size_t)bias.token >= n_vocab)
            status =
                spry_fail(error, SPRY_ERR_INPUT, "logit_bias names token %d, but the vocabulary has tokens 0 to %zu",
                          bias.token, n_vocab - 1);
        else if (isnan(bias.bias) || bias.bias == INFINITY)
            status = spry_fail(error, SPRY_ERR_INPUT,
                               "logit_bias of token %d is %s, but must be a finite number, or -infinity to ban it",
                               bias.token, isnan(bias.bias) ? "not a number" : "infinity");
    }
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static bool read_bias(float *out, const json_t *value)
{
    if (json_is_null(value) || (json_is_string(value) && strcmp(json_string_value(value), "-Infinity") == 0)) {
        *out = -INFINITY;
        return true;
    }
    double number = json_number_value(value);
    if (!json_is_number(value) || fabs(number) > (double)FLT_MAX)
        return false;
    *out = (float)number;
    return true;
}

static spry_status read_bias_object(spry_sampling *settings, spry_logit_bias *bias, size_t capacity,
                                    const json_t *object, spry_error *error)
{
    if (json_is_null(object))
        return SPRY_OK;
    if (!json_is_object(object))
        return spry_fail(error, SPRY_ERR_INPUT, "logit_bias must be an object from token ids to numbers");
    if (json_object_size(object) > capacity)
        return spry_fail(error, SPRY_ERR_INPUT, "logit_bias names %zu tokens, but at most %zu are allowed",
                         json_object_size(object), capacity);
    size_t count = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        uint64_t token;
        if (!spry_number_u64(&token, spry_view_of(key)) || token > INT32_MAX)
            return spry_fail(error, SPRY_ERR_INPUT, "logit_bias names \"%.100s\", which is not a token id", key);
        bias[count].token = (int32_t)token;
        if (!read_bias(&bias[count++].bias, value))
            return spry_fail(
                error, SPRY_ERR_INPUT,
                "logit_bias of token %.100s must be a number that fits a float32, or null or \"-Infinity\" to "
                "ban it",
                key);
    }
    settings->bias = bias;
    settings->n_bias = count;
    return SPRY_OK;
}

spry_status spry_sampling_from_json(spry_sampling *settings, spry_logit_bias *bias, size_t bias_capacity,
                                    const json_t *object, bool ignore_unknown, spry_error *error)
{
    if (!json_is_object(object))
        return spry_fail(error, SPRY_ERR_INPUT, "sampling settings must be a JSON object");
    spry_option_table table = spry_sampling_options(settings);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        spry_status status = SPRY_OK;
        if (bias && strcmp(key, "logit_bias") == 0)
            status = read_bias_object(settings, bias, bias_capacity, value, error);
        else if (!ignore_unknown || spry_options_find(&table, key))
            status = spry_options_set_json(&table, key, value, error);
        if (status != SPRY_OK)
            return status;
    }
    return SPRY_OK;
}
