/* Splits the text of an answer, as it is generated, into content, thoughts and tool calls.
 *
 * The text may be fed in pieces of any size: the events are the same, except for how texts are divided into deltas.
 * Text is held back only while it could be part of a mark. A call is reported as soon as its name is certain, and its
 * arguments as they come; text that looked like a call but is not one is reported as content. Whitespace around
 * thoughts and calls is dropped. */
#ifndef SPRY_TEMPLATE_TOOL_CALLS_H
#define SPRY_TEMPLATE_TOOL_CALLS_H

#include <jansson.h>

#include "base/error.h"
#include "template/tool_styles.h"

typedef enum spry_answer_event_kind {
    SPRY_ANSWER_CONTENT,    /* text */
    SPRY_ANSWER_REASONING,  /* text */
    SPRY_ANSWER_CALL_BEGIN, /* index, id, name */
    SPRY_ANSWER_ARGUMENTS,  /* index, text: the next part of the arguments' JSON */
    SPRY_ANSWER_CALL_END,   /* index: the arguments are complete and valid */
    SPRY_ANSWER_CALL_CUT, /* index, in place of CALL_END: the call is incomplete or wrong; text: what the model wrote of
                           * it */
} spry_answer_event_kind;

typedef struct spry_answer_event {
    spry_answer_event_kind kind;
    size_t index;   /* index of the call */
    const char *id; /* nine letters and digits, unless the model gave one */
    spry_view name;
    spry_view text;
} spry_answer_event;

typedef struct spry_answer_options {
    bool tools; /* detect calls */
    const spry_tool_style *style;
    const json_t *declared; /* the declared tools, borrowed; NULL: types of arguments are guessed from their text */
    bool reasoning;         /* detect thoughts */
    const spry_thought_style *thoughts; /* NULL: the default */
    spry_view prompt;                   /* the end of the prompt, which may have begun a thought or a call */
    spry_view source;                   /* source of the template, to find the marks that end turns */
    const char *eos;                    /* how the model spells the end of a turn, borrowed; NULL: unknown */
    uint64_t seed;                      /* for generated ids */
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

/* Whether a prompt ends inside a thought. */
bool spry_answer_opens_thought(const spry_thought_style *thoughts, spry_view prompt);

/* True if the spelling of a control token is part of a mark of the styles, so that the parser must get it as text. */
bool spry_answer_needs_token(const spry_tool_style *style, const spry_thought_style *thoughts, spry_view spelling);

#endif
