/* The types of the keys of each kind of file, as tables, and one function that validates a file. Values that were not
 * measured are null or missing; only indispensable ones are required. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "report/report.h"

typedef enum shape { TEXT, NUMBER, FLAG, OBJECT, LIST, TEXTS, PARTS, VALUES } shape;

enum { REQUIRED = 1, ITEMS_MAX = 1000, TEXT_MAX_BYTES = 2000, PATH_MAX_BYTES = 160 };

typedef struct field {
    const char *key;
    shape shape;
    int required;
    const struct field *inside; /* of an object, of a list's items, of every one of VALUES */
} field;

static const field energy_fields[] = {
    {"joules", NUMBER, 0, NULL}, {"joules_per_100_tokens", NUMBER, 0, NULL}, {"watts", NUMBER, 0, NULL}, {0}};

static const field op_fields[] = {
    {"op", TEXT, REQUIRED, NULL}, {"device", TEXT, 0, NULL},         {"kernel", TEXT, 0, NULL},
    {"ms", NUMBER, 0, NULL},      {"share", NUMBER, 0, NULL},        {"calls", NUMBER, 0, NULL},
    {"gb_s", NUMBER, 0, NULL},    {"multiply_g_s", NUMBER, 0, NULL}, {0},
};

static const field prefill_fields[] = {
    {"tokens", NUMBER, REQUIRED, NULL},
    {"tps", NUMBER, REQUIRED, NULL},
    {"spread", NUMBER, 0, NULL},
    {"read_gb_s", NUMBER, 0, NULL},
    {"read_share", NUMBER, 0, NULL},
    {"multiply_g_s", NUMBER, 0, NULL},
    {"multiply_share", NUMBER, 0, NULL},
    {"ms", NUMBER, 0, NULL},
    {"energy", OBJECT, 0, energy_fields},
    {"ops", LIST, 0, op_fields},
    {"waits_per_token", NUMBER, 0, NULL},
    {"gpu_busy_percent", NUMBER, 0, NULL},
    {0},
};

static const field decode_fields[] = {
    {"depth", NUMBER, REQUIRED, NULL},     {"batch", NUMBER, REQUIRED, NULL},
    {"tps", NUMBER, REQUIRED, NULL},       {"spread", NUMBER, 0, NULL},
    {"read_gb_s", NUMBER, 0, NULL},        {"read_share", NUMBER, 0, NULL},
    {"multiply_g_s", NUMBER, 0, NULL},     {"multiply_share", NUMBER, 0, NULL},
    {"p50_ms", NUMBER, 0, NULL},           {"p95_ms", NUMBER, 0, NULL},
    {"p99_ms", NUMBER, 0, NULL},           {"energy", OBJECT, 0, energy_fields},
    {"ops", LIST, 0, op_fields},           {"waits_per_token", NUMBER, 0, NULL},
    {"gpu_busy_percent", NUMBER, 0, NULL}, {0},
};

static const field answer_fields[] = {{"tokens", NUMBER, 0, NULL},
                                      {"tps", NUMBER, 0, NULL},
                                      {"waits_per_token", NUMBER, 0, NULL},
                                      {"ahead_share", NUMBER, 0, NULL},
                                      {0}};

static const field bench_machine_fields[] = {
    {"cpu", TEXT, REQUIRED, NULL},
    {"gpu", TEXT, 0, NULL},
    {"threads", NUMBER, REQUIRED, NULL},
    {"kernels", TEXT, REQUIRED, NULL},
    {"read_gb_s", NUMBER, REQUIRED, NULL},
    {"multiply_g_s", NUMBER, REQUIRED, NULL},
    {"multiply_type", TEXT, 0, NULL},
    {"memory_bytes", NUMBER, 0, NULL},
    {"id", TEXT, 0, NULL},
    {0},
};

static const field settings_fields[] = {
    {"chunk", NUMBER, 0, NULL},
    {"kv_type", TEXT, 0, NULL},
    {"tokens", NUMBER, 0, NULL},
    {"repeat", NUMBER, 0, NULL},
    {"context", NUMBER, 0, NULL},
    {"quantize", TEXT, 0, NULL},
    {0},
};

static const field ttft_fields[] = {
    {"prompt_tokens", NUMBER, 0, NULL}, {"cold_ms", NUMBER, 0, NULL},
    {"warm_ms", NUMBER, 0, NULL},       {"parts_ms", PARTS, 0, NULL},
    {"warm_parts_ms", PARTS, 0, NULL},  {"hit_tokens", NUMBER, 0, NULL},
    {"miss_tokens", NUMBER, 0, NULL},   {0},
};

static const field call_fields[] = {{"ms", NUMBER, 0, NULL}, {"tokens", NUMBER, 0, NULL}, {0}};

static const field memory_part_fields[] = {
    {"weights", NUMBER, 0, NULL},
    {"kv", NUMBER, 0, NULL},
    {"cache", NUMBER, 0, NULL},
    {"scratch", NUMBER, 0, NULL},
    {"program", NUMBER, 0, NULL},
    {"whole", NUMBER, 0, NULL},
    {0},
};

static const field memory_fields[] = {
    {"estimated", OBJECT, 0, memory_part_fields}, {"measured", OBJECT, 0, memory_part_fields}, {0}};

static const field meter_fields[] = {
    {"cpu", TEXT, 0, NULL}, {"why_no_cpu", TEXT, 0, NULL}, {"gpu", TEXT, 0, NULL}, {"why_no_gpu", TEXT, 0, NULL}, {0}};

static const field batch_fields[] = {
    {"batch", NUMBER, REQUIRED, NULL},
    {"tps", NUMBER, REQUIRED, NULL},
    {"p50_ms", NUMBER, 0, NULL},
    {"p95_ms", NUMBER, 0, NULL},
    {"gain", NUMBER, 0, NULL},
    {"slower", NUMBER, 0, NULL},
    {0},
};

static const field policy_fields[] = {
    {"taken", NUMBER, REQUIRED, NULL}, {"why", TEXT, 0, NULL}, {"batches", LIST, REQUIRED, batch_fields}, {0}};

static const field bench_fields[] = {
    {"format", TEXT, REQUIRED, NULL},
    {"spry", TEXT, 0, NULL},
    {"when", TEXT, 0, NULL},
    {"model", TEXT, REQUIRED, NULL},
    {"architecture", TEXT, 0, NULL},
    {"parameters", NUMBER, 0, NULL},
    {"weight_bytes", NUMBER, 0, NULL},
    {"model_id", TEXT, 0, NULL},
    {"machine", OBJECT, REQUIRED, bench_machine_fields},
    {"settings", OBJECT, 0, settings_fields},
    {"prefill", LIST, REQUIRED, prefill_fields},
    {"decode", LIST, REQUIRED, decode_fields},
    {"load_ms", NUMBER, 0, NULL},
    {"first_token_ms", NUMBER, 0, NULL},
    {"peak_rss_bytes", NUMBER, 0, NULL},
    {"peak_rss_batch_bytes", NUMBER, 0, NULL},
    {"ttft", OBJECT, 0, ttft_fields},
    {"why_no_ttft", TEXT, 0, NULL},
    {"first_call", OBJECT, 0, call_fields},
    {"answer", OBJECT, 0, answer_fields},
    {"why_no_first_call", TEXT, 0, NULL},
    {"memory", OBJECT, 0, memory_fields},
    {"energy", OBJECT, 0, meter_fields},
    {"policy", OBJECT, 0, policy_fields},
    {0},
};

static const field cache_fields[] = {
    {"level", NUMBER, 0, NULL},
    {"kind", TEXT, 0, NULL},
    {"bytes", NUMBER, 0, NULL},
    {"shared_by", NUMBER, 0, NULL},
    {0},
};

static const field cpu_fields[] = {
    {"name", TEXT, REQUIRED, NULL},
    {"cores", NUMBER, 0, NULL},
    {"processors", NUMBER, 0, NULL},
    {"usable", NUMBER, 0, NULL},
    {"cgroup_cpus", NUMBER, 0, NULL},
    {"isa", TEXTS, 0, NULL},
    {"kernels", TEXT, 0, NULL},
    {"caches", LIST, 0, cache_fields},
    {"governor", TEXT, 0, NULL},
    {"numa_nodes", NUMBER, 0, NULL},
    {0},
};

static const field machine_memory_fields[] = {
    {"bytes", NUMBER, 0, NULL},
    {"usable_bytes", NUMBER, 0, NULL},
    {"huge_pages", TEXT, 0, NULL},
    {"swap_bytes", NUMBER, 0, NULL},
    {0},
};

static const field gpu_fields[] = {
    {"name", TEXT, REQUIRED, NULL}, {"bytes", NUMBER, 0, NULL}, {"read_gb_s", NUMBER, 0, NULL},
    {"compute", TEXT, 0, NULL},     {"driver", TEXT, 0, NULL},  {0},
};

static const field type_fields[] = {{"multiply_g_s", NUMBER, 0, NULL}, {"decode_gb_s", NUMBER, 0, NULL}, {0}};

static const field speed_fields[] = {
    {"read_gb_s", NUMBER, 0, NULL},  {"threads", NUMBER, 0, NULL},      {"sync_us", NUMBER, 0, NULL},
    {"attend_g_s", NUMBER, 0, NULL}, {"types", VALUES, 0, type_fields}, {0},
};

static const field finding_fields[] = {
    {"level", TEXT, REQUIRED, NULL}, {"what", TEXT, REQUIRED, NULL}, {"fix", TEXT, 0, NULL}, {0}};

static const field model_fields[] = {
    {"shape", TEXT, REQUIRED, NULL},      {"type", TEXT, REQUIRED, NULL},      {"parameters", NUMBER, 0, NULL},
    {"bytes", NUMBER, 0, NULL},           {"memory_bytes", NUMBER, 0, NULL},   {"fits", FLAG, 0, NULL},
    {"prefill_tps", NUMBER, 0, NULL},     {"decode_tps", NUMBER, 0, NULL},     {"ttft_1k_ms", NUMBER, 0, NULL},
    {"gpu_prefill_tps", NUMBER, 0, NULL}, {"gpu_decode_tps", NUMBER, 0, NULL}, {0},
};

static const field choice_fields[] = {{"use", TEXT, REQUIRED, NULL},
                                      {"shape", TEXT, 0, NULL},
                                      {"type", TEXT, 0, NULL},
                                      {"why", TEXT, 0, NULL},
                                      {"pull", TEXT, 0, NULL},
                                      {"model", TEXT, 0, NULL},
                                      {0}};

static const field machine_fields[] = {
    {"format", TEXT, REQUIRED, NULL},
    {"spry", TEXT, 0, NULL},
    {"when", TEXT, 0, NULL},
    {"id", TEXT, 0, NULL},
    {"cpu", OBJECT, REQUIRED, cpu_fields},
    {"memory", OBJECT, 0, machine_memory_fields},
    {"gpu", LIST, 0, gpu_fields},
    {"why_no_gpu", TEXT, 0, NULL},
    {"energy", OBJECT, 0, meter_fields},
    {"speeds", OBJECT, 0, speed_fields},
    {"findings", LIST, 0, finding_fields},
    {"models", LIST, 0, model_fields},
    {"choices", LIST, 0, choice_fields},
    {0},
};

/* ---- holding a file against them --------------------------------------------------------------------------------- */

/* The position in the file, for messages: "prefill[2].ops[0].share". */
typedef struct place {
    char path[PATH_MAX_BYTES];
    size_t size;
} place;

static place go(const place *at, const char *format, ...) SPRY_PRINTF(2, 3);

static place go(const place *at, const char *format, ...)
{
    place there = *at;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(there.path + there.size, sizeof there.path - there.size, format, args);
    va_end(args);
    there.size += length > 0 ? (size_t)length : 0;
    if (there.size >= sizeof there.path)
        there.size = sizeof there.path - 1;
    return there;
}

static spry_status wrong(const place *at, const char *what, spry_error *error)
{
    return spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" %s", at->path, what);
}

static spry_status check_number(const json_t *json, const place *at, spry_error *error)
{
    if (!json_is_number(json))
        return wrong(at, "is not a number", error);
    const double value = json_number_value(json);
    if (!isfinite(value) || fabs(value) > SPRY_BENCH_LARGEST)
        return wrong(at, "is larger than anything that can be measured", error);
    if (value < 0)
        return wrong(at, "is below 0", error);
    return SPRY_OK;
}

static spry_status check_text(const json_t *json, const place *at, spry_error *error)
{
    if (!json_is_string(json))
        return wrong(at, "is not a string", error);
    return json_string_length(json) <= TEXT_MAX_BYTES ? SPRY_OK : wrong(at, "is longer than 2000 bytes", error);
}

static spry_status check_parts(const json_t *json, const place *at, spry_error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return wrong(at, "is not an object", error);
    json_object_foreach((json_t *)json, key, value)
    {
        const place there = go(at, ".%.60s", key);
        if (spry_report_part(key) == SPRY_PART_COUNT)
            return wrong(&there, "is not a known part of a request", error);
        spry_status status = check_number(value, &there, error);
        if (status)
            return status;
    }
    return SPRY_OK;
}

static spry_status check_object(const json_t *json, const field *fields, const place *at, spry_error *error);

static spry_status check_list(const json_t *json, const field *item, const place *at, spry_error *error)
{
    spry_status status = SPRY_OK;
    if (!json_is_array(json))
        return wrong(at, "is not a list", error);
    if (json_array_size(json) > ITEMS_MAX)
        return wrong(at, "has more than 1000 items", error);
    for (size_t i = 0; i < json_array_size(json) && !status; i++) {
        const place there = go(at, "[%zu]", i);
        const json_t *one = json_array_get(json, i);
        status = item ? check_object(one, item, &there, error) : check_text(one, &there, error);
    }
    return status;
}

/* An object with arbitrary keys and values of one type. */
static spry_status check_values(const json_t *json, const field *fields, const place *at, spry_error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return wrong(at, "is not an object", error);
    if (json_object_size(json) > ITEMS_MAX)
        return wrong(at, "has more than 1000 keys", error);
    json_object_foreach((json_t *)json, key, value)
    {
        const place there = go(at, ".%.60s", key);
        spry_status status = check_object(value, fields, &there, error);
        if (status)
            return status;
    }
    return SPRY_OK;
}

static spry_status check_value(const json_t *json, const field *f, const place *at, spry_error *error)
{
    switch (f->shape) {
    case TEXT: return check_text(json, at, error);
    case NUMBER: return check_number(json, at, error);
    case FLAG: return json_is_boolean(json) ? SPRY_OK : wrong(at, "is neither true nor false", error);
    case OBJECT: return check_object(json, f->inside, at, error);
    case LIST: return check_list(json, f->inside, at, error);
    case TEXTS: return check_list(json, NULL, at, error);
    case PARTS: return check_parts(json, at, error);
    case VALUES: return check_values(json, f->inside, at, error);
    }
    return SPRY_OK;
}

static spry_status check_object(const json_t *json, const field *fields, const place *at, spry_error *error)
{
    if (!json_is_object(json))
        return wrong(at, "is not an object", error);
    for (const field *f = fields; f->key; f++) {
        const json_t *value = json_object_get(json, f->key);
        const place there = go(at, "%s%s", at->size ? "." : "", f->key);
        if (!value || json_is_null(value)) {
            if (f->required)
                return wrong(&there, value ? "is null" : "is missing", error);
            continue;
        }
        spry_status status = check_value(value, f, &there, error);
        if (status)
            return status;
    }
    return SPRY_OK;
}

spry_status spry_report_check(const json_t *json, spry_report_kind kind, spry_error *error)
{
    const place top = {.size = 0};
    return check_object(json, kind == SPRY_REPORT_BENCH ? bench_fields : machine_fields, &top, error);
}
