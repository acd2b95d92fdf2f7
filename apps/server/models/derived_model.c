#include "server/models/derived_model.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/number.h"
#include "base/sampling_options.h"
#include "platform/directory.h"
#include "platform/file.h"
#include "platform/model_names.h"
#include "server/fields/fields.h"

enum { FILE_BYTES_MAX = 1 << 20, PATH_BYTES = 4096 };

static const char ending[] = ".derived.json";

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The name of the file; false: this cannot be the name of a model. */
static bool file_name(char out[SPRY_MODEL_NAME_MAX + sizeof ending], const char *name)
{
    const spry_view tag = SPRY_VIEW(":latest");
    spry_view view = spry_view_of(name);
    if (spry_view_ends(view, tag))
        view.size -= tag.size;
    bool fine =
        view.size && view.size < SPRY_MODEL_NAME_MAX && view.data[0] != '.' && !memchr(view.data, '/', view.size);
    for (size_t i = 0; i < view.size; i++)
        fine = fine && (unsigned char)view.data[i] > ' ';
    if (fine)
        snprintf(out, SPRY_MODEL_NAME_MAX + sizeof ending, "%.*s%s", (int)view.size, view.data, ending);
    return fine;
}

json_t *spry_derived_load(const spry_server *server, const char *name)
{
    char file[SPRY_MODEL_NAME_MAX + sizeof ending];
    spry_buffer path, text;
    json_t *description = NULL;
    if (!name || !server->models_folder || !file_name(file, name))
        return NULL;
    spry_buffer_init(&path, PATH_BYTES);
    spry_buffer_init(&text, FILE_BYTES_MAX);
    if (spry_path_join(&path, server->models_folder, file, NULL) == SPRY_OK && spry_path_exists(path.data) &&
        spry_file_read(&text, path.data, NULL) == SPRY_OK)
        (void)spry_json_object(&description, spry_buffer_view(&text), NULL);
    spry_buffer_deinit(&text);
    spry_buffer_deinit(&path);
    if (!json_is_string(json_object_get(description, "from"))) {
        json_decref(description);
        return NULL;
    }
    return description;
}

spry_status spry_derived_save(const spry_server *server, const char *name, const json_t *description, spry_error *error)
{
    char file[SPRY_MODEL_NAME_MAX + sizeof ending];
    spry_buffer path;
    if (!server->models_folder)
        return spry_fail(error, SPRY_ERR_INPUT, "this server has no models folder; --models-dir sets one");
    if (!file_name(file, name))
        return spry_fail(error, SPRY_ERR_INPUT, "\"%.100s\" cannot be the name of a model", name);
    spry_buffer_init(&path, PATH_BYTES);
    spry_status status = spry_path_join(&path, server->models_folder, file, error);
    if (status == SPRY_OK)
        status = spry_file_write_json(path.data, description, JSON_INDENT(2), error);
    spry_buffer_deinit(&path);
    return status;
}

bool spry_derived_remove(const spry_server *server, const char *name)
{
    char file[SPRY_MODEL_NAME_MAX + sizeof ending];
    spry_directory folder;
    if (!server->models_folder || !file_name(file, name) ||
        spry_directory_open(&folder, server->models_folder, NULL) != SPRY_OK)
        return false;
    bool removed = spry_directory_remove(&folder, file) == 0;
    spry_directory_close(&folder);
    return removed;
}

typedef struct visitor {
    void (*visit)(void *context, const char *name);
    void *context;
} visitor;

static void visit_file(void *context, const char *file)
{
    const visitor *v = context;
    char name[SPRY_MODEL_NAME_MAX + 1];
    spry_view view = spry_view_of(file);
    if (!spry_view_ends(view, SPRY_VIEW(".derived.json")) || view.size > SPRY_MODEL_NAME_MAX)
        return;
    snprintf(name, sizeof name, "%.*s", (int)(view.size + 1 - sizeof ending), file);
    v->visit(v->context, name);
}

void spry_derived_each(const spry_server *server, void (*visit)(void *context, const char *name), void *context)
{
    visitor v = {visit, context};
    if (server->models_folder)
        (void)spry_folder_each(server->models_folder, visit_file, &v, NULL);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool has_system(const json_t *messages)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    return role && strcmp(role, "system") == 0;
}

/* The name of a setting of Ollama's interface; outside it, its name in chat completions, NULL: none. */
static const char *setting_name(const char *name, bool ollama)
{
    return ollama ? name : spry_fields_chat_name(&spry_fields_ollama_options, name);
}

/* Ollama's "think" is a variable of the template elsewhere. */
static void apply_think(json_t *body, json_t *value, bool ollama)
{
    json_t *variables = json_object_get(body, "chat_template_kwargs");
    if (ollama && !json_object_get(body, "think"))
        json_object_set(body, "think", value);
    if (ollama || json_object_get(body, "reasoning_effort"))
        return;
    if (!json_is_object(variables))
        json_object_set_new(body, "chat_template_kwargs", variables = json_object());
    if (!json_object_get(variables, "enable_thinking"))
        json_object_set(variables, "enable_thinking", value);
}

static void apply_settings(const json_t *parameters, json_t *body, bool ollama)
{
    const char *key;
    json_t *value;
    if (ollama && json_object_size(parameters) && !json_is_object(json_object_get(body, "options")))
        json_object_set_new(body, "options", json_object());
    json_t *target = ollama ? json_object_get(body, "options") : body;
    json_object_foreach((json_t *)(uintptr_t)parameters, key, value)
    {
        const char *name = setting_name(key, ollama);
        if (strcmp(key, "think") == 0)
            apply_think(body, value, ollama);
        else if (strcmp(key, "verbose") == 0 && !json_object_get(body, key))
            json_object_set(body, key, value);
        else if (name && !json_object_get(target, name))
            json_object_set(target, name, value);
    }
}

void spry_derived_apply(const json_t *description, json_t *body, bool ollama)
{
    json_t *system = json_object_get(description, "system"), *messages = json_object_get(body, "messages");
    apply_settings(json_object_get(description, "parameters"), body, ollama);
    if (json_string_length(system) && json_array_size(messages) && !has_system(messages))
        json_array_insert_new(messages, 0, json_pack("{s:s, s:O}", "role", "system", "content", system));
    else if (json_string_length(system) && ollama && !json_object_get(body, "system"))
        json_object_set(body, "system", system);
}

spry_status spry_derived_defaults(json_t **out, const char *text, spry_error *error)
{
    json_t *settings, *value;
    (void)spry_json_read(&settings, spry_view_of(text), 0, 0, NULL);
    const char *key, *unknown = NULL;
    spry_sampling sampling;
    spry_sampling_default(&sampling);
    if (!json_is_object(settings)) {
        json_decref(settings);
        return spry_fail(error, SPRY_ERR_INPUT, "--defaults is not a JSON object: %s", text);
    }
    json_object_foreach(settings, key, value)
    {
        bool flag = strcmp(key, "think") == 0 || strcmp(key, "verbose") == 0;
        bool count = strcmp(key, "num_predict") == 0;
        if (flag ? !json_is_boolean(value) : count ? !json_is_integer(value) : !setting_name(key, false))
            unknown = key;
    }
    spry_status status = SPRY_OK;
    if (unknown)
        status = spry_fail(error, SPRY_ERR_INPUT, "--defaults: %.60s is unknown, or has a wrong value", unknown);
    else if (spry_sampling_from_json(&sampling, NULL, 0, settings, true, error) != SPRY_OK)
        status = spry_fail_prefix(error, SPRY_ERR_INPUT, "--defaults");
    *out = status == SPRY_OK ? json_pack("{s:O}", "parameters", settings) : NULL;
    json_decref(settings);
    return status;
}

/* ---- Modelfiles -------------------------------------------------------------------------------------------------- */

/* A line is an instruction and its value; a value may be quoted, with three quotes over several lines. */

enum { MODELFILE_BYTES = 1 << 20 };

/* Takes the text up to `mark`, which is dropped, too. False: there is no such mark. */
static bool take_until(spry_view *rest, spry_view *out, spry_view mark)
{
    for (size_t i = 0; i + mark.size <= rest->size; i++)
        if (memcmp(rest->data + i, mark.data, mark.size) == 0) {
            *out = (spry_view){rest->data, i};
            *rest = (spry_view){rest->data + i + mark.size, rest->size - i - mark.size};
            return true;
        }
    return false;
}

static spry_view take_line(spry_view *rest)
{
    spry_view line;
    if (take_until(rest, &line, SPRY_VIEW("\n")))
        return line;
    line = *rest;
    *rest = (spry_view){rest->data + rest->size, 0};
    return line;
}

static spry_view take_word(spry_view *line)
{
    size_t n = 0;
    while (n < line->size && !isspace((unsigned char)line->data[n]))
        n++;
    spry_view word = {line->data, n};
    *line = spry_view_trim((spry_view){line->data + n, line->size - n}, " \t\n\v\f\r");
    return word;
}

/* The value that begins on `line` and may go on in `rest`. */
static bool take_value(spry_view *value, spry_view line, spry_view *rest)
{
    const spry_view quotes = SPRY_VIEW("\"\"\"");
    *value = line;
    if (spry_view_starts(line, quotes)) {
        spry_view from = {line.data + quotes.size, (size_t)(rest->data + rest->size - line.data) - quotes.size};
        bool closed = take_until(&from, value, quotes);
        *rest = from;
        return closed;
    }
    if (line.size > 1 && line.data[0] == '"' && line.data[line.size - 1] == '"')
        *value = (spry_view){line.data + 1, line.size - 2};
    return true;
}

/* A setting that occurs again becomes a list ("stop"). */
static void add_parameter(json_t *parameters, spry_view line)
{
    char name[64];
    double number;
    spry_view word = take_word(&line), none = {line.data + line.size, 0}, value;
    size_t size = word.size < sizeof name ? word.size : sizeof name - 1;
    memcpy(name, word.data, size);
    name[size] = '\0';
    (void)take_value(&value, line, &none);
    json_t *json = json_stringn(value.data, value.size), *before = json_object_get(parameters, name);
    if (strcmp(name, "stop") != 0 && spry_number_double(&number, value)) {
        json_decref(json);
        bool whole = fabs(number) < 1e15 && number == (double)(json_int_t)number;
        json = whole ? json_integer((json_int_t)number) : json_real(number);
    } else if (spry_view_is(value, "true") || spry_view_is(value, "false")) {
        json_decref(json);
        json = json_boolean(spry_view_is(value, "true"));
    }
    if (json_is_array(before))
        json_array_append_new(before, json);
    else if (strcmp(name, "stop") == 0)
        json_object_set_new(parameters, name, json_pack("[o]", json));
    else
        json_object_set_new(parameters, name, json);
}

static bool is(spry_view word, const char *instruction)
{
    return word.size == strlen(instruction) && strncasecmp(word.data, instruction, word.size) == 0;
}

json_t *spry_modelfile_parse(spry_view text, spry_error *error)
{
    json_t *description = json_pack("{s:{}}", "parameters");
    spry_status status = SPRY_OK;
    while (text.size && status == SPRY_OK) {
        spry_view line = spry_view_trim(take_line(&text), " \t\n\v\f\r"), word = take_word(&line), value;
        if (!word.size || word.data[0] == '#')
            continue;
        if (is(word, "PARAMETER"))
            add_parameter(json_object_get(description, "parameters"), line);
        else if (!is(word, "FROM") && !is(word, "SYSTEM") && !is(word, "TEMPLATE"))
            status = spry_fail(error, SPRY_ERR_INPUT,
                               "%.*s is not supported in a Modelfile; FROM, PARAMETER, SYSTEM and TEMPLATE are",
                               SPRY_VIEW_ARG(word));
        else if (!take_value(&value, line, &text))
            status = spry_fail(error, SPRY_ERR_INPUT, "the text of %.*s has no closing quotes", SPRY_VIEW_ARG(word));
        else
            json_object_set_new(description,
                                is(word, "FROM")     ? "from"
                                : is(word, "SYSTEM") ? "system"
                                                     : "template",
                                json_stringn(value.data, value.size));
    }
    if (status == SPRY_OK)
        return description;
    json_decref(description);
    return NULL;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void print_value(spry_buffer *out, const char *before, const char *name, const json_t *value)
{
    size_t i;
    const json_t *item;
    if (json_is_string(value))
        spry_buffer_format(out, "%s%s \"%s\"\n", before, name, json_string_value(value));
    else if (json_is_integer(value))
        spry_buffer_format(out, "%s%s %" JSON_INTEGER_FORMAT "\n", before, name, json_integer_value(value));
    else if (json_is_real(value))
        spry_buffer_format(out, "%s%s %.9g\n", before, name, json_real_value(value));
    else if (json_is_boolean(value))
        spry_buffer_format(out, "%s%s %s\n", before, name, json_is_true(value) ? "true" : "false");
    json_array_foreach(value, i, item) print_value(out, before, name, item);
}

static void print_parameters(spry_buffer *out, const json_t *description, const char *before)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(description, "parameters"), name, value) print_value(out, before, name, value);
}

static json_t *string_of(spry_buffer *text)
{
    json_t *json = json_stringn(spry_buffer_view(text).data, text->size);
    spry_buffer_deinit(text);
    return json;
}

json_t *spry_modelfile_parameters(const json_t *description)
{
    spry_buffer out;
    spry_buffer_init(&out, MODELFILE_BYTES);
    print_parameters(&out, description, "");
    return string_of(&out);
}

json_t *spry_modelfile_text(const json_t *description)
{
    static const char *const texts[][2] = {{"system", "SYSTEM"}, {"template", "TEMPLATE"}};
    spry_buffer out;
    spry_buffer_init(&out, MODELFILE_BYTES);
    const char *from = json_string_value(json_object_get(description, "from"));
    spry_buffer_format(&out, "FROM %s\n", from ? from : "");
    print_parameters(&out, description, "PARAMETER ");
    for (size_t i = 0; i < SPRY_COUNT(texts); i++) {
        const char *text = json_string_value(json_object_get(description, texts[i][0]));
        if (text && *text)
            spry_buffer_format(&out, "%s \"\"\"%s\"\"\"\n", texts[i][1], text);
    }
    return string_of(&out);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

typedef struct search {
    spry_view name;
    char *out;
    bool found, exact;
} search;

static bool compare(void *context, const spry_pool_info *info)
{
    search *s = context;
    if (strlen(info->name) != s->name.size || strncasecmp(info->name, s->name.data, s->name.size) != 0)
        return true;
    bool exact = memcmp(info->name, s->name.data, s->name.size) == 0;
    if (exact || !s->found)
        snprintf(s->out, SPRY_MODEL_NAME, "%s", info->name);
    s->found = true;
    return !exact;
}

bool spry_model_is_alias(const spry_server *server, spry_view name)
{
    for (const char *at = server->settings->alias; at && *at;) {
        at += strspn(at, ", ");
        size_t size = strcspn(at, ", ");
        if (size && size == name.size && strncasecmp(at, name.data, size) == 0)
            return true;
        at += size;
    }
    return false;
}

const char *spry_model_name(char out[SPRY_MODEL_NAME], const spry_server *server, const char *name)
{
    const spry_view tag = SPRY_VIEW(":latest");
    if (!name || !*name)
        return NULL;
    search s = {.name = spry_view_of(name), .out = out};
    if (spry_view_ends(s.name, tag))
        s.name.size -= tag.size;
    spry_model_pool_each(server->pool, compare, &s);
    if (s.found)
        return out;
    char called[SPRY_MODEL_NAME_MAX + 1], path[SPRY_MODEL_PATH_MAX + 1]; /* a name that a model was pulled by */
    if (spry_model_name_find(called, path, server->models_folder, name, NULL) == SPRY_OK) {
        snprintf(out, SPRY_MODEL_NAME, "%s", called);
        return out;
    }
    return server->settings->any_model || spry_model_is_alias(server, s.name) ? NULL : name;
}
