#include "grammar/ir/ir_groups.h"

#include "grammar/ir/grow.h"

void spry_ir_groups_init(spry_ir_groups *groups, spry_ir *ir)
{
    *groups = (spry_ir_groups){.ir = ir};
}

void spry_ir_groups_deinit(spry_ir_groups *groups)
{
    free(groups->items);
    free(groups->alternatives);
    free(groups->open);
    *groups = (spry_ir_groups){0};
}

static void fail_memory(spry_ir_groups *groups)
{
    spry_ir_fail(groups->ir, SPRY_ERR_MEMORY, "not enough memory for a grammar of %zu parts", groups->n_items);
}

void spry_ir_groups_open(spry_ir_groups *groups)
{
    if (!spry_grow(&groups->open, &groups->open_room, groups->n_open + 1, sizeof *groups->open))
        fail_memory(groups);
    else
        groups->open[groups->n_open++] = (spry_ir_group){groups->n_items, groups->n_alternatives};
}

void spry_ir_groups_item(spry_ir_groups *groups, spry_ir_node node)
{
    if (!spry_grow(&groups->items, &groups->items_room, groups->n_items + 1, sizeof *groups->items))
        fail_memory(groups);
    else
        groups->items[groups->n_items++] = node;
}

void spry_ir_groups_alternative(spry_ir_groups *groups)
{
    if (spry_ir_status(groups->ir, NULL))
        return;
    size_t first = groups->open[groups->n_open - 1].first_item;
    spry_ir_node node = groups->n_items > first
                            ? spry_ir_sequence(groups->ir, groups->items + first, groups->n_items - first)
                            : spry_ir_empty(groups->ir);
    groups->n_items = first;
    if (!spry_grow(&groups->alternatives, &groups->alternatives_room, groups->n_alternatives + 1, sizeof node))
        fail_memory(groups);
    else
        groups->alternatives[groups->n_alternatives++] = node;
}

spry_ir_node spry_ir_groups_close(spry_ir_groups *groups)
{
    spry_ir_groups_alternative(groups);
    if (spry_ir_status(groups->ir, NULL))
        return SPRY_IR_NONE;
    size_t first = groups->open[--groups->n_open].first_alternative;
    spry_ir_node node = spry_ir_choice(groups->ir, groups->alternatives + first, groups->n_alternatives - first);
    groups->n_alternatives = first;
    return node;
}

spry_ir_node *spry_ir_groups_last(spry_ir_groups *groups)
{
    if (spry_ir_status(groups->ir, NULL) || groups->n_items == groups->open[groups->n_open - 1].first_item)
        return NULL;
    return &groups->items[groups->n_items - 1];
}
