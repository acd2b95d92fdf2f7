/* Mixture of experts. Rows are grouped by expert, so that each chosen expert is read once and others not at all. A
 * row's contributions are added in ascending order of expert, independent of other rows. */
#include <math.h>
#include <string.h>

#include "device/cpu/pass_state.h"

/* The used experts with the largest probability (the lower id on ties), then ascending by id. */
static void choose(const spry_pass *p, size_t row)
{
    const spry_config *c = p->config;
    float *score = p->router + row * c->n_experts;
    uint32_t *chosen = p->chosen + row * c->n_experts_used;
    float *weight = p->chosen_weight + row * c->n_experts_used, sum = 0;
    p->ops->softmax(score, c->n_experts);
    for (uint32_t i = 0; i < c->n_experts_used; i++) {
        uint32_t best = c->n_experts;
        for (uint32_t e = 0; e < c->n_experts; e++)
            if (score[e] >= 0 && (best == c->n_experts || score[e] > score[best]))
                best = e;
        if (best == c->n_experts) /* NaN logits: no choice is better */
            best = i;
        uint32_t at = i;
        for (; at > 0 && chosen[at - 1] > best; at--) {
            chosen[at] = chosen[at - 1];
            weight[at] = weight[at - 1];
        }
        chosen[at] = best;
        weight[at] = score[best];
        sum += score[best];
        score[best] = -1; /* taken */
    }
    for (uint32_t i = 0; c->normalise_experts && i < c->n_experts_used; i++)
        weight[i] /= sum;
}

/* Gathers the rows that chose an expert into expert_in; returns how many. */
static size_t gather(spry_pass *p, uint32_t expert)
{
    const spry_config *c = p->config;
    size_t count = 0;
    for (size_t row = 0; row < p->n_rows; row++)
        for (uint32_t i = 0; i < c->n_experts_used; i++)
            if (p->chosen[row * c->n_experts_used + i] == expert) {
                memcpy(p->expert_in + count * c->n_embd, p->in + row * c->n_embd, c->n_embd * sizeof(float));
                p->expert_rows[count] = (uint32_t)row;
                p->expert_weight[count++] = p->chosen_weight[row * c->n_experts_used + i];
                break;
            }
    return count;
}

static void scatter(spry_pass *p, size_t count)
{
    size_t n = p->config->n_embd;
    for (size_t i = 0; i < count; i++)
        p->ops->add_scaled(p->y + p->expert_rows[i] * n, p->expert_out + i * n, p->expert_weight[i], n);
}

/* The shared expert processes every row; its own gate, a sigmoid, weights it. */
static void add_shared(spry_pass *p, const spry_layer *l)
{
    size_t n = p->config->n_embd;
    spry_pass_linear(p, SPRY_OP_ROUTE, p->router, 1, &l->shared_router, p->in, p->n_rows);
    spry_pass_gated(p, p->expert_out, &l->shared_gate, &l->shared_up, &l->shared_down, p->in, p->n_rows);
    for (size_t row = 0; row < p->n_rows; row++)
        p->ops->add_scaled(p->y + row * n, p->expert_out + row * n, 1 / (1 + expf(-p->router[row])), n);
}

void spry_pass_experts(spry_pass *p, const spry_layer *l)
{
    const spry_config *c = p->config;
    spry_pass_linear(p, SPRY_OP_ROUTE, p->router, c->n_experts, &l->router, p->in, p->n_rows);
    for (size_t row = 0; row < p->n_rows; row++)
        choose(p, row);
    memset(p->y, 0, p->n_rows * c->n_embd * sizeof(float));
    for (uint32_t e = 0; e < c->n_experts; e++) {
        size_t count = gather(p, e);
        if (!count)
            continue;
        spry_pass_charge(p, SPRY_OP_ROUTE);
        spry_pass_gated(p, p->expert_out, &l->expert_gate[e], &l->expert_up[e], &l->expert_down[e], p->expert_in,
                        count);
        scatter(p, count);
    }
    if (l->shared_router.data)
        add_shared(p, l);
    spry_pass_charge(p, SPRY_OP_ROUTE);
}
