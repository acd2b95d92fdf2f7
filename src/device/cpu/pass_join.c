/* Rows of which each process of a team has computed a share of the values. */
#include <string.h>

#include "device/cpu/pass_state.h"

/* The shares of all ranks, each [n_rows, its width], become rows. */
static void interleave(float *whole, const float *shares, const spry_team *team, const size_t *starts, size_t n_rows)
{
    size_t total = starts[team->size];
    for (size_t rank = 0; rank < team->size; rank++) {
        size_t width = starts[rank + 1] - starts[rank];
        for (size_t row = 0; row < n_rows; row++, shares += width)
            memcpy(whole + row * total + starts[rank], shares, width * sizeof *whole);
    }
}

/* Only rank 0 draws, so only rank 0 needs logits. */
static const float *join(spry_pass *p, float *whole, const float *part, const size_t *starts, size_t n_rows)
{
    spry_team *team = p->team;
    size_t bytes[SPRY_TEAM_MAX];
    bool to_first = whole == p->logits;
    for (size_t rank = 0; rank < team->size; rank++)
        bytes[rank] = (starts[rank + 1] - starts[rank]) * n_rows * sizeof *part;
    team->gather(team, n_rows == 1 ? whole : p->exchanged, part, bytes, to_first);
    if (n_rows > 1 && !(to_first && team->rank))
        interleave(whole, p->exchanged, team, starts, n_rows);
    spry_pass_charge(p, SPRY_OP_EXCHANGE);
    return whole;
}

const float *spry_pass_join_heads(spry_pass *p, const float *part, size_t each)
{
    size_t starts[SPRY_TEAM_MAX + 1];
    if (!p->team)
        return part;
    spry_team_head_outputs(starts, p->team, each);
    return join(p, p->joined, part, starts, p->n_rows);
}

const float *spry_pass_join_outputs(spry_pass *p, float *whole, const float *part, size_t total, size_t n_rows)
{
    size_t starts[SPRY_TEAM_MAX + 1];
    if (!p->team)
        return part;
    spry_team_outputs(starts, p->team, total);
    return join(p, whole, part, starts, n_rows);
}

static void norm_columns(spry_pass *p, float *own, const size_t *starts, const float *weight, size_t begin, size_t end)
{
    size_t total = starts[p->team->size];
    join(p, p->joined, own, starts, p->n_rows);
    spry_pass_norm(p, p->joined, p->joined, weight, NULL, p->n_rows, total);
    for (size_t row = 0; row < p->n_rows; row++)
        memcpy(own + row * (end - begin), p->joined + row * total + begin, (end - begin) * sizeof *own);
}

void spry_pass_join_norms(spry_pass *p, const spry_layer *l)
{
    size_t starts[SPRY_TEAM_MAX + 1], n = p->config->head_dim;
    spry_team_heads h = spry_team_heads_of(p->team, p->team->rank);
    spry_team_head_outputs(starts, p->team, n);
    norm_columns(p, p->q, starts, l->q_norm, h.q_begin * n, h.q_end * n);
    spry_team_key_outputs(starts, p->team, n);
    norm_columns(p, p->k, starts, l->k_norm, h.kv_begin * n, h.kv_end * n);
}
