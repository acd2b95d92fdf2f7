/* The requests of a workload: read from data, drawn, and written as text.
 *
 * Named mixes are data. A file is one JSON object:
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
#include "bench/bench.h"
#include "bench/mix.h"
#include "platform/file.h"
#include "server/request/agents.h"

enum {
    FILE_MAX = 256 << 20,
    ANSWER_TOKENS = 128,
    SYSTEM_TOKENS = 256,
    NO_SYSTEM = SPRY_MIX_CHOICES_MAX,
    REQUESTS_DEFAULT = 16,
    BEGIN_MAX = 160
};

#define LENGTH(n, share)                                                                                               \
    {                                                                                                                  \
        .tokens = n, .weight = share                                                                                   \
    }
#define LENGTHS(a, b, c, d)                                                                                            \
    {                                                                                                                  \
        .list = {LENGTH(512, a), LENGTH(1024, b), LENGTH(2048, c), LENGTH(4096, d)}, .count = 4                        \
    }

static const spry_mix named[] = {
    {.name = "uniform", .prompts = LENGTHS(1, 1, 1, 1), .answers = LENGTHS(1, 1, 1, 1)},
    {.name = "chat",
     .prompts = LENGTHS(50, 30, 15, 5),
     .answers = LENGTHS(85, 15, 0, 0),
     .systems = {{{256, 70, "assistant", NULL}, {384, 30, "coder", NULL}}, 2}},
    {.name = "documents",
     .prompts = LENGTHS(0, 10, 30, 60),
     .answers = LENGTHS(1, 0, 0, 0),
     .systems = {{{128, 1, "reader", NULL}}, 1}},
    {.name = "agent",
     .prompts = LENGTHS(0, 0, 50, 50),
     .answers = LENGTHS(90, 10, 0, 0),
     .systems = {{{1024, 80, "tools", NULL}, {512, 20, "planner", NULL}}, 2}},
    {.name = "writing", .prompts = LENGTHS(80, 20, 0, 0), .answers = LENGTHS(0, 30, 40, 30)},
};

/* ---- distributions ----------------------------------------------------------------------------------------------- */

/* A whole number of tokens from 1 on; a missing one is `otherwise`. */
static spry_status read_tokens(uint32_t *out, const json_t *object, const char *key, uint32_t otherwise,
                               spry_error *error)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_integer_value(value);
    *out = value ? (uint32_t)number : otherwise;
    if (value && (!json_is_integer(value) || number < 1 || number > SPRY_MIX_TOKENS_MAX))
        return spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" is not a whole number from 1 to %d", key, SPRY_MIX_TOKENS_MAX);
    return SPRY_OK;
}

static spry_status read_weight(double *out, const json_t *value, const char *where, const char *key, spry_error *error)
{
    *out = json_number_value(value);
    if (json_is_number(value) && *out >= 0 && *out <= 1e9)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "%s.%.40s is not a share: a number from 0 to 1000000000", where, key);
}

static spry_status read_lengths(spry_mix_choices *out, const json_t *file, const char *key, spry_error *error)
{
    json_t *object = json_object_get(file, key), *weight;
    const char *tokens;
    double sum = 0;
    if (!json_is_object(object))
        return spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" is not an object of lengths and shares, as {\"512\": 3}", key);
    json_object_foreach(object, tokens, weight)
    {
        uint64_t number;
        if (!spry_number_u64(&number, spry_view_of(tokens)) || !number || number > SPRY_MIX_TOKENS_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: '%.40s' is not a length from 1 to %d tokens", key, tokens,
                             SPRY_MIX_TOKENS_MAX);
        if (out->count == SPRY_MIX_CHOICES_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" has more than %d lengths", key, SPRY_MIX_CHOICES_MAX);
        spry_mix_choice *length = &out->list[out->count++];
        length->tokens = (uint32_t)number;
        spry_status status = read_weight(&length->weight, weight, key, tokens, error);
        if (status)
            return status;
        sum += length->weight;
    }
    return sum > 0 ? SPRY_OK : spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" has no length with a share above 0", key);
}

static spry_status read_systems(spry_mix_choices *out, json_t *systems, spry_error *error)
{
    const char *name;
    json_t *value;
    double sum = 0;
    if (systems && (!json_is_object(systems) || json_object_size(systems) > SPRY_MIX_CHOICES_MAX))
        return spry_fail(error, SPRY_ERR_FORMAT, "\"systems\" is not an object of at most %d system prompts",
                         SPRY_MIX_CHOICES_MAX);
    json_object_foreach(systems, name, value)
    {
        spry_mix_choice *system = &out->list[out->count++];
        const json_t *share = json_object_get(value, "share");
        char where[64];
        snprintf(where, sizeof where, "systems.%.40s", name);
        snprintf(system->name, sizeof system->name, "%s", name);
        system->weight = 1;
        spry_status status = json_is_object(value) ? read_tokens(&system->tokens, value, "tokens", SYSTEM_TOKENS, error)
                                                   : spry_fail(error, SPRY_ERR_FORMAT, "it is not an object");
        if (!status && share)
            status = read_weight(&system->weight, share, "it", "share", error);
        if (status)
            return spry_fail_prefix(error, status, where);
        sum += system->weight;
    }
    return sum > 0 || !out->count ? SPRY_OK : spry_fail(error, SPRY_ERR_FORMAT, "no system prompt has a share above 0");
}

static spry_status read_distributions(spry_mix *mix, json_t *file, spry_error *error)
{
    const char *key, *format = json_string_value(json_object_get(file, "format"));
    json_t *value;
    if (!format || strcmp(format, SPRY_MIX_FORMAT) != 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "\"format\" is not \"%s\"", SPRY_MIX_FORMAT);
    json_object_foreach(file, key, value)
    {
        if (strcmp(key, "format") != 0 && strcmp(key, "prompt") != 0 && strcmp(key, "answer") != 0 &&
            strcmp(key, "systems") != 0)
            return spry_fail(error, SPRY_ERR_FORMAT, "%.40s is not known; known are format, prompt, answer and systems",
                             key);
    }
    spry_status status = read_lengths(&mix->prompts, file, "prompt", error);
    if (!status)
        status = read_lengths(&mix->answers, file, "answer", error);
    return status ? status : read_systems(&mix->systems, json_object_get(file, "systems"), error);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Finds the system prompt of this name or text, or adds it. Where there are too many texts, the last one counts for all
 * others. */
static spry_status find_system(size_t *index, spry_mix_choices *systems, const char *name, const char *text,
                               uint32_t tokens, spry_error *error)
{
    for (*index = 0; *index < systems->count; ++*index) {
        const spry_mix_choice *s = &systems->list[*index];
        if (text ? !s->text || strcmp(s->text, text) != 0 : s->text || strcmp(s->name, name) != 0)
            continue;
        if (s->tokens == tokens)
            return SPRY_OK;
        return spry_fail(error, SPRY_ERR_FORMAT, "the system prompt \"%.40s\" has %u tokens, but %u in an earlier line",
                         name, tokens, s->tokens);
    }
    bool room = systems->count < SPRY_MIX_CHOICES_MAX;
    if (!room && !text)
        return spry_fail(error, SPRY_ERR_FORMAT, "there are more than %d system prompts", SPRY_MIX_CHOICES_MAX);
    *index = room ? systems->count++ : SPRY_MIX_CHOICES_MAX - 1;
    spry_mix_choice *system = &systems->list[*index];
    if (room)
        *system = (spry_mix_choice){.tokens = tokens, .weight = 1, .text = text};
    snprintf(system->name, sizeof system->name, "%s", room ? name : "others");
    return SPRY_OK;
}

static spry_status read_lengths_line(spry_mix *mix, spry_mix_request *line, const json_t *body, spry_error *error)
{
    const json_t *system = json_object_get(body, "system");
    uint32_t tokens;
    spry_status status = read_tokens(&line->prompt_tokens, body, "prompt_tokens", 0, error);
    if (!status)
        status = read_tokens(&line->answer_tokens, body, "answer_tokens", ANSWER_TOKENS, error);
    if (!status)
        status = read_tokens(&tokens, body, "system_tokens", SYSTEM_TOKENS, error);
    if (!status && system && (!json_is_string(system) || !json_string_length(system)))
        status = spry_fail(error, SPRY_ERR_FORMAT, "\"system\" is not the name of a system prompt");
    if (!status && !system && json_object_get(body, "system_tokens"))
        status = spry_fail(error, SPRY_ERR_FORMAT, "\"system_tokens\" needs \"system\", the prompt's name");
    return status || !system
               ? status
               : find_system(&line->system, &mix->systems, json_string_value(system), NULL, tokens, error);
}

/* The line owns its messages. */
static spry_status read_messages(spry_mix *mix, spry_mix_request *line, json_t *messages, spry_error *error)
{
    line->messages = messages;
    if (!json_is_array(messages) || !json_array_size(messages))
        return spry_fail(error, SPRY_ERR_FORMAT, "\"messages\" is not an array with a message in it");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (!json_is_string(json_object_get(message, "role")) || !json_object_get(message, "content"))
            return spry_fail(error, SPRY_ERR_FORMAT, "messages[%zu] has no \"role\" and \"content\"", i);
    }
    const json_t *first = json_array_get(messages, 0);
    const char *text = json_string_value(json_object_get(first, "content"));
    if (!text || strcmp(json_string_value(json_object_get(first, "role")), "system") != 0)
        return SPRY_OK;
    return find_system(&line->system, &mix->systems, text, text, 0, error);
}

static spry_status read_body(spry_mix *mix, spry_mix_request *line, const json_t *body, spry_error *error)
{
    json_t *messages = json_object_get(body, "messages"), *prompt = json_object_get(body, "prompt");
    const char *limit = json_object_get(body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    if (json_object_get(body, "prompt_tokens"))
        return read_lengths_line(mix, line, body, error);
    spry_status status = read_tokens(&line->answer_tokens, body, limit, ANSWER_TOKENS, error);
    if (status)
        return status;
    if (messages)
        return read_messages(mix, line, json_incref(messages), error);
    if (!json_is_string(prompt) || !json_string_length(prompt))
        return spry_fail(error, SPRY_ERR_FORMAT, "it has none of \"messages\", \"prompt\" and \"prompt_tokens\"");
    messages = json_pack("[{s:s, s:O}]", "role", "user", "content", prompt);
    return messages ? read_messages(mix, line, messages, error) : spry_fail_memory(error, "a request", 1);
}

static spry_status read_line(spry_mix *mix, spry_view text, size_t number, spry_error *error)
{
    json_t *object = NULL;
    char where[32];
    if (mix->n_lines == SPRY_BENCH_REQUESTS_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "it has more than %d requests", SPRY_BENCH_REQUESTS_MAX);
    if (mix->n_lines == mix->lines_room) {
        size_t room = mix->lines_room ? 2 * mix->lines_room : 64;
        spry_mix_request *grown = realloc(mix->lines, room * sizeof *grown);
        if (!grown)
            return spry_fail_memory(error, "requests", room * sizeof *grown);
        mix->lines = grown;
        mix->lines_room = room;
    }
    spry_mix_request *line = &mix->lines[mix->n_lines++];
    *line = (spry_mix_request){.line = number, .system = NO_SYSTEM};
    spry_status status = spry_json_object(&object, text, error);
    const json_t *body = json_object_get(object, "body");
    if (!status)
        status = read_body(mix, line, json_is_object(body) ? body : object, error);
    json_decref(object);
    snprintf(where, sizeof where, "line %zu", number);
    return status ? spry_fail_prefix(error, status, where) : SPRY_OK;
}

/* The next line without white space at its end; *text begins after it. */
static spry_view next_line(spry_view *text)
{
    const char *end = memchr(text->data, '\n', text->size);
    spry_view line = {text->data, end ? (size_t)(end - text->data) : text->size};
    size_t passed = line.size + (end != NULL);
    *text = (spry_view){text->data + passed, text->size - passed};
    while (line.size && memchr(" \t\r", line.data[line.size - 1], 3))
        line.size--;
    return line;
}

/* Distributions are one object that says its format, or begins as one over several lines. */
static spry_status read_text(spry_mix *mix, spry_view text, spry_error *error)
{
    json_t *file;
    (void)spry_json_read(&file, text, 0, 0, NULL);
    spry_view rest = text, first = next_line(&rest);
    bool is_object = json_object_get(file, "format") || (first.size == 1 && first.data[0] == '{');
    spry_status status = SPRY_OK;
    json_decref(file);
    file = NULL;
    if (is_object) {
        status = spry_json_object(&file, text, error);
        if (!status)
            status = read_distributions(mix, file, error);
        json_decref(file);
        return status;
    }
    for (size_t number = 1; !status && text.size; number++) {
        spry_view line = next_line(&text);
        if (line.size)
            status = read_line(mix, line, number, error);
    }
    return status || mix->n_lines ? status : spry_fail(error, SPRY_ERR_FORMAT, "it has no request");
}

static spry_status read_mix(spry_mix *mix, const char *name_or_path, spry_error *error)
{
    char names[128] = "";
    for (size_t i = 0, used = 0; i < SPRY_COUNT(named); i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", named[i].name);
        if (strcmp(named[i].name, name_or_path) == 0) {
            *mix = named[i];
            return SPRY_OK;
        }
    }
    const char *slash = strrchr(name_or_path, '/');
    snprintf(mix->name, sizeof mix->name, "%s", slash ? slash + 1 : name_or_path);
    if (!spry_path_exists(name_or_path))
        return spry_fail(error, SPRY_ERR_FILE, "--mix: '%.200s' is neither a file nor one of %s", name_or_path, names);
    spry_buffer text;
    spry_buffer_init(&text, FILE_MAX);
    spry_status status = spry_file_read(&text, name_or_path, error);
    if (!status)
        status = read_text(mix, spry_buffer_view(&text), error);
    if (status && strncmp(error->message, name_or_path, strlen(name_or_path)) != 0)
        spry_fail_prefix(error, status, name_or_path);
    spry_buffer_deinit(&text);
    return status;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

uint32_t spry_mix_scaled(uint32_t tokens, double scale)
{
    double length = floor(tokens * scale + 0.5);
    return length < 1 ? 1 : length > SPRY_MIX_TOKENS_MAX ? SPRY_MIX_TOKENS_MAX : (uint32_t)length;
}

/* Draws an index by weight; the number of choices at most if there is none. */
static size_t draw(const spry_mix_choices *choices, spry_random *random)
{
    double sum = 0;
    size_t index = NO_SYSTEM;
    for (size_t i = 0; i < choices->count; i++)
        sum += choices->list[i].weight;
    double at = spry_random_unit(random) * sum;
    for (size_t i = 0; i < choices->count && at >= 0; i++) {
        index = choices->list[i].weight > 0 ? i : index;
        at -= choices->list[i].weight;
    }
    return index;
}

static spry_status plan_request(spry_mix *mix, size_t index, spry_random *random, spry_error *error)
{
    spry_mix_request *r = &mix->list[index];
    if (mix->lines) {
        *r = mix->lines[index % mix->n_lines];
        json_incref(r->messages);
    } else {
        r->prompt_tokens = mix->prompts.list[draw(&mix->prompts, random)].tokens;
        r->answer_tokens = mix->answers.list[draw(&mix->answers, random)].tokens;
        r->system = draw(&mix->systems, random);
    }
    r->prompt_tokens = r->messages ? 0 : spry_mix_scaled(r->prompt_tokens, mix->scale);
    r->answer_tokens = spry_mix_scaled(r->answer_tokens, mix->scale);
    uint32_t whole = r->prompt_tokens + r->answer_tokens;
    mix->longest = whole > mix->longest ? whole : mix->longest;
    const spry_mix_choice *system = r->system < mix->systems.count ? &mix->systems.list[r->system] : NULL;
    if (!r->messages && system && spry_mix_scaled(system->tokens, mix->scale) >= r->prompt_tokens)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%s: a prompt of %u tokens has no room for the system prompt \"%s\" of %u", mix->name,
                         r->prompt_tokens, system->name, spry_mix_scaled(system->tokens, mix->scale));
    return SPRY_OK;
}

spry_status spry_mix_init(spry_mix *mix, const char *name_or_path, size_t count, double scale, uint64_t seed,
                          spry_error *error)
{
    spry_random random;
    *mix = (spry_mix){.count = 0};
    spry_status status = read_mix(mix, name_or_path, error);
    if (status)
        return status;
    mix->scale = scale;
    mix->seed = seed;
    count = count ? count : mix->lines ? mix->n_lines : REQUESTS_DEFAULT;
    mix->list = calloc(count, sizeof *mix->list);
    if (!mix->list)
        return spry_fail_memory(error, "requests", count * sizeof *mix->list);
    mix->count = count;
    spry_random_seed(&random, seed);
    for (size_t i = 0; !status && i < count; i++)
        status = plan_request(mix, i, &random, error);
    return status;
}

void spry_mix_deinit(spry_mix *mix)
{
    for (size_t i = 0; i < mix->count; i++) {
        json_decref(mix->list[i].messages);
        json_decref(mix->list[i].tools);
    }
    for (size_t i = 0; i < mix->n_lines; i++)
        json_decref(mix->lines[i].messages);
    free(mix->list);
    free(mix->lines);
    *mix = (spry_mix){.count = 0};
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static const char *const words[] = {"river",  "small",  "house",  "under",   "green",  "morning", "paper",  "letter",
                                    "walks",  "slow",   "stone",  "bread",   "winter", "seven",   "light",  "where",
                                    "garden", "number", "silver", "carry",   "above",  "window",  "quiet",  "market",
                                    "bring",  "cloud",  "often",  "between", "horse",  "wooden",  "street", "again"};

typedef struct writer {
    spry_mix *mix;
    spry_engine *engine;
    char *systems[SPRY_MIX_CHOICES_MAX + 1]; /* texts; the last one is none */
    size_t around[SPRY_MIX_CHOICES_MAX + 1]; /* tokens of a prompt beside the user's, 0: not known yet */
    spry_error *error;
} writer;

spry_status spry_mix_cut(char **out, spry_engine *engine, spry_view text, size_t tokens, spry_error *error)
{
    int32_t *ids = malloc((tokens + 1) * sizeof *ids);
    size_t count = 0, size = 0;
    *out = malloc(text.size + 1);
    spry_status status = ids && *out
                             ? spry_engine_tokenize(engine, ids, tokens, &count, text.data, text.size, false, error)
                             : spry_fail_memory(error, "a prompt", tokens);
    count = count < tokens ? count : tokens;
    if (!status)
        status = spry_engine_detokenize(engine, *out, text.size + 1, &size, ids, count, false, error);
    if (!status)
        (*out)[size < text.size ? size : text.size] = '\0';
    free(ids);
    return status;
}

/* A text of about `tokens` tokens that begins with `begin`; the caller frees it. */
static spry_status write_text(writer *w, char **out, const char *begin, size_t tokens, uint64_t seed)
{
    spry_random random;
    spry_buffer text;
    spry_random_seed(&random, seed);
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_buffer_text(&text, begin);
    for (size_t i = 0; i < tokens; i++) /* a word is a token or more */
        spry_buffer_format(&text, " %s", words[spry_random_next(&random) % SPRY_COUNT(words)]);
    spry_status status = text.failed ? spry_fail_memory(w->error, "a prompt", tokens)
                                     : spry_mix_cut(out, w->engine, spry_buffer_view(&text), tokens, w->error);
    spry_buffer_deinit(&text);
    return status;
}

static json_t *messages_of(const char *system, const char *user)
{
    json_t *last = json_pack("{s:s, s:s}", "role", "user", "content", user);
    return system ? json_pack("[{s:s, s:s}, o]", "role", "system", "content", system, last) : json_pack("[o]", last);
}

spry_status spry_mix_prompt(spry_chat_prompt *prompt, spry_engine *engine, const json_t *messages, const json_t *tools,
                            spry_error *error)
{
    json_t *agents = spry_agents_open();
    spry_agent_prompt arranged;
    spry_agent_prompt_init(&arranged, agents, NULL, messages, tools);
    json_t *body = json_pack("{s:O, s:O*}", "messages", arranged.messages, "tools", arranged.tools);
    char *text = body ? spry_json_text(body, 0) : NULL;
    *prompt = (spry_chat_prompt){0};
    spry_status status = text ? spry_engine_chat_prompt(engine, prompt, text, strlen(text), error)
                              : spry_fail(error, SPRY_ERR_INPUT, "a message is not text in UTF-8");
    free(text);
    json_decref(body);
    spry_agent_prompt_deinit(&arranged);
    json_decref(agents);
    return status;
}

static spry_status count_tokens(writer *w, size_t *count, const json_t *messages, const json_t *tools)
{
    spry_chat_prompt prompt;
    spry_status status = spry_mix_prompt(&prompt, w->engine, messages, tools, w->error);
    *count = prompt.count;
    spry_chat_prompt_deinit(&prompt);
    return status;
}

static spry_status write_system(writer *w, size_t slot)
{
    const spry_mix_choice *system = slot < w->mix->systems.count ? &w->mix->systems.list[slot] : NULL;
    char begin[BEGIN_MAX];
    spry_status status = SPRY_OK;
    if (w->around[slot])
        return SPRY_OK;
    if (system) {
        snprintf(begin, sizeof begin, "Run %llx. You are %s.", (unsigned long long)w->mix->run, system->name);
        status = write_text(w, &w->systems[slot], begin, spry_mix_scaled(system->tokens, w->mix->scale),
                            w->mix->seed + slot);
    }
    json_t *messages = status ? NULL : messages_of(w->systems[slot], "x");
    if (!status)
        status = count_tokens(w, &w->around[slot], messages, NULL);
    json_decref(messages);
    return status;
}

static spry_status write_messages(writer *w, spry_mix_request *r, size_t index)
{
    char begin[BEGIN_MAX], *text = NULL;
    spry_status status = write_system(w, r->system);
    if (status)
        return status;
    size_t around = w->around[r->system], tokens = r->prompt_tokens > around ? r->prompt_tokens - around + 1 : 1;
    snprintf(begin, sizeof begin, "Request %zu of run %llx:", index + 1, (unsigned long long)w->mix->run);
    status = write_text(w, &text, begin, tokens, w->mix->seed + SPRY_MIX_CHOICES_MAX + 1 + index);
    if (!status)
        r->messages = messages_of(w->systems[r->system], text);
    if (!status && !r->messages)
        status = spry_fail(w->error, SPRY_ERR_UNSUPPORTED, "the model's tokens do not give back a text in UTF-8");
    free(text);
    return status;
}

static spry_status write_request(writer *w, size_t index, size_t context)
{
    spry_mix_request *r = &w->mix->list[index];
    char where[SPRY_MIX_NAME + 64];
    size_t count = 0;
    spry_status status = r->messages ? SPRY_OK : write_messages(w, r, index);
    if (!status)
        status = count_tokens(w, &count, r->messages, r->tools);
    if (!status && count + r->answer_tokens > context)
        status = spry_fail(w->error, SPRY_ERR_CONTEXT,
                           "%zu tokens of prompt and %u of the answer pass the context of %zu (--context, --mix-scale)",
                           count, r->answer_tokens, context);
    r->prompt_tokens = (uint32_t)count;
    snprintf(where, sizeof where, r->line ? "%s, line %zu" : "%s, request %zu", w->mix->name,
             r->line ? r->line : index + 1);
    return status ? spry_fail_prefix(w->error, status, where) : SPRY_OK;
}

spry_status spry_mix_write(spry_mix *mix, spry_engine *engine, uint64_t run, spry_error *error)
{
    writer w = {.mix = mix, .engine = engine, .error = error};
    spry_engine_info info;
    spry_status status = SPRY_OK;
    spry_engine_describe(engine, &info);
    mix->run = run;
    if (mix->agent)
        status = spry_mix_agent_write(mix, engine, error);
    for (size_t i = 0; !status && i < mix->count; i++)
        status = write_request(&w, i, info.context);
    for (size_t i = 0; i < SPRY_COUNT(w.systems); i++)
        free(w.systems[i]);
    return status;
}
