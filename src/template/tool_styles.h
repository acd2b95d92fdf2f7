/* How models write tool calls. The style is detected from marks in the chat template. */
#ifndef SPRY_TEMPLATE_TOOL_STYLES_H
#define SPRY_TEMPLATE_TOOL_STYLES_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"

typedef enum spry_tool_style {
    SPRY_TOOLS_HERMES,       /* <tool_call>{"name": ..., "arguments": ...}</tool_call> */
    SPRY_TOOLS_XML,          /* <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call> */
    SPRY_TOOLS_LLAMA,        /* {"name": ..., "parameters": ...}, optionally after <|python_tag|> */
    SPRY_TOOLS_MISTRAL,      /* [TOOL_CALLS][{"name": ..., "arguments": ...}, ...] */
    SPRY_TOOLS_MISTRAL_ARGS, /* [TOOL_CALLS]NAME[ARGS]{...} */
    SPRY_TOOLS_MARKED_JSON,  /* <|tool_call|>[{"name": ..., "arguments": ...}, ...] */
    SPRY_TOOLS_JSON,         /* {"name": ..., "arguments": ...}, one or a list: for templates without marks */
    SPRY_TOOL_STYLES
} spry_tool_style;

typedef struct spry_tool_marks {
    const char *open;        /* mark before a call; empty: an answer that begins with JSON may be one */
    const char *close;       /* mark after it; empty: none */
    const char *between;     /* separator allowed between two calls, besides whitespace */
    const char *in_template; /* text in templates of this style; NULL: not detected by a mark */
    const char *arguments;   /* key of the arguments */
    bool list;               /* calls are in a list */
} spry_tool_marks;

const spry_tool_marks *spry_tool_style_marks(spry_tool_style style);

/* The style of a template's source. */
spry_tool_style spry_tool_style_find(spry_view source);

/* ---- what a call must look like ---------------------------------------------------------------------------------- */

/* One way to call one tool: the literal `open`, then a value of `schema`, then the literal `close`. */
typedef struct spry_tool_form {
    char *open, *close;
    char *schema; /* JSON Schema as text; NULL: any text up to `close` */
} spry_tool_form;

typedef struct spry_tool_forms {
    spry_tool_form *items;
    size_t count;
    bool required; /* the answer must be a call; otherwise it may be text, and a call begins at `open` */
} spry_tool_forms;

/* The forms for a list of tools in OpenAI's format. `choice`: NULL, "auto", "none" (no forms), "required", or an object
 * that names a function. */
spry_status spry_tool_forms_make(spry_tool_forms *out, spry_tool_style style, const json_t *tools, const json_t *choice,
                                 spry_error *error);
void spry_tool_forms_deinit(spry_tool_forms *forms);

#endif
