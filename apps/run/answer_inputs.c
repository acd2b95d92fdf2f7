/* What `spry run` and the chat give to an answer besides its prompt: a constraint, a drafter, and fragments. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json.h"
#include "base/number.h"
#include "cli/model_source.h"
#include "cli/terminal.h"
#include "platform/file.h"
#include "run/answer.h"

/* "a,b,c" as a JSON array of strings. */
static spry_status choices(spry_buffer *text, const char *list, spry_error *error)
{
    json_t *array = json_array();
    while (array) {
        size_t length = strcspn(list, ",");
        if (json_array_append_new(array, json_stringn(list, length)))
            break;
        list += length;
        if (!*list++)
            break;
    }
    char *dumped = spry_json_text(array, 0);
    spry_buffer_text(text, dumped ? dumped : "");
    free(dumped);
    json_decref(array);
    return text->size ? SPRY_OK : spry_fail(error, SPRY_ERR_INPUT, "--choice is not valid UTF-8, or memory is short");
}

spry_status spry_answer_shape(spry_constraint *constraint, spry_buffer *text, const spry_answer_flags *flags,
                              spry_error *error)
{
    const struct {
        const char *value;
        spry_constraint kind;
        bool is_file;
    } ways[] = {{flags->schema_file, SPRY_JSON_SCHEMA, true},
                {flags->grammar_file, SPRY_GBNF, true},
                {flags->regex, SPRY_REGEX, false},
                {flags->choice, SPRY_CHOICE, false}};
    const char *value = NULL;
    bool is_file = false;
    *constraint = SPRY_ANY_TEXT;
    for (size_t i = 0; i < SPRY_COUNT(ways); i++) {
        if (ways[i].value && value)
            return spry_fail(error, SPRY_ERR_INPUT,
                             "--json-schema, --grammar, --regex and --choice: only one of them can be given");
        if (!ways[i].value)
            continue;
        *constraint = ways[i].kind;
        value = ways[i].value;
        is_file = ways[i].is_file;
    }
    if (!value)
        return SPRY_OK;
    if (*constraint == SPRY_CHOICE)
        return choices(text, value, error);
    if (is_file)
        return spry_file_read(text, value, error);
    spry_buffer_text(text, value);
    return text->failed ? spry_fail_memory(error, "a pattern", strlen(value)) : SPRY_OK;
}

/* ---- the drafter ------------------------------------------------------------------------------------------------- */

/* A drafter's context is as large as its own limit allows; it needs no memory beyond that. */

static spry_status open_model(spry_drafter_model *d, spry_engine *engine, const char *model,
                              const spry_model_flags *model_flags, const spry_engine_flags *engine_flags,
                              spry_error *error)
{
    spry_engine_options options = engine_flags->options;
    options.context = 0;
    options.sessions = 1;
    options.threads = 1; /* it uses the engine's threads */
    options.kv_bytes = 0;
    options.cache_dir = NULL;
    options.chat_template = NULL;
    options.lora = NULL;
    options.log = NULL;
    options.draft_head = NULL;
    spry_status status = spry_model_source_find(&d->source, model, model_flags->models_folder, error);
    if (status == SPRY_OK)
        status = spry_model_source_engine(&d->engine, &d->source, &options, error);
    if (status == SPRY_OK)
        status = spry_engine_set_drafter(engine, d->engine, error);
    return status;
}

spry_status spry_drafter_open(spry_drafter_model *d, spry_engine *engine, const spry_model_source *source,
                              const char *draft, const spry_model_flags *model_flags,
                              const spry_engine_flags *engine_flags, spry_error *error)
{
    *d = (spry_drafter_model){.how = SPRY_DRAFT_AUTO};
    if (strcmp(draft, "none") == 0)
        d->how = SPRY_DRAFT_NONE;
    else if (strcmp(draft, "lookup") == 0)
        d->how = SPRY_DRAFT_LOOKUP;
    else if (strcmp(draft, "head") == 0)
        d->how = SPRY_DRAFT_MODEL;
    else if (strcmp(draft, "auto") != 0)
        return open_model(d, engine, draft, model_flags, engine_flags, error);
    else if (source->data == spry_bundled_tales_begin)
        return open_model(d, engine, SPRY_BUNDLED_DRAFTER, model_flags, engine_flags, error);
    return SPRY_OK;
}

void spry_drafter_close(spry_drafter_model *d)
{
    spry_engine_close(d->engine);
    spry_model_source_deinit(&d->source);
    *d = (spry_drafter_model){0};
}

/* ---- fragments --------------------------------------------------------------------------------------------------- */

/* The conversation is built as JSON in OpenAI's format. */

enum { FILE_BYTES_MAX = 64 << 20, IMAGE_BYTES_MAX = 32 << 20 };

/* A file as one part; the following text always begins on a new line. */
static spry_status add_file(json_t *parts, const char *path, spry_error *error)
{
    spry_buffer bytes, text;
    spry_buffer_init(&bytes, FILE_BYTES_MAX);
    spry_buffer_init(&text, 4 * (size_t)FILE_BYTES_MAX);
    spry_status status = spry_file_read(&bytes, path, error);
    if (status == SPRY_OK)
        status = spry_input_clean(&text, spry_buffer_view(&bytes), path, error);
    if (status == SPRY_OK && !text.size)
        status = spry_fail(error, SPRY_ERR_INPUT, "%s: the file is empty", path);
    if (status == SPRY_OK && text.data[text.size - 1] != '\n')
        spry_buffer_text(&text, "\n");
    if (status == SPRY_OK &&
        (text.failed || json_array_append_new(parts, json_pack("{s:s, s:o, s:s}", "type", "text", "text",
                                                               json_stringn(text.data, text.size), "cache", "span"))))
        status = spry_fail_memory(error, "a fragment", text.size);
    spry_buffer_deinit(&bytes);
    spry_buffer_deinit(&text);
    return status;
}

/* A picture as a data: URL, which names no type: the bytes say it. */
spry_status spry_parts_add_image(json_t *parts, const char *path, spry_error *error)
{
    spry_buffer bytes, url;
    spry_buffer_init(&bytes, IMAGE_BYTES_MAX);
    spry_buffer_init(&url, 2 * (size_t)IMAGE_BYTES_MAX);
    spry_status status = spry_file_read(&bytes, path, error);
    spry_buffer_text(&url, "data:;base64,");
    spry_buffer_base64(&url, spry_buffer_view(&bytes));
    if (status == SPRY_OK && !bytes.size)
        status = spry_fail(error, SPRY_ERR_INPUT, "%s: the file is empty", path);
    if (status == SPRY_OK &&
        (url.failed ||
         json_array_append_new(parts, json_pack("{s:s, s:{s:s}}", "type", "image_url", "image_url", "url", url.data))))
        status = spry_fail_memory(error, "a picture", url.size);
    spry_buffer_deinit(&bytes);
    spry_buffer_deinit(&url);
    return status;
}

static const char image_line[] = "[image: "; /* and the absolute path */

void spry_image_line(spry_buffer *out, const char *path)
{
    spry_buffer_format(out, "%s%s]\n", image_line, path);
}

bool spry_image_line_take(spry_buffer *path, spry_view *text)
{
    const size_t head = sizeof image_line - 1;
    const char *end = memchr(text->data, '\n', text->size);
    size_t line = end ? (size_t)(end - text->data) : text->size;
    if (line <= head + 1 || memcmp(text->data, image_line, head) != 0 || text->data[line - 1] != ']' ||
        text->data[head] != '/')
        return false;
    spry_buffer_clear(path);
    if (!spry_buffer_append(path, text->data + head, line - head - 1))
        return false;
    line += end != NULL;
    *text = (spry_view){text->data + line, text->size - line};
    return true;
}

spry_status spry_fragments_prompt(spry_answer *answer, spry_tokens *out, const spry_engine *engine,
                                  const spry_answer_flags *flags, const spry_option_list *files,
                                  const spry_option_list *images, const char *system, spry_view text, spry_error *error)
{
    json_t *parts = json_array(), *messages = json_array();
    spry_status status = SPRY_OK;
    for (size_t i = 0; status == SPRY_OK && i < files->count; i++)
        status = add_file(parts, files->items[i], error);
    for (size_t i = 0; status == SPRY_OK && i < images->count; i++)
        status = spry_parts_add_image(parts, images->items[i], error);
    json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text", json_stringn(text.data, text.size)));
    if (system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "user", "content", parts));
    if (status == SPRY_OK)
        status = spry_answer_prompt(answer, out, engine, flags, messages, error);
    json_decref(messages);
    return status;
}

static const double default_bound = 0.03; /* nats per token */

spry_status spry_fragments_repair(size_t *repair, const char *text, spry_error *error)
{
    static const struct {
        const char *prefix;
        size_t mode;
    } modes[] = {{"first:", SPRY_REPAIR_FIRST}, {"spread:", SPRY_REPAIR_SPREAD}, {"", 0}};
    uint64_t tokens;
    if (strcmp(text, "all") == 0) {
        *repair = SPRY_REPAIR_ALL;
        return SPRY_OK;
    }
    double bound = default_bound;
    if (strcmp(text, "auto") == 0 ||
        (strncmp(text, "auto:", 5) == 0 && spry_number_double(&bound, spry_view_of(text + 5)) && bound >= 0.001 &&
         bound <= 10)) {
        *repair = SPRY_REPAIR_BOUND + (size_t)(bound * 1000);
        return SPRY_OK;
    }
    for (size_t i = 0; i < SPRY_COUNT(modes); i++) {
        size_t length = strlen(modes[i].prefix);
        if (strncmp(text, modes[i].prefix, length) != 0 || !spry_number_u64(&tokens, spry_view_of(text + length)) ||
            tokens >= SPRY_REPAIR_BOUND)
            continue;
        *repair = modes[i].mode + (size_t)tokens;
        return SPRY_OK;
    }
    return spry_fail(
        error, SPRY_ERR_INPUT,
        "--span-repair is '%.40s', but takes a number of tokens, first:N, spread:N, auto, auto:NATS (0.001 "
        "to 10), or all",
        text);
}
