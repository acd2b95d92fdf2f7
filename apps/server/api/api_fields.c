/* One sticky error; small readers on top of it. */
#include "server/api/api_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/sampling_options.h"
#include "server/http/http_reply.h"
#include "server/request/prompt.h"

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {"an object", "a list", "a string", "a number",
                                        "a number",  "true",   "false",    "null"};
    return names[json_typeof(value)];
}

bool spry_fields_open(spry_fields *fields, json_t **root, spry_exchange *exchange)
{
    spry_error error;
    *fields = (spry_fields){.within = ""};
    *root = NULL;
    if (exchange->body.size == 0)
        spry_reply_error(exchange, MHD_HTTP_BAD_REQUEST, NULL, "the body is empty; send a JSON object");
    else if (spry_json_object(root, spry_buffer_view(&exchange->body), &error) != SPRY_OK)
        spry_reply_error(exchange, MHD_HTTP_BAD_REQUEST, NULL, "the body: %s", error.message);
    fields->object = *root;
    return *root != NULL;
}

bool spry_fields_fine(const spry_fields *fields, spry_exchange *exchange)
{
    if (fields->wrong[0])
        spry_reply_error(exchange, MHD_HTTP_BAD_REQUEST, fields->wrong, "%s", fields->error.message);
    return !fields->wrong[0];
}

void spry_fields_refuse(spry_fields *fields, const char *key, const char *format, ...)
{
    char sentence[SPRY_ERROR_MAX];
    if (fields->wrong[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    snprintf(fields->wrong, sizeof fields->wrong, "%s%s", fields->within, key);
    spry_fail(&fields->error, SPRY_ERR_INPUT, "%s", sentence);
}

static void refuse_type(spry_fields *fields, const char *key, const json_t *value, const char *wanted)
{
    spry_fields_refuse(fields, key, "%s%s is %s, but must be %s", fields->within, key, type_name(value), wanted);
}

const json_t *spry_fields_get(const spry_fields *fields, const char *key)
{
    const json_t *value = json_object_get(fields->object, key);
    return value && !json_is_null(value) ? value : NULL;
}

bool spry_fields_bool(spry_fields *fields, const char *key, bool fallback)
{
    const json_t *value = spry_fields_get(fields, key);
    if (!value)
        return fallback;
    if (!json_is_boolean(value))
        refuse_type(fields, key, value, "true or false");
    return json_is_true(value);
}

int64_t spry_fields_integer(spry_fields *fields, const char *key, int64_t fallback, int64_t min, int64_t max)
{
    const json_t *value = spry_fields_get(fields, key);
    if (!value)
        return fallback;
    double real = json_number_value(value);
    if (!json_is_number(value) || real != floor(real)) {
        refuse_type(fields, key, value, "a whole number");
        return fallback;
    }
    if (real < (double)min || real > (double)max) {
        spry_fields_refuse(fields, key, "%s%s is %.17g, but must be from %" PRId64 " to %" PRId64, fields->within, key,
                           real, min, max);
        return fallback;
    }
    return json_is_integer(value) ? json_integer_value(value) : (int64_t)real;
}

const char *spry_fields_string(spry_fields *fields, const char *key, const char *fallback)
{
    const json_t *value = spry_fields_get(fields, key);
    if (!value)
        return fallback;
    if (!json_is_string(value)) {
        refuse_type(fields, key, value, "a string");
        return fallback;
    }
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value))
        spry_fields_refuse(fields, key, "%s%s has a zero byte in its text", fields->within, key);
    return text;
}

static const json_t *container(spry_fields *fields, const char *key, json_type type, const char *wanted)
{
    const json_t *value = spry_fields_get(fields, key);
    if (!value || json_typeof(value) == type)
        return value;
    refuse_type(fields, key, value, wanted);
    return NULL;
}

const json_t *spry_fields_object(spry_fields *fields, const char *key)
{
    return container(fields, key, JSON_OBJECT, "an object");
}

const json_t *spry_fields_array(spry_fields *fields, const char *key)
{
    return container(fields, key, JSON_ARRAY, "a list");
}

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

/* llama-server takes [[id, bias], ...], where false bans; as an object from ids to numbers. NULL: it is something else.
 */
static json_t *bias_object(const json_t *list)
{
    json_t *object = json_object(), *pair;
    size_t i;
    json_array_foreach(list, i, pair)
    {
        char id[24];
        const json_t *token = json_array_get(pair, 0), *bias = json_array_get(pair, 1);
        if (!json_is_integer(token) || !bias) {
            json_decref(object);
            return NULL;
        }
        snprintf(id, sizeof id, "%" JSON_INTEGER_FORMAT, json_integer_value(token));
        json_object_set_new(object, id, json_is_false(bias) ? json_null() : json_deep_copy(bias));
    }
    return object;
}

/* Numbers below zero that mean "as if not given". */
static void drop_negative(json_t *settings)
{
    static const char *const keys[] = {"seed", "top_k", "repeat_last_n"};
    for (size_t i = 0; i < SPRY_COUNT(keys); i++) {
        const json_t *value = json_object_get(settings, keys[i]);
        if (json_is_number(value) && json_number_value(value) < 0)
            json_object_del(settings, keys[i]);
    }
}

void spry_fields_sampling(spry_fields *fields, spry_completion *c)
{
    spry_error error;
    json_t *settings = json_copy((json_t *)(uintptr_t)fields->object);
    const json_t *bias = json_object_get(settings, "logit_bias");
    if (!settings) {
        spry_fields_refuse(fields, "temperature", "not enough memory for the settings");
        return;
    }
    drop_negative(settings);
    if (json_is_array(bias)) {
        json_t *object = bias_object(bias);
        if (object)
            json_object_set_new(settings, "logit_bias", object);
    }
    if (spry_sampling_from_json(&c->request.sampling, c->bias, SPRY_BIAS_MAX, settings, true, &error) != SPRY_OK) {
        size_t key = strcspn(error.message, " ");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(key < sizeof name ? key : sizeof name - 1), error.message);
        spry_fields_refuse(fields, name, "%s%s", fields->within, error.message);
    }
    json_decref(settings);
}

void spry_fields_stop(spry_fields *fields, spry_completion *c)
{
    const json_t *stop = spry_fields_get(fields, "stop"), *item;
    size_t count = json_is_array(stop) ? json_array_size(stop) : stop ? 1 : 0;
    if (stop && !json_is_array(stop) && !json_is_string(stop))
        refuse_type(fields, "stop", stop, "a string or a list of strings");
    if (count > SPRY_STOPS_MAX)
        spry_fields_refuse(fields, "stop", "%sstop has %zu strings, at most %d are taken", fields->within, count,
                           SPRY_STOPS_MAX);
    for (size_t i = 0; i < count && !fields->wrong[0]; i++) {
        item = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!json_is_string(item))
            refuse_type(fields, "stop", item, "a string or a list of strings");
        else if (strlen(json_string_value(item)) != json_string_length(item))
            spry_fields_refuse(fields, "stop", "%sstop has a zero byte in its text", fields->within);
        else if (json_string_length(item))
            c->stops[c->request.n_stop++] = json_string_value(item);
    }
    c->request.stop = c->stops;
}

/* ---- constraints ------------------------------------------------------------------------------------------------- */

void spry_fields_set_constraint(spry_fields *fields, spry_completion *c, const char *what, spry_constraint constraint,
                                const json_t *value)
{
    if (c->request.constraint != SPRY_ANY_TEXT) {
        spry_fields_refuse(fields, what, "%s%s comes beside another rule for the answer; give one", fields->within,
                           what);
        return;
    }
    if (json_is_string(value) && strlen(json_string_value(value)) != json_string_length(value)) {
        spry_fields_refuse(fields, what, "%s%s has a zero byte in its text", fields->within, what);
        return;
    }
    bool as_it_is = json_is_string(value) && constraint != SPRY_CHOICE;
    char *text = !value ? NULL : as_it_is ? strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
    if (value && !text)
        spry_fields_refuse(fields, what, "not enough memory for %s%s", fields->within, what);
    free(c->constraint_text);
    c->constraint_text = text;
    c->request.constraint = constraint;
    c->request.constraint_text = text;
}

static void response_format(spry_fields *fields, spry_completion *c)
{
    const json_t *format = spry_fields_object(fields, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!format)
        return;
    const json_t *schema = json_object_get(format, "json_schema");
    const json_t *inner = json_object_get(schema, "schema");
    if (type && strcmp(type, "text") == 0)
        return;
    if (type && strcmp(type, "json_object") == 0)
        spry_fields_set_constraint(fields, c, "response_format", SPRY_JSON_OBJECT, NULL);
    else if (!type || strcmp(type, "json_schema") != 0)
        spry_fields_refuse(fields, "response_format",
                           "response_format.type must be \"text\", \"json_object\" or \"json_schema\"");
    else if (!json_is_object(inner))
        spry_fields_refuse(fields, "response_format", "response_format.json_schema.schema must be an object");
    else
        spry_fields_set_constraint(fields, c, "response_format", SPRY_JSON_SCHEMA, inner);
}

void spry_fields_constraint(spry_fields *fields, spry_completion *c)
{
    static const struct {
        const char *key;
        spry_constraint constraint;
        json_type type, other;
        const char *wanted;
    } rules[] = {
        {"grammar", SPRY_GBNF, JSON_STRING, JSON_STRING, "a string"},
        {"guided_grammar", SPRY_GBNF, JSON_STRING, JSON_STRING, "a string"},
        {"guided_regex", SPRY_REGEX, JSON_STRING, JSON_STRING, "a string"},
        {"guided_choice", SPRY_CHOICE, JSON_ARRAY, JSON_ARRAY, "a list of strings"},
        {"guided_json", SPRY_JSON_SCHEMA, JSON_OBJECT, JSON_STRING, "an object or a string"},
        {"json_schema", SPRY_JSON_SCHEMA, JSON_OBJECT, JSON_STRING, "an object or a string"},
    };
    response_format(fields, c);
    for (size_t i = 0; i < SPRY_COUNT(rules); i++) {
        const json_t *value = spry_fields_get(fields, rules[i].key);
        if (!value || (json_is_string(value) && !json_string_length(value)))
            continue;
        if (json_typeof(value) != rules[i].type && json_typeof(value) != rules[i].other)
            refuse_type(fields, rules[i].key, value, rules[i].wanted);
        else
            spry_fields_set_constraint(fields, c, rules[i].key, rules[i].constraint, value);
    }
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static bool content_is_fine(spry_fields *fields, size_t number, const json_t *content)
{
    size_t i;
    const json_t *part;
    if (!content || json_is_null(content) || json_is_string(content))
        return true;
    if (!json_is_array(content)) {
        spry_fields_refuse(fields, "messages", "messages[%zu].content is %s, but must be a string or a list of parts",
                           number, type_name(content));
        return false;
    }
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (type && strcmp(type, "text") == 0 && json_is_string(json_object_get(part, "text")))
            continue;
        spry_fields_refuse(fields, "messages",
                           "messages[%zu].content[%zu] must be {\"type\": \"text\", \"text\": ...}: only text is "
                           "understood",
                           number, i);
        return false;
    }
    return true;
}

void spry_fields_messages(spry_fields *fields, const json_t *messages)
{
    size_t i;
    const json_t *message;
    if (!messages || json_array_size(messages) == 0)
        spry_fields_refuse(fields, "messages", "messages must be a list with at least one message");
    json_array_foreach(messages, i, message)
    {
        if (!json_is_object(message) || !json_is_string(json_object_get(message, "role"))) {
            spry_fields_refuse(fields, "messages", "messages[%zu] must be an object with a \"role\"", i);
            return;
        }
        if (!content_is_fine(fields, i, json_object_get(message, "content")))
            return;
    }
}

/* ---- from the body to the answer --------------------------------------------------------------------------------- */

spry_completion *spry_fields_completion(spry_fields *fields, json_t *root, spry_exchange *x,
                                        const spry_answer_form *form, const char *id_prefix)
{
    const char *model = spry_fields_string(fields, "model", NULL);
    if (spry_fields_fine(fields, x))
        return spry_completion_create(x, root, model, form, id_prefix);
    json_decref(root);
    return NULL;
}

void spry_fields_serve(spry_fields *fields, spry_completion *c, spry_prompt_maker make_prompts)
{
    spry_error error;
    bool fine = spry_fields_fine(fields, c->exchange);
    spry_lap(&c->costs.laps, SPRY_PART_READ);
    spry_status status = fine ? make_prompts(c, fields, &error) : SPRY_OK;
    spry_lap(&c->costs.laps, SPRY_PART_TOKENIZE);
    fine = fine && spry_fields_fine(fields, c->exchange);
    if (fine && status == SPRY_OK)
        status = spry_prompt_check(c, &error);
    if (fine && status == SPRY_OK) {
        spry_completion_serve(c);
        return;
    }
    if (fine)
        spry_reply_failure(c->exchange, &error);
    spry_completion_destroy(c);
}
