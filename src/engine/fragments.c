/* Fragments of messages as spans of a prompt. Each fragment is replaced by an unpredictable mark; the template renders
 * the marks like any text; then the marks are replaced by the fragments' tokens. So a fragment begins and ends at token
 * borders, and its tokens are the same at any position. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/engine_state.h"
#include "platform/clock.h"

enum { MAX_FRAGMENTS = 1024, MARK_BYTES = 64, MAX_CHAT_BYTES = 64 << 20 };

typedef struct fragments {
    uint64_t nonce;
    json_t *texts; /* strings, by number */
} fragments;

static void print_mark(char out[MARK_BYTES], const fragments *f, size_t number)
{
    snprintf(out, MARK_BYTES, "\xee\x80\x80%016" PRIx64 ":%zu\xee\x80\x81", f->nonce, number);
}

/* Moves the text out of a part that is a fragment. */
static spry_status mark_part(fragments *f, json_t *part, spry_error *error)
{
    char mark[MARK_BYTES];
    const char *cache = json_string_value(json_object_get(part, "cache"));
    json_t *text = json_object_get(part, "text");
    if (!cache)
        return SPRY_OK;
    if (strcmp(cache, "span") != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "\"cache\" of a part is \"%.40s\"; known is \"span\"", cache);
    if (!json_is_string(text))
        return spry_fail(error, SPRY_ERR_INPUT, "a part with \"cache\" must have a \"text\"");
    if (!json_string_length(text))
        return SPRY_OK;
    if (json_array_size(f->texts) == MAX_FRAGMENTS)
        return spry_fail(error, SPRY_ERR_INPUT, "a conversation can have %d fragments", MAX_FRAGMENTS);
    print_mark(mark, f, json_array_size(f->texts));
    if (json_array_append(f->texts, text) || json_object_set_new(part, "text", json_string(mark)))
        return spry_fail_memory(error, "fragments", json_string_length(text));
    return SPRY_OK;
}

static spry_status mark_all(fragments *f, json_t *messages, spry_error *error)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *content = json_object_get(json_array_get(messages, i), "content");
        for (size_t k = 0; !status && k < json_array_size(content); k++)
            status = mark_part(f, json_array_get(content, k), error);
    }
    return status;
}

/* ---- the prompt in pieces ---------------------------------------------------------------------------------------- */

typedef struct pieces {
    const spry_engine *engine;
    const spry_chat_text *text;
    spry_tokens ids;
    spry_buffer spans; /* spry_span */
    spry_error *error;
} pieces;

/* Bytes [begin, end) of the rendered text. */
static spry_status add_text(pieces *p, size_t begin, size_t end)
{
    const spry_text_range *ranges = (const spry_text_range *)(const void *)p->text->literal.data;
    size_t n_ranges = p->text->literal.size / sizeof *ranges;
    spry_buffer literal;
    spry_buffer_init(&literal, p->text->literal.size + 1);
    for (size_t i = 0; i < n_ranges; i++) {
        spry_text_range r = {ranges[i].begin > begin ? ranges[i].begin : begin,
                             ranges[i].end < end ? ranges[i].end : end};
        if (r.begin >= r.end)
            continue;
        r.begin -= begin;
        r.end -= begin;
        spry_buffer_append(&literal, &r, sizeof r);
    }
    spry_status status = SPRY_OK;
    if (literal.failed)
        status = spry_fail_memory(p->error, "a prompt", p->text->literal.size);
    else if (begin < end)
        status = spry_tokenizer_encode(p->engine->model->tokenizer, &p->ids,
                                       (spry_view){p->text->text.data + begin, end - begin},
                                       (const spry_text_range *)(const void *)literal.data,
                                       literal.size / sizeof *ranges, SPRY_ENCODE_SPECIAL, p->error);
    spry_buffer_deinit(&literal);
    return status;
}

static spry_status add_fragment(pieces *p, const json_t *text)
{
    size_t begin = p->ids.count;
    spry_status status =
        spry_tokenizer_encode(p->engine->model->tokenizer, &p->ids,
                              (spry_view){json_string_value(text), json_string_length(text)}, NULL, 0, 0, p->error);
    const spry_span span = {begin, p->ids.count};
    if (!status && span.end > begin && !spry_buffer_append(&p->spans, &span, sizeof span))
        status = spry_fail_memory(p->error, "fragments", p->spans.size);
    return status;
}

/* The first mark at or after `from`; false: there is none. */
static bool find_mark(spry_view text, size_t from, const fragments *f, size_t *at, size_t *size, size_t *number)
{
    char head[MARK_BYTES], mark[MARK_BYTES];
    print_mark(head, f, 0);
    size_t head_size = strlen(head) - 4; /* up to the number */
    for (; json_array_size(f->texts) && from + head_size < text.size; from++)
        for (size_t i = 0; !memcmp(text.data + from, head, head_size) && i < json_array_size(f->texts); i++) {
            print_mark(mark, f, i);
            *at = from;
            *size = strlen(mark);
            *number = i;
            if (spry_view_starts((spry_view){text.data + from, text.size - from}, spry_view_of(mark)))
                return true;
        }
    return false;
}

static spry_status cut(pieces *p, const fragments *f)
{
    spry_view text = spry_buffer_view(&p->text->text);
    spry_status status = SPRY_OK;
    size_t done = 0, at, size, number;
    while (!status && find_mark(text, done, f, &at, &size, &number)) {
        status = add_text(p, done, at);
        if (!status)
            status = add_fragment(p, json_array_get(f->texts, number));
        done = at + size;
    }
    return status ? status : add_text(p, done, text.size);
}

/* Renders and tokenises; the times go to `prompt`. */
static spry_status make_pieces(pieces *p, spry_chat_prompt *prompt, const fragments *f, spry_chat_input *input)
{
    uint64_t start = spry_clock_ns();
    spry_chat_text text;
    spry_chat_text_init(&text, MAX_CHAT_BYTES);
    p->text = &text;
    spry_status status = spry_engine_render(p->engine, &text, input, p->error);
    uint64_t rendered = spry_clock_ns();
    const spry_text_range more = {text.text.size, text.text.size + input->continuation.size};
    if (!status && input->continuation.size &&
        !(spry_buffer_append(&text.text, input->continuation.data, input->continuation.size) &&
          spry_buffer_append(&text.literal, &more, sizeof more)))
        status = spry_fail_memory(p->error, "a prompt", more.end);
    if (!status)
        status = cut(p, f);
    prompt->template_ms = (double)(rendered - start) / 1e6;
    prompt->tokenize_ms = (double)(spry_clock_ns() - rendered) / 1e6;
    spry_chat_text_deinit(&text);
    return status;
}

spry_status spry_engine_chat_prompt(const spry_engine *e, spry_chat_prompt *prompt, const char *json, size_t size,
                                    spry_error *error)
{
    fragments f = {.nonce = spry_entropy(), .texts = json_array()};
    pieces p = {.engine = e, .error = error};
    spry_chat_input input;
    json_t *request = NULL;
    *prompt = (spry_chat_prompt){.size = offsetof(spry_chat_prompt, reserved)};
    spry_buffer_init(&p.spans, (size_t)MAX_CHAT_BYTES);
    spry_status status = spry_engine_parse_chat(&request, &input, json, size, error);
    if (!status)
        status = mark_all(&f, json_object_get(request, "messages"), error);
    if (!status)
        status = make_pieces(&p, prompt, &f, &input);
    if (!status && !json_is_false(json_object_get(request, "add_generation_prompt")))
        status = spry_engine_constrain_calls(prompt, &p.ids, e, request, input.tools, error);
    if (status) {
        spry_tokens_deinit(&p.ids);
        spry_buffer_deinit(&p.spans);
    }
    prompt->ids = p.ids.ids; /* owned by the caller now */
    prompt->count = p.ids.count;
    prompt->spans = (spry_span *)(void *)p.spans.data;
    prompt->n_spans = p.spans.size / sizeof *prompt->spans;
    json_decref(f.texts);
    json_decref(request);
    return status;
}

void spry_chat_prompt_deinit(spry_chat_prompt *prompt)
{
    free(prompt->ids);
    free(prompt->spans);
    free(prompt->call_constraint);
    *prompt = (spry_chat_prompt){0};
}
