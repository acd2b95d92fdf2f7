/* What the declared tools say about arguments. */
#ifndef SPRY_TEMPLATE_ARGUMENT_TYPES_H
#define SPRY_TEMPLATE_ARGUMENT_TYPES_H

#include <jansson.h>

#include "base/view.h"

/* Types as bits; what nothing is known of has all of them. */
enum {
    SPRY_ARGUMENT_STRING = 1,
    SPRY_ARGUMENT_INTEGER = 2,
    SPRY_ARGUMENT_NUMBER = 4,
    SPRY_ARGUMENT_BOOLEAN = 8,
    SPRY_ARGUMENT_NULL = 16,
    SPRY_ARGUMENT_ARRAY = 32,
    SPRY_ARGUMENT_OBJECT = 64,
    SPRY_ARGUMENT_ANY = 127
};

/* A schema within its document, which references start from. NULL: nothing is known. */
typedef struct spry_argument_schema {
    const json_t *root, *schema;
} spry_argument_schema;

/* The function of a declared tool: {"type": "function", "function": {...}} or the inner object alone. */
const json_t *spry_tool_function(const json_t *tool);
/* The function of that name; NULL when it is not declared. */
const json_t *spry_tool_find(const json_t *tools, spry_view name);

/* The schema of a function's arguments; `function` may be NULL. */
spry_argument_schema spry_argument_schema_of(const json_t *function);
/* The schemas of a member and of the items. */
spry_argument_schema spry_argument_member(spry_argument_schema of, spry_view name);
spry_argument_schema spry_argument_item(spry_argument_schema of);

/* The types that a value may have. */
unsigned spry_argument_types(spry_argument_schema of);

#endif
