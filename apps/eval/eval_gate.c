/* A figure that is missing or not finite now is worse than any baseline. */
#include "eval/eval_gate.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json.h"
#include "cli/terminal.h"
#include "platform/file.h"

enum { FILE_BYTES_MAX = 1 << 20 };

/* Divergences below this are rounding, not a loss. */
static const double least_divergence = 1e-6;

static const struct figure {
    const char *name, *key, *inner; /* inner NULL: the number is at `key` */
    bool more_is_better;
    double least; /* a baseline below this counts as this */
} figures[] = {
    {"perplexity", "perplexity", NULL, false, 0},
    {"KL divergence", "kl", "mean", false, least_divergence},
    {"same top token", "top1", NULL, true, 0},
};

/* What must be equal for two results to be comparable. */
static const char *const same[] = {"tokens", "counted", "context", "stride"};

static const json_t *find(const json_t *result, const struct figure *f)
{
    const json_t *value = json_object_get(result, f->key);
    return f->inner ? json_object_get(value, f->inner) : value;
}

static spry_status check(const json_t *baseline, spry_error *error)
{
    for (size_t i = 0; i < SPRY_COUNT(same); i++)
        if (!json_is_integer(json_object_get(baseline, same[i])))
            return spry_fail(error, SPRY_ERR_FORMAT, "is no result of spry eval: \"%s\" is missing", same[i]);
    if (!json_is_number(json_object_get(baseline, "perplexity")))
        return spry_fail(error, SPRY_ERR_FORMAT, "is no result of spry eval ppl or kl: \"perplexity\" is missing");
    return SPRY_OK;
}

spry_status spry_eval_gate_open(spry_eval_gate *gate, spry_error *error)
{
    spry_buffer text;
    if (!gate->path)
        return SPRY_OK;
    spry_buffer_init(&text, FILE_BYTES_MAX);
    spry_status status = spry_file_read(&text, gate->path, error);
    if (!status) {
        status = spry_json_object(&gate->baseline, spry_buffer_view(&text), error);
        if (!status)
            status = check(gate->baseline, error);
        if (status)
            status = spry_fail_prefix(error, status, gate->path);
    }
    spry_buffer_deinit(&text);
    return status;
}

void spry_eval_gate_close(spry_eval_gate *gate)
{
    json_decref(gate->baseline);
    gate->baseline = NULL;
}

/* How much worse it is, as a share of what it was; below 0: better. */
static double loss_of(const struct figure *f, double before, double now)
{
    before = before > f->least ? before : f->least;
    double change = before > 0 ? now / before - 1 : 0;
    return f->more_is_better ? -change : change;
}

static spry_status check_same(const spry_eval_gate *gate, const json_t *result, spry_error *error)
{
    for (size_t i = 0; i < SPRY_COUNT(same); i++) {
        json_int_t before = json_integer_value(json_object_get(gate->baseline, same[i]));
        json_int_t now = json_integer_value(json_object_get(result, same[i]));
        if (before != now)
            return spry_fail(error, SPRY_ERR_INPUT,
                             "%s: is of another text or other settings: \"%s\" is %" JSON_INTEGER_FORMAT
                             " there and %" JSON_INTEGER_FORMAT " here",
                             gate->path, same[i], before, now);
    }
    return SPRY_OK;
}

spry_status spry_eval_gate_judge(bool *passed, const spry_eval_gate *gate, json_t *result, spry_error *error)
{
    *passed = true;
    spry_status status = check_same(gate, result, error);
    if (status)
        return status;
    json_t *list = json_array();
    for (size_t i = 0; i < SPRY_COUNT(figures); i++) {
        const json_t *before = find(gate->baseline, &figures[i]), *value = find(result, &figures[i]);
        if (!json_is_number(before))
            continue;
        double now = json_is_number(value) ? json_number_value(value) : NAN;
        double loss = loss_of(&figures[i], json_number_value(before), now);
        bool worse = !(loss <= gate->max_loss);
        *passed = *passed && !worse;
        json_array_append_new(
            list, json_pack("{s:s, s:f, s:o, s:o, s:s}", "what", figures[i].name, "before", json_number_value(before),
                            "now", isfinite(now) ? json_real(now) : json_null(), "loss",
                            isfinite(loss) ? json_real(loss) : json_null(), "verdict", worse ? "worse" : "held"));
    }
    json_t *verdict = json_pack("{s:s, s:f, s:b, s:o}", "baseline", gate->path, "max_loss", gate->max_loss, "passed",
                                *passed, "figures", list);
    return json_object_set_new(result, "gate", verdict) == 0 ? SPRY_OK : spry_fail_memory(error, "the verdict", 0);
}

void spry_eval_gate_print(const json_t *result)
{
    const json_t *gate = json_object_get(result, "gate"), *list = json_object_get(gate, "figures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        spry_out_format("%-14s %.6g before, %.6g now: %s\n", json_string_value(json_object_get(f, "what")),
                        json_number_value(json_object_get(f, "before")),
                        json_is_number(json_object_get(f, "now")) ? json_number_value(json_object_get(f, "now")) : NAN,
                        json_string_value(json_object_get(f, "verdict")));
    }
    spry_out_quote("%s, at most %g %% worse: %s\n", json_string_value(json_object_get(gate, "baseline")),
                   100 * json_number_value(json_object_get(gate, "max_loss")),
                   json_is_true(json_object_get(gate, "passed")) ? "passed" : "failed");
}
