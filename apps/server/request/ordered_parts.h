/* The parts of an answer in the order in which the model wrote them: text, thoughts and calls of tools. For interfaces
 * whose replies are lists of such parts (Anthropic's blocks, items of OpenAI's Responses), whole or as a stream. */
#ifndef SPRY_SERVER_ORDERED_PARTS_H
#define SPRY_SERVER_ORDERED_PARTS_H

#include "server/request/completion.h"

typedef struct spry_answer_part {
    spry_chat_event_kind kind; /* SPRY_CHAT_CONTENT, _REASONING or _CALL_BEGIN */
    size_t index;              /* among the parts */
    spry_buffer text;          /* of a call: its arguments */
    spry_buffer name, id;      /* of a call */
} spry_answer_part;

/* Writes the stream of an interface. `close` is called before the next part opens, and at the end. */
typedef struct spry_part_writer {
    void (*open)(spry_completion *completion, const spry_answer_part *part);
    void (*add)(spry_completion *completion, const spry_answer_part *part, spry_view text);
    void (*close)(spry_completion *completion, const spry_answer_part *part);
} spry_part_writer;

typedef struct spry_answer_parts {
    const spry_part_writer *writer; /* NULL: nothing is streamed */
    spry_answer_part *list;
    size_t count, capacity;
    bool open;   /* the last part is not closed */
    bool failed; /* memory was short */
} spry_answer_parts;

void spry_answer_parts_add(spry_answer_parts *parts, spry_completion *completion, const spry_chat_event *event);

/* Closes the last part. */
void spry_answer_parts_end(spry_answer_parts *parts, spry_completion *completion);

void spry_answer_parts_deinit(spry_answer_parts *parts);

#endif
