#include "server/fields/fields.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/json.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"

const char *spry_fields_type_name(const json_t *value)
{
    static const char *const names[] = {"an object", "a list", "a string", "a number",
                                        "a number",  "true",   "false",    "null"};
    return names[json_typeof(value)];
}

enum { VALUES_FREE = 64 << 20, VALUES_A_BYTE = 8 };

spry_status spry_fields_parse(json_t **root, spry_exchange *x, spry_error *error)
{
    size_t own = VALUES_FREE + VALUES_A_BYTE * x->body.size, most = x->server->settings->request_memory / 2;
    spry_status status = spry_json_read(root, spry_buffer_view(&x->body), 0, own < most ? own : most, error);
    return status ? spry_fail_prefix(error, status, "the body") : SPRY_OK;
}

bool spry_fields_open(spry_fields *fields, json_t **root, spry_exchange *exchange, const spry_field_table *table)
{
    spry_error error;
    *fields = (spry_fields){.within = "", .ignored = exchange->server->settings->strict ? NULL : &exchange->ignored};
    *root = NULL;
    if (exchange->body.size == 0)
        spry_reply_error(exchange, SPRY_HTTP_BAD_REQUEST, NULL, "the body is empty; send a JSON object");
    else if (spry_fields_parse(root, exchange, &error) != SPRY_OK)
        spry_reply_failure(exchange, &error);
    else if (!json_is_object(*root)) {
        spry_reply_error(exchange, SPRY_HTTP_BAD_REQUEST, NULL, "the body: not a JSON object");
        json_decref(*root);
        *root = NULL;
    }
    fields->object = *root;
    if (*root && table)
        spry_fields_check(fields, table);
    return *root != NULL;
}

bool spry_fields_fine(const spry_fields *fields, spry_exchange *exchange)
{
    if (fields->wrong[0])
        spry_reply_error(exchange, spry_reply_status(fields->error.status), fields->wrong, "%s", fields->error.message);
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

void spry_fields_refuse_memory(spry_fields *fields, const char *key)
{
    if (fields->wrong[0])
        return;
    spry_fields_refuse(fields, key, "not enough memory for %s%s", fields->within, key);
    fields->error.status = SPRY_ERR_MEMORY;
}

void spry_fields_refuse_type(spry_fields *fields, const char *key, const json_t *value, const char *wanted)
{
    spry_fields_refuse(fields, key, "%s%s is %s, but must be %s", fields->within, key, spry_fields_type_name(value),
                       wanted);
}

/* Whether the list has a name, between commas. */
static bool is_listed(spry_view list, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = list.data; (at = strstr(at, name)); at += size)
        if ((at == list.data || at[-1] == ' ') && (at[size] == ',' || !at[size]))
            return true;
    return false;
}

/* Appends a name to the list, once. It becomes part of a header, so other bytes than letters, digits and a few signs
 * are replaced. */
static void add_ignored(spry_buffer *list, const char *within, const char *name)
{
    enum { NAME_BYTES = 96, LIST_BYTES = 1024 };
    char whole[NAME_BYTES];
    snprintf(whole, sizeof whole, "%s%s", within, *name ? name : "?");
    for (char *at = whole; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("_.-[]=/", *at))
            *at = '?';
    spry_view all = spry_buffer_view(list);
    if (is_listed(all, whole) || is_listed(all, "..."))
        return;
    spry_buffer_format(list, "%s%s", all.size ? ", " : "", all.size + strlen(whole) > LIST_BYTES ? "..." : whole);
}

void spry_fields_ignore(spry_fields *fields, const char *key, const char *name, const char *why)
{
    if (fields->ignored)
        add_ignored(fields->ignored, fields->within, name);
    else
        spry_fields_refuse(fields, key, "%s%.60s: %s", fields->within, name, why);
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

const spry_field *spry_fields_find(const spry_field_table *table, const char *name)
{
    for (size_t g = 0; g < SPRY_FIELD_GROUPS; g++)
        for (size_t i = 0; i < table->groups[g].count; i++)
            if (strcmp(table->groups[g].fields[i].name, name) == 0)
                return &table->groups[g].fields[i];
    return NULL;
}

static bool has_key(const spry_field_table *table, const char *key)
{
    const char *const *only = table->only;
    while (only && *only && strcmp(*only, key) != 0)
        only++;
    return !only || *only;
}

/* The option whose JSON key is a field of the table; NULL: none. */
static const spry_option *find_option(const spry_field_table *table, const char *key)
{
    if (!table->options || !has_key(table, key))
        return NULL;
    const spry_option_table options = table->options(NULL);
    return spry_options_find(&options, key);
}

static unsigned option_types(const spry_option *option)
{
    switch (option->kind) {
    case SPRY_OPTION_FLAG: return SPRY_TYPE_BOOL;
    case SPRY_OPTION_FLOAT: return SPRY_TYPE_NUMBER;
    case SPRY_OPTION_U32:
    case SPRY_OPTION_U64:
    case SPRY_OPTION_SIZE: return SPRY_TYPE_INTEGER;
    case SPRY_OPTION_LIST: return SPRY_TYPE_STRING | SPRY_TYPE_LIST;
    case SPRY_OPTION_STRING:
    case SPRY_OPTION_CHOICE: break;
    }
    return SPRY_TYPE_STRING;
}

/* Calls `visit` for every JSON key of the table's options. */
static void each_option(const spry_field_table *table, void *target,
                        void (*visit)(void *context, const spry_option_table *options, const spry_option *option,
                                      const char *key, bool alias),
                        void *context)
{
    const spry_option_table options = table->options ? table->options(target) : (spry_option_table){0};
    for (size_t i = 0; i < options.count; i++) {
        const char *const names[] = {options.options[i].name, options.options[i].alias};
        for (size_t k = 0; k < SPRY_COUNT(names) && names[k]; k++) {
            char key[64];
            spry_options_key(key, sizeof key, names[k]);
            if (has_key(table, key))
                visit(context, &options, &options.options[i], key, k > 0);
        }
    }
}

static bool is_neutral(const spry_field *field, const json_t *value)
{
    json_t *list = field->neutral ? spry_json_value(spry_view_of(field->neutral)) : NULL, *item;
    bool found = false;
    size_t i;
    json_array_foreach(list, i, item) found = found || json_equal(item, value);
    json_decref(list);
    return found;
}

static void check_type(spry_fields *fields, const char *name, const json_t *value, unsigned types)
{
    char wanted[96];
    if (types & type_of(value))
        return;
    name_types(wanted, sizeof wanted, types);
    spry_fields_refuse_type(fields, name, value, wanted);
}

static void check_field(spry_fields *fields, const spry_field_table *table, const char *name, const json_t *value)
{
    const spry_field *field = spry_fields_find(table, name);
    const spry_option *option = field ? NULL : find_option(table, name);
    if (json_is_null(value) || (field && is_neutral(field, value)))
        return;
    if (!field && !option)
        spry_fields_ignore(fields, name, name, "there is no such field; docs/API_FIELDS.md lists all fields");
    else if (field && field->use == SPRY_FIELD_REFUSED)
        spry_fields_refuse(fields, name, "%s%s is not supported: %s", fields->within, name, field->about);
    else
        check_type(fields, name, value, field ? field->types : option_types(option));
}

/* An object inside the body has a table, whose prefix is the object's name and a dot. False: there is no such object.
 */
static bool open_inside(spry_fields *inside, const spry_fields *fields, const spry_field_table *table)
{
    char key[32];
    snprintf(key, sizeof key, "%.*s", (int)(strlen(table->within) - 1), table->within);
    *inside =
        (spry_fields){.object = spry_fields_get(fields, key), .within = table->within, .ignored = fields->ignored};
    return json_is_object(inside->object);
}

static void close_inside(const spry_fields *inside, spry_fields *fields)
{
    if (inside->wrong[0])
        spry_fields_refuse(fields, inside->wrong, "%s", inside->error.message);
}

void spry_fields_check(spry_fields *fields, const spry_field_table *table)
{
    const char *name;
    json_t *value;
    spry_fields inside;
    json_object_foreach((json_t *)(uintptr_t)fields->object, name, value) check_field(fields, table, name, value);
    if (table->places)
        spry_fields_check_members(fields, table->places);
    for (size_t i = 0; table->inside && table->inside[i]; i++)
        if (open_inside(&inside, fields, table->inside[i])) {
            spry_fields_check(&inside, table->inside[i]);
            close_inside(&inside, fields);
        }
}

/* ---- reading by tables ------------------------------------------------------------------------------------------- */

static void *member(void *target, const spry_field *field)
{
    return (char *)target + field->offset;
}

void spry_read_bool(void *target, spry_fields *fields, const spry_field *field, const json_t *value)
{
    (void)value;
    *(bool *)member(target, field) = spry_fields_bool(fields, field->name, false);
}

void spry_read_not(void *target, spry_fields *fields, const spry_field *field, const json_t *value)
{
    (void)value;
    *(bool *)member(target, field) = !spry_fields_bool(fields, field->name, false);
}

void spry_read_u32(void *target, spry_fields *fields, const spry_field *field, const json_t *value)
{
    (void)value;
    *(uint32_t *)member(target, field) = (uint32_t)spry_fields_integer(fields, field->name, 0, field->min, field->max);
}

/* The index of a text among the field's words. */
static unsigned char word_index(spry_fields *fields, const spry_field *field)
{
    const char *given = spry_fields_string(fields, field->name, "");
    unsigned char at = 0;
    while (field->words[at] && strcmp(given, field->words[at]) != 0)
        at++;
    if (field->words[at])
        return at;
    spry_buffer list;
    spry_buffer_init(&list, 256);
    for (size_t i = 0; field->words[i]; i++)
        spry_buffer_format(&list, "%s\"%s\"", i == 0 ? "" : field->words[i + 1] ? ", " : " or ", field->words[i]);
    spry_fields_refuse(fields, field->name, "%s%s must be %.*s", fields->within, field->name,
                       SPRY_VIEW_ARG(spry_buffer_view(&list)));
    spry_buffer_deinit(&list);
    return 0;
}

void spry_read_text(void *target, spry_fields *fields, const spry_field *field, const json_t *value)
{
    (void)value;
    if (field->words)
        (void)word_index(fields, field);
    *(const char **)member(target, field) = spry_fields_string(fields, field->name, NULL);
}

void spry_read_word(void *target, spry_fields *fields, const spry_field *field, const json_t *value)
{
    (void)value;
    *(unsigned char *)member(target, field) = word_index(fields, field);
}

void spry_read_json(void *target, spry_fields *fields, const spry_field *field, const json_t *value)
{
    (void)fields;
    *(const json_t **)member(target, field) = value;
}

static void read_option(void *context, const spry_option_table *options, const spry_option *option, const char *key,
                        bool alias)
{
    spry_fields *fields = context;
    const json_t *value = spry_fields_get(fields, key);
    spry_error error;
    (void)alias;
    if (option->negative_unset && json_is_number(value) && json_number_value(value) < 0)
        return;
    if (value && spry_options_set_json(options, key, value, &error) != SPRY_OK)
        spry_fields_refuse(fields, key, "%s%s", fields->within, error.message);
}

void spry_fields_read(void *target, spry_fields *fields, const spry_field_table *table)
{
    spry_fields inside;
    each_option(table, target, read_option, fields);
    for (size_t g = 0; g < SPRY_FIELD_GROUPS; g++)
        for (size_t i = 0; i < table->groups[g].count; i++) {
            const spry_field *field = &table->groups[g].fields[i];
            const json_t *value = field->read ? spry_fields_get(fields, field->name) : NULL;
            if (value)
                field->read(target, fields, field, value);
        }
    for (size_t i = 0; table->inside && table->inside[i]; i++)
        if (open_inside(&inside, fields, table->inside[i])) {
            spry_fields_read(target, &inside, table->inside[i]);
            close_inside(&inside, fields);
        }
}

const char *spry_fields_chat_name(const spry_field_table *table, const char *name)
{
    const spry_field *field = spry_fields_find(table, name);
    return field ? field->chat : find_option(table, name) ? name : NULL;
}

void spry_fields_copy(json_t *chat_body, const spry_fields *fields, const spry_field_table *table)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)fields->object, name, value)
    {
        const char *chat = json_is_null(value) ? NULL : spry_fields_chat_name(table, name);
        if (chat)
            json_object_set(chat_body, chat, value);
    }
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
    if (field->read == spry_read_u32)
        spry_buffer_format(out, "; from %" PRId64 " to %" PRId64, field->min, field->max);
    if (field->neutral)
        spry_buffer_format(out, "; allowed: `%s`", field->neutral);
    spry_buffer_text(out, " |\n");
}

/* A value that the option accepts. */
static void print_example(char *out, size_t size, const spry_option *option)
{
    const char *const *last = option->choices;
    if (option->kind != SPRY_OPTION_CHOICE) {
        snprintf(out, size, "%s", option->kind == SPRY_OPTION_FLOAT ? "0.5" : "40");
        return;
    }
    while (last[1])
        last++;
    snprintf(out, size, "\"%s\"", *last);
}

typedef struct print_work {
    spry_buffer *out;
    const spry_field_table *table;
} print_work;

static void print_option(void *context, const spry_option_table *options, const spry_option *option, const char *key,
                         bool alias)
{
    const print_work *work = context;
    char types[96], values[SPRY_OPTION_VALUES_MAX], example[64], name[64];
    (void)options;
    name_types(types, sizeof types, option_types(option));
    spry_options_values(values, sizeof values, option);
    spry_options_key(name, sizeof name, option->name);
    print_example(example, sizeof example, option);
    spry_buffer_format(work->out, "| `%s%s` | %s | honoured | `%s` | ", work->table->within, key, types, example);
    if (alias)
        spry_buffer_format(work->out, "the same as `%s` |\n", name);
    else
        spry_buffer_format(work->out, "%s; %s%s |\n", option->help, values,
                           option->negative_unset ? "; negative: not set" : "");
}

static void print_table(spry_buffer *out, const spry_field_table *table)
{
    for (size_t g = 0; g < SPRY_FIELD_GROUPS; g++)
        for (size_t i = 0; i < table->groups[g].count; i++)
            print_field(out, table, &table->groups[g].fields[i]);
    each_option(table, NULL, print_option, &(print_work){out, table});
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
                     "# Fields of requests\n\n"
                     "This page is made by `spry help --fields` from the tables that check and read requests. A field "
                     "that is not listed for\nits path changes nothing, and the reply's header `x-spry-ignored` names "
                     "it; with `--strict` it is refused with status\n400. `null` means that a field is left out. *No "
                     "effect*: the field is accepted, and its last column says why it changes\nnothing. *Refused*: "
                     "status 400, unless the value is one of the values after *allowed*.\n");
    for (size_t i = 0; i < SPRY_COUNT(all); i++) {
        spry_buffer_format(out, "\n## %s\n\n| field | type | use | example | |\n|---|---|---|---|---|\n",
                           all[i]->title);
        print_table(out, all[i]);
    }
}
