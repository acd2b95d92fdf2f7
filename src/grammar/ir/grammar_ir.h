/* Grammars in the making. GBNF, regular expressions, JSON schemas and choice lists all become these nodes, then one
 * automaton (grammar.h). Nodes are immutable numbers; a node may be used in many places.
 *
 * A builder fails once and stays failed (memory, size limits, or the first error said by a caller): a run of calls
 * needs one check at its end, spry_ir_status. Failed calls return SPRY_IR_NONE, which every call accepts. */
#ifndef SPRY_GRAMMAR_GRAMMAR_IR_H
#define SPRY_GRAMMAR_GRAMMAR_IR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/view.h"

typedef struct spry_ir spry_ir;
typedef uint32_t spry_ir_node;

#define SPRY_IR_NONE      UINT32_MAX /* no node: something failed */
#define SPRY_IR_UNBOUNDED UINT32_MAX /* for repeats */

typedef struct spry_code_range {
    uint32_t first, last; /* code points, both included */
} spry_code_range;

spry_status spry_ir_create(spry_ir **out, spry_error *error);
void spry_ir_destroy(spry_ir *ir);

/* What failed first; SPRY_OK so far otherwise. */
spry_status spry_ir_status(const spry_ir *ir, spry_error *error);
/* Makes the builder fail with a sentence, unless it failed before; returns SPRY_IR_NONE. */
spry_ir_node spry_ir_fail(spry_ir *ir, spry_status status, const char *format, ...) SPRY_PRINTF(3, 4);

spry_ir_node spry_ir_empty(spry_ir *ir);                    /* matches nothing but the empty text */
spry_ir_node spry_ir_never(spry_ir *ir);                    /* matches no text at all */
spry_ir_node spry_ir_literal(spry_ir *ir, spry_view bytes); /* these bytes */
/* One character (as UTF-8) in, or with `negated` not in, the ranges (any order, may overlap). Surrogates never match.
 */
spry_ir_node spry_ir_class(spry_ir *ir, const spry_code_range *ranges, size_t count, bool negated);
spry_ir_node spry_ir_sequence(spry_ir *ir, const spry_ir_node *nodes, size_t count);
spry_ir_node spry_ir_choice(spry_ir *ir, const spry_ir_node *nodes, size_t count);
spry_ir_node spry_ir_repeat(spry_ir *ir, spry_ir_node node, uint32_t min, uint32_t max);

/* Both, at once: texts that `a` and `b` match. Both must be regular (no rule that reaches itself, no members); fails
 * with SPRY_ERR_UNSUPPORTED otherwise. Texts that `a` matches and `b` does not: the same with `subtract`. */
spry_ir_node spry_ir_intersect(spry_ir *ir, spry_ir_node a, spry_ir_node b);
spry_ir_node spry_ir_subtract(spry_ir *ir, spry_ir_node a, spry_ir_node b);
/* Whether a regular node matches no text at all; false for nodes that are not regular. */
bool spry_ir_is_never(spry_ir *ir, spry_ir_node node);

/* A reference to the rule of this name, defined before or after; undefined ones fail when the grammar is compiled. */
spry_ir_node spry_ir_rule(spry_ir *ir, spry_view name);
void spry_ir_define(spry_ir *ir, spry_view name, spry_ir_node node);
bool spry_ir_is_defined(const spry_ir *ir, spry_view name);

/* The members of an object, in any order, each declared key at most once: what stands between "{" and "}".
 * A member is key, then value; members are parted by `comma`. The node matches when every required key was seen and the
 * number of members lies in [min, max]. Keys must be regular and no key may match a text that another one matches. */
typedef struct spry_ir_member {
    spry_ir_node key;   /* from the opening quote to the colon with the blanks around it */
    spry_ir_node value; /* with the blanks behind it */
    bool required;
    bool many; /* may come any number of times: additional and pattern properties */
} spry_ir_member;

enum { SPRY_IR_MEMBERS_MAX = 4096 };

spry_ir_node spry_ir_members(spry_ir *ir, const spry_ir_member *members, size_t count, spry_ir_node comma, uint32_t min,
                             uint32_t max);

/* ---- front ends -------------------------------------------------------------------------------------------------- */

/* A regular expression over the whole text (anchored at both ends) or, with `search`, anywhere in it. The dialect is in
 * docs/GRAMMARS.md; what cannot be enforced (back references, look-around) fails with the place of it. */
spry_ir_node spry_ir_regex(spry_ir *ir, spry_view pattern, bool search);

/* GBNF as llama.cpp documents it; its rules are defined and the node refers to "root". */
spry_ir_node spry_ir_gbnf(spry_ir *ir, spry_view text);

/* A JSON schema (text of 2020-12 or draft-07). What cannot be enforced fails with its path in the schema. */
spry_ir_node spry_ir_json_schema(spry_ir *ir, spry_view schema);

/* Any JSON object. */
spry_ir_node spry_ir_json_object(spry_ir *ir);

#endif
