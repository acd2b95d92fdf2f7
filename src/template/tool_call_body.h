/* The text between the marks of a tool call: finds its end and extracts its calls. */
#ifndef SPRY_TEMPLATE_TOOL_CALL_BODY_H
#define SPRY_TEMPLATE_TOOL_CALL_BODY_H

#include "template/tool_styles.h"

typedef enum spry_call_state {
    SPRY_CALL_MORE,  /* incomplete */
    SPRY_CALL_WRONG, /* not a call */
    SPRY_CALL_WHOLE,
} spry_call_state;

/* Scan progress, so that no byte is scanned twice. Starts zeroed. */
typedef struct spry_call_scan {
    size_t at;
    uint32_t depth;
    bool in_string, escaped, in_json;
    size_t json_end; /* 0: not reached yet */
} spry_call_scan;

/* `text` begins after the opening mark, or at the start of an answer that might be a call without one. When the body is
 * complete, *body is the part without the closing mark and *end is after that mark. `final`: no more text follows, and
 * a missing closing mark is accepted. */
spry_call_state spry_call_body_find(spry_call_scan *scan, spry_view *body, size_t *end, spry_view text,
                                    spry_tool_style style, bool marked, bool final);

typedef struct spry_call {
    spry_view id; /* empty: not given by the model */
    spry_view name, arguments;
} spry_call;

/* Reports each call of a complete body. False, before any call is reported, when the body contains anything else.
 * `tools` (may be NULL) are the declared tools: they define which arguments are strings where the style does not. A
 * body without marks must contain arguments and the name of a declared tool. */
bool spry_call_body_read(spry_view body, bool marked, const json_t *tools,
                         void (*on_call)(void *user, const spry_call *call), void *user);

#endif
