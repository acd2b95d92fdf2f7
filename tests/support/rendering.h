/* Rendering templates in tests. Include after cmocka.h. */
#ifndef SPRY_TESTS_RENDERING_H
#define SPRY_TESTS_RENDERING_H

#include <jansson.h>
#include <string.h>

#include "support/hostile.h"
#include "template/chat_template.h"

enum { RENDERING_NOW = 1767323045, RENDERING_MAX = 16 << 20 }; /* 2026-01-02 03:04:05 */

typedef struct render_case {
    const char *source, *expected;
} render_case;

static inline spry_chat_template *rendering_template(const char *source)
{
    spry_chat_template *chat;
    spry_error error = {0};
    if (spry_chat_template_create(&chat, spry_view_of(source), &error))
        fail_msg("%s", error.message);
    if (!spry_chat_template_is_own(chat))
        fail_msg("%s: %s", source, spry_chat_template_problem(chat));
    return chat;
}

static inline json_t *rendering_json(const char *text)
{
    json_error_t why;
    json_t *json = json_loads(text, JSON_DECODE_ANY, &why);
    if (!json)
        fail_msg("%s in %s", why.text, text);
    return json;
}

/* Renders `request`: messages, and perhaps tools, extra, add_generation_prompt. `out` is initialised here and is the
 * caller's to deinit. */
static inline spry_status rendering_request(spry_chat_text *out, const spry_chat_template *chat, const json_t *request,
                                            spry_error *error)
{
    spry_chat_input input = {
        .messages = json_object_get(request, "messages"),
        .tools = json_object_get(request, "tools"),
        .extra = json_object_get(request, "extra"),
        .add_generation_prompt = !json_is_false(json_object_get(request, "add_generation_prompt")),
        .bos_token = SPRY_VIEW("<s>"),
        .eos_token = SPRY_VIEW("</s>"),
        .now = RENDERING_NOW,
        .dates = json_is_true(json_object_get(request, "dates")),
    };
    spry_chat_text_init(out, RENDERING_MAX);
    return spry_chat_template_render(chat, out, &input, error);
}

static const char rendering_usual[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"},"
                                      "{\"role\": \"user\", \"content\": \"Hi <b>\xc3\xa9\"}]}";

static inline spry_status rendering_source(spry_chat_text *out, const char *source, const char *request,
                                           spry_error *error)
{
    spry_chat_template *chat = rendering_template(source);
    json_t *json = rendering_json(request);
    spry_status status = rendering_request(out, chat, json, error);
    json_decref(json);
    spry_chat_template_destroy(chat);
    return status;
}

static inline void rendering_check(const char *source, const char *request, const char *expected)
{
    spry_chat_text text;
    spry_error error = {0};
    if (rendering_source(&text, source, request, &error))
        fail_msg("%s: %s", source, error.message);
    spry_view got = spry_buffer_view(&text.text);
    if (!spry_view_is(got, expected))
        fail_msg("%s\n  gave     %.*s\n  and not  %s", source, (int)got.size, got.data, expected);
    spry_chat_text_deinit(&text);
}

/* With the usual messages; `expression` puts {{ }} around the source. */
static inline void rendering_cases(const render_case *cases, size_t count, bool expression)
{
    for (size_t i = 0; i < count; i++) {
        char source[1024];
        snprintf(source, sizeof source, expression ? "{{ %s }}" : "%s", cases[i].source);
        rendering_check(source, rendering_usual, cases[i].expected);
    }
}

/* Rendering fails, and the sentence has these words. */
static inline void rendering_fails(const char *source, const char *words)
{
    spry_chat_text text;
    spry_error error = {0};
    spry_status status = rendering_source(&text, source, rendering_usual, &error);
    if (!status)
        fail_msg("%s gave %s", source, spry_buffer_view(&text.text).data);
    hostile_expect(status, &error, SPRY_ERR_INPUT, words);
    spry_chat_text_deinit(&text);
}

#endif
