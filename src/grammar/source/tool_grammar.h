/* Grammars of tool calls in the syntax of a model's style (how it writes calls). */
#ifndef SPRY_GRAMMAR_TOOL_GRAMMAR_H
#define SPRY_GRAMMAR_TOOL_GRAMMAR_H

#include <jansson.h>

#include "grammar/ir/grammar_ir.h"
#include "template/arguments.h"
#include "template/tool_styles.h"

typedef struct spry_tool_builder {
    spry_ir *ir;
    const spry_tool_style *style;
    const json_t *functions;
    bool parallel;      /* more than one call is allowed */
    bool brief;         /* there are too many tools to enforce their schemas: only the form of arguments is enforced */
    spry_ir_node gap;   /* a little whitespace */
    spry_ir_node space; /* a space, or none */
    spry_ir_node any_object;
    spry_ir_node raw; /* a value without quotes: text without the mark that ends it; SPRY_IR_NONE: the style has none */
} spry_tool_builder;

/* The grammar of a whole answer. `source` is a JSON object with "style", "tools" (functions), "required" and
 * "parallel". For models that think: "thought_open", "thought_close", and "in_thought" if the prompt has begun a
 * thought. */
spry_ir_node spry_ir_tool_calls(spry_ir *ir, spry_view source);

/* ---- the parts --------------------------------------------------------------------------------------------------- */

spry_ir_node spry_tool_literal(const spry_tool_builder *builder, const char *text); /* NULL: the empty text */
/* A JSON value that is valid against a schema. */
spry_ir_node spry_tool_json(const spry_tool_builder *builder, spry_argument_schema of);

#define SPRY_TOOL_SEQUENCE(builder, ...)                                                                               \
    spry_ir_sequence((builder)->ir, (const spry_ir_node[]){__VA_ARGS__},                                               \
                     sizeof((const spry_ir_node[]){__VA_ARGS__}) / sizeof(spry_ir_node))
#define SPRY_TOOL_CHOICE(builder, ...)                                                                                 \
    spry_ir_choice((builder)->ir, (const spry_ir_node[]){__VA_ARGS__},                                                 \
                   sizeof((const spry_ir_node[]){__VA_ARGS__}) / sizeof(spry_ir_node))

#endif
