/* The config of a head, made from its model's. */
#include "model/draft_head.h"

#include <stdlib.h>

/* One layer, which attends to all of the text. */
static spry_status make_config(spry_config *out, const spry_config *model, spry_arena *arena, spry_error *error)
{
    *out = *model;
    out->n_layers = out->n_kv_slots = out->n_taps = 1;
    out->n_slide_slots = out->n_delta_layers = out->n_shared_kv = out->n_layer_embd = out->window = 0;
    out->taps[0] = out->n_layers;
    out->index_top = 0;
    out->n_draft_in = 2 * model->n_embd;
    out->sparsity = NULL;
    out->sliding = spry_arena_alloc(arena, 1, sizeof *out->sliding);
    out->rotated = spry_arena_alloc(arena, 1, sizeof *out->rotated);
    out->kv_layer = spry_arena_alloc(arena, 1, sizeof *out->kv_layer);
    out->kv_slot = spry_arena_alloc(arena, 1, sizeof *out->kv_slot);
    out->convolves = spry_arena_alloc(arena, 1, sizeof *out->convolves);
    out->kinds = spry_arena_alloc(arena, 1, sizeof *out->kinds);
    out->state_slot = spry_arena_alloc(arena, 1, sizeof *out->state_slot);
    out->blocks = spry_arena_alloc(arena, 1, sizeof *out->blocks);
    if (!out->sliding || !out->rotated || !out->kv_layer || !out->kv_slot || !out->convolves || !out->kinds ||
        !out->state_slot || !out->blocks)
        return spry_fail_memory(error, "a head that drafts", sizeof *out);
    out->rotated[0] = !model->unrotated;
    return SPRY_OK;
}

spry_status spry_draft_head_open(spry_draft_head **out, const spry_model *model, spry_error *error)
{
    const spry_arch *arch = model->config.arch;
    bool found = false;
    *out = NULL;
    if ((!model->gguf && !model->files) || arch->encoder || arch->streams || arch->beside || arch->kinds ||
        arch->single_parts || arch->attention_free || arch->shared_blocks || arch->compressed)
        return SPRY_OK; /* no such model has one that is known here */
    spry_draft_head *head = calloc(1, sizeof *head);
    if (!head)
        return spry_fail_memory(error, "a head that drafts", sizeof *head);
    spry_arena_init(&head->arena);
    spry_status status = make_config(&head->config, &model->config, &head->arena, error);
    if (!status)
        status = spry_weights_bind_head(&found, &head->weights, &head->config, &model->weights, model->config.n_layers,
                                        model->gguf, model->files, model->name, &head->arena, error);
    if (status || !found)
        spry_draft_head_close(head);
    else
        *out = head;
    return status;
}

void spry_draft_head_close(spry_draft_head *head)
{
    if (!head)
        return;
    spry_arena_deinit(&head->arena);
    free(head);
}
