/* Reads reports from files, which may have been edited: a table defines the type of every key. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "bench/bench_gate.h"
#include "platform/file.h"

enum { WHERE_MAX = 96 };

/* ---- checking ------------------------------------------------------------------------------------------------------
 */

/* The type of a key. Numbers have limits: implausible values are refused. */
typedef enum value_kind {
    TEXT,
    TEXT_OR_NOTHING, /* a string, null or missing */
    WHOLE,
    TOKENS, /* of a prefill */
    DEPTH,
    BATCH,
    ABOVE_ZERO,
    ZERO_TO_ONE,
    ZERO_AND_MORE,
} value_kind;

#define SMALLEST 1e-12

static const struct {
    const char *words;
    double least, most;
    bool text, whole, zero; /* zero: 0 is allowed too */
} kinds[] = {
    [TEXT] = {.words = "a string", .text = true},
    [TEXT_OR_NOTHING] = {.words = "a string", .text = true},
    [WHOLE] = {"a whole number", 1, UINT32_MAX, .whole = true},
    [TOKENS] = {"a whole number", 1, SPRY_BENCH_TOKENS_MAX, .whole = true},
    [DEPTH] = {"a whole number", 0, SPRY_BENCH_TOKENS_MAX, .whole = true},
    [BATCH] = {"a whole number", 1, SPRY_STEPS_MAX, .whole = true},
    [ABOVE_ZERO] = {.words = "a number", .least = SMALLEST, .most = SPRY_BENCH_LARGEST},
    [ZERO_TO_ONE] = {"a number", SMALLEST, 1 + 1e-6, .zero = true}, /* rounded sums */
    [ZERO_AND_MORE] = {"a number", SMALLEST, SPRY_BENCH_LARGEST, .zero = true},
};

typedef struct rule {
    const char *key;
    value_kind kind;
} rule;

static bool right_type(const json_t *value, value_kind kind)
{
    if (kinds[kind].text)
        return json_is_string(value);
    const double number = json_number_value(value);
    return json_is_number(value) && (!kinds[kind].whole || number == floor(number));
}

static spry_status check_value(const json_t *value, const char *where, const rule *r, spry_error *error)
{
    double number = json_number_value(value);
    if (r->kind == TEXT_OR_NOTHING && (!value || json_is_null(value)))
        return SPRY_OK;
    if (!value)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s%s is missing", where, r->key);
    if (!right_type(value, r->kind))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s%s is not %s", where, r->key, kinds[r->kind].words);
    if (kinds[r->kind].text || (kinds[r->kind].zero && number == 0))
        return SPRY_OK;
    if (number < kinds[r->kind].least || number > kinds[r->kind].most)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s%s is %g, which cannot have been measured", where, r->key, number);
    return SPRY_OK;
}

static spry_status check_keys(const json_t *object, const char *where, const rule *rules, size_t count,
                              spry_error *error)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < count; i++)
        status = check_value(json_object_get(object, rules[i].key), where, &rules[i], error);
    return status;
}

static const rule head_rules[] = {
    {"model", TEXT}, {"model_id", TEXT}, {"peak_rss_bytes", ABOVE_ZERO}, {"peak_rss_batch_bytes", ABOVE_ZERO}};
static const rule machine_rules[] = {{"cpu", TEXT}, {"kernels", TEXT}, {"id", TEXT}, {"threads", WHOLE}};
static const rule settings_rules[] = {
    {"chunk", WHOLE}, {"tokens", WHOLE}, {"repeat", WHOLE}, {"kv_type", TEXT}, {"quantize", TEXT_OR_NOTHING}};
static const rule prefill_rules[] = {{"tokens", TOKENS}, {"tps", ABOVE_ZERO}};
static const rule decode_rules[] = {{"depth", DEPTH}, {"batch", BATCH}, {"tps", ABOVE_ZERO}, {"p95_ms", ABOVE_ZERO}};
static const rule op_rules[] = {{"op", TEXT},           {"kernel", TEXT},        {"ms", ZERO_AND_MORE},
                                {"share", ZERO_TO_ONE}, {"gb_s", ZERO_AND_MORE}, {"multiply_g_s", ZERO_AND_MORE}};
static const rule ttft_rules[] = {{"prompt_tokens", WHOLE}, {"cold_ms", ABOVE_ZERO}, {"warm_ms", ABOVE_ZERO}};
static const rule call_rules[] = {{"ms", ABOVE_ZERO}, {"tokens", WHOLE}};
static const rule memory_rules[] = {{"whole", ABOVE_ZERO}};
static const rule energy_rules[] = {
    {"joules", ZERO_AND_MORE}, {"joules_per_100_tokens", ABOVE_ZERO}, {"watts", ABOVE_ZERO}};

/* An object under a key; `optional`: null or missing is allowed. */
static spry_status check_object(const json_t *parent, const char *where, const char *key, bool optional,
                                const rule *rules, size_t count, spry_error *error)
{
    char inside[WHERE_MAX];
    const json_t *object = json_object_get(parent, key);
    if (optional && (!object || json_is_null(object)))
        return SPRY_OK;
    if (!json_is_object(object))
        return spry_fail(error, SPRY_ERR_FORMAT, object ? "%s%s is not an object" : "%s%s is missing", where, key);
    snprintf(inside, sizeof inside, "%s%s.", where, key);
    return check_keys(object, inside, rules, count, error);
}

static spry_status check_list(const json_t *parent, const char *where, const char *key, const rule *rules, size_t count,
                              spry_status (*more)(const json_t *, const char *, spry_error *), spry_error *error)
{
    const json_t *list = json_object_get(parent, key);
    spry_status status = SPRY_OK;
    if (!json_is_array(list))
        return spry_fail(error, SPRY_ERR_FORMAT, list ? "%s%s is not a list" : "%s%s is missing", where, key);
    if (json_array_size(list) > SPRY_BENCH_POINTS_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s%s has %zu entries, more than %d", where, key,
                         json_array_size(list), SPRY_BENCH_POINTS_MAX);
    for (size_t i = 0; !status && i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        char inside[WHERE_MAX];
        snprintf(inside, sizeof inside, "%s%s[%zu].", where, key, i);
        status = check_keys(entry, inside, rules, count, error);
        if (!status && more)
            status = more(entry, inside, error);
    }
    return status;
}

static spry_status check_point(const json_t *point, const char *where, spry_error *error)
{
    spry_status status = SPRY_OK;
    if (json_object_get(point, "ops"))
        status = check_list(point, where, "ops", op_rules, SPRY_COUNT(op_rules), NULL, error);
    return status ? status : check_object(point, where, "energy", true, energy_rules, SPRY_COUNT(energy_rules), error);
}

static spry_status check_format(const json_t *report, spry_error *error)
{
    const json_t *format = json_object_get(report, "format");
    if (json_is_string(format) && strcmp(json_string_value(format), SPRY_BENCH_FORMAT) == 0)
        return SPRY_OK;
    if (json_is_string(format))
        return spry_fail(error, SPRY_ERR_FORMAT, "its format is '%.40s', not '%s'", json_string_value(format),
                         SPRY_BENCH_FORMAT);
    return spry_fail(error, SPRY_ERR_FORMAT, "it is not a report of spry bench: \"format\" is missing");
}

static spry_status check_report(const json_t *report, spry_error *error)
{
    const json_t *memory = json_object_get(report, "memory");
    spry_status status = check_format(report, error);
    if (!status)
        status = check_keys(report, "", head_rules, SPRY_COUNT(head_rules), error);
    if (!status)
        status = check_object(report, "", "machine", false, machine_rules, SPRY_COUNT(machine_rules), error);
    if (!status)
        status = check_object(report, "", "settings", false, settings_rules, SPRY_COUNT(settings_rules), error);
    if (!status)
        status = check_list(report, "", "prefill", prefill_rules, SPRY_COUNT(prefill_rules), check_point, error);
    if (!status)
        status = check_list(report, "", "decode", decode_rules, SPRY_COUNT(decode_rules), check_point, error);
    if (!status)
        status = check_object(report, "", "ttft", true, ttft_rules, SPRY_COUNT(ttft_rules), error);
    if (!status)
        status = check_object(report, "", "first_call", true, call_rules, SPRY_COUNT(call_rules), error);
    if (!status)
        status = check_object(report, "", "memory", true, NULL, 0, error);
    if (!status && json_is_object(memory))
        status = check_object(memory, "memory.", "measured", false, memory_rules, SPRY_COUNT(memory_rules), error);
    return status;
}

/* ---- reading and writing -------------------------------------------------------------------------------------------
 */

spry_status spry_bench_file_open(json_t **out, const char *path, spry_bench_file_check check, spry_error *error)
{
    spry_buffer text;
    *out = NULL;
    spry_buffer_init(&text, SPRY_BENCH_FILE_MAX);
    spry_status status = spry_file_read(&text, path, error);
    bool opened = !status;
    if (!status)
        status = spry_json_object(out, spry_buffer_view(&text), error);
    if (!status)
        status = check(*out, error);
    spry_buffer_deinit(&text);
    if (!status)
        return SPRY_OK;
    json_decref(*out);
    *out = NULL;
    return opened ? spry_fail_prefix(error, status, path) : status;
}

spry_status spry_bench_file_read(json_t **out, const char *path, spry_error *error)
{
    return spry_bench_file_open(out, path, check_report, error);
}

spry_status spry_bench_file_save(const json_t *report, const char *path, spry_error *error)
{
    spry_file_writer writer = {0};
    char *text = json_dumps(report, JSON_REAL_PRECISION(6) | JSON_INDENT(1));
    if (!text)
        return spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the report as JSON");
    spry_status status = spry_file_writer_open(&writer, path, error);
    if (!status)
        status = spry_file_writer_write(&writer, text, strlen(text), error);
    if (!status)
        status = spry_file_writer_write(&writer, "\n", 1, error);
    if (!status)
        status = spry_file_writer_commit(&writer, error);
    spry_file_writer_abandon(&writer);
    free(text);
    return status;
}

/* ---- what it measured ----------------------------------------------------------------------------------------------
 */

static void add_number(spry_bench_list *list, const json_t *point, const char *key)
{
    spry_bench_list_add(list, (uint32_t)json_number_value(json_object_get(point, key)));
}

void spry_bench_file_lists(spry_bench_list *prefill, spry_bench_list *depth, spry_bench_list *batch,
                           const json_t *report)
{
    const json_t *prefills = json_object_get(report, "prefill"), *decodes = json_object_get(report, "decode");
    for (size_t i = 0; i < json_array_size(prefills); i++)
        add_number(prefill, json_array_get(prefills, i), "tokens");
    for (size_t i = 0; i < json_array_size(decodes); i++) {
        add_number(depth, json_array_get(decodes, i), "depth");
        add_number(batch, json_array_get(decodes, i), "batch");
    }
}

/* ---- whose it is ---------------------------------------------------------------------------------------------------
 */

static void copy_text(char *out, size_t size, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, size, "%s", text ? text : "");
}

static uint32_t number(const json_t *object, const char *key)
{
    return (uint32_t)json_number_value(json_object_get(object, key));
}

void spry_bench_file_identity(spry_bench_identity *out, const json_t *report)
{
    const json_t *machine = json_object_get(report, "machine"), *settings = json_object_get(report, "settings");
    *out = (spry_bench_identity){.threads = number(machine, "threads"),
                                 .chunk = number(settings, "chunk"),
                                 .tokens = number(settings, "tokens")};
    copy_text(out->machine, sizeof out->machine, machine, "id");
    copy_text(out->cpu, sizeof out->cpu, machine, "cpu");
    copy_text(out->kernels, sizeof out->kernels, machine, "kernels");
    copy_text(out->model, sizeof out->model, report, "model_id");
    copy_text(out->model_name, sizeof out->model_name, report, "model");
    copy_text(out->kv_type, sizeof out->kv_type, settings, "kv_type");
    copy_text(out->quantize, sizeof out->quantize, settings, "quantize");
}

static void note_text(spry_buffer *out, const char *what, const char *there, const char *here)
{
    if (strcmp(there, here) != 0)
        spry_buffer_format(out, "%s%s is '%s' there and '%s' here", out->size ? ", " : "", what, there, here);
}

static void note_number(spry_buffer *out, const char *what, uint32_t there, uint32_t here)
{
    if (there != here)
        spry_buffer_format(out, "%s%s is %u there and %u here", out->size ? ", " : "", what, there, here);
}

bool spry_bench_identity_differs(char out[SPRY_BENCH_DIFFERENCES], const spry_bench_identity *there,
                                 const spry_bench_identity *here)
{
    spry_buffer all;
    spry_buffer_init(&all, 1 << 12);
    note_text(&all, "the processor", there->cpu, here->cpu);
    note_number(&all, "threads", there->threads, here->threads);
    note_text(&all, "the kernel set", there->kernels, here->kernels);
    if (!all.size) /* it consists of these and the memory */
        note_text(&all, "the machine's id, with its memory,", there->machine, here->machine);
    if (strcmp(there->model, here->model) != 0)
        note_text(&all, "the model", there->model_name, here->model_name);
    if (strcmp(there->model_name, here->model_name) == 0)
        note_text(&all, "the model's id", there->model, here->model);
    note_text(&all, "quantize", there->quantize, here->quantize);
    note_number(&all, "chunk", there->chunk, here->chunk);
    note_text(&all, "kv-type", there->kv_type, here->kv_type);
    note_number(&all, "tokens", there->tokens, here->tokens);
    snprintf(out, SPRY_BENCH_DIFFERENCES, "%s", spry_buffer_view(&all).data);
    spry_buffer_deinit(&all);
    return out[0] != '\0';
}

spry_status spry_bench_identity_check(const spry_bench_identity *there, const char *file,
                                      const spry_bench_identity *here, spry_error *error)
{
    char differences[SPRY_BENCH_DIFFERENCES];
    if (!spry_bench_identity_differs(differences, there, here))
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT, "%s: not comparable, because %s; use --force to compare anyway", file,
                     differences);
}
