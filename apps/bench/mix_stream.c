/* Reads streamed answers of OpenAI's interface (`data: {...}`, then `data: [DONE]`) and of Ollama's (a JSON object each
 * line, the last with "done": true). Both are lines of text. Lines are bounded. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "bench/mix.h"

enum { LINE_MAX = 1 << 20 };

void spry_mix_stream_init(spry_mix_stream *s, spry_mix_answer *answer)
{
    *s = (spry_mix_stream){.answer = answer};
    spry_buffer_init(&s->line, LINE_MAX);
}

void spry_mix_stream_deinit(spry_mix_stream *s)
{
    spry_buffer_deinit(&s->line);
}

static bool has_text(const json_t *object)
{
    static const char *const keys[] = {"content", "reasoning_content", "reasoning", "thinking"};
    bool found = false;
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        found = found || json_string_length(json_object_get(object, keys[i]));
    return found;
}

static size_t count_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (size_t)value : 0;
}

/* "usage" of OpenAI's interface, or the counts of Ollama's last object. */
static void read_counts(spry_mix_answer *a, const json_t *event)
{
    const json_t *usage = json_object_get(event, "usage");
    const json_t *hits = json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    if (json_is_object(usage)) {
        a->prompt_tokens = count_of(usage, "prompt_tokens");
        a->answer_tokens = count_of(usage, "completion_tokens");
        a->hits_known = json_is_integer(hits);
        a->hit_tokens = a->hits_known && json_integer_value(hits) > 0 ? (size_t)json_integer_value(hits) : 0;
    }
    if (json_is_true(json_object_get(event, "done"))) {
        a->prompt_tokens = count_of(event, "prompt_eval_count");
        a->answer_tokens = count_of(event, "eval_count");
    }
}

static void read_refusal(spry_mix_stream *s, const json_t *error)
{
    const char *text = json_string_value(error);
    if (!text)
        text = json_string_value(json_object_get(error, "message"));
    snprintf(s->refused, sizeof s->refused, "%s", text ? text : "an error without a message");
}

static bool read_event(spry_mix_stream *s, spry_view text)
{
    json_t *event = NULL;
    if (spry_json_object(&event, text, NULL)) {
        snprintf(s->refused, sizeof s->refused, "it sent a line that is not JSON");
        return false;
    }
    const json_t *error = json_object_get(event, "error");
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    if (error && !json_is_null(error))
        read_refusal(s, error);
    else if (has_text(json_object_get(choice, "delta")) || has_text(json_object_get(event, "message")))
        spry_mix_answer_event(s->answer);
    read_counts(s->answer, event);
    s->ended = s->ended || json_is_true(json_object_get(event, "done")) ||
               json_is_string(json_object_get(choice, "finish_reason"));
    json_decref(event);
    return !s->refused[0];
}

static bool read_line(spry_mix_stream *s, spry_view line)
{
    const spry_view data = SPRY_VIEW("data:");
    while (line.size && memchr(" \t\r", line.data[line.size - 1], 3))
        line.size--;
    if (spry_view_starts(line, data)) {
        line = (spry_view){line.data + data.size, line.size - data.size};
        while (line.size && line.data[0] == ' ')
            line = (spry_view){line.data + 1, line.size - 1};
    } else if (line.size && line.data[0] != '{') {
        return true; /* "event:", a comment */
    }
    if (spry_view_equal(line, SPRY_VIEW("[DONE]"))) {
        s->ended = true;
        return true;
    }
    return !line.size || read_event(s, line);
}

bool spry_mix_stream_add(spry_mix_stream *s, const char *data, size_t size)
{
    while (size) {
        const char *end = memchr(data, '\n', size);
        size_t part = end ? (size_t)(end - data) : size;
        if (!spry_buffer_append(&s->line, data, part)) {
            snprintf(s->refused, sizeof s->refused, "it sent a line of more than %d bytes", LINE_MAX);
            return false;
        }
        if (!end)
            return true;
        if (!read_line(s, spry_buffer_view(&s->line)))
            return false;
        spry_buffer_clear(&s->line);
        data += part + 1;
        size -= part + 1;
    }
    return true;
}
