/* What a call must look like. */
#ifndef SPRY_TEMPLATE_TOOL_FORMS_H
#define SPRY_TEMPLATE_TOOL_FORMS_H

#include <jansson.h>

#include "base/error.h"
#include "template/tool_styles.h"

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
spry_status spry_tool_forms_make(spry_tool_forms *out, const spry_tool_style *style, const json_t *tools,
                                 const json_t *choice, spry_error *error);
void spry_tool_forms_deinit(spry_tool_forms *forms);

#endif
