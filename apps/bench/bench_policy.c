/* How many answers together pay here. Every size makes as many steps as the scheduler's judgement is made of. The
 * engine's own policy says which size offline mode takes; for people who wait, a doubling must give more for hardly
 * slower steps.
 */
#include <stdio.h>

#include "bench/bench_runner.h"

enum { BAR = 34 };
static const double gain_least = 1.10, slower_most = 1.10; /* of a doubling, for interactive use */

/* ---- measuring -----------------------------------------------------------------------------------------------------
 */

static spry_status measure_size(spry_bench_runner *r, spry_bench_batch *out, spry_policy_step *steps, uint32_t depth)
{
    snprintf(r->doing, sizeof r->doing, "steps of %u together:", out->batch);
    spry_status status = spry_bench_reach(r, depth, out->batch);
    r->n_steps = 0;
    if (!status)
        status = spry_bench_generate(r, SPRY_BENCH_POLICY_WARM, out->batch);
    r->n_steps = 0;
    if (!status)
        status = spry_bench_generate(r, SPRY_POLICY_STEPS, out->batch);
    r->measured++;
    if (status)
        return status;
    double ms = 0;
    for (size_t i = 0; i < SPRY_POLICY_STEPS; i++) {
        ms += r->step_ms[i];
        steps[i] = (spry_policy_step){out->batch, r->step_ms[i]};
    }
    spry_bench_steps percentiles = spry_bench_steps_of(r->step_ms, SPRY_POLICY_STEPS);
    out->tps = ms > 0 ? (double)out->batch * SPRY_POLICY_STEPS * 1000 / ms : 0;
    out->p50_ms = percentiles.p50_ms;
    out->p95_ms = percentiles.p95_ms;
    return SPRY_OK;
}

/* Compares each size with the next smaller one, and finds the last that interactive use can have. */
static void compare_sizes(spry_bench_policy *policy)
{
    const spry_bench_batch *before = NULL;
    bool all_pay = true;
    for (size_t i = 0; i < policy->count; i++) {
        spry_bench_batch *now = &policy->batches[i];
        if (now->skipped[0])
            continue;
        if (before && before->tps > 0 && before->p95_ms > 0) {
            now->gain = now->tps / before->tps;
            now->slower = now->p95_ms / before->p95_ms;
            all_pay = all_pay && now->gain >= gain_least && now->slower < slower_most;
        }
        if (all_pay)
            policy->interactive = now->batch;
        before = (now->batch & (now->batch - 1)) == 0 ? now : before;
    }
}

spry_status spry_bench_measure_policy(spry_bench_runner *r)
{
    spry_bench_policy *policy = &r->report->policy;
    spry_policy_step steps[SPRY_BENCH_POLICY_MAX * SPRY_POLICY_STEPS];
    size_t n_steps = 0;
    uint32_t most = 1;
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < policy->count; i++)
        if (!policy->batches[i].skipped[0] && policy->batches[i].batch > most)
            most = policy->batches[i].batch;
    for (size_t i = 0; !status && i < policy->count; i++)
        if (!policy->batches[i].skipped[0]) {
            status = measure_size(r, &policy->batches[i], steps + n_steps, policy->depth);
            n_steps += SPRY_POLICY_STEPS;
        }
    if (status || !policy->count)
        return status;
    compare_sizes(policy);
    policy->taken = spry_policy_choose(policy->why, sizeof policy->why, most, steps, n_steps);
    return SPRY_OK;
}

/* ---- telling -------------------------------------------------------------------------------------------------------
 */

static void print_bar(double value, double most, const char *mark)
{
    char bar[BAR + 1];
    size_t length = most > 0 ? (size_t)(value / most * BAR + 0.5) : 0;
    length = length > BAR ? BAR : length;
    memset(bar, '#', length);
    bar[length] = '\0';
    spry_out_format("  %s%s\n", bar, mark);
}

/* Tokens a second of a size that was measured; 0: of none. */
static double tps_of(const spry_bench_policy *policy, uint32_t batch)
{
    for (size_t i = 0; i < policy->count; i++)
        if (policy->batches[i].batch == batch)
            return policy->batches[i].tps;
    return 0;
}

/* How many times the tokens a second of interactive use offline mode gives; 0: not known. */
static double offline_gain(const spry_bench_policy *policy)
{
    return spry_bench_ratio(tps_of(policy, policy->taken), tps_of(policy, policy->interactive));
}

void spry_bench_policy_print(const spry_bench_policy *policy)
{
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    double most = 0;
    for (size_t i = 0; i < policy->count; i++)
        most = policy->batches[i].tps > most ? policy->batches[i].tps : most;
    spry_out_format("\n%sOffline %8s %10s %9s %7s %9s%s   at depth %u, tokens/s as bars\n", bold, "together",
                    "tokens/s", "p95", "gain", "slower", plain, policy->depth);
    for (size_t i = 0; i < policy->count; i++) {
        const spry_bench_batch *b = &policy->batches[i];
        char gain[16] = "", slower[16] = "";
        if (b->skipped[0]) {
            spry_out_format("        %8u   skipped: %s\n", b->batch, b->skipped);
            continue;
        }
        if (b->gain > 0) {
            snprintf(gain, sizeof gain, "%.2fx", b->gain);
            snprintf(slower, sizeof slower, "%.2fx", b->slower);
        }
        spry_out_format("        %8u %10.1f %6.2f ms %7s %9s", b->batch, b->tps, b->p95_ms, gain, slower);
        print_bar(b->tps, most, b->batch == policy->taken ? " <- taken" : "");
    }
    spry_out_format(
        "Offline mode takes %u together, the smallest size within a factor of %.2f of the most tokens/s.\n%s.\n"
        "For interactive use (--parallel), up to %u: each doubling gives at least %.2fx the tokens/s, and\n"
        "its slow steps (p95) stay below %.2fx. Offline mode gives %.2fx the tokens/s of that.\n",
        policy->taken, spry_policy_gain(), policy->why, policy->interactive, gain_least, slower_most,
        offline_gain(policy));
}

static json_t *ratio_json(double ratio)
{
    return ratio > 0 ? json_real(ratio) : json_null();
}

static json_t *batch_json(const spry_bench_batch *b)
{
    if (b->skipped[0])
        return json_pack("{s:I, s:s}", "batch", (json_int_t)b->batch, "why", b->skipped);
    return json_pack("{s:I, s:f, s:f, s:f, s:o, s:o}", "batch", (json_int_t)b->batch, "tps", b->tps, "p50_ms",
                     b->p50_ms, "p95_ms", b->p95_ms, "gain", ratio_json(b->gain), "slower", ratio_json(b->slower));
}

json_t *spry_bench_policy_json(const spry_bench_policy *policy)
{
    json_t *batches = json_array(), *skipped = json_array();
    bool whole = true;
    for (size_t i = 0; i < policy->count; i++) {
        const spry_bench_batch *b = &policy->batches[i];
        whole = json_array_append_new(b->skipped[0] ? skipped : batches, batch_json(b)) == 0 && whole;
    }
    json_t *out =
        json_pack("{s:I, s:s, s:I, s:o, s:I, s:o, s:o}", "taken", (json_int_t)policy->taken, "why", policy->why,
                  "interactive", (json_int_t)policy->interactive, "offline_gain", ratio_json(offline_gain(policy)),
                  "depth", (json_int_t)policy->depth, "batches", batches, "skipped", skipped);
    if (whole)
        return out;
    json_decref(out);
    return NULL;
}
