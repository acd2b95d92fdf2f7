/* One event per line. Each lane collects the events since its last request ended; a request's own event, which comes
 * after its parts, consumes them. */
#include "report/report_trace.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/view.h"

enum {
    LINE_BYTES_MAX = 1 << 16,
    LANES_MAX = 1 << 16,
};
static const uint64_t file_bytes_max = UINT64_C(512) << 20;
static const double longest_us = 1e15;

/* The events in a lane since its last request ended. Times as in the file. */
typedef struct lane {
    double part_us[SPRY_PART_COUNT];
    double began_us;                      /* NAN: no part yet */
    double first_token_us, last_token_us; /* NAN: none yet; the last: the first one of the last step */
    bool computed;                        /* since then */
    double first_us[SPRY_PART_COUNT];     /* of part_us: until the first token */
} lane;

typedef struct reader {
    spry_report_trace *trace;
    lane **lanes; /* LANES_MAX of them, NULL where nothing happened */
    uint64_t line;
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

size_t spry_report_part(const char *name)
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
    if (!r->lanes[number]) {
        r->lanes[number] = malloc(sizeof *r->lanes[number]);
        if (r->lanes[number])
            clear_lane(r->lanes[number]);
    }
    return r->lanes[number];
}

static spry_status take_part(reader *r, const event *e, spry_error *error)
{
    const size_t part = spry_report_part(e->name);
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
    else if (end_us >= l->last_token_us && !spry_spread_add(&r->trace->between_ms, (end_us - l->last_token_us) / 1e3))
        return out_of_memory(error);
    l->last_token_us = end_us;
    return SPRY_OK;
}

static double arg(const event *e, const char *name)
{
    const json_t *value = json_object_get(e->args, name);
    const double number = json_number_value(value);
    return json_is_number(value) && number >= 0 && number < longest_us ? number : NAN;
}

static void show_request(spry_report_request *shown, const event *e, const lane *l)
{
    *shown = (spry_report_request){.number = arg(e, "request"),
                                   .prompt_tokens = arg(e, "prompt_tokens"),
                                   .generated_tokens = arg(e, "generated_tokens"),
                                   .first_ms = (l->first_token_us - e->begin_us) / 1e3,
                                   .whole_ms = e->length_us / 1e3};
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        shown->parts_ms[i] = l->first_us[i] / 1e3;
}

static spry_status take_request(reader *r, const event *e, spry_error *error)
{
    spry_report_trace *trace = r->trace;
    lane *l = lane_of(r, e->lane);
    if (!l)
        return out_of_memory(error);
    bool kept = true;
    if (!isnan(l->first_token_us))
        kept = spry_spread_add(&trace->first_ms, fmax(0, l->first_token_us - e->begin_us) / 1e3) && kept;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++) {
        trace->covered_ms += l->part_us[i] / 1e3;
        if (l->part_us[i] > 0)
            kept = spry_spread_add(&trace->parts[i], l->part_us[i] / 1e3) && kept;
    }
    if (!kept)
        return out_of_memory(error);
    trace->whole_ms += e->length_us / 1e3;
    const double generated = arg(e, "generated_tokens");
    trace->generated_tokens += isnan(generated) ? 0 : generated;
    if (trace->n_shown < SPRY_REPORT_SHOWN)
        show_request(&trace->shown[trace->n_shown++], e, l);
    trace->requests++;
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

/* ---- steps and ops ----------------------------------------------------------------------------------------------- */

static void take_step(spry_report_trace *trace, const event *e)
{
    const double rows = arg(e, "rows"), waits = arg(e, "waits"), ahead = arg(e, "ahead");
    trace->steps++;
    trace->rows += isnan(rows) ? 0 : rows;
    trace->device_steps += isnan(waits) ? 0 : 1;
    trace->waits += isnan(waits) ? 0 : waits;
    trace->ahead += isnan(ahead) ? 0 : ahead;
}

static spry_status wrong_line(const reader *r, const char *why, spry_error *error)
{
    return spry_fail(error, SPRY_ERR_FORMAT, "line %llu is not a trace event: %.100s", (unsigned long long)r->line,
                     why);
}

static spry_status take_op(const reader *r, const event *e, spry_error *error)
{
    spry_report_trace *trace = r->trace;
    const json_t *kernel_arg = json_object_get(e->args, "kernel");
    const char *kernel = kernel_arg ? json_string_value(kernel_arg) : "";
    if (!kernel || strlen(kernel) >= SPRY_REPORT_OP_NAME || strlen(e->name) >= SPRY_REPORT_OP_NAME)
        return wrong_line(r, "no op and no kernel has such a name", error);
    size_t i = 0;
    while (i < trace->n_ops && i < SPRY_REPORT_OPS - 1 &&
           !(strcmp(trace->ops[i].name, e->name) == 0 && strcmp(trace->ops[i].kernel, kernel) == 0))
        i++;
    spry_report_op *op = &trace->ops[i];
    if (i == trace->n_ops) {
        const bool is_last = i == SPRY_REPORT_OPS - 1;
        snprintf(op->name, sizeof op->name, "%s", is_last ? "others" : e->name);
        snprintf(op->kernel, sizeof op->kernel, "%s", is_last ? "" : kernel);
        trace->n_ops++;
    }
    op->ms += e->length_us / 1e3;
    op->calls++;
    return SPRY_OK;
}

static int by_time(const void *a, const void *b)
{
    const spry_report_op *first = a, *second = b;
    return (first->ms < second->ms) - (first->ms > second->ms);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static bool read_number(double *out, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    *out = json_number_value(value);
    return json_is_number(value) && isfinite(*out) && *out >= 0 && *out < longest_us;
}

const char *const spry_turn_end_names[SPRY_TURN_ENDS] = {"words", "first token", "first sound", "answer"};

static spry_status take_turn(spry_report_trace *trace, const event *e, spry_error *error)
{
    for (size_t i = 0; i < SPRY_TURN_ENDS; i++)
        if (strcmp(e->name, spry_turn_end_names[i]) == 0 && !spry_spread_add(&trace->turns[i], e->length_us / 1e3))
            return out_of_memory(error);
    return SPRY_OK;
}

static spry_status take_event(reader *r, const json_t *json, spry_error *error)
{
    const char *phase = json_string_value(json_object_get(json, "ph"));
    event e = {.name = json_string_value(json_object_get(json, "name")),
               .category = json_string_value(json_object_get(json, "cat")),
               .args = json_object_get(json, "args")};
    double lane_number;
    if (!phase || !e.name)
        return wrong_line(r, "it has no \"ph\" or no \"name\"", error);
    r->trace->events++;
    if (strcmp(phase, "X") != 0 || !e.category)
        return SPRY_OK;
    if (!read_number(&e.begin_us, json, "ts") || !read_number(&e.length_us, json, "dur"))
        return wrong_line(r, "\"ts\" or \"dur\" is not a time", error);
    if (!read_number(&lane_number, json, "tid") || lane_number >= LANES_MAX)
        return wrong_line(r, "\"tid\" is not a lane", error);
    e.lane = (uint32_t)lane_number;
    if (strcmp(e.category, "request") == 0)
        return take_request(r, &e, error);
    if (strcmp(e.category, "answer") == 0)
        return take_answer(r, &e, error);
    if (strcmp(e.category, "part") == 0)
        return take_part(r, &e, error);
    if (strcmp(e.category, "op") == 0)
        return take_op(r, &e, error);
    if (strcmp(e.category, "turn") == 0)
        return take_turn(r->trace, &e, error);
    if (strcmp(e.category, "step") == 0)
        take_step(r->trace, &e);
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
    if (spry_view_equal(line, SPRY_VIEW("]")) || spry_view_ends(line, SPRY_VIEW("}]"))) {
        *ended = true;
        line.size--;
    }
    if (line.size && line.data[line.size - 1] == ',')
        line.size--;
    return line;
}

/* An incomplete last line is left by a process that was killed. */
static spry_status take_line(reader *r, const char *line, size_t size, bool *ended, spry_error *error)
{
    const bool whole = size && line[size - 1] == '\n';
    if (r->trace->is_cut)
        return wrong_line(r, "the line before it is not whole", error);
    if (!whole && size == LINE_BYTES_MAX - 1)
        return wrong_line(r, "it is longer than 64 kB", error);
    const bool had_ended = *ended;
    const spry_view text = event_text(r, (spry_view){line, size}, ended);
    if (!text.size)
        return SPRY_OK;
    if (had_ended)
        return wrong_line(r, "the list of events ended before it", error);
    json_error_t why;
    json_t *json = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, &why);
    if (!json && !whole && !*ended && r->line > 1) {
        r->trace->is_cut = true;
        return SPRY_OK;
    }
    spry_status status = json_is_object(json) ? take_event(r, json, error)
                                              : wrong_line(r, json ? "it is not an object" : why.text, error);
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
    if (!r->trace->events)
        return spry_fail(error, SPRY_ERR_FORMAT, "is a list without a single event");
    if (!r->trace->requests && !r->trace->steps)
        return spry_fail(error, SPRY_ERR_FORMAT, "has %llu events, but no request and no step of spry among them",
                         (unsigned long long)r->trace->events);
    return SPRY_OK;
}

spry_status spry_report_trace_read(spry_report_trace **out, FILE *file, spry_error *error)
{
    reader r = {.trace = calloc(1, sizeof *r.trace), .lanes = calloc(LANES_MAX, sizeof *r.lanes)};
    *out = r.trace;
    spry_status status = r.trace && r.lanes ? read_lines(&r, file, error) : out_of_memory(error);
    for (size_t i = 0; r.lanes && i < LANES_MAX; i++)
        free(r.lanes[i]);
    free(r.lanes);
    if (!status)
        qsort(r.trace->ops, r.trace->n_ops, sizeof *r.trace->ops, by_time);
    return status;
}

void spry_report_trace_destroy(spry_report_trace *trace)
{
    if (!trace)
        return;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        spry_spread_deinit(&trace->parts[i]);
    for (size_t i = 0; i < SPRY_TURN_ENDS; i++)
        spry_spread_deinit(&trace->turns[i]);
    spry_spread_deinit(&trace->first_ms);
    spry_spread_deinit(&trace->between_ms);
    free(trace);
}
