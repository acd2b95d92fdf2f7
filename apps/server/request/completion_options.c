#include "server/request/completion.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "base/sampling_options.h"
#include "platform/clock.h"

void spry_completion_options_init(spry_completion_options *o, spry_speculation speculation)
{
    *o = (spry_completion_options){.n_each = 1};
    spry_request_default(&o->request);
    o->request.sampling.seed = spry_entropy() >> 32;
    o->request.speculation = speculation;
}

void spry_completion_options_deinit(spry_completion_options *o)
{
    free(o->constraint_text);
    free(o->lora);
}

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

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

/* Negative values of these fields mean that they are not set. */
static void drop_negative(json_t *settings)
{
    static const char *const keys[] = {"seed", "top_k", "repeat_last_n"};
    for (size_t i = 0; i < SPRY_COUNT(keys); i++) {
        const json_t *value = json_object_get(settings, keys[i]);
        if (json_is_number(value) && json_number_value(value) < 0)
            json_object_del(settings, keys[i]);
    }
}

void spry_fields_sampling(spry_completion_options *o, spry_fields *fields)
{
    spry_error error;
    json_t *settings = json_copy((json_t *)(uintptr_t)fields->object);
    const json_t *bias = json_object_get(settings, "logit_bias");
    if (!settings) {
        spry_fields_refuse(fields, "temperature", "not enough memory for the settings");
        return;
    }
    drop_negative(settings);
    if (bias) {
        json_t *object = bias_object(bias, o->engine);
        if (object)
            json_object_set_new(settings, "logit_bias", object);
    }
    if (spry_sampling_from_json(&o->request.sampling, o->bias, SPRY_BIAS_MAX, settings, true, &error) != SPRY_OK) {
        size_t key = strcspn(error.message, " ");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(key < sizeof name ? key : sizeof name - 1), error.message);
        spry_fields_refuse(fields, name, "%s%s", fields->within, error.message);
    }
    json_decref(settings);
}

void spry_fields_stop(spry_completion_options *o, spry_fields *fields)
{
    const json_t *stop = spry_fields_get(fields, "stop"), *item;
    size_t count = json_is_array(stop) ? json_array_size(stop) : stop ? 1 : 0;
    if (count > SPRY_STOPS_MAX)
        spry_fields_refuse(fields, "stop", "%sstop has %zu strings; at most %d are allowed", fields->within, count,
                           SPRY_STOPS_MAX);
    for (size_t i = 0; i < count && !fields->wrong[0]; i++) {
        item = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!json_is_string(item))
            spry_fields_refuse_type(fields, "stop", item, "a string or a list of strings");
        else if (strlen(json_string_value(item)) != json_string_length(item))
            spry_fields_refuse(fields, "stop", "%sstop has a zero byte in its text", fields->within);
        else if (json_string_length(item))
            o->stops[o->request.n_stop++] = json_string_value(item);
    }
    o->request.stop = o->stops;
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
    char *text = !value ? NULL : as_it_is ? strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
    if (value && !text)
        spry_fields_refuse(fields, key, "not enough memory for %s%s", fields->within, key);
    free(o->constraint_text);
    o->constraint_text = text;
    o->request.constraint = constraint;
    o->request.constraint_text = text;
}

static void read_response_format(spry_completion_options *o, spry_fields *fields)
{
    const json_t *format = spry_fields_object(fields, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!format)
        return;
    const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    if (type && strcmp(type, "text") == 0)
        return;
    const json_t *wanted = json_object_get(format, "schema");
    if (type && strcmp(type, "json_object") == 0 && json_is_object(wanted))
        spry_fields_set_constraint(o, fields, "response_format", SPRY_JSON_SCHEMA, wanted);
    else if (type && strcmp(type, "json_object") == 0 && wanted && !json_is_null(wanted))
        spry_fields_refuse(fields, "response_format", "response_format.schema must be an object");
    else if (type && strcmp(type, "json_object") == 0)
        spry_fields_set_constraint(o, fields, "response_format", SPRY_JSON_OBJECT, NULL);
    else if (!type || strcmp(type, "json_schema") != 0)
        spry_fields_refuse(fields, "response_format",
                           "response_format.type must be \"text\", \"json_object\" or \"json_schema\"");
    else if (!json_is_object(schema))
        spry_fields_refuse(fields, "response_format", "response_format.json_schema.schema must be an object");
    else
        spry_fields_set_constraint(o, fields, "response_format", SPRY_JSON_SCHEMA, schema);
}

/* How JSON is written. */
static void read_style(spry_completion_options *o, spry_fields *fields)
{
    static const char *const styles[] = {"compact", "pretty", "free", "any"};
    const char *style = spry_fields_string(fields, "json_style", styles[0]);
    unsigned char i = 0;
    while (i < SPRY_COUNT(styles) && strcmp(style, styles[i]) != 0)
        i++;
    if (i == SPRY_COUNT(styles))
        spry_fields_refuse(fields, "json_style", "json_style must be \"compact\", \"pretty\", \"free\" or \"any\"");
    o->request.json_style = i;
    if (spry_fields_bool(fields, "json_lenient", false))
        o->request.json_style |= SPRY_JSON_LENIENT;
}

void spry_fields_constraint(spry_completion_options *o, spry_fields *fields)
{
    static const struct {
        const char *key;
        spry_constraint constraint;
        json_type type, other;
        const char *wanted;
    } constraints[] = {
        {"grammar", SPRY_GBNF, JSON_STRING, JSON_STRING, "a string"},
        {"guided_grammar", SPRY_GBNF, JSON_STRING, JSON_STRING, "a string"},
        {"guided_regex", SPRY_REGEX, JSON_STRING, JSON_STRING, "a string"},
        {"guided_choice", SPRY_CHOICE, JSON_ARRAY, JSON_ARRAY, "a list of strings"},
        {"guided_json", SPRY_JSON_SCHEMA, JSON_OBJECT, JSON_STRING, "an object or a string"},
        {"json_schema", SPRY_JSON_SCHEMA, JSON_OBJECT, JSON_STRING, "an object or a string"},
    };
    read_response_format(o, fields);
    read_style(o, fields);
    for (size_t i = 0; i < SPRY_COUNT(constraints); i++) {
        const char *key = constraints[i].key;
        const json_t *value = spry_fields_get(fields, key);
        if (!value || (json_is_string(value) && !json_string_length(value)))
            continue;
        if (json_typeof(value) != constraints[i].type && json_typeof(value) != constraints[i].other)
            spry_fields_refuse_type(fields, key, value, constraints[i].wanted);
        else
            spry_fields_set_constraint(o, fields, key, constraints[i].constraint, value);
    }
}

/* ---- spry's own -------------------------------------------------------------------------------------------------- */

/* The index of a field's text in a list of n words; `fallback` where it is absent. */
static size_t read_word(spry_fields *fields, const char *key, const char *const *words, size_t n, size_t fallback)
{
    const char *given = spry_fields_string(fields, key, words[fallback]);
    size_t at = 0;
    while (at < n && strcmp(given, words[at]) != 0)
        at++;
    if (at < n)
        return at;
    spry_buffer list;
    spry_buffer_init(&list, 256);
    for (size_t i = 0; i < n; i++)
        spry_buffer_format(&list, "%s\"%s\"", i == 0 ? "" : i + 1 < n ? ", " : " or ", words[i]);
    spry_fields_refuse(fields, key, "%s must be %s", key, spry_buffer_view(&list).data);
    spry_buffer_deinit(&list);
    return fallback;
}

/* What happens when the context is full. An answer without a limit then ends after ten contexts. */
static void read_overflow(spry_completion_options *o, spry_fields *fields, const spry_serve_settings *settings)
{
    static const char *const ways[] = {"error", "slide", "truncate_middle"};
    size_t way = read_word(fields, "context_overflow", ways, SPRY_COUNT(ways), o->slide || settings->slide);
    int64_t keep = spry_fields_integer(fields, "n_keep", o->keep ? (int64_t)o->keep : settings->keep, -1, UINT32_MAX);
    o->slide = way == 1;
    o->cut_middle = way == 2;
    o->keep = keep < 0 ? SIZE_MAX : (size_t)keep;
    if (o->slide && o->engine && !o->no_answer && !o->request.max_tokens) {
        spry_engine_info info;
        spry_engine_describe(o->engine, &info);
        o->request.max_tokens = (uint32_t)(10 * info.context);
    }
}

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
    if (!value)
        return NULL;
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

void spry_fields_own(spry_completion_options *o, spry_fields *fields, const spry_serve_settings *settings)
{
    static const char *const priorities[] = {"interactive", "batch"};
    o->batch = read_word(fields, "priority", priorities, SPRY_COUNT(priorities), 0) == 1;
    read_overflow(o, fields, settings);
    free(o->lora);
    o->lora = spry_fields_lora(fields, "lora", spry_fields_get(fields, "lora"));
    o->answer_span = spry_fields_bool(fields, "answer_span", settings->answer_spans);
    o->keep_raw_text = o->keep_raw_text || o->answer_span;
    o->stream_id = spry_fields_string(fields, "stream_id", NULL);
    if (o->stream_id && !spry_kept_stream_id_valid(o->stream_id))
        spry_fields_refuse(fields, "stream_id", "stream_id must have %d to %d letters, digits, '-' or '_'",
                           SPRY_STREAM_ID_MIN, SPRY_STREAM_ID_MAX);
}
