/* Expressions, one function for each kind of node. */
#include "template/jinja_eval.h"

/* ---- variables --------------------------------------------------------------------------------------------------- */

spry_jinja_scope *spry_jinja_scope_create(spry_jinja_run *run, spry_jinja_scope *parent)
{
    spry_jinja_scope *scope = spry_jinja_alloc(run, 1, sizeof *scope);
    if (scope)
        scope->parent = parent;
    return scope;
}

static spry_jinja_binding *find_here(const spry_jinja_scope *scope, spry_view name)
{
    for (spry_jinja_binding *b = scope->first; b; b = b->next)
        if (spry_view_equal(b->name, name))
            return b;
    return NULL;
}

void spry_jinja_bind(spry_jinja_run *run, spry_view name, spry_jinja_value value)
{
    spry_jinja_binding *binding = find_here(run->scope, name);
    if (!binding) {
        binding = spry_jinja_alloc(run, 1, sizeof *binding);
        if (!binding)
            return;
        *binding = (spry_jinja_binding){.name = name, .next = run->scope->first};
        run->scope->first = binding;
    }
    binding->value = value;
}

static spry_jinja_value undefined(const spry_view *name)
{
    return (spry_jinja_value){.kind = SPRY_JINJA_UNDEFINED, .name = name};
}

static spry_jinja_value eval_name(spry_jinja_run *run, const spry_jinja_node *node)
{
    for (const spry_jinja_scope *scope = run->scope; scope; scope = scope->parent) {
        const spry_jinja_binding *binding = find_here(scope, node->name);
        if (binding)
            return binding->value;
    }
    spry_jinja_value global = spry_jinja_global(node->name);
    return global.kind == SPRY_JINJA_UNDEFINED ? undefined(&node->name) : global;
}

/* ---- making values ----------------------------------------------------------------------------------------------- */

static spry_jinja_value eval_const(spry_jinja_run *run, const spry_jinja_node *node)
{
    (void)run;
    return node->value;
}

static spry_jinja_value eval_list(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_list *list = spry_jinja_list_create(run, 0);
    for (const spry_jinja_node *item = node->list; item && !run->status; item = item->next)
        spry_jinja_list_push(run, list, spry_jinja_eval(run, item));
    return (spry_jinja_value){.kind = node->kind == SPRY_JINJA_MAKE_TUPLE ? SPRY_JINJA_TUPLE : SPRY_JINJA_LIST,
                              .list = list};
}

static spry_jinja_value eval_dict(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_dict *dict = spry_jinja_dict_create(run, 0);
    for (const spry_jinja_node *item = node->list; item && !run->status; item = item->next) {
        spry_jinja_value key = spry_jinja_eval(run, item->a);
        spry_jinja_dict_set(run, dict, key, spry_jinja_eval(run, item->b));
    }
    return SPRY_JINJA_DICT_OF(dict);
}

/* ---- parts of values --------------------------------------------------------------------------------------------- */

static spry_jinja_value eval_attribute(spry_jinja_run *run, const spry_jinja_node *node)
{
    return spry_jinja_attribute(run, spry_jinja_eval(run, node->a), &node->name);
}

static spry_jinja_value eval_index(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_value a = spry_jinja_eval(run, node->a);
    return spry_jinja_index(run, a, spry_jinja_eval(run, node->b));
}

static spry_jinja_value eval_slice(spry_jinja_run *run, const spry_jinja_node *node)
{
    const spry_jinja_node *parts[3] = {node->b, node->c, node->d};
    spry_jinja_value a = spry_jinja_eval(run, node->a), bounds[3];
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        bounds[i] = parts[i] ? spry_jinja_eval(run, parts[i]) : SPRY_JINJA_NULL;
    return spry_jinja_slice(run, a, bounds);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void spread_dict(spry_jinja_run *run, spry_jinja_dict *named, spry_jinja_value v)
{
    if (v.kind != SPRY_JINJA_DICT) {
        spry_jinja_fail(run, "a dict is expected behind **, not a %s", spry_jinja_kind_name(v));
        return;
    }
    for (size_t i = 0; i < v.dict->count; i++)
        spry_jinja_dict_set(run, named, v.dict->entries[i].key, v.dict->entries[i].value);
}

bool spry_jinja_eval_args(spry_jinja_run *run, spry_jinja_args *args, const spry_jinja_node *list)
{
    static const spry_jinja_dict no_names;
    spry_jinja_dict *named = NULL;
    spry_jinja_list *items = spry_jinja_list_create(run, 0);
    for (const spry_jinja_node *node = list; node && !run->status; node = node->next) {
        bool by_name = node->kind == SPRY_JINJA_NAMED;
        spry_jinja_value v = spry_jinja_eval(run, by_name ? node->b : node->kind == SPRY_JINJA_SPREAD ? node->a : node);
        if (!named && (by_name || node->kind == SPRY_JINJA_SPREAD))
            named = spry_jinja_dict_create(run, 0);
        if (by_name) {
            spry_jinja_dict_set(run, named, spry_jinja_text(run, node->name, false), v);
        } else if (node->kind != SPRY_JINJA_SPREAD) {
            spry_jinja_list_push(run, items, v);
        } else if (node->sign == SPRY_JINJA_SPREAD_DICT) {
            spread_dict(run, named, v);
        } else {
            const spry_jinja_list *more = spry_jinja_items(run, v);
            for (size_t i = 0; i < more->count; i++)
                spry_jinja_list_push(run, items, more->items[i]);
        }
    }
    *args = (spry_jinja_args){items->items, items->count, named ? named : &no_names};
    return !run->status;
}

static spry_jinja_value eval_call(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_args args;
    spry_jinja_value callee = spry_jinja_eval(run, node->a);
    if (!spry_jinja_eval_args(run, &args, node->list))
        return SPRY_JINJA_NOTHING;
    run->line = node->line;
    return spry_jinja_call(run, callee, &args);
}

spry_jinja_value spry_jinja_call(spry_jinja_run *run, spry_jinja_value callee, const spry_jinja_args *args)
{
    if (run->status)
        return SPRY_JINJA_NOTHING;
    if (callee.kind == SPRY_JINJA_CALLABLE)
        return callee.callable->call(run, callee.callable, args);
    if (callee.kind == SPRY_JINJA_UNDEFINED && callee.name)
        spry_jinja_fail(run, "'%.*s' is undefined and cannot be called", SPRY_VIEW_ARG(*callee.name));
    else
        spry_jinja_fail(run, "a %s cannot be called", spry_jinja_kind_name(callee));
    return SPRY_JINJA_NOTHING;
}

static spry_jinja_value eval_filter(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_args args;
    spry_jinja_value v = spry_jinja_eval(run, node->a);
    if (!spry_jinja_eval_args(run, &args, node->list))
        return SPRY_JINJA_NOTHING;
    run->line = node->line;
    return spry_jinja_filter(run, node->name, v, &args);
}

static spry_jinja_value eval_test(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_args args;
    spry_jinja_value v = spry_jinja_eval(run, node->a);
    if (!spry_jinja_eval_args(run, &args, node->list))
        return SPRY_JINJA_NOTHING;
    run->line = node->line;
    return SPRY_JINJA_BOOLEAN(spry_jinja_test(run, node->name, v, &args));
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static spry_jinja_value eval_not(spry_jinja_run *run, const spry_jinja_node *node)
{
    return SPRY_JINJA_BOOLEAN(!spry_jinja_truth(spry_jinja_eval(run, node->a)));
}

static spry_jinja_value eval_and(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_value a = spry_jinja_eval(run, node->a);
    return spry_jinja_truth(a) ? spry_jinja_eval(run, node->b) : a;
}

static spry_jinja_value eval_or(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_value a = spry_jinja_eval(run, node->a);
    return spry_jinja_truth(a) ? a : spry_jinja_eval(run, node->b);
}

static spry_jinja_value eval_signed(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_sign sign = node->kind == SPRY_JINJA_NEGATE ? SPRY_JINJA_SUB : SPRY_JINJA_ADD;
    spry_jinja_value v = spry_jinja_eval(run, node->a);
    if (v.kind == SPRY_JINJA_FLOAT)
        return SPRY_JINJA_REAL(sign == SPRY_JINJA_SUB ? -v.real : v.real);
    return spry_jinja_arithmetic(run, sign, SPRY_JINJA_INTEGER(0), v);
}

static spry_jinja_value eval_arithmetic(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_value a = spry_jinja_eval(run, node->a), b = spry_jinja_eval(run, node->b);
    run->line = node->line;
    return spry_jinja_arithmetic(run, node->sign, a, b);
}

static spry_jinja_value eval_concat(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, run);
    for (const spry_jinja_node *item = node->list; item && !run->status; item = item->next)
        spry_jinja_append_value(&b, spry_jinja_eval(run, item));
    return spry_jinja_builder_string(&b);
}

/* a < b < c holds when both comparisons do. */
static spry_jinja_value eval_compare(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_value a = spry_jinja_eval(run, node->a);
    for (const spry_jinja_node *item = node->list; item && !run->status; item = item->next) {
        spry_jinja_value b = spry_jinja_eval(run, item->a);
        if (!spry_jinja_compare(run, item->sign, a, b))
            return SPRY_JINJA_BOOLEAN(false);
        a = b;
    }
    return SPRY_JINJA_BOOLEAN(true);
}

static spry_jinja_value eval_conditional(spry_jinja_run *run, const spry_jinja_node *node)
{
    if (spry_jinja_truth(spry_jinja_eval(run, node->b)))
        return spry_jinja_eval(run, node->a);
    return node->c ? spry_jinja_eval(run, node->c) : SPRY_JINJA_NOTHING;
}

spry_jinja_value spry_jinja_eval(spry_jinja_run *run, const spry_jinja_node *node)
{
    static spry_jinja_value (*const table[SPRY_JINJA_NODE_KINDS])(spry_jinja_run *, const spry_jinja_node *) = {
        [SPRY_JINJA_CONST] = eval_const,
        [SPRY_JINJA_NAME] = eval_name,
        [SPRY_JINJA_MAKE_LIST] = eval_list,
        [SPRY_JINJA_MAKE_TUPLE] = eval_list,
        [SPRY_JINJA_MAKE_DICT] = eval_dict,
        [SPRY_JINJA_ATTRIBUTE] = eval_attribute,
        [SPRY_JINJA_INDEX] = eval_index,
        [SPRY_JINJA_SLICE] = eval_slice,
        [SPRY_JINJA_CALL] = eval_call,
        [SPRY_JINJA_FILTER] = eval_filter,
        [SPRY_JINJA_TEST] = eval_test,
        [SPRY_JINJA_NOT] = eval_not,
        [SPRY_JINJA_AND] = eval_and,
        [SPRY_JINJA_OR] = eval_or,
        [SPRY_JINJA_NEGATE] = eval_signed,
        [SPRY_JINJA_PLUS] = eval_signed,
        [SPRY_JINJA_ARITHMETIC] = eval_arithmetic,
        [SPRY_JINJA_CONCAT] = eval_concat,
        [SPRY_JINJA_COMPARE] = eval_compare,
        [SPRY_JINJA_CONDITIONAL] = eval_conditional,
    };
    if (!spry_jinja_enter(run))
        return SPRY_JINJA_NOTHING;
    run->line = node->line;
    spry_jinja_value v = table[node->kind](run, node);
    run->depth--;
    return run->status ? SPRY_JINJA_NOTHING : v;
}
