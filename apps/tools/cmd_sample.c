/* spry sample: applies sampling settings to given logits, without a model. */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/sampling_options.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "spry_tools.h"

enum { INPUT_BYTES_MAX = 64 << 20, BIAS_MAX = 1024, DRAW_MAX = 10000000 };

static const spry_usage usage = {
    .command = "sample",
    .arguments = "[options] < INPUT",
    .about = "Reads {\"logits\": [..], \"history\": [..], \"settings\": {..}} from standard input and shows the "
             "probabilities from which a token would be sampled, or samples tokens. A logit may be null or "
             "\"-Infinity\" for a token that cannot be sampled. The history and the settings are optional; settings "
             "have the JSON keys of the sampling options, and \"logit_bias\": {\"id\": number}. Missing settings are "
             "taken from the command line.\n"
             "Exit codes: 0 success, 1 failure, 2 wrong arguments.",
    .examples = "echo '{\"logits\": [1, 2, 0.5], \"settings\": {\"top_k\": 2}}' | spry sample\n"
                "echo '{\"logits\": [1, 2, 0.5], \"history\": [1]}' | spry sample --json --repeat-penalty 1.3\n"
                "spry sample --draw 10 --seed 7 --temperature 0.7 < logits.json",
};

typedef struct sample_settings {
    bool json;
    uint32_t draw, top;
} sample_settings;

#define OPTION(...) SPRY_OPTION(sample_settings, __VA_ARGS__)

static const spry_option sample_options[] = {
    OPTION("json", FLAG, json,
           .help = "Print JSON: {\"probabilities\": [..]} of all tokens, or {\"tokens\": [..]} with --draw",
           .group = "Output"),
    OPTION("draw", U32, draw, .letter = 'd', .max = DRAW_MAX,
           .help = "Sample N tokens, all with the same history, instead of showing probabilities"),
    OPTION("top", U32, top, .letter = 'n', .min = 1, .max = 1000000, .help = "Number of most probable tokens to list"),
};

/* The contents of standard input. */
typedef struct sample_input {
    spry_sampling sampling;
    spry_logit_bias bias[BIAS_MAX];
    float *logits;
    int32_t *history;
    size_t n_logits, n_history;
} sample_input;

/* ---- reading --------------------------------------------------------------------------------------------------- */

static bool read_logit(float *out, const json_t *value)
{
    const char *word = json_string_value(value);
    if (json_is_null(value) || (word && strcmp(word, "-Infinity") == 0)) {
        *out = -INFINITY;
    } else if (word && strcmp(word, "Infinity") == 0) {
        *out = INFINITY;
    } else if (json_is_number(value) && fabs(json_number_value(value)) <= (double)FLT_MAX) {
        *out = (float)json_number_value(value);
    } else {
        return false;
    }
    return true;
}

static spry_status read_logits(sample_input *input, const json_t *array, spry_error *error)
{
    if (!json_is_array(array) || json_array_size(array) == 0)
        return spry_fail(error, SPRY_ERR_INPUT, "\"logits\" must be an array of at least one number");
    input->n_logits = json_array_size(array);
    input->logits = calloc(input->n_logits, sizeof *input->logits);
    if (!input->logits)
        return spry_fail_memory(error, "the logits", input->n_logits * sizeof *input->logits);
    for (size_t i = 0; i < input->n_logits; i++)
        if (!read_logit(&input->logits[i], json_array_get(array, i)))
            return spry_fail(error, SPRY_ERR_INPUT,
                             "logits[%zu] must be a number that fits a float32, null, \"-Infinity\" or \"Infinity\"",
                             i);
    return SPRY_OK;
}

static spry_status read_history(sample_input *input, const json_t *array, spry_error *error)
{
    if (!array || json_is_null(array) || (json_is_array(array) && json_array_size(array) == 0))
        return SPRY_OK;
    if (!json_is_array(array))
        return spry_fail(error, SPRY_ERR_INPUT, "\"history\" must be an array of token ids");
    input->n_history = json_array_size(array);
    input->history = calloc(input->n_history, sizeof *input->history);
    if (!input->history)
        return spry_fail_memory(error, "the history", input->n_history * sizeof *input->history);
    for (size_t i = 0; i < input->n_history; i++) {
        const json_t *value = json_array_get(array, i);
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || (size_t)id >= input->n_logits)
            return spry_fail(error, SPRY_ERR_INPUT, "history[%zu] must be a token id from 0 to %zu", i,
                             input->n_logits - 1);
        input->history[i] = (int32_t)id;
    }
    return SPRY_OK;
}

/* Unknown keys are reported, because a misspelt one would change the result. */
static void report_unknown_keys(const json_t *root)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value) if (strcmp(key, "logits") != 0 && strcmp(key, "history") != 0 &&
                                                        strcmp(key, "settings") != 0)
        spry_complain("note: \"%.100s\" in the input is ignored", key);
}

static spry_status read_root(sample_input *input, const json_t *root, spry_error *error)
{
    if (!json_is_object(root))
        return spry_fail(error, SPRY_ERR_INPUT, "standard input must be a JSON object with \"logits\"");
    report_unknown_keys(root);
    spry_status status = read_logits(input, json_object_get(root, "logits"), error);
    if (status == SPRY_OK)
        status = read_history(input, json_object_get(root, "history"), error);
    const json_t *settings = json_object_get(root, "settings");
    if (status == SPRY_OK && settings && !json_is_null(settings))
        status = spry_sampling_from_json(&input->sampling, input->bias, BIAS_MAX, settings, false, error);
    return status;
}

static spry_status read_input(sample_input *input, spry_error *error)
{
    spry_buffer bytes;
    spry_buffer_init(&bytes, INPUT_BYTES_MAX);
    spry_status status = spry_input_read(&bytes, error);
    if (status == SPRY_OK && bytes.size == 0)
        status = spry_fail(error, SPRY_ERR_INPUT, "standard input is empty, but must be a JSON object with \"logits\"");
    if (status == SPRY_OK) {
        json_t *root;
        status = spry_json_read(&root, spry_buffer_view(&bytes), 0, 0, error);
        status = root ? read_root(input, root, error) : spry_fail_prefix(error, status, "standard input");
        json_decref(root);
    }
    spry_buffer_deinit(&bytes);
    return status;
}

/* ---- probabilities --------------------------------------------------------------------------------------------- */

static void print_json_probabilities(const float *probabilities, size_t n)
{
    spry_out_format("{\"probabilities\": [");
    for (size_t i = 0; i < n; i++)
        spry_out_format("%s%.9g", i == 0 ? "" : ", ", (double)probabilities[i]); /* 9 digits identify a float32 */
    spry_out_format("]}\n");
}

typedef struct ranked_token {
    float probability;
    size_t id;
} ranked_token;

static int by_probability(const void *left, const void *right)
{
    const ranked_token *a = left, *b = right;
    if (a->probability != b->probability)
        return a->probability > b->probability ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static spry_status print_table(const sample_input *input, const float *probabilities, size_t top, spry_error *error)
{
    ranked_token *ranked = calloc(input->n_logits, sizeof *ranked);
    if (!ranked)
        return spry_fail_memory(error, "the list of tokens", input->n_logits * sizeof *ranked);
    size_t kept = 0;
    for (size_t i = 0; i < input->n_logits; i++)
        if (probabilities[i] > 0)
            ranked[kept++] = (ranked_token){probabilities[i], i};
    qsort(ranked, kept, sizeof *ranked, by_probability);
    size_t shown = kept < top ? kept : top;
    double rest = 0;
    spry_out_format("%10s %12s %12s\n", "token", "logit", "probability");
    for (size_t i = 0; i < kept; i++) {
        if (i < shown)
            spry_out_format("%10zu %12.6g %12.6g\n", ranked[i].id, (double)input->logits[ranked[i].id],
                            (double)ranked[i].probability);
        else
            rest += (double)ranked[i].probability;
    }
    if (shown < kept)
        spry_out_format("%zu more tokens share %.6g\n", kept - shown, rest);
    spry_out_format("%zu of %zu tokens can be sampled\n", kept, input->n_logits);
    free(ranked);
    return SPRY_OK;
}

static spry_status show_probabilities(const sample_input *input, const sample_settings *settings, spry_error *error)
{
    float *probabilities = calloc(input->n_logits, sizeof *probabilities);
    if (!probabilities)
        return spry_fail_memory(error, "the probabilities", input->n_logits * sizeof *probabilities);
    spry_status status = spry_sample_logits(NULL, 0, probabilities, &input->sampling, input->logits, input->n_logits,
                                            input->history, input->n_history, error);
    if (status == SPRY_OK && settings->json)
        print_json_probabilities(probabilities, input->n_logits);
    else if (status == SPRY_OK)
        status = print_table(input, probabilities, settings->top, error);
    free(probabilities);
    return status;
}

/* ---- drawing --------------------------------------------------------------------------------------------------- */

static spry_status draw_tokens(const sample_input *input, const sample_settings *settings, spry_error *error)
{
    int32_t *tokens = calloc(settings->draw, sizeof *tokens);
    if (!tokens)
        return spry_fail_memory(error, "the tokens", settings->draw * sizeof *tokens);
    spry_status status = spry_sample_logits(tokens, settings->draw, NULL, &input->sampling, input->logits,
                                            input->n_logits, input->history, input->n_history, error);
    for (uint32_t i = 0; status == SPRY_OK && i < settings->draw; i++) {
        if (settings->json)
            spry_out_format("%s%d", i == 0 ? "{\"tokens\": [" : ", ", tokens[i]);
        else
            spry_out_format("%d\n", tokens[i]);
    }
    if (status == SPRY_OK && settings->json)
        spry_out_format("]}\n");
    free(tokens);
    return status;
}

int spry_cmd_sample(int argc, char **argv)
{
    sample_settings settings = {.top = 10};
    sample_input input = {0};
    spry_sampling_default(&input.sampling);
    const spry_option_table tables[] = {{sample_options, SPRY_COUNT(sample_options), &settings},
                                        spry_sampling_options(&input.sampling)};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), NULL, argc, argv))
        return code;
    spry_error error;
    spry_status status = read_input(&input, &error);
    if (status == SPRY_OK && settings.draw != 0)
        status = draw_tokens(&input, &settings, &error);
    else if (status == SPRY_OK)
        status = show_probabilities(&input, &settings, &error);
    code = status == SPRY_OK ? SPRY_EXIT_OK : spry_complain_error(&error);
    free(input.logits);
    free(input.history);
    return spry_out_finish(code);
}
