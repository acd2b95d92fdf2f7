/* What stands between the marks of a tool call: where it ends, and which calls it holds. */
#ifndef SPRY_TEMPLATE_TOOL_CALL_BODY_H
#define SPRY_TEMPLATE_TOOL_CALL_BODY_H

#include "template/tool_styles.h"

typedef enum spry_call_state {
    SPRY_CALL_MORE,  /* it may become a call when more text comes */
    SPRY_CALL_WRONG, /* it is none */
    SPRY_CALL_WHOLE,
} spry_call_state;

/* How far a body was looked at, so that no byte is looked at twice. Starts zeroed. */
typedef struct spry_call_scan {
    size_t at;
    uint32_t depth;
    bool in_string, escaped, in_json;
    size_t json_end; /* 0: not there yet */
} spry_call_scan;

/* `text` begins behind the opening mark, or where an answer does that might be a call without one. When whole, *body is
 * its part without the closing mark and *end lies behind that mark. `final`: no more text comes, and a missing closing
 * mark is forgiven. */
spry_call_state spry_call_body_find(spry_call_scan *scan, spry_view *body, size_t *end, spry_view text,
                                    spry_tool_style style, bool marked, bool final);

typedef struct spry_call {
    spry_view id; /* empty: the model gave none */
    spry_view name, arguments;
} spry_call;

/* Hands over each call of a whole body. False, before any is handed over, when it holds something else. `tools`, which
 * may be NULL, are those declared: they say which arguments are strings where the style does not. A body without a mark
 * must have arguments and the name of one of them. */
bool spry_call_body_read(spry_view body, bool marked, const json_t *tools,
                         void (*on_call)(void *user, const spry_call *call), void *user);

#endif
