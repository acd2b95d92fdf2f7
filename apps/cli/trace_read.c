/* One event per line. Each lane collects the parts since its last request ended; a request's own event, which comes
 * after its parts, consumes them. Its first token is out when the first sampling ends. */
#include "cli/trace_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/view.h"
#include "spry.h"

enum {
    LINE_BYTES_MAX = 1 << 16,
    LANES_MAX = 1 << 16,
    OPS_MAX = 64, /* the last one collects the rest */
    OP_NAME = 40,
    SHOWN_MAX = 12, /* requests in detail */
};
static const uint64_t file_bytes_max = UINT64_C(512) << 20;
static const double longest_us = 1e15;
const char *const spry_turn_end_names[SPRY_TURN_ENDS] = {"words", "first token", "first sound", "answer"};

/* ---- distributions ----------------------------------------------------------------------------------------------- */

/* Each value is counted in a bucket of width 0.1 %, on a logarithmic scale from 1e-6 to 1e9. */
enum { BUCKETS = 34541 };
static const double smallest = 1e-6, largest = 1e9, width = 1e-3;

typedef struct spread {
    uint32_t *buckets; /* NULL until the first value */
    uint64_t count;
    double sum, least, most;
} spread;

static bool spread_add(spread *s, double value)
{
    if (!s->buckets)
        s->buckets = calloc(BUCKETS, sizeof *s->buckets);
    if (!s->buckets)
        return false;
    const size_t bucket = (size_t)(log(fmin(fmax(value, smallest), largest) / smallest) / width + 0.5);
    uint32_t *count = &s->buckets[bucket < BUCKETS ? bucket : BUCKETS - 1];
    *count += *count < UINT32_MAX;
    s->least = s->count ? fmin(s->least, value) : value;
    s->most = s->count ? fmax(s->most, value) : value;
    s->sum += value;
    s->count++;
    return true;
}

/* The value that a share of the values do not exceed. */
static double spread_at(const spread *s, double share)
{
    const double wanted = fmax(1, ceil(share * (double)s->count - 1e-9));
    double seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += s->buckets[i];
        if (seen >= wanted)
            return fmin(fmax(smallest * exp((double)i * width), s->least), s->most);
    }
    return s->most;
}

static json_t *spread_json(const spread *s)
{
    if (!s->count)
        return json_object();
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "count", (json_int_t)s->count, "sum", s->sum, "p50",
                     spread_at(s, 0.5), "p95", spread_at(s, 0.95), "p99", spread_at(s, 0.99), "most", s->most);
}

/* ---- what is read ------------------------------------------------------------------------------------------------ */

/* The parts in a lane since its last request ended. Times as in the file. */
typedef struct lane {
    double part_us[SPRY_PART_COUNT], first_us[SPRY_PART_COUNT]; /* all; until the first token */
    double began_us;                                            /* NAN: no part yet */
    double first_token_us, last_token_us;                       /* NAN: none yet; the last: that of the last step */
    bool computed;                                              /* since the last token */
} lane;

typedef struct op_sum {
    char name[OP_NAME], kernel[OP_NAME];
    double ms, calls;
} op_sum;

typedef struct reader {
    lane **lanes; /* LANES_MAX of them, NULL where nothing happened */
    uint64_t line, events, requests, steps, device_steps;
    double covered_ms, whole_ms, generated_tokens, rows, waits, ahead;
    spread parts[SPRY_PART_COUNT], turns[SPRY_TURN_ENDS], first, between;
    op_sum ops[OPS_MAX];
    size_t n_ops;
    json_t *shown;
    bool cut;
} reader;

typedef struct event {
    const char *name, *category;
    double begin_us, length_us;
    uint32_t lane;
    const json_t *args;
} event;

static spry_status out_of_memory(spry_error *error)
{
    return spry_fail(error, SPRY_ERR_MEMORY, "there is not enough memory to read the trace");
}

static spry_status wrong_line(const reader *r, const char *why, spry_error *error)
{
    return spry_fail(error, SPRY_ERR_FORMAT, "line %llu is not a trace event: %.100s", (unsigned long long)r->line,
                     why);
}

/* Sets a key unless its value is unknown. */
static void set(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        json_object_set_new(object, key, json_real(value));
}

static double time_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const double number = json_number_value(value);
    return json_is_number(value) && number >= 0 && number < longest_us ? number : NAN;
}

static double or_zero(double value)
{
    return isnan(value) ? 0 : value;
}

size_t spry_trace_part(const char *name)
{
    size_t part = 0;
    while (part < SPRY_PART_COUNT && strcmp(name, spry_part_name((spry_part)part)) != 0)
        part++;
    return part;
}

/* ---- parts and requests ------------------------------------------------------------------------------------------ */

static void clear_lane(lane *l)
{
    *l = (lane){.began_us = NAN, .first_token_us = NAN, .last_token_us = NAN};
}

static lane *lane_of(reader *r, uint32_t number)
{
    lane **l = &r->lanes[number];
    if (!*l && (*l = malloc(sizeof **l)))
        clear_lane(*l);
    return *l;
}

static spry_status take_part(reader *r, const event *e, spry_error *error)
{
    const size_t part = spry_trace_part(e->name);
    if (part == SPRY_PART_COUNT)
        return spry_fail(error, SPRY_ERR_FORMAT, "line %llu: \"%.40s\" is not a known part of a request",
                         (unsigned long long)r->line, e->name);
    lane *l = lane_of(r, e->lane);
    if (!l)
        return out_of_memory(error);
    const double end_us = e->begin_us + e->length_us;
    if (isnan(l->began_us))
        l->began_us = e->begin_us;
    l->part_us[part] += e->length_us;
    if (isnan(l->first_token_us))
        l->first_us[part] += e->length_us;
    l->computed |= part == SPRY_PART_PREFILL || part == SPRY_PART_DECODE;
    if (part != SPRY_PART_SAMPLING || (!l->computed && !isnan(l->first_token_us)))
        return SPRY_OK;
    l->computed = false;
    if (isnan(l->first_token_us))
        l->first_token_us = end_us;
    else if (end_us >= l->last_token_us && !spread_add(&r->between, (end_us - l->last_token_us) / 1e3))
        return out_of_memory(error);
    l->last_token_us = end_us;
    return SPRY_OK;
}

static void show_request(reader *r, const event *e, const lane *l)
{
    const double first_ms = fmax((l->first_token_us - e->begin_us) / 1e3, l->first_token_us < e->begin_us ? 0 : NAN);
    const double rest_ms = e->length_us / 1e3 - first_ms, tokens = time_of(e->args, "generated_tokens");
    const double number = time_of(e->args, "request");
    json_t *shown = json_object(), *parts = json_object();
    json_object_set_new(shown, "request",
                        json_sprintf("request %.0f", isnan(number) ? (double)r->requests + 1 : number));
    set(shown, "prompt_tokens", time_of(e->args, "prompt_tokens"));
    set(shown, "generated_tokens", tokens);
    set(shown, "first_ms", first_ms);
    set(shown, "whole_ms", e->length_us / 1e3);
    set(shown, "tps", rest_ms > 0 && tokens > 1 ? 1e3 * (tokens - 1) / rest_ms : NAN);
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        set(parts, spry_part_name((spry_part)i), l->first_us[i] > 0 ? l->first_us[i] / 1e3 : NAN);
    json_object_set_new(shown, "parts_ms", parts);
    json_array_append_new(r->shown, shown);
}

static spry_status take_request(reader *r, const event *e, spry_error *error)
{
    lane *l = lane_of(r, e->lane);
    if (!l)
        return out_of_memory(error);
    bool kept = true;
    if (!isnan(l->first_token_us))
        kept = spread_add(&r->first, fmax(0, l->first_token_us - e->begin_us) / 1e3);
    for (size_t i = 0; i < SPRY_PART_COUNT; i++) {
        r->covered_ms += l->part_us[i] / 1e3;
        if (l->part_us[i] > 0)
            kept = spread_add(&r->parts[i], l->part_us[i] / 1e3) && kept;
    }
    if (!kept)
        return out_of_memory(error);
    r->whole_ms += e->length_us / 1e3;
    r->generated_tokens += or_zero(time_of(e->args, "generated_tokens"));
    if (r->requests < SHOWN_MAX)
        show_request(r, e, l);
    r->requests++;
    clear_lane(l);
    return SPRY_OK;
}

/* An answer inside a request is reported with it. An answer alone in a lane (the second one of a request, or one of a
 * program that uses the library) counts as a request. */
static spry_status take_answer(reader *r, const event *e, spry_error *error)
{
    const double rounding_us = 0.01;
    const lane *l = r->lanes[e->lane];
    return l && l->began_us >= e->begin_us - rounding_us ? take_request(r, e, error) : SPRY_OK;
}

/* ---- steps, ops and spoken turns --------------------------------------------------------------------------------- */

static spry_status take_step(reader *r, const event *e, spry_error *error)
{
    const double waits = time_of(e->args, "waits");
    (void)error;
    r->steps++;
    r->rows += or_zero(time_of(e->args, "rows"));
    r->device_steps += isnan(waits) ? 0 : 1;
    r->waits += or_zero(waits);
    r->ahead += or_zero(time_of(e->args, "ahead"));
    return SPRY_OK;
}

static spry_status take_op(reader *r, const event *e, spry_error *error)
{
    const json_t *named = json_object_get(e->args, "kernel");
    const char *kernel = named ? json_string_value(named) : "";
    size_t i = 0;
    if (!kernel || strlen(kernel) >= OP_NAME || strlen(e->name) >= OP_NAME)
        return wrong_line(r, "no op and no kernel has such a name", error);
    while (i < r->n_ops && i < OPS_MAX - 1 &&
           (strcmp(r->ops[i].name, e->name) != 0 || strcmp(r->ops[i].kernel, kernel) != 0))
        i++;
    op_sum *op = &r->ops[i];
    if (i == r->n_ops) {
        const bool is_last = i == OPS_MAX - 1;
        snprintf(op->name, sizeof op->name, "%s", is_last ? "others" : e->name);
        snprintf(op->kernel, sizeof op->kernel, "%s", is_last ? "" : kernel);
        r->n_ops++;
    }
    op->ms += e->length_us / 1e3;
    op->calls++;
    return SPRY_OK;
}

static spry_status take_turn(reader *r, const event *e, spry_error *error)
{
    for (size_t i = 0; i < SPRY_TURN_ENDS; i++)
        if (strcmp(e->name, spry_turn_end_names[i]) == 0 && !spread_add(&r->turns[i], e->length_us / 1e3))
            return out_of_memory(error);
    return SPRY_OK;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static spry_status take_event(reader *r, const json_t *json, spry_error *error)
{
    static const struct {
        const char *category;
        spry_status (*take)(reader *r, const event *e, spry_error *error);
    } kinds[] = {{"request", take_request}, {"answer", take_answer}, {"part", take_part},
                 {"op", take_op},           {"turn", take_turn},     {"step", take_step}};
    const char *phase = json_string_value(json_object_get(json, "ph"));
    event e = {.name = json_string_value(json_object_get(json, "name")),
               .category = json_string_value(json_object_get(json, "cat")),
               .begin_us = time_of(json, "ts"),
               .length_us = time_of(json, "dur"),
               .args = json_object_get(json, "args")};
    const double lane_number = time_of(json, "tid");
    if (!phase || !e.name)
        return wrong_line(r, "it has no \"ph\" or no \"name\"", error);
    r->events++;
    if (strcmp(phase, "X") != 0 || !e.category)
        return SPRY_OK;
    if (isnan(e.begin_us) || isnan(e.length_us))
        return wrong_line(r, "\"ts\" or \"dur\" is not a time", error);
    if (!(lane_number < LANES_MAX))
        return wrong_line(r, "\"tid\" is not a lane", error);
    e.lane = (uint32_t)lane_number;
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++)
        if (strcmp(e.category, kinds[i].category) == 0)
            return kinds[i].take(r, &e, error);
    return SPRY_OK;
}

static spry_view trim(spry_view text)
{
    while (text.size && strchr(" \t\r\n", text.data[0]))
        text = (spry_view){text.data + 1, text.size - 1};
    while (text.size && strchr(" \t\r\n", text.data[text.size - 1]))
        text.size--;
    return text;
}

/* The event in a line, without list syntax; empty if there is none. */
static spry_view event_text(const reader *r, spry_view line, bool *ended)
{
    line = trim(line);
    if (r->line == 1 && line.size && line.data[0] == '[')
        line = trim((spry_view){line.data + 1, line.size - 1});
    if (spry_view_is(line, "]") || spry_view_ends(line, SPRY_VIEW("}]"))) {
        *ended = true;
        line.size--;
    }
    if (line.size && line.data[line.size - 1] == ',')
        line.size--;
    return line;
}

/* A process that was killed leaves an incomplete last line. */
static spry_status take_line(reader *r, const char *line, size_t size, bool *ended, spry_error *error)
{
    const bool whole = size && line[size - 1] == '\n', had_ended = *ended;
    if (r->cut)
        return wrong_line(r, "the line before it is not whole", error);
    if (!whole && size == LINE_BYTES_MAX - 1)
        return wrong_line(r, "it is longer than 64 kB", error);
    const spry_view text = event_text(r, (spry_view){line, size}, ended);
    if (!text.size)
        return SPRY_OK;
    if (had_ended)
        return wrong_line(r, "the list of events ended before it", error);
    spry_error why = {0};
    json_t *json;
    (void)spry_json_read(&json, text, 0, 0, &why);
    if (!json && !whole && !*ended && r->line > 1) {
        r->cut = true;
        return SPRY_OK;
    }
    spry_status status = json_is_object(json) ? take_event(r, json, error)
                                              : wrong_line(r, json ? "it is not an object" : why.message, error);
    json_decref(json);
    return status;
}

static spry_status read_lines(reader *r, FILE *file, spry_error *error)
{
    char line[LINE_BYTES_MAX];
    uint64_t bytes = 0;
    bool ended = false;
    while (fgets(line, sizeof line, file)) {
        const size_t size = strlen(line);
        bytes += size;
        r->line++;
        if (bytes > file_bytes_max)
            return spry_fail(error, SPRY_ERR_FORMAT, "has more than %llu MB; a report needs no longer trace than that",
                             (unsigned long long)(file_bytes_max >> 20));
        spry_status status = take_line(r, line, size, &ended, error);
        if (status)
            return status;
    }
    if (ferror(file))
        return spry_fail(error, SPRY_ERR_FILE, "cannot be read: %s", strerror(errno));
    if (!r->events)
        return spry_fail(error, SPRY_ERR_FORMAT, "is a list without a single event");
    if (!r->requests && !r->steps)
        return spry_fail(error, SPRY_ERR_FORMAT, "has %llu events, but no request and no step of spry among them",
                         (unsigned long long)r->events);
    return SPRY_OK;
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const op_sum *first = a, *second = b;
    return (first->ms < second->ms) - (first->ms > second->ms);
}

static json_t *ops_json(reader *r)
{
    json_t *list = json_array();
    double all = 0;
    qsort(r->ops, r->n_ops, sizeof *r->ops, by_time);
    for (size_t i = 0; i < r->n_ops; i++)
        all += r->ops[i].ms;
    for (const op_sum *op = r->ops; op < r->ops + r->n_ops; op++) {
        json_t *one =
            json_pack("{s:s, s:s, s:f, s:f}", "op", op->name, "kernel", op->kernel, "ms", op->ms, "calls", op->calls);
        set(one, "share", all > 0 ? op->ms / all : NAN);
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *result(reader *r)
{
    json_t *json = json_pack("{s:I, s:I, s:b, s:f, s:O, s:o, s:o, s:o, s:[], s:[]}", "requests",
                             (json_int_t)r->requests, "steps", (json_int_t)r->steps, "cut", r->cut, "generated_tokens",
                             r->generated_tokens, "shown", r->shown, "ops", ops_json(r), "first",
                             spread_json(&r->first), "between", spread_json(&r->between), "parts", "turns");
    set(json, "rows_a_step", r->steps ? r->rows / (double)r->steps : NAN);
    set(json, "waits_a_token", r->device_steps && r->generated_tokens > 0 ? r->waits / r->generated_tokens : NAN);
    set(json, "ahead_share", r->device_steps ? r->ahead / (double)r->device_steps : NAN);
    set(json, "covered_share", r->whole_ms > 0 ? r->covered_ms / r->whole_ms : NAN);
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        if (r->parts[i].count) {
            json_t *part = spread_json(&r->parts[i]);
            json_object_set_new(part, "part", json_string(spry_part_name((spry_part)i)));
            set(part, "share", r->covered_ms > 0 ? r->parts[i].sum / r->covered_ms : NAN);
            json_array_append_new(json_object_get(json, "parts"), part);
        }
    for (size_t i = 0; i < SPRY_TURN_ENDS; i++)
        if (r->turns[0].count && r->turns[i].count) {
            json_t *turn = spread_json(&r->turns[i]);
            json_object_set_new(turn, "turn", json_string(spry_turn_end_names[i]));
            json_array_append_new(json_object_get(json, "turns"), turn);
        }
    return json;
}

spry_status spry_trace_read(json_t **out, FILE *file, spry_error *error)
{
    reader r = {.lanes = calloc(LANES_MAX, sizeof *r.lanes), .shown = json_array()};
    spry_status status = r.lanes && r.shown ? read_lines(&r, file, error) : out_of_memory(error);
    *out = status ? NULL : result(&r);
    if (!status && !*out)
        status = out_of_memory(error);
    for (size_t i = 0; r.lanes && i < LANES_MAX; i++)
        free(r.lanes[i]);
    free(r.lanes);
    json_decref(r.shown);
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        free(r.parts[i].buckets);
    for (size_t i = 0; i < SPRY_TURN_ENDS; i++)
        free(r.turns[i].buckets);
    free(r.first.buckets);
    free(r.between.buckets);
    return status;
}
