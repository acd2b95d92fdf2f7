/* Any bytes as the answer of a model of any family, whole and in pieces: the same events. The first byte names the
 * style of tool calls, the second how the text is divided. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "template/tool_calls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"a\": {\"type\": \"string\"}, \"b\": {\"type\": \"array\"}}}}}]";

/* Texts of the same kind are joined, so that the division into deltas does not matter. */
static void note(void *user, const spry_answer_event *event)
{
    spry_buffer *out = user;
    bool text = event->kind == SPRY_ANSWER_CONTENT || event->kind == SPRY_ANSWER_REASONING ||
                event->kind == SPRY_ANSWER_ARGUMENTS;
    char mark[4] = {'\1', (char)('0' + (int)event->kind), (char)('0' + event->index % 64), '\2'};
    char *last = out->size ? strrchr(out->data, '\1') : NULL;
    if (!text || !last || memcmp(last, mark, sizeof mark) != 0)
        spry_buffer_append(out, mark, sizeof mark);
    if (event->kind == SPRY_ANSWER_CALL_BEGIN)
        spry_buffer_append(out, event->name.data, event->name.size);
    if (text)
        spry_buffer_append(out, event->text.data, event->text.size);
}

static void parse(spry_buffer *out, const spry_answer_options *options, spry_view text, size_t step)
{
    spry_answer_parser *parser;
    spry_error error;
    spry_answer_options own = *options;
    own.on_event = note;
    own.user = out;
    if (spry_answer_parser_create(&parser, &own, &error) != SPRY_OK)
        return;
    for (size_t at = 0; at < text.size; at += step) {
        size_t left = text.size - at;
        if (spry_answer_parser_feed(parser, (spry_view){text.data + at, left < step ? left : step}, &error) != SPRY_OK)
            abort();
        if (step > left)
            break;
    }
    spry_answer_parser_finish(parser);
    spry_answer_parser_destroy(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 1 << 14 || memchr(data + 2, 0, size - 2) || memchr(data + 2, 1, size - 2))
        return 0;
    size_t n_styles = 0;
    while (spry_tool_style_at(n_styles))
        n_styles++;
    json_t *declared = spry_json_value(SPRY_VIEW(tools));
    const spry_answer_options options = {.tools = true,
                                         .style = spry_tool_style_at((data[0] & 0x7Fu) % n_styles),
                                         .declared = data[0] & 0x80 ? declared : NULL,
                                         .reasoning = true,
                                         .seed = 1};
    spry_buffer whole, pieces;
    spry_buffer_init(&whole, 1 << 20);
    spry_buffer_init(&pieces, 1 << 20);
    spry_view text = {(const char *)data + 2, size - 2};
    parse(&whole, &options, text, SIZE_MAX);
    parse(&pieces, &options, text, 1 + data[1] % 8u);
    if (whole.size != pieces.size ||
        memcmp(spry_buffer_view(&whole).data, spry_buffer_view(&pieces).data, whole.size) != 0)
        abort();
    spry_buffer_deinit(&whole);
    spry_buffer_deinit(&pieces);
    json_decref(declared);
    return 0;
}
