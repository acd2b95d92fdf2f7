#include "server/request/ordered_parts.h"

#include <stdlib.h>

enum { PART_BYTES_MAX = 256 << 20, NAME_BYTES_MAX = 1 << 20 };

void spry_answer_parts_end(spry_answer_parts *parts, spry_completion *c)
{
    if (parts->open && parts->writer)
        parts->writer->close(c, &parts->list[parts->count - 1]);
    parts->open = false;
}

/* NULL when memory is short. */
static spry_answer_part *open_part(spry_answer_parts *parts, spry_completion *c, spry_chat_event_kind kind)
{
    spry_answer_parts_end(parts, c);
    if (parts->count == parts->capacity) {
        size_t capacity = parts->capacity ? 2 * parts->capacity : 4;
        spry_answer_part *grown = realloc(parts->list, capacity * sizeof *grown);
        if (!grown) {
            parts->failed = true;
            return NULL;
        }
        parts->list = grown;
        parts->capacity = capacity;
    }
    spry_answer_part *part = &parts->list[parts->count];
    *part = (spry_answer_part){.kind = kind, .index = parts->count++};
    spry_buffer_init(&part->text, PART_BYTES_MAX);
    spry_buffer_init(&part->name, NAME_BYTES_MAX);
    spry_buffer_init(&part->id, NAME_BYTES_MAX);
    parts->open = true;
    return part;
}

static void begin_call(spry_answer_parts *parts, spry_completion *c, const spry_chat_event *event)
{
    spry_answer_part *part = open_part(parts, c, SPRY_CHAT_CALL_BEGIN);
    if (!part)
        return;
    spry_buffer_append(&part->name, event->name, event->name_size);
    spry_buffer_text(&part->id, event->id);
    parts->failed = parts->failed || part->name.failed || part->id.failed;
    if (parts->writer)
        parts->writer->open(c, part);
}

static void add_text(spry_answer_parts *parts, spry_completion *c, spry_chat_event_kind kind, spry_view text)
{
    spry_answer_part *part = parts->open ? &parts->list[parts->count - 1] : NULL;
    if (!part || part->kind != kind) {
        part = open_part(parts, c, kind);
        if (part && parts->writer)
            parts->writer->open(c, part);
    }
    if (!part)
        return;
    parts->failed = !spry_buffer_append(&part->text, text.data, text.size) || parts->failed;
    if (parts->writer)
        parts->writer->add(c, part, text);
}

/* A call that is none after all: text, unless it is in the stream already. */
static void cut_call(spry_answer_parts *parts, spry_completion *c, spry_view text)
{
    if (!parts->writer && parts->open) {
        spry_answer_part *part = &parts->list[parts->count - 1];
        part->kind = SPRY_CHAT_CONTENT;
        spry_buffer_clear(&part->text);
        parts->failed = !spry_buffer_append(&part->text, text.data, text.size) || parts->failed;
    }
    spry_answer_parts_end(parts, c);
}

void spry_answer_parts_add(spry_answer_parts *parts, spry_completion *c, const spry_chat_event *event)
{
    switch (event->kind) {
    case SPRY_CHAT_CONTENT:
    case SPRY_CHAT_REASONING: add_text(parts, c, event->kind, spry_event_text(event)); break;
    case SPRY_CHAT_CALL_BEGIN: begin_call(parts, c, event); break;
    case SPRY_CHAT_ARGUMENTS: add_text(parts, c, SPRY_CHAT_CALL_BEGIN, spry_event_text(event)); break;
    case SPRY_CHAT_CALL_END: spry_answer_parts_end(parts, c); break;
    case SPRY_CHAT_CALL_CUT: cut_call(parts, c, spry_event_text(event)); break;
    }
    if (parts->failed)
        c->reply.out.failed = true;
}

void spry_answer_parts_deinit(spry_answer_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        spry_buffer_deinit(&parts->list[i].text);
        spry_buffer_deinit(&parts->list[i].name);
        spry_buffer_deinit(&parts->list[i].id);
    }
    free(parts->list);
}
