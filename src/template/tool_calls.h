/* From the text of an answer, as it comes, to what it is made of: words for people, thoughts, and calls of tools.
 *
 * The text may be fed in pieces of any size: the same events come out, but for how words are cut into deltas. Text is
 * held back only while it could still be part of a mark or of a call. A call is told once it is whole and valid; what
 * looked like one and is none comes out as content, so nothing is lost. White space around thoughts and between calls
 * is left out. */
#ifndef SPRY_TEMPLATE_TOOL_CALLS_H
#define SPRY_TEMPLATE_TOOL_CALLS_H

#include "template/tool_styles.h"

typedef enum spry_answer_event_kind {
    SPRY_ANSWER_CONTENT,    /* text */
    SPRY_ANSWER_REASONING,  /* text */
    SPRY_ANSWER_CALL_BEGIN, /* index, id, name */
    SPRY_ANSWER_ARGUMENTS,  /* index, text: JSON as the model wrote it */
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
    bool tools; /* look for calls */
    spry_tool_style style;
    const json_t *declared; /* the tools, borrowed; NULL: whether an argument is a string is guessed from its text */
    bool reasoning;         /* look for thoughts at the start of the answer */
    bool in_thought;        /* the prompt already opened one: see spry_answer_opens_thought */
    uint64_t seed;          /* of ids */
    /* What an event points to is gone when the call returns. */
    void (*on_event)(void *user, const spry_answer_event *event);
    void *user;
} spry_answer_options;

typedef struct spry_answer_parser spry_answer_parser;

spry_status spry_answer_parser_create(spry_answer_parser **out, const spry_answer_options *options, spry_error *error);
void spry_answer_parser_destroy(spry_answer_parser *parser);

/* More of the answer. Fails only when memory is short. */
spry_status spry_answer_parser_feed(spry_answer_parser *parser, spry_view text, spry_error *error);
/* The answer is over: what was held back comes out. */
void spry_answer_parser_finish(spry_answer_parser *parser);

/* Whether a rendered prompt ends inside a thought, so that the answer begins in it. */
bool spry_answer_opens_thought(spry_view prompt);

#endif
