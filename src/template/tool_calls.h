/* Splits the text of an answer, as it is generated, into content, reasoning and tool calls.
 *
 * The text may be fed in pieces of any size: the events are the same, except for how text is divided into deltas. Text
 * is held back only while it could be part of a mark or a call. A call is reported once it is complete and valid; text
 * that looked like a call but is none is reported as content. Whitespace around reasoning and between calls is dropped.
 */
#ifndef SPRY_TEMPLATE_TOOL_CALLS_H
#define SPRY_TEMPLATE_TOOL_CALLS_H

#include "template/tool_styles.h"

typedef enum spry_answer_event_kind {
    SPRY_ANSWER_CONTENT,    /* text */
    SPRY_ANSWER_REASONING,  /* text */
    SPRY_ANSWER_CALL_BEGIN, /* index, id, name */
    SPRY_ANSWER_ARGUMENTS,  /* index, text: JSON exactly as the model wrote it */
    SPRY_ANSWER_CALL_END,   /* index */
} spry_answer_event_kind;

typedef struct spry_answer_event {
    spry_answer_event_kind kind;
    size_t index;   /* of the call */
    const char *id; /* nine letters and digits, unless the model gave one */
    spry_view name;
    spry_view text;
} spry_answer_event;

typedef struct spry_answer_options {
    bool tools; /* detect calls */
    spry_tool_style style;
    const json_t *declared; /* the declared tools, borrowed; NULL: whether an argument is a string is guessed from its
                             * text */
    bool reasoning;         /* detect reasoning at the start of the answer */
    bool in_thought;        /* the prompt ends inside reasoning: see spry_answer_opens_thought */
    uint64_t seed;          /* for generated ids */
    /* Event data is valid only during the callback. */
    void (*on_event)(void *user, const spry_answer_event *event);
    void *user;
} spry_answer_options;

typedef struct spry_answer_parser spry_answer_parser;

spry_status spry_answer_parser_create(spry_answer_parser **out, const spry_answer_options *options, spry_error *error);
void spry_answer_parser_destroy(spry_answer_parser *parser);

/* Adds text of the answer. Fails only when memory is short. */
spry_status spry_answer_parser_feed(spry_answer_parser *parser, spry_view text, spry_error *error);
/* Ends the answer: reports the text held back. */
void spry_answer_parser_finish(spry_answer_parser *parser);

/* Whether a rendered prompt ends inside reasoning, so that the answer begins in it. */
bool spry_answer_opens_thought(spry_view prompt);

#endif
