/* spry_serve: what servers need beside spry.h: the parts of an answer (text, thoughts, calls of tools) as it comes, and
 * a pool of models that are loaded when they are asked for. Its structs follow spry.h's rules. */
#ifndef SPRY_SERVE_H
#define SPRY_SERVE_H

#include "spry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- answers of chats ------------------------------------------------------------------------------------------ */
/* One thread at a time for a parser; different parsers at the same time. */

typedef enum spry_chat_event_kind {
    SPRY_CHAT_CONTENT = 0,    /* text for the user */
    SPRY_CHAT_REASONING = 1,  /* text of a thought */
    SPRY_CHAT_CALL_BEGIN = 2, /* index, id, name: also in the other events of the call */
    SPRY_CHAT_ARGUMENTS = 3,  /* text: JSON as the model wrote it */
    SPRY_CHAT_CALL_END = 4
} spry_chat_event_kind;

/* Valid during the call of on_event. Texts are not zero-terminated. */
typedef struct spry_chat_event {
    size_t size; /* as in spry_engine_info */
    spry_chat_event_kind kind;
    uint32_t index; /* of the call */
    const char *id; /* of the call: nine letters and digits, unless the model gave one */
    const char *name, *text;
    size_t name_size, text_size;
    uint64_t reserved[4];
} spry_chat_event;

typedef struct spry_chat_parser_options {
    size_t size;                    /* set by spry_chat_parser_options_default */
    const spry_chat_prompt *prompt; /* NULL, or the prompt of the answer: it may have begun a thought or a call */
    const char *tools; /* NULL: no calls; else the JSON array of tools, or "[]" to guess types of arguments */
    bool reasoning;    /* look for thoughts */
    bool reserved[7];
    uint64_t seed; /* of ids of calls */
    void (*on_event)(void *user, const spry_chat_event *event);
    void *user;
} spry_chat_parser_options;

/* Any thread. */
SPRY_API void spry_chat_parser_options_default(spry_chat_parser_options *options);

/* Splits the text of an answer into events. It may be fed in pieces of any size. Text is held back only while it could
 * still be part of a mark or a call; a call is reported once it is complete and valid, and text that only resembles one
 * becomes content, so nothing is lost. */
typedef struct spry_chat_parser spry_chat_parser;

SPRY_API spry_status spry_chat_parser_create(spry_chat_parser **out, const spry_engine *engine,
                                             const spry_chat_parser_options *options, spry_error *error);
SPRY_API void spry_chat_parser_destroy(spry_chat_parser *parser);

/* More of the answer. Fails only when memory is short. */
SPRY_API spry_status spry_chat_parser_feed(spry_chat_parser *parser, const char *text, size_t size, spry_error *error);

/* The answer is complete: what was held back is reported. */
SPRY_API void spry_chat_parser_finish(spry_chat_parser *parser);

#ifdef __cplusplus
}
#endif
#endif
