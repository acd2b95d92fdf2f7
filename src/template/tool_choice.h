/* Which tools a model may or must call. */
#ifndef SPRY_TEMPLATE_TOOL_CHOICE_H
#define SPRY_TEMPLATE_TOOL_CHOICE_H

#include <jansson.h>

#include "base/error.h"

typedef struct spry_tool_choice {
    json_t *functions; /* the functions that may be called, a list; NULL: none */
    bool required;     /* the answer must be a call */
} spry_tool_choice;

/* Reads OpenAI's `tools` and `tool_choice`: NULL, "auto", "none", "required", an object that names a function, or one
 * of type "allowed_tools". Fails for tools without a name, two tools of one name, and a choice that names another. */
spry_status spry_tool_choice_read(spry_tool_choice *out, const json_t *tools, const json_t *choice, spry_error *error);
void spry_tool_choice_deinit(spry_tool_choice *choice);

#endif
