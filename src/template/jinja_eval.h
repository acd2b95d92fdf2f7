/* Runs a parsed template: evaluates expressions and executes statements. */
#ifndef SPRY_TEMPLATE_JINJA_EVAL_H
#define SPRY_TEMPLATE_JINJA_EVAL_H

#include "template/jinja_parser.h"
#include "template/jinja_value.h"

typedef struct spry_jinja_binding {
    spry_view name;
    spry_jinja_value value;
    struct spry_jinja_binding *next;
} spry_jinja_binding;

/* Variables. A name is looked up here, then in the enclosing scopes. */
typedef struct spry_jinja_scope {
    struct spry_jinja_scope *parent;
    spry_jinja_binding *first;
} spry_jinja_scope;

/* NULL when the run failed. */
spry_jinja_scope *spry_jinja_scope_create(spry_jinja_run *run, spry_jinja_scope *parent);
/* Sets a variable of the innermost scope. */
void spry_jinja_bind(spry_jinja_run *run, spry_view name, spry_jinja_value value);

spry_jinja_value spry_jinja_eval(spry_jinja_run *run, const spry_jinja_node *node);
/* Runs a list of statements; their output goes to run->out. */
void spry_jinja_exec(spry_jinja_run *run, const spry_jinja_node *list);

/* ---- functions shared by the files of the evaluator -------------------------------------------------------------- */

spry_jinja_value spry_jinja_arithmetic(spry_jinja_run *run, spry_jinja_sign sign, spry_jinja_value a,
                                       spry_jinja_value b);
bool spry_jinja_compare(spry_jinja_run *run, spry_jinja_sign sign, spry_jinja_value a, spry_jinja_value b);

/* a[b]: undefined when there is no such item. */
spry_jinja_value spry_jinja_index(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b);
/* a.name: a Python attribute if there is one, else a["name"]. */
spry_jinja_value spry_jinja_attribute(spry_jinja_run *run, spry_jinja_value a, const spry_view *name);
/* Each bound is NULL or evaluates to None or an integer. */
spry_jinja_value spry_jinja_slice(spry_jinja_run *run, spry_jinja_value a, const spry_jinja_value bounds[3]);

spry_jinja_value spry_jinja_call(spry_jinja_run *run, spry_jinja_value callee, const spry_jinja_args *args);

spry_jinja_value spry_jinja_filter(spry_jinja_run *run, spry_view name, spry_jinja_value v,
                                   const spry_jinja_args *args);
bool spry_jinja_test(spry_jinja_run *run, spry_view name, spry_jinja_value v, const spry_jinja_args *args);
/* The table row of a filter; NULL: it is unknown. */
const spry_jinja_named *spry_jinja_find_filter(spry_view name);

/* A global function; undefined for unknown names. */
spry_jinja_value spry_jinja_global(spry_view name);

/* The time of the run, formatted as by strftime. `source`: the string with the format, whose marks are kept, or
 * NULL. */
spry_jinja_value spry_jinja_date(spry_jinja_run *run, spry_view format, const spry_jinja_string *source);
/* A method of a string, list, dict or loop; undefined when there is none. */
spry_jinja_value spry_jinja_method(spry_jinja_run *run, spry_jinja_value self, spry_view name);

/* "%s" % args and "{}".format(...). */
spry_jinja_value spry_jinja_format_percent(spry_jinja_run *run, spry_jinja_value format, const spry_jinja_list *values);
spry_jinja_builtin spry_jinja_format_braces;

#endif
