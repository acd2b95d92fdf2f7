#include "server/fields/fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/json.h"
#include "server/http/http_reply.h"

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

void spry_fields_refuse_type(spry_fields *fields, const char *key, const json_t *value, const char *wanted)
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
        spry_fields_refuse_type(fields, key, value, "true or false");
    return json_is_true(value);
}

int64_t spry_fields_integer(spry_fields *fields, const char *key, int64_t fallback, int64_t min, int64_t max)
{
    const json_t *value = spry_fields_get(fields, key);
    if (!value)
        return fallback;
    double real = json_number_value(value);
    if (!json_is_number(value) || real != floor(real)) {
        spry_fields_refuse_type(fields, key, value, "a whole number");
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
        spry_fields_refuse_type(fields, key, value, "a string");
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
    spry_fields_refuse_type(fields, key, value, wanted);
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

const json_t *spry_fields_tools(spry_fields *fields)
{
    enum { TOOLS_MAX = 16384 };
    const json_t *tools = spry_fields_array(fields, "tools");
    if (json_array_size(tools) > TOOLS_MAX)
        spry_fields_refuse(fields, "tools", "tools has %zu tools; the limit is %d", json_array_size(tools), TOOLS_MAX);
    return tools;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static bool check_content(spry_fields *fields, size_t number, const json_t *content)
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
        if (!check_content(fields, i, json_object_get(message, "content")))
            return;
    }
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static unsigned type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return SPRY_TYPE_OBJECT;
    case JSON_ARRAY: return SPRY_TYPE_LIST;
    case JSON_STRING: return SPRY_TYPE_STRING;
    case JSON_INTEGER: return SPRY_TYPE_INTEGER | SPRY_TYPE_NUMBER;
    case JSON_REAL:
        return SPRY_TYPE_NUMBER |
               (nearbyint(json_real_value(value)) == json_real_value(value) ? SPRY_TYPE_INTEGER : 0u);
    case JSON_TRUE:
    case JSON_FALSE: return SPRY_TYPE_BOOL;
    case JSON_NULL: break;
    }
    return 0;
}

/* "a string or a list" */
static void name_types(char *out, size_t size, unsigned types)
{
    static const struct {
        unsigned type;
        const char *name;
    } names[] = {{SPRY_TYPE_BOOL, "true or false"}, {SPRY_TYPE_INTEGER, "a whole number"},
                 {SPRY_TYPE_NUMBER, "a number"},    {SPRY_TYPE_STRING, "a string"},
                 {SPRY_TYPE_LIST, "a list"},        {SPRY_TYPE_OBJECT, "an object"}};
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < SPRY_COUNT(names); i++)
        if (types & names[i].type && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " or " : "", names[i].name);
}

static const spry_field *find_field(const spry_field_table *table, const char *name)
{
    for (size_t g = 0; g < SPRY_FIELD_GROUPS; g++)
        for (size_t i = 0; i < table->groups[g].count; i++)
            if (strcmp(table->groups[g].fields[i].name, name) == 0)
                return &table->groups[g].fields[i];
    return NULL;
}

static bool is_neutral(const spry_field *field, const json_t *value)
{
    json_t *list = field->neutral ? json_loads(field->neutral, JSON_DECODE_ANY, NULL) : NULL, *item;
    bool found = false;
    size_t i;
    json_array_foreach(list, i, item) found = found || json_equal(item, value);
    json_decref(list);
    return found;
}

static void check_field(spry_fields *fields, const spry_field *field, const char *name, const json_t *value)
{
    char wanted[96];
    if (!field)
        spry_fields_refuse(fields, name, "%s%.60s: there is no such field; docs/SERVER.md lists all fields",
                           fields->within, name);
    else if (json_is_null(value) || is_neutral(field, value))
        return;
    else if (field->use == SPRY_FIELD_REFUSED)
        spry_fields_refuse(fields, name, "%s%s is not supported: %s", fields->within, name, field->about);
    else if (!(field->types & type_of(value))) {
        name_types(wanted, sizeof wanted, field->types);
        spry_fields_refuse_type(fields, name, value, wanted);
    }
}

/* An object inside the body has a table of its own, whose prefix is its name and a dot. */
static void check_inside(spry_fields *fields, const spry_field_table *table)
{
    char key[32];
    snprintf(key, sizeof key, "%.*s", (int)(strlen(table->within) - 1), table->within);
    const json_t *object = spry_fields_get(fields, key);
    spry_fields inside = {.object = object, .within = table->within};
    if (!json_is_object(object))
        return;
    spry_fields_check(&inside, table);
    if (inside.wrong[0])
        spry_fields_refuse(fields, inside.wrong, "%s", inside.error.message);
}

void spry_fields_check(spry_fields *fields, const spry_field_table *table)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)fields->object, name, value)
        check_field(fields, find_field(table, name), name, value);
    for (size_t i = 0; table->inside && table->inside[i]; i++)
        check_inside(fields, table->inside[i]);
}

/* ---- documentation ----------------------------------------------------------------------------------------------- */

static void print_field(spry_buffer *out, const spry_field_table *table, const spry_field *field)
{
    static const char *const uses[] = {
        [SPRY_FIELD_HONOURED] = "honoured", [SPRY_FIELD_ACCEPTED] = "no effect", [SPRY_FIELD_REFUSED] = "refused"};
    char types[96];
    name_types(types, sizeof types, field->types);
    spry_buffer_format(out, "| `%s%s` | %s | %s | `%s` | %s", table->within, field->name, types, uses[field->use],
                       field->example, field->about);
    if (field->neutral)
        spry_buffer_format(out, "; allowed: `%s`", field->neutral);
    spry_buffer_text(out, " |\n");
}

static void print_table(spry_buffer *out, const spry_field_table *table)
{
    for (size_t g = 0; g < SPRY_FIELD_GROUPS; g++)
        for (size_t i = 0; i < table->groups[g].count; i++)
            print_field(out, table, &table->groups[g].fields[i]);
    for (size_t i = 0; table->inside && table->inside[i]; i++)
        print_table(out, table->inside[i]);
}

void spry_fields_print(spry_buffer *out)
{
    static const spry_field_table *const all[] = {
        &spry_fields_openai_chat,    &spry_fields_openai_completion, &spry_fields_openai_embeddings,
        &spry_fields_responses,      &spry_fields_anthropic,         &spry_fields_anthropic_count,
        &spry_fields_ollama_chat,    &spry_fields_ollama_generate,   &spry_fields_ollama_embed,
        &spry_fields_ollama_create,  &spry_fields_llama_completion,  &spry_fields_llama_infill,
        &spry_fields_llama_tokenize, &spry_fields_llama_detokenize,  &spry_fields_rerank,
        &spry_fields_chats,          &spry_fields_model_state,       &spry_fields_model_pin,
        &spry_fields_tool_call};
    spry_buffer_text(out,
                     "## Fields\n\n"
                     "This section is made by `spry help --fields` from the tables that check requests. A field that "
                     "is not listed for its\npath is refused with status 400 and its name; `null` means that a field "
                     "is left out. *No effect*: the field is accepted,\nand its last column says why it changes "
                     "nothing. *Refused*: status 400, unless the value is one of those allowed.\n");
    for (size_t i = 0; i < SPRY_COUNT(all); i++) {
        spry_buffer_format(out, "\n### %s\n\n| field | type | use | example | |\n|---|---|---|---|---|\n",
                           all[i]->title);
        print_table(out, all[i]);
    }
}
