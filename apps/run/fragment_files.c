/* The conversation is built as JSON in OpenAI's format. */
#include "run/fragment_files.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/compiler.h"
#include "base/number.h"
#include "cli/input.h"
#include "platform/file.h"

enum { FILE_BYTES_MAX = 64 << 20 };

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

static spry_status to_ids(spry_tokens *out, spry_fragments *fragments, const spry_engine *engine, const json_t *request,
                          spry_error *error)
{
    char *json = json_dumps(request, 0);
    if (!json)
        return spry_fail_memory(error, "the conversation", 0);
    spry_chat_prompt prompt;
    spry_status status = spry_engine_chat_prompt(engine, &prompt, json, strlen(json), error);
    fragments->count = prompt.n_spans;
    if (prompt.n_spans > SPRY_FRAGMENTS_MAX)
        status = spry_fail(error, SPRY_ERR_INPUT, "%zu fragments are more than %d", prompt.n_spans, SPRY_FRAGMENTS_MAX);
    else if (prompt.n_spans)
        memcpy(fragments->spans, prompt.spans, prompt.n_spans * sizeof *prompt.spans);
    free(out->ids);
    *out = (spry_tokens){prompt.ids, prompt.count, prompt.count};
    prompt.ids = NULL;
    spry_chat_prompt_deinit(&prompt);
    free(json);
    return status;
}

spry_status spry_fragments_prompt(spry_tokens *out, spry_fragments *fragments, const spry_engine *engine,
                                  const spry_option_list *files, const char *system, spry_view text, spry_error *error)
{
    json_t *parts = json_array(), *messages = json_array();
    spry_status status = SPRY_OK;
    for (size_t i = 0; status == SPRY_OK && i < files->count; i++)
        status = add_file(parts, files->items[i], error);
    json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text", json_stringn(text.data, text.size)));
    if (system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "user", "content", parts));
    json_t *request = json_pack("{s:o}", "messages", messages);
    if (status == SPRY_OK)
        status = to_ids(out, fragments, engine, request, error);
    json_decref(request);
    return status;
}

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
    for (size_t i = 0; i < SPRY_COUNT(modes); i++) {
        size_t length = strlen(modes[i].prefix);
        if (strncmp(text, modes[i].prefix, length) != 0 || !spry_number_u64(&tokens, spry_view_of(text + length)) ||
            tokens >= SPRY_REPAIR_SPREAD)
            continue;
        *repair = modes[i].mode + (size_t)tokens;
        return SPRY_OK;
    }
    return spry_fail(error, SPRY_ERR_INPUT,
                     "--span-repair is '%.40s', but takes a number of tokens, first:N, spread:N, or all", text);
}
