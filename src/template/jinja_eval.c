/* Runs a parsed template. */
#include "template/jinja_eval.h"

/* ---- variables --------------------------------------------------------------------------------------------------- */

spry_jinja_scope *spry_jinja_scope_create(spry_jinja_run *run, spry_jinja_scope *parent)
{
    spry_jinja_scope *scope = spry_jinja_alloc(run, 1, sizeof *scope);
    if (scope)
        scope->parent = parent;
    return scope;
}

static spry_jinja_binding *find_here(spry_jinja_run *run, const spry_jinja_scope *scope, spry_view name)
{
    spry_jinja_binding *b = scope->first;
    size_t passed = 0;
    for (; b && !spry_view_equal(b->name, name); b = b->next)
        passed++;
    return spry_jinja_spend(run, 16 * passed) ? b : NULL;
}

void spry_jinja_bind(spry_jinja_run *run, spry_view name, spry_jinja_value value)
{
    spry_jinja_binding *binding = find_here(run, run->scope, name);
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
        const spry_jinja_binding *binding = find_here(run, scope, node->name);
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
        spry_jinja_fail(run, "a dict is expected after **, not a %s", spry_jinja_kind_name(v));
        return;
    }
    for (size_t i = 0; i < v.dict->count; i++)
        spry_jinja_dict_set(run, named, v.dict->entries[i].key, v.dict->entries[i].value);
}

/* Evaluates a list of arguments; false when the run failed. */
static bool eval_args(spry_jinja_run *run, spry_jinja_args *args, const spry_jinja_node *list)
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

spry_jinja_value spry_jinja_call(spry_jinja_run *run, spry_jinja_value callee, const spry_jinja_args *args)
{
    if (run->status)
        return SPRY_JINJA_NOTHING;
    if (callee.kind == SPRY_JINJA_CALLABLE)
        return callee.callable->call(&(spry_jinja_frame){.run = run,
                                                         .self = callee.callable->self,
                                                         .args = args,
                                                         .name = callee.callable->name,
                                                         .how = callee.callable->how,
                                                         .callee = callee.callable});
    if (callee.kind == SPRY_JINJA_UNDEFINED && callee.name)
        spry_jinja_fail(run, "'%.*s' is undefined and cannot be called", SPRY_VIEW_ARG(*callee.name));
    else
        spry_jinja_fail(run, "a %s cannot be called", spry_jinja_kind_name(callee));
    return SPRY_JINJA_NOTHING;
}

/* Evaluates a call, a filter or a test, all of which have an operand and arguments. */
static spry_jinja_value eval_call(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_args args;
    spry_jinja_value v = spry_jinja_eval(run, node->a);
    if (!eval_args(run, &args, node->list))
        return SPRY_JINJA_NOTHING;
    run->line = node->line;
    if (node->kind == SPRY_JINJA_TEST)
        return SPRY_JINJA_BOOLEAN(spry_jinja_test(run, node->name, v, &args));
    return node->kind == SPRY_JINJA_FILTER ? spry_jinja_filter(run, node->name, v, &args)
                                           : spry_jinja_call(run, v, &args);
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static spry_jinja_value eval_not(spry_jinja_run *run, const spry_jinja_node *node)
{
    return SPRY_JINJA_BOOLEAN(!spry_jinja_truth(spry_jinja_eval(run, node->a)));
}

/* Evaluates `and` and `or`: the second operand only if the first one does not decide. */
static spry_jinja_value eval_logic(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_value a = spry_jinja_eval(run, node->a);
    return spry_jinja_truth(a) == (node->kind == SPRY_JINJA_AND) ? spry_jinja_eval(run, node->b) : a;
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

/* Evaluates a comparison; a < b < c is true when both comparisons are. */
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
        [SPRY_JINJA_FILTER] = eval_call,
        [SPRY_JINJA_TEST] = eval_call,
        [SPRY_JINJA_NOT] = eval_not,
        [SPRY_JINJA_AND] = eval_logic,
        [SPRY_JINJA_OR] = eval_logic,
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

/* ---- statements and macros --------------------------------------------------------------------------------------- */

/* The body of a loop or macro has its own scope; the branches of an `if` do not. */

typedef enum flow { GO_ON, BREAK_LOOP, CONTINUE_LOOP } flow;

static flow exec(spry_jinja_run *run, const spry_jinja_node *list);

/* ---- assignment -------------------------------------------------------------------------------------------------- */

static void assign(spry_jinja_run *run, const spry_jinja_node *target, spry_jinja_value v);

static void assign_each(spry_jinja_run *run, const spry_jinja_node *targets, spry_jinja_value v)
{
    const spry_jinja_list *items = spry_jinja_items(run, v);
    size_t wanted = 0;
    for (const spry_jinja_node *t = targets; t; t = t->next)
        wanted++;
    if (items->count != wanted) {
        spry_jinja_fail(run, "%zu values for %zu names", items->count, wanted);
        return;
    }
    for (size_t i = 0; i < wanted; i++, targets = targets->next)
        assign(run, targets, items->items[i]);
}

static void assign_attribute(spry_jinja_run *run, const spry_jinja_node *target, spry_jinja_value v)
{
    spry_jinja_value space = spry_jinja_eval(run, target->a);
    if (space.kind == SPRY_JINJA_NAMESPACE)
        spry_jinja_dict_set(run, space.dict, spry_jinja_text(run, target->name, false), v);
    else
        spry_jinja_fail(run, "attributes can be set in a namespace only, '%.*s' is a %s",
                        SPRY_VIEW_ARG(target->a->name), spry_jinja_kind_name(space));
}

static void assign(spry_jinja_run *run, const spry_jinja_node *target, spry_jinja_value v)
{
    if (run->status)
        return;
    if (target->kind == SPRY_JINJA_MAKE_TUPLE)
        assign_each(run, target->list, v);
    else if (target->kind == SPRY_JINJA_ATTRIBUTE)
        assign_attribute(run, target, v);
    else
        spry_jinja_bind(run, target->name, v);
}

/* ---- output of blocks -------------------------------------------------------------------------------------------- */

/* The output of the statements as a string. */
static spry_jinja_value capture(spry_jinja_run *run, const spry_jinja_node *list, flow *then)
{
    spry_jinja_builder b, *outer = run->out;
    spry_jinja_builder_init(&b, run);
    run->out = &b;
    *then = exec(run, list);
    run->out = outer;
    return spry_jinja_builder_string(&b);
}

/* Applies the filters of a block; the innermost one has no operand. */
static spry_jinja_value filter_block(spry_jinja_run *run, const spry_jinja_node *filters, spry_jinja_value text)
{
    spry_jinja_args args;
    if (!filters || !spry_jinja_enter(run))
        return text;
    text = filter_block(run, filters->a, text);
    if (eval_args(run, &args, filters->list))
        text = spry_jinja_filter(run, filters->name, text, &args);
    run->depth--;
    return text;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* The items that pass the loop's condition, each evaluated in its own scope. */
static const spry_jinja_list *loop_items(spry_jinja_run *run, const spry_jinja_node *node)
{
    const spry_jinja_list *all = spry_jinja_items(run, spry_jinja_eval(run, node->b));
    if (!node->c)
        return all;
    spry_jinja_scope *outer = run->scope;
    spry_jinja_list *chosen = spry_jinja_list_create(run, 0);
    for (size_t i = 0; i < all->count && !run->status; i++) {
        spry_jinja_scope *scope = spry_jinja_scope_create(run, outer);
        if (!scope)
            break;
        run->scope = scope;
        assign(run, node->a, all->items[i]);
        if (spry_jinja_truth(spry_jinja_eval(run, node->c)))
            spry_jinja_list_push(run, chosen, all->items[i]);
    }
    run->scope = outer;
    return chosen;
}

static flow exec_for(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_scope *outer = run->scope;
    const spry_jinja_list *items = loop_items(run, node);
    spry_jinja_loop *loop = spry_jinja_alloc(run, 1, sizeof *loop);
    size_t count = items->count; /* items appended during the loop are ignored */
    flow then = GO_ON;
    if (!loop)
        return GO_ON;
    *loop = (spry_jinja_loop){.items = items};
    for (size_t i = 0; i < count && i < items->count && then != BREAK_LOOP && !run->status; i++) {
        spry_jinja_scope *scope = spry_jinja_scope_create(run, outer);
        if (!scope || !spry_jinja_spend(run, 0))
            break;
        run->scope = scope;
        loop->index = i;
        spry_jinja_bind(run, SPRY_VIEW("loop"), (spry_jinja_value){.kind = SPRY_JINJA_LOOP, .loop = loop});
        assign(run, node->a, items->items[i]);
        then = exec(run, node->list);
    }
    run->scope = outer;
    return count == 0 ? exec(run, node->other) : GO_ON;
}

/* ---- macros ------------------------------------------------------------------------------------------------------ */

/* Binds arguments for which there is no parameter to the names that Jinja2 gives them. */
static void bind_rest(spry_jinja_run *run, const spry_jinja_node *macro, const spry_jinja_args *args, size_t n_params)
{
    spry_jinja_list *more = spry_jinja_list_create(run, 0);
    spry_jinja_dict *named = spry_jinja_dict_create(run, 0);
    for (size_t i = n_params; i < args->count; i++)
        spry_jinja_list_push(run, more, args->items[i]);
    for (size_t i = 0; i < args->named->count; i++) {
        const spry_jinja_entry *entry = &args->named->entries[i];
        const spry_jinja_node *param = macro->params;
        while (param && !spry_view_equal(param->name, spry_jinja_view(entry->key)))
            param = param->next;
        if (!param)
            spry_jinja_dict_set(run, named, entry->key, entry->value);
    }
    const spry_jinja_value *caller = spry_jinja_dict_find_text(named, SPRY_VIEW("caller"));
    if (caller)
        spry_jinja_bind(run, SPRY_VIEW("caller"), *caller);
    spry_jinja_bind(run, SPRY_VIEW("varargs"), (spry_jinja_value){.kind = SPRY_JINJA_TUPLE, .list = more});
    spry_jinja_bind(run, SPRY_VIEW("kwargs"), SPRY_JINJA_DICT_OF(named));
}

static void bind_params(spry_jinja_run *run, const spry_jinja_node *macro, const spry_jinja_args *args)
{
    size_t index = 0;
    for (const spry_jinja_node *param = macro->params; param && !run->status; param = param->next, index++) {
        const spry_jinja_value *named = spry_jinja_dict_find_text(args->named, param->name);
        spry_jinja_value v = (spry_jinja_value){.kind = SPRY_JINJA_UNDEFINED, .name = &param->name};
        if (index < args->count)
            v = args->items[index];
        else if (named)
            v = *named;
        else if (param->b)
            v = spry_jinja_eval(run, param->b);
        spry_jinja_bind(run, param->name, v);
    }
    bind_rest(run, macro, args, index);
}

static spry_jinja_value call_macro(const spry_jinja_frame *f)
{
    spry_jinja_run *run = f->run;
    spry_jinja_scope *outer = run->scope, *scope = spry_jinja_scope_create(run, f->callee->scope);
    flow ignored;
    if (!scope)
        return SPRY_JINJA_NOTHING;
    run->scope = scope;
    bind_params(run, f->callee->macro, f->args);
    spry_jinja_value text = capture(run, f->callee->macro->list, &ignored);
    run->scope = outer;
    return text;
}

static spry_jinja_value macro_value(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_callable *macro = spry_jinja_alloc(run, 1, sizeof *macro);
    if (!macro)
        return SPRY_JINJA_NOTHING;
    *macro = (spry_jinja_callable){.name = "macro", .call = call_macro, .macro = node, .scope = run->scope};
    return (spry_jinja_value){.kind = SPRY_JINJA_CALLABLE, .callable = macro};
}

static void exec_call_block(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_args args;
    spry_jinja_value callee = spry_jinja_eval(run, node->a->a);
    if (!eval_args(run, &args, node->a->list))
        return;
    spry_jinja_dict *named = spry_jinja_dict_create(run, args.named->count + 1);
    for (size_t i = 0; i < args.named->count; i++)
        spry_jinja_dict_set(run, named, args.named->entries[i].key, args.named->entries[i].value);
    spry_jinja_dict_set(run, named, spry_jinja_text(run, SPRY_VIEW("caller"), false), macro_value(run, node));
    args.named = named;
    spry_jinja_append_value(run->out, spry_jinja_call(run, callee, &args));
}

/* ---- other statements -------------------------------------------------------------------------------------------- */

static flow exec_with(spry_jinja_run *run, const spry_jinja_node *node)
{
    spry_jinja_scope *outer = run->scope, *scope = spry_jinja_scope_create(run, outer);
    if (!scope)
        return GO_ON;
    run->scope = scope;
    for (const spry_jinja_node *param = node->params; param && !run->status; param = param->next)
        spry_jinja_bind(run, param->name, spry_jinja_eval(run, param->b));
    flow then = exec(run, node->list);
    run->scope = outer;
    return then;
}

static flow exec_if(spry_jinja_run *run, const spry_jinja_node *node)
{
    for (; node->kind == SPRY_JINJA_IF && !spry_jinja_truth(spry_jinja_eval(run, node->a)); node = node->other)
        if (!node->other || run->status)
            return GO_ON;
        else if (node->other->kind != SPRY_JINJA_IF || node->other->next)
            return exec(run, node->other);
    return exec(run, node->list);
}

static flow exec_one(spry_jinja_run *run, const spry_jinja_node *node)
{
    flow then = GO_ON;
    switch (node->kind) {
    case SPRY_JINJA_WRITE: spry_jinja_append(run->out, node->name, false); break;
    case SPRY_JINJA_PRINT: spry_jinja_append_value(run->out, spry_jinja_eval(run, node->a)); break;
    case SPRY_JINJA_IF: return exec_if(run, node);
    case SPRY_JINJA_FOR: return exec_for(run, node);
    case SPRY_JINJA_SET: assign(run, node->a, spry_jinja_eval(run, node->b)); break;
    case SPRY_JINJA_SET_BLOCK: assign(run, node->a, filter_block(run, node->b, capture(run, node->list, &then))); break;
    case SPRY_JINJA_MACRO: spry_jinja_bind(run, node->name, macro_value(run, node)); break;
    case SPRY_JINJA_CALL_BLOCK: exec_call_block(run, node); break;
    case SPRY_JINJA_FILTER_BLOCK:
        spry_jinja_append_value(run->out, filter_block(run, node->b, capture(run, node->list, &then)));
        break;
    case SPRY_JINJA_WITH: return exec_with(run, node);
    case SPRY_JINJA_GROUP: return exec(run, node->list);
    case SPRY_JINJA_BREAK: return BREAK_LOOP;
    case SPRY_JINJA_CONTINUE: return CONTINUE_LOOP;
    default: break;
    }
    return then;
}

static flow exec(spry_jinja_run *run, const spry_jinja_node *list)
{
    flow then = GO_ON;
    if (!list || !spry_jinja_enter(run))
        return GO_ON;
    for (; list && then == GO_ON && spry_jinja_spend(run, 0); list = list->next) {
        run->line = list->line;
        then = exec_one(run, list);
    }
    run->depth--;
    return then;
}

void spry_jinja_exec(spry_jinja_run *run, const spry_jinja_node *list)
{
    exec(run, list);
}
