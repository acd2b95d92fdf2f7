#include "device/ranks/rank_step.h"

#include <stdlib.h>
#include <string.h>

/* Before each segment's entries and tokens. All lists are of 32-bit numbers. */
typedef struct segment_head {
    uint32_t first_position, n_rows, want, n_entries, n_tokens;
} segment_head;

void spry_rank_step_write(spry_buffer *out, const spry_segment *segments, size_t n_segments, const spry_kv_turns *turns)
{
    const uint32_t counts[] = {(uint32_t)n_segments, turns->end};
    spry_buffer_append(out, counts, sizeof counts);
    spry_buffer_append(out, turns->deltas, turns->end * sizeof *turns->deltas);
    for (size_t i = 0; i < n_segments; i++) {
        const spry_segment *g = &segments[i];
        const segment_head head = {g->first_position, g->n_rows, (uint32_t)g->want, (uint32_t)g->table->n_entries,
                                   (uint32_t)g->table->n_tokens};
        spry_buffer_append(out, &head, sizeof head);
        spry_buffer_append(out, g->table->entries, g->table->n_entries * sizeof *g->table->entries);
        spry_buffer_append(out, g->tokens, g->n_rows * sizeof *g->tokens);
    }
}

static bool reserve(spry_rank_step *step, size_t n)
{
    if (n <= step->capacity)
        return true;
    spry_rank_step_deinit(step);
    step->segments = calloc(n, sizeof *step->segments);
    step->tables = calloc(n, sizeof *step->tables);
    step->capacity = step->segments && step->tables ? n : 0;
    return step->capacity;
}

bool spry_rank_step_read(spry_rank_step *step, spry_kv_turns *turns, const spry_buffer *message)
{
    const char *at = message->data;
    uint32_t counts[2];
    memcpy(counts, at, sizeof counts);
    at += sizeof counts;
    turns->end = counts[1];
    memcpy(turns->deltas, at, turns->end * sizeof *turns->deltas);
    at += turns->end * sizeof *turns->deltas;
    if (!reserve(step, counts[0]))
        return false;
    step->n_segments = counts[0];
    for (size_t i = 0; i < step->n_segments; i++) {
        segment_head head;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        step->tables[i] = (spry_kv_table){
            .entries = (spry_kv_entry *)(void *)at, .n_entries = head.n_entries, .n_tokens = head.n_tokens};
        at += head.n_entries * sizeof(spry_kv_entry);
        step->segments[i] = (spry_segment){.table = &step->tables[i],
                                           .tokens = (const int32_t *)(const void *)at,
                                           .first_position = head.first_position,
                                           .n_rows = head.n_rows,
                                           .want = (spry_want)head.want};
        at += head.n_rows * sizeof(int32_t);
    }
    return true;
}

void spry_rank_step_deinit(spry_rank_step *step)
{
    free(step->segments);
    free(step->tables);
    *step = (spry_rank_step){0};
}
