/* Mixture of experts. Rows are grouped by expert, so that each chosen expert is read once and others not at all. A
 * row's contributions are added in ascending order of expert, independent of other rows. */
#include <math.h>
#include <string.h>

#include "device/cpu/expert_store.h"
#include "device/cpu/pass_state.h"

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Removes all but the best groups from the choice. By a sigmoid a group is as good as its best two, otherwise as its
 * best one. What is removed is never chosen by a sigmoid, whose choices may be negative, and otherwise counts as 0, as
 * in the models' own code. */
static void choose_groups(const spry_config *c, float *choice)
{
    uint32_t size = c->n_experts / c->n_groups;
    bool kept[SPRY_MAX_EXPERTS] = {0};
    for (uint32_t used = 0; used < c->n_groups_used; used++) {
        uint32_t best = c->n_groups;
        float most = 0;
        for (uint32_t g = 0; g < c->n_groups; g++) {
            float first = -INFINITY, second = -INFINITY;
            for (uint32_t i = g * size; i < (g + 1) * size; i++) {
                second = choice[i] > first ? first : choice[i] > second ? choice[i] : second;
                first = choice[i] > first ? choice[i] : first;
            }
            float good = c->routing == SPRY_ROUTING_SIGMOID ? first + second : first;
            if (!kept[g] && (best == c->n_groups || good > most)) {
                best = g;
                most = good;
            }
        }
        kept[best] = true;
    }
    for (uint32_t i = 0; i < c->n_experts; i++)
        choice[i] = kept[i / size] ? choice[i] : c->routing == SPRY_ROUTING_SIGMOID ? -INFINITY : 0;
}

/* What experts are chosen by. */
static void make_choice(const spry_pass *p, float *score, const float *bias)
{
    const spry_config *c = p->config;
    if (c->routing == SPRY_ROUTING_SIGMOID)
        for (uint32_t e = 0; e < c->n_experts; e++)
            score[e] = sigmoid(score[e]);
    else
        p->ops->softmax(score, c->n_experts);
    for (uint32_t e = 0; e < c->n_experts; e++)
        p->choice[e] = bias ? score[e] + bias[e] : score[e];
    if (c->n_groups > 1)
        choose_groups(c, p->choice);
}

/* The used experts with the largest choice (the lower id on ties), then ascending by id. */
static void choose(const spry_pass *p, size_t row, const float *bias)
{
    const spry_config *c = p->config;
    float *score = p->router + row * c->n_experts, *choice = p->choice;
    uint32_t *chosen = p->chosen + row * c->n_experts_used;
    float *weight = p->chosen_weight + row * c->n_experts_used, sum = 0;
    make_choice(p, score, bias);
    for (uint32_t i = 0; i < c->n_experts_used; i++) {
        uint32_t best = c->n_experts;
        for (uint32_t e = 0; e < c->n_experts; e++)
            if (choice[e] > -INFINITY && (best == c->n_experts || choice[e] > choice[best]))
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
        choice[best] = -INFINITY; /* taken */
    }
    for (uint32_t i = 0; c->normalise_experts && i < c->n_experts_used; i++)
        weight[i] /= sum;
    for (uint32_t i = 0; c->routed_scale != 1 && i < c->n_experts_used; i++)
        weight[i] *= c->routed_scale;
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

/* The shared expert processes every row; its own gate, a sigmoid, weights it, where it has one. */
static void add_shared(spry_pass *p, const spry_layer *l)
{
    size_t n = p->config->n_embd;
    bool weighed = l->shared_router.data;
    if (weighed)
        spry_pass_linear(p, SPRY_OP_ROUTE, p->router, 1, &l->shared_router, p->in, p->n_rows);
    spry_pass_gated(p, p->expert_out, &l->shared_gate, &l->shared_up, &l->shared_down, p->in, p->n_rows);
    for (size_t row = 0; row < p->n_rows; row++)
        p->ops->add_scaled(p->y + row * n, p->expert_out + row * n, weighed ? sigmoid(p->router[row]) : 1, n);
}

void spry_pass_experts(spry_pass *p, const spry_layer *l)
{
    const spry_config *c = p->config;
    spry_pass_linear(p, SPRY_OP_ROUTE, p->router, c->n_experts, &l->router, p->in, p->n_rows);
    for (size_t row = 0; row < p->n_rows; row++)
        choose(p, row, l->choice_bias);
    memset(p->y, 0, p->n_rows * c->n_embd * sizeof(float));
    for (uint32_t e = 0; e < c->n_experts; e++) {
        size_t count = gather(p, e);
        if (!count)
            continue;
        if (p->experts)
            spry_expert_store_take(p->experts, p->threads, (uint32_t)(l - p->weights->layers), e);
        spry_pass_charge(p, SPRY_OP_ROUTE);
        p->row_numbers = p->expert_rows;
        spry_pass_gated(p, p->expert_out, &l->expert_gate[e], &l->expert_up[e], &l->expert_down[e], p->expert_in,
                        count);
        p->row_numbers = NULL;
        scatter(p, count);
    }
    if (l->shared_up.data)
        add_shared(p, l);
    spry_pass_charge(p, SPRY_OP_ROUTE);
}
