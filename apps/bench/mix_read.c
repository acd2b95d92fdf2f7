/* Named mixes are data. A file is one JSON object:
 *
 *   {"format": "spry-mix-1", "prompt": {"512": 3, "4096": 1}, "answer": {"128": 1},
 *    "systems": {"helper": {"tokens": 256, "share": 2}, "coder": {"tokens": 400, "share": 1}}}
 *
 * or lines of JSON, one request each: {"messages": [...], "max_tokens": 64}, {"prompt": "...", "max_tokens": 64},
 * {"prompt_tokens": 512, "answer_tokens": 64, "system": "helper", "system_tokens": 256}, or a line of `spry batch`,
 * whose "body" is such an object. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "bench/mix.h"
#include "platform/file.h"

enum { FILE_MAX = 256 << 20, ANSWER_TOKENS = 128, SYSTEM_TOKENS = 256 };

#define LENGTHS(a, b, c, d)                                                                                            \
    {                                                                                                                  \
        .list = {{512, a}, {1024, b}, {2048, c}, {4096, d}}, .count = 4                                                \
    }

static const spry_mix named[] = {
    {.name = "uniform", .prompts = LENGTHS(1, 1, 1, 1), .answers = LENGTHS(1, 1, 1, 1)},
    {.name = "chat",
     .prompts = LENGTHS(50, 30, 15, 5),
     .answers = LENGTHS(85, 15, 0, 0),
     .systems = {{"assistant", 256, 70, NULL}, {"coder", 384, 30, NULL}},
     .n_systems = 2},
    {.name = "documents",
     .prompts = LENGTHS(0, 10, 30, 60),
     .answers = LENGTHS(1, 0, 0, 0),
     .systems = {{"reader", 128, 1, NULL}},
     .n_systems = 1},
    {.name = "agent",
     .prompts = LENGTHS(0, 0, 50, 50),
     .answers = LENGTHS(90, 10, 0, 0),
     .systems = {{"tools", 1024, 80, NULL}, {"planner", 512, 20, NULL}},
     .n_systems = 2},
    {.name = "writing", .prompts = LENGTHS(80, 20, 0, 0), .answers = LENGTHS(0, 30, 40, 30)},
};

void spry_mix_names(char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < SPRY_COUNT(named) && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", named[i].name);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* A whole number of tokens from `least` on; a missing one is `otherwise`. */
static spry_status read_tokens(uint32_t *out, const json_t *object, const char *key, uint32_t least, uint32_t otherwise,
                               spry_error *error)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_integer_value(value);
    *out = otherwise;
    if (!value)
        return SPRY_OK;
    if (!json_is_integer(value) || number < (json_int_t)least || number > SPRY_MIX_TOKENS_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" is not a whole number from %u to %d", key, least,
                         SPRY_MIX_TOKENS_MAX);
    *out = (uint32_t)number;
    return SPRY_OK;
}

static spry_status read_weight(double *out, const json_t *value, const char *where, const char *key, spry_error *error)
{
    *out = json_number_value(value);
    if (json_is_number(value) && *out >= 0 && *out <= 1e9)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "%s.%.40s is not a share: a number from 0 to 1000000000", where, key);
}

/* ---- distributions ----------------------------------------------------------------------------------------------- */

static spry_status read_lengths(spry_mix_lengths *out, const json_t *file, const char *key, spry_error *error)
{
    const json_t *object = json_object_get(file, key);
    const char *tokens;
    json_t *weight;
    double sum = 0;
    out->count = 0;
    if (!json_is_object(object))
        return spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" is not an object of lengths and shares, as {\"512\": 3}", key);
    json_object_foreach((json_t *)object, tokens, weight)
    {
        uint64_t number;
        if (!spry_number_u64(&number, spry_view_of(tokens)) || !number || number > SPRY_MIX_TOKENS_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: '%.40s' is not a length from 1 to %d tokens", key, tokens,
                             SPRY_MIX_TOKENS_MAX);
        if (out->count == SPRY_MIX_LENGTHS_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" has more than %d lengths", key, SPRY_MIX_LENGTHS_MAX);
        spry_mix_length *length = &out->list[out->count++];
        length->tokens = (uint32_t)number;
        spry_status status = read_weight(&length->weight, weight, key, tokens, error);
        if (status)
            return status;
        sum += length->weight;
    }
    return sum > 0 ? SPRY_OK : spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" has no length with a share above 0", key);
}

static spry_status read_systems(spry_mix *mix, const json_t *systems, spry_error *error)
{
    const char *name;
    json_t *value;
    double sum = 0;
    if (!systems)
        return SPRY_OK;
    if (!json_is_object(systems) || json_object_size(systems) > SPRY_MIX_SYSTEMS_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "\"systems\" is not an object of at most %d system prompts",
                         SPRY_MIX_SYSTEMS_MAX);
    json_object_foreach((json_t *)systems, name, value)
    {
        spry_mix_system *system = &mix->systems[mix->n_systems++];
        char where[64];
        snprintf(where, sizeof where, "systems.%.40s", name);
        snprintf(system->name, sizeof system->name, "%s", name);
        system->weight = 1;
        spry_status status = json_is_object(value)
                                 ? read_tokens(&system->tokens, value, "tokens", 1, SYSTEM_TOKENS, error)
                                 : spry_fail(error, SPRY_ERR_FORMAT, "it is not an object");
        if (!status && json_object_get(value, "share"))
            status = read_weight(&system->weight, json_object_get(value, "share"), "it", "share", error);
        if (status)
            return spry_fail_prefix(error, status, where);
        sum += system->weight;
    }
    return sum > 0 || !mix->n_systems ? SPRY_OK
                                      : spry_fail(error, SPRY_ERR_FORMAT, "no system prompt has a share above 0");
}

static spry_status read_distributions(spry_mix *mix, const json_t *file, spry_error *error)
{
    static const char *const known[] = {"format", "prompt", "answer", "systems"};
    const char *key, *format = json_string_value(json_object_get(file, "format"));
    json_t *value;
    if (!format || strcmp(format, SPRY_MIX_FORMAT) != 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "\"format\" is not \"%s\"", SPRY_MIX_FORMAT);
    json_object_foreach((json_t *)file, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < SPRY_COUNT(known); i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        if (!is_known)
            return spry_fail(error, SPRY_ERR_FORMAT, "%.40s is not known; known are format, prompt, answer and systems",
                             key);
    }
    spry_status status = read_lengths(&mix->prompts, file, "prompt", error);
    if (!status)
        status = read_lengths(&mix->answers, file, "answer", error);
    return status ? status : read_systems(mix, json_object_get(file, "systems"), error);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* The system prompt of this name or text, which is new, or of the same length as before. Where there are too many, the
 * last one stands for all others. */
static spry_status find_system(size_t *index, spry_mix *mix, const char *name, const char *text, uint32_t tokens,
                               spry_error *error)
{
    for (*index = 0; *index < mix->n_systems; ++*index) {
        const spry_mix_system *s = &mix->systems[*index];
        if (text ? !s->text || strcmp(s->text, text) != 0 : s->text || strcmp(s->name, name) != 0)
            continue;
        if (s->tokens != tokens)
            return spry_fail(error, SPRY_ERR_FORMAT,
                             "the system prompt \"%.40s\" has %u tokens, but %u in an earlier line", name, tokens,
                             s->tokens);
        return SPRY_OK;
    }
    bool room = mix->n_systems < SPRY_MIX_SYSTEMS_MAX;
    if (!room && !text)
        return spry_fail(error, SPRY_ERR_FORMAT, "there are more than %d system prompts", SPRY_MIX_SYSTEMS_MAX);
    *index = room ? mix->n_systems++ : SPRY_MIX_SYSTEMS_MAX - 1;
    spry_mix_system *system = &mix->systems[*index];
    if (room)
        *system = (spry_mix_system){.tokens = tokens, .weight = 1, .text = text};
    snprintf(system->name, sizeof system->name, "%s", room ? name : "others");
    return SPRY_OK;
}

static spry_status read_lengths_line(spry_mix *mix, spry_mix_line *line, const json_t *body, spry_error *error)
{
    const json_t *system = json_object_get(body, "system");
    uint32_t tokens;
    spry_status status = read_tokens(&line->prompt_tokens, body, "prompt_tokens", 1, 0, error);
    if (!status)
        status = read_tokens(&line->answer_tokens, body, "answer_tokens", 1, ANSWER_TOKENS, error);
    if (!status)
        status = read_tokens(&tokens, body, "system_tokens", 1, SYSTEM_TOKENS, error);
    if (!status && system && (!json_is_string(system) || !json_string_length(system)))
        status = spry_fail(error, SPRY_ERR_FORMAT, "\"system\" is not the name of a system prompt");
    if (!status && !system && json_object_get(body, "system_tokens"))
        status = spry_fail(error, SPRY_ERR_FORMAT, "\"system_tokens\" needs \"system\", the prompt's name");
    return status || !system ? status : find_system(&line->system, mix, json_string_value(system), NULL, tokens, error);
}

static spry_status read_messages(spry_mix *mix, spry_mix_line *line, json_t *messages, spry_error *error)
{
    line->messages = messages;
    if (!json_is_array(messages) || !json_array_size(messages))
        return spry_fail(error, SPRY_ERR_FORMAT, "\"messages\" is not an array with a message in it");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || !json_object_get(message, "content"))
            return spry_fail(error, SPRY_ERR_FORMAT, "messages[%zu] has no \"role\" and \"content\"", i);
    }
    const json_t *first = json_array_get(messages, 0);
    const char *text = json_string_value(json_object_get(first, "content"));
    if (!text || strcmp(json_string_value(json_object_get(first, "role")), "system") != 0)
        return SPRY_OK;
    return find_system(&line->system, mix, text, text, 0, error);
}

/* One request; on success or failure the line owns its messages. */
static spry_status read_body(spry_mix *mix, spry_mix_line *line, const json_t *body, spry_error *error)
{
    json_t *messages = json_object_get(body, "messages"), *prompt = json_object_get(body, "prompt");
    if (json_object_get(body, "prompt_tokens"))
        return read_lengths_line(mix, line, body, error);
    const char *limit = json_object_get(body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    spry_status status = read_tokens(&line->answer_tokens, body, limit, 1, ANSWER_TOKENS, error);
    if (status)
        return status;
    if (messages)
        return read_messages(mix, line, json_incref(messages), error);
    if (!json_is_string(prompt) || !json_string_length(prompt))
        return spry_fail(error, SPRY_ERR_FORMAT, "it has none of \"messages\", \"prompt\" and \"prompt_tokens\"");
    messages = json_pack("[{s:s, s:O}]", "role", "user", "content", prompt);
    return messages ? read_messages(mix, line, messages, error) : spry_fail_memory(error, "a request", 1);
}

static bool add_line(spry_mix *mix, size_t number)
{
    size_t room = 64;
    while (room < mix->n_lines)
        room *= 2;
    if (mix->n_lines == room || !mix->lines) {
        spry_mix_line *grown = realloc(mix->lines, (mix->lines ? 2 * room : room) * sizeof *grown);
        if (!grown)
            return false;
        mix->lines = grown;
    }
    mix->lines[mix->n_lines++] = (spry_mix_line){.number = number, .system = SPRY_MIX_NO_SYSTEM};
    return true;
}

static spry_status read_line(spry_mix *mix, spry_view text, size_t number, spry_error *error)
{
    json_t *object = NULL;
    char where[32];
    if (mix->n_lines == SPRY_MIX_REQUESTS_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "it has more than %d requests", SPRY_MIX_REQUESTS_MAX);
    if (!add_line(mix, number))
        return spry_fail_memory(error, "requests", mix->n_lines * sizeof *mix->lines);
    spry_status status = spry_json_object(&object, text, error);
    const json_t *body = json_object_get(object, "body");
    if (!status)
        status = read_body(mix, &mix->lines[mix->n_lines - 1], json_is_object(body) ? body : object, error);
    json_decref(object);
    snprintf(where, sizeof where, "line %zu", number);
    return status ? spry_fail_prefix(error, status, where) : SPRY_OK;
}

static spry_status read_lines(spry_mix *mix, spry_view text, spry_error *error)
{
    spry_status status = SPRY_OK;
    for (size_t at = 0, number = 1; !status && at < text.size; number++) {
        const char *begin = text.data + at, *end = memchr(begin, '\n', text.size - at);
        spry_view line = {begin, end ? (size_t)(end - begin) : text.size - at};
        at += line.size + 1;
        while (line.size && memchr(" \t\r", line.data[line.size - 1], 3))
            line.size--;
        if (line.size)
            status = read_line(mix, line, number, error);
    }
    if (!status && !mix->n_lines)
        status = spry_fail(error, SPRY_ERR_FORMAT, "it has no request");
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Whether the text is one object that says its format, or begins as one over several lines. */
static bool is_distribution(spry_view text)
{
    json_error_t unused;
    json_t *whole = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, &unused);
    const char *end = memchr(text.data, '\n', text.size);
    spry_view first = {text.data, end ? (size_t)(end - text.data) : text.size};
    while (first.size && memchr(" \t\r", first.data[first.size - 1], 3))
        first.size--;
    bool yes = json_object_get(whole, "format") || (first.size == 1 && first.data[0] == '{');
    json_decref(whole);
    return yes;
}

static spry_status read_file(spry_mix *mix, spry_view text, spry_error *error)
{
    json_t *file = NULL;
    if (!is_distribution(text))
        return read_lines(mix, text, error);
    spry_status status = spry_json_object(&file, text, error);
    if (!status)
        status = read_distributions(mix, file, error);
    json_decref(file);
    return status;
}

spry_status spry_mix_read(spry_mix *mix, const char *name_or_path, spry_error *error)
{
    *mix = (spry_mix){.n_lines = 0};
    for (size_t i = 0; i < SPRY_COUNT(named); i++)
        if (strcmp(named[i].name, name_or_path) == 0) {
            *mix = named[i];
            return SPRY_OK;
        }
    const char *slash = strrchr(name_or_path, '/');
    snprintf(mix->name, sizeof mix->name, "%s", slash ? slash + 1 : name_or_path);
    if (!spry_path_exists(name_or_path)) {
        char names[128];
        spry_mix_names(names, sizeof names);
        return spry_fail(error, SPRY_ERR_FILE, "--mix: '%.200s' is neither a file nor one of %s", name_or_path, names);
    }
    spry_buffer text;
    spry_buffer_init(&text, FILE_MAX);
    spry_status status = spry_file_read(&text, name_or_path, error);
    if (!status)
        status = read_file(mix, spry_buffer_view(&text), error);
    if (status && strncmp(error->message, name_or_path, strlen(name_or_path)) != 0)
        spry_fail_prefix(error, status, name_or_path);
    spry_buffer_deinit(&text);
    return status;
}

void spry_mix_deinit(spry_mix *mix)
{
    for (size_t i = 0; i < mix->n_lines; i++)
        json_decref(mix->lines[i].messages);
    free(mix->lines);
    *mix = (spry_mix){.n_lines = 0};
}
