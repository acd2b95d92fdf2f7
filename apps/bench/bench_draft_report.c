/* What drafting gained, for people and programs. */
#include <stdio.h>

#include "bench/bench_draft.h"
#include "cli/terminal.h"

enum { BAR = 24 };

static const char *share_text(char out[16], double share, bool known)
{
    snprintf(out, 16, known ? "%.0f %%" : "-", 100 * share);
    return out;
}

/* Speed against acceptance, the highest acceptance first: the tasks at rising temperatures. */
static void print_curve(const spry_bench_drafts *d)
{
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    double most = 1;
    for (size_t i = 0; i < d->n_tasks; i++)
        most = d->tasks[i].drafts.speedup > most ? d->tasks[i].drafts.speedup : most;
    spry_out_format("\n%s%-12s %10s %8s%s\n", bold, "Curve", "accepted", "ratio", plain);
    for (size_t i = 0; i < d->n_tasks; i++) {
        const spry_bench_draft_task *t = &d->tasks[i];
        char bar[BAR + 1], share[16];
        if (i && i < SPRY_BENCH_DRAFT_TASKS)
            continue;
        size_t length = (size_t)(t->drafts.speedup / most * BAR + 0.5);
        length = length > BAR ? BAR : length;
        for (size_t k = 0; k < length; k++)
            bar[k] = '#';
        bar[length] = '\0';
        spry_out_format("%-12s %10s %7.2fx  %s\n", t->what, share_text(share, t->figures.acceptance, t->drafts.drafted),
                        t->drafts.speedup, bar);
    }
}

static void print_gates(const spry_bench_drafts *d)
{
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    spry_out_format("\n%s%-10s %9s %13s %13s %13s %21s%s\n", bold, "Drafts", "accepted", "refused p50", "refused p95",
                    "own prefill", "first token, ms", plain);
    for (size_t i = 0; i < SPRY_BENCH_DRAFT_TASKS; i++) {
        const spry_bench_draft_task *t = &d->tasks[i];
        char accepted[16], p50[16], p95[16], prefill[24] = "-";
        bool known = t->drafts.drafted;
        if (t->figures.prefill_ms > 0)
            snprintf(prefill, sizeof prefill, "%.2f ms", t->figures.prefill_ms);
        spry_out_format("%-10s %9s %13s %13s %13s %9.2f -> %8.2f\n", t->what,
                        share_text(accepted, t->figures.acceptance, known),
                        share_text(p50, t->figures.refused_p50, known), share_text(p95, t->figures.refused_p95, known),
                        prefill, t->plain_ttft_ms, t->drafted_ttft_ms);
    }
    spry_out_format("Refused is the share of an answer's drafts; percentiles are over answers. Drafting does not\n"
                    "shorten the first token's time: a prompt is read as without drafts.\n");
}

void spry_bench_draft_print_table(const spry_bench_drafts *d)
{
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    spry_out_format("%s", bold);
    spry_out_quote("%s%s, drafts by %s\n\n", d->model, plain, d->who);
    spry_out_format("%s%-10s %7s %14s %14s %7s %9s %9s %8s%s\n", bold, "Decode", "tokens", "without", "with", "ratio",
                    "guessed", "right", "a step", plain);
    for (size_t i = 0; i < SPRY_BENCH_DRAFT_TASKS; i++) {
        const spry_bench_draft_task *t = &d->tasks[i];
        spry_out_format("%-10s %7zu %8.1f tok/s %8.1f tok/s %6.2fx %9zu %9zu %8.2f\n", t->what, t->tokens,
                        t->plain.median, t->drafted.median, t->drafts.speedup, t->drafts.drafted, t->drafts.accepted,
                        t->drafts.tokens_per_step);
    }
    print_gates(d);
    if (d->n_tasks > SPRY_BENCH_DRAFT_TASKS)
        print_curve(d);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *figures_json(const spry_bench_draft_figures *f, bool drafted)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:f}", "acceptance", drafted ? json_real(f->acceptance) : json_null(),
                     "refused_p50", drafted ? json_real(f->refused_p50) : json_null(), "refused_p95",
                     drafted ? json_real(f->refused_p95) : json_null(), "prefill_ms",
                     f->prefill_ms > 0 ? json_real(f->prefill_ms) : json_null(), "speedup", f->speedup);
}

static json_t *task_json(const spry_bench_draft_task *t)
{
    return json_pack("{s:s, s:f, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:i, s:i, s:f, s:f, s:o}", "task", t->what,
                     "temperature", (double)t->temperature, "tokens", (json_int_t)t->tokens, "plain_tps",
                     t->plain.median, "drafted_tps", t->drafted.median, "ratio", t->drafts.speedup, "steps",
                     (json_int_t)t->drafts.steps, "drafted", (json_int_t)t->drafts.drafted, "accepted",
                     (json_int_t)t->drafts.accepted, "tokens_per_step", t->drafts.tokens_per_step, "refused_p50",
                     (int)t->drafts.refused_p50, "refused_p95", (int)t->drafts.refused_p95, "plain_ttft_ms",
                     t->plain_ttft_ms, "drafted_ttft_ms", t->drafted_ttft_ms, "figures",
                     figures_json(&t->figures, t->drafts.drafted));
}

json_t *spry_bench_draft_json(const spry_bench_drafts *d)
{
    json_t *list = json_array();
    bool whole = list, drafted = false;
    for (size_t i = 0; i < d->n_tasks; i++) {
        whole = json_array_append_new(list, task_json(&d->tasks[i])) == 0 && whole;
        drafted = drafted || (i < SPRY_BENCH_DRAFT_TASKS && d->tasks[i].drafts.drafted);
    }
    json_t *out = json_pack("{s:s, s:s, s:o, s:o, s:{s:s, s:s}, s:o, s:o}", "format", SPRY_BENCH_DRAFT_FORMAT, "spry",
                            spry_version(), "model", spry_bench_text_json(d->model), "draft",
                            spry_bench_text_json(d->who), "machine", "cpu", d->machine.cpu, "id", d->machine.id,
                            "tasks", list, "drafts", figures_json(&d->all, drafted));
    if (whole)
        return out;
    json_decref(out);
    return NULL;
}
