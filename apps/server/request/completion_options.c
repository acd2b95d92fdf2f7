/* The options of a completion: defaults, and the fields whose storage is not one member of the struct. */
#include "server/request/completion.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/number.h"
#include "base/sampling_options.h"
#include "platform/clock.h"

void spry_completion_options_init(spry_completion_options *o, const spry_serve_settings *settings)
{
    *o = (spry_completion_options){.n_each = 1,
                                   .overflow = settings->slide ? SPRY_OVERFLOW_SLIDE : SPRY_OVERFLOW_ERROR,
                                   .keep = settings->keep,
                                   .answer_span = settings->answer_spans};
    spry_request_default(&o->request);
    o->request.sampling.seed = spry_entropy() >> 32;
    o->request.speculation = settings->speculation;
    o->request.draft_most = settings->draft_most;
    o->request.draft_precise = settings->draft_precise;
    o->request.stop = o->stops;
}

void spry_completion_options_deinit(spry_completion_options *o)
{
    free(o->constraint_text);
    free(o->lora);
}

/* An answer without a limit ends after ten contexts where its context slides. */
static void limit_sliding(spry_completion_options *o)
{
    spry_engine_info info;
    if (o->overflow != SPRY_OVERFLOW_SLIDE || !o->engine || o->no_answer || o->request.max_tokens)
        return;
    spry_engine_describe(o->engine, &info);
    o->request.max_tokens = (uint32_t)(10 * info.context);
}

void spry_completion_options_read(spry_completion_options *o, spry_fields *fields,
                                  const spry_completion_interface *interface)
{
    if (interface->defaults)
        interface->defaults(o);
    spry_fields_read(o, fields, interface->table);
    if (interface->read)
        interface->read(o, fields);
    if (o->request.logprobs && !o->want_logprobs)
        spry_fields_refuse(fields, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (o->no_draft)
        o->request.speculation = SPRY_DRAFT_NONE;
    if (o->json_lenient)
        o->request.json_style |= SPRY_JSON_LENIENT;
    o->want_progress = o->want_progress && o->stream;
    o->keep_raw_text = o->keep_raw_text || o->answer_span;
    limit_sliding(o);
}

void spry_read_limit(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    spry_completion_options *o = options;
    bool none = json_number_value(value) == -1;
    int64_t limit = none ? -1 : spry_fields_integer(fields, field->name, 1, field->min, UINT32_MAX);
    o->request.max_tokens = limit < 0 ? 0 : (uint32_t)limit;
    o->no_answer = limit == 0;
}

void spry_read_keep(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    spry_completion_options *o = options;
    int64_t keep = spry_fields_integer(fields, field->name, 0, -1, UINT32_MAX);
    (void)value;
    o->keep = keep < 0 ? SIZE_MAX : (size_t)keep;
}

/* 0 also turns thinking off, by a variable of the template. */
void spry_read_thoughts(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    spry_completion_options *o = options;
    int64_t tokens = spry_fields_integer(fields, field->name, -1, -1, UINT32_MAX);
    (void)value;
    o->request.thought_budget = tokens < 0 ? 0 : tokens == 0 ? 1 : (uint32_t)tokens;
}

void spry_read_thinking(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    spry_completion_options *o = options;
    const char *key = json_object_get(value, "budget_tokens") ? "budget_tokens" : "max_tokens";
    spry_fields inside = {.object = (json_t *)(uintptr_t)value, .within = "", .ignored = fields->ignored};
    int64_t tokens = spry_fields_integer(&inside, key, -1, -1, UINT32_MAX);
    if (inside.wrong[0])
        spry_fields_refuse(fields, field->name, "%s.%s", field->name, inside.error.message);
    if (tokens > 0)
        o->request.thought_budget = (uint32_t)tokens;
}

void spry_read_logprobs(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    spry_completion_options *o = options;
    o->want_logprobs = !json_is_false(value);
    if (json_is_number(value))
        o->request.logprobs = (uint32_t)spry_fields_integer(fields, field->name, 0, 0, SPRY_TOP_LOGPROBS_MAX);
}

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

spry_option_table spry_completion_sampling(void *options)
{
    spry_completion_options *o = options;
    return spry_sampling_options(o ? &o->request.sampling : NULL);
}

static void set_bias(json_t *object, json_int_t id, const json_t *bias)
{
    char name[24];
    snprintf(name, sizeof name, "%" JSON_INTEGER_FORMAT, id);
    json_object_set_new(object, name, json_is_false(bias) ? json_null() : json_deep_copy(bias));
}

/* The bias of every token of a text. */
static void add_text_bias(json_t *object, const spry_engine *engine, spry_view text, const json_t *bias)
{
    enum { MOST = 64 };
    int32_t ids[MOST];
    size_t count = 0;
    if (!engine || spry_engine_tokenize_part(engine, ids, MOST, &count, text.data, text.size, false, NULL) != SPRY_OK)
        return;
    for (size_t i = 0; i < count && i < MOST; i++)
        set_bias(object, ids[i], bias);
}

/* One entry, whose token is an id, an id in a string, or a text. False: it is none of these. */
static bool add_bias(json_t *object, const spry_engine *engine, const json_t *token, const json_t *bias)
{
    uint64_t id;
    spry_view text = {json_string_value(token), json_string_length(token)};
    if (!bias || json_is_true(bias) || (!json_is_integer(token) && !text.size))
        return false;
    if (json_is_integer(token))
        set_bias(object, json_integer_value(token), bias);
    else if (spry_number_u64(&id, text))
        set_bias(object, (json_int_t)id, bias);
    else
        add_text_bias(object, engine, text, bias);
    return true;
}

/* Both forms of logit_bias, {token: bias} and [[token, bias], ...], as an object from ids to numbers; false bans a
 * token. NULL: it has another form. */
static json_t *bias_object(const json_t *given, const spry_engine *engine)
{
    json_t *object = json_object(), *pair, *bias;
    const char *key;
    size_t i;
    bool fine = json_is_array(given) || json_is_object(given);
    json_array_foreach(given, i, pair) fine =
        fine && add_bias(object, engine, json_array_get(pair, 0), json_array_get(pair, 1));
    json_object_foreach((json_t *)(uintptr_t)given, key, bias)
    {
        json_t *token = json_string(key);
        fine = fine && add_bias(object, engine, token, bias);
        json_decref(token);
    }
    if (fine)
        return object;
    json_decref(object);
    return NULL;
}

/* logit_bias in the forms of OpenAI and of llama-server: ids or texts, whose tokens are known once the model is loaded.
 */
void spry_read_bias(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    spry_completion_options *o = options;
    spry_error error;
    json_t *object = bias_object(value, o->engine);
    json_t *settings = json_pack("{s:O}", field->name, object ? object : value);
    if (!settings)
        spry_fields_refuse_memory(fields, field->name);
    else if (spry_sampling_from_json(&o->request.sampling, o->bias, SPRY_BIAS_MAX, settings, false, &error) != SPRY_OK)
        spry_fields_refuse(fields, field->name, "%s%s", fields->within, error.message);
    json_decref(settings);
    json_decref(object);
}

enum { STOP_BYTES_MAX = 4096 }; /* some interfaces repeat them in every answer of a reply */

/* A string or a list of strings. */
void spry_read_stop(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    spry_completion_options *o = options;
    const json_t *item;
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    o->request.n_stop = 0;
    if (count > SPRY_STOPS_MAX)
        spry_fields_refuse(fields, field->name, "%s%s has %zu strings; at most %d are allowed", fields->within,
                           field->name, count, SPRY_STOPS_MAX);
    for (size_t i = 0; i < count && !fields->wrong[0]; i++) {
        item = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(item))
            spry_fields_refuse_type(fields, field->name, item, "a string or a list of strings");
        else if (strlen(json_string_value(item)) != json_string_length(item))
            spry_fields_refuse(fields, field->name, "%s%s has a zero byte in its text", fields->within, field->name);
        else if (json_string_length(item) > STOP_BYTES_MAX)
            spry_fields_refuse(fields, field->name, "%s%s has a text of %zu bytes; at most %d are allowed",
                               fields->within, field->name, json_string_length(item), STOP_BYTES_MAX);
        else if (json_string_length(item))
            o->stops[o->request.n_stop++] = json_string_value(item);
    }
}

/* ---- constraints ------------------------------------------------------------------------------------------------- */

void spry_fields_set_constraint(spry_completion_options *o, spry_fields *fields, const char *key,
                                spry_constraint constraint, const json_t *value)
{
    if (o->request.constraint != SPRY_ANY_TEXT) {
        spry_fields_refuse(fields, key, "%s%s: another field constrains the answer, too; send only one", fields->within,
                           key);
        return;
    }
    if (json_is_string(value) && strlen(json_string_value(value)) != json_string_length(value)) {
        spry_fields_refuse(fields, key, "%s%s has a zero byte in its text", fields->within, key);
        return;
    }
    bool as_it_is = json_is_string(value) && constraint != SPRY_CHOICE;
    char *text = !value ? NULL : as_it_is ? strdup(json_string_value(value)) : spry_json_text(value, JSON_ENCODE_ANY);
    if (value && !text)
        spry_fields_refuse_memory(fields, key);
    free(o->constraint_text);
    o->constraint_text = text;
    o->request.constraint = constraint;
    o->request.constraint_text = text;
}

void spry_read_response_format(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type")), *name = field->name;
    const json_t *schema = json_object_get(json_object_get(value, "json_schema"), "schema");
    const json_t *wanted = json_object_get(value, "schema");
    bool object = type && strcmp(type, "json_object") == 0;
    if (type && strcmp(type, "text") == 0)
        return;
    if (object && json_is_object(wanted))
        spry_fields_set_constraint(options, fields, name, SPRY_JSON_SCHEMA, wanted);
    else if (object && wanted && !json_is_null(wanted))
        spry_fields_refuse(fields, name, "%s.schema must be an object", name);
    else if (object)
        spry_fields_set_constraint(options, fields, name, SPRY_JSON_OBJECT, NULL);
    else if (!type || strcmp(type, "json_schema") != 0)
        spry_fields_refuse(fields, name, "%s.type must be \"text\", \"json_object\" or \"json_schema\"", name);
    else if (!json_is_object(schema))
        spry_fields_refuse(fields, name, "%s.json_schema.schema must be an object", name);
    else
        spry_fields_set_constraint(options, fields, name, SPRY_JSON_SCHEMA, schema);
}

/* An empty text means that there is no constraint. */
void spry_read_constraint(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    if (!json_is_string(value) || json_string_length(value))
        spry_fields_set_constraint(options, fields, field->name, (spry_constraint)field->min, value);
}

/* ---- spry's own -------------------------------------------------------------------------------------------------- */

/* One adapter: its name, or an object with a name or number, and a scale. */
static bool add_adapter(spry_buffer *out, spry_fields *fields, const char *key, const json_t *item)
{
    const json_t *name = json_object_get(item, "name"), *id = json_object_get(item, "id");
    const json_t *scale = json_object_get(item, "scale");
    char number[SPRY_NUMBER_TEXT], place[24];
    const char *text = json_string_value(json_is_string(item) ? item : name);
    if (json_is_integer(id) && !name) {
        snprintf(place, sizeof place, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        text = place;
    }
    if (!text || (scale && !json_is_number(scale)) || (name && id)) {
        spry_fields_refuse_type(fields, key, item, "a name, or an object with \"name\" or \"id\", and \"scale\"");
        return false;
    }
    if (!*text || strpbrk(text, ",=")) {
        spry_fields_refuse(fields, key, "%s%s: there is no adapter '%.80s'", fields->within, key, text);
        return false;
    }
    spry_number_print(number, scale ? json_number_value(scale) : 1);
    spry_buffer_format(out, "%s%s=%s", out->size ? "," : "", text, number);
    return true;
}

char *spry_fields_lora(spry_fields *fields, const char *key, const json_t *value)
{
    spry_buffer text;
    const json_t *item;
    size_t i;
    bool fine = true;
    spry_buffer_init(&text, 1 << 12);
    if (!json_is_array(value))
        fine = add_adapter(&text, fields, key, value);
    json_array_foreach(value, i, item) fine = fine && add_adapter(&text, fields, key, item);
    char *choice = fine && !text.failed ? strdup(text.size ? text.data : "") : NULL;
    if (fine && !choice)
        spry_fields_refuse(fields, key, "%s%s is too long", fields->within, key);
    spry_buffer_deinit(&text);
    return choice;
}

void spry_read_lora(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    spry_completion_options *o = options;
    free(o->lora);
    o->lora = spry_fields_lora(fields, field->name, value);
}

void spry_read_stream_id(void *options, spry_fields *fields, const spry_field *field, const json_t *value)
{
    spry_completion_options *o = options;
    (void)value;
    o->stream_id = spry_fields_string(fields, field->name, NULL);
    if (o->stream_id && !spry_kept_stream_id_valid(o->stream_id))
        spry_fields_refuse(fields, field->name, "%s must have %d to %d letters, digits, '-' or '_'", field->name,
                           SPRY_STREAM_ID_MIN, SPRY_STREAM_ID_MAX);
}
