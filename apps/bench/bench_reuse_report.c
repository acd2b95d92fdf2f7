/* The savings of reuse, as text and as JSON. */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "bench/bench_reuse.h"
#include "cli/terminal.h"

static bool is_speed(const spry_bench_reuse *r, const spry_bench_pair *pair)
{
    return pair == &r->pairs[SPRY_BENCH_REUSE_PAIRS - 1];
}

static double ratio(const spry_bench_pair *pair)
{
    return pair->cold.median > 0 ? pair->warm.median / pair->cold.median : 0;
}

void spry_bench_reuse_print_table(const spry_bench_reuse *r)
{
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    spry_out_format("%s%s%s\n\n", bold, r->model, plain);
    spry_out_format("%s%-26s %7s %7s %14s %14s %8s%s\n", bold, "Time to the first token", "tokens", "known", "anew",
                    "reused", "share", plain);
    for (size_t i = 0; i < SPRY_BENCH_REUSE_PAIRS; i++) {
        const spry_bench_pair *p = &r->pairs[i];
        char cold[SPRY_AMOUNT_MAX], warm[SPRY_AMOUNT_MAX];
        if (is_speed(r, p)) {
            snprintf(cold, sizeof cold, "%.1f tok/s", p->cold.median);
            snprintf(warm, sizeof warm, "%.1f tok/s", p->warm.median);
        } else {
            spry_amount_time(cold, p->cold.median);
            spry_amount_time(warm, p->warm.median);
        }
        spry_out_format("%-26s %7zu %7zu %14s %14s %6.1f %%\n", p->what, p->tokens, p->known, cold, warm,
                        100 * ratio(p));
    }
    spry_out_format("\nFinding a prompt of %zu tokens among %zu pages takes %.0f us.\n", r->lookup_tokens,
                    r->lookup_pages, r->lookup_us.median);
}

spry_status spry_bench_reuse_print_json(const spry_bench_reuse *r, spry_error *error)
{
    static const char *const keys[SPRY_BENCH_REUSE_PAIRS] = {"prefix", "fragments", "fragments_again", "restart",
                                                             "moved_decode"};
    json_t *out =
        json_pack("{s:s, s:{s:I, s:I, s:f}}", "model", r->model, "lookup", "tokens", (json_int_t)r->lookup_tokens,
                  "pages", (json_int_t)r->lookup_pages, "us", r->lookup_us.median);
    for (size_t i = 0; out && i < SPRY_BENCH_REUSE_PAIRS; i++) {
        const spry_bench_pair *p = &r->pairs[i];
        const char *unit = is_speed(r, p) ? "tokens_per_second" : "ms";
        json_object_set_new(out, keys[i],
                            json_pack("{s:I, s:I, s:s, s:f, s:f, s:f}", "tokens", (json_int_t)p->tokens, "known",
                                      (json_int_t)p->known, "unit", unit, "anew", p->cold.median, "reused",
                                      p->warm.median, "ratio", ratio(p)));
    }
    char *text = out ? json_dumps(out, JSON_REAL_PRECISION(6)) : NULL;
    json_decref(out);
    if (!text)
        return spry_fail_memory(error, "the report as JSON", sizeof *r);
    spry_out_format("%s\n", text);
    free(text);
    return SPRY_OK;
}
