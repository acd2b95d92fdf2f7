/* Runs a session's generation and stores the result. */
#include "run/answer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "cli/energy_figures.h"
#include "cli/interrupt.h"
#include "cli/shown_text.h"
#include "cli/terminal.h"
#include "platform/clock.h"

enum { TEXT_BYTES_MAX = 1 << 28 };

void spry_answer_init(spry_answer *answer)
{
    *answer = (spry_answer){0};
    spry_buffer_init(&answer->text, TEXT_BYTES_MAX);
}

void spry_answer_deinit(spry_answer *answer)
{
    spry_buffer_deinit(&answer->text);
    free(answer->tokens);
    *answer = (spry_answer){0};
}

/* ---- generating -------------------------------------------------------------------------------------------------- */

typedef struct generation {
    spry_answer *answer;
    const spry_answer_job *job;
    spry_progress_line progress;
    spry_shown_text shown;
    bool short_of_memory;
} generation;

static bool on_prefill(void *user, size_t done, size_t total)
{
    generation *g = user;
    spry_progress_update(&g->progress, done, total);
    return !spry_interrupt_seen();
}

static bool on_text(void *user, const char *text, size_t size)
{
    generation *g = user;
    spry_progress_end(&g->progress);
    if (!spry_buffer_append(&g->answer->text, text, size)) {
        g->short_of_memory = true;
        return false;
    }
    if (g->job->stream && !spry_shown_text_write(&g->shown, (spry_view){text, size}))
        return false;
    if (g->job->on_piece && !g->job->on_piece(g->job->user, (spry_view){text, size}))
        return false;
    return !spry_interrupt_seen();
}

static bool on_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    generation *g = user;
    spry_answer *answer = g->answer;
    if (answer->n_tokens == answer->capacity) {
        size_t capacity = answer->capacity ? answer->capacity * 2 : 64, bytes;
        spry_answer_token *grown = NULL;
        if (spry_checked_mul(&bytes, capacity, sizeof *grown))
            grown = realloc(answer->tokens, bytes);
        if (!grown) {
            g->short_of_memory = true;
            return false;
        }
        answer->tokens = grown;
        answer->capacity = capacity;
    }
    spry_answer_token *kept = &answer->tokens[answer->n_tokens++];
    *kept = (spry_answer_token){.token = token, .n_top = n_top};
    if (n_top)
        memcpy(kept->top, top, n_top * sizeof *top);
    return !spry_interrupt_seen();
}

void spry_answer_begin(spry_answer *answer, const spry_engine *engine, spry_energy *meter)
{
    spry_trace *trace = spry_engine_trace(engine);
    answer->meter = meter;
    spry_energy_read(meter, &answer->before);
    uint64_t now_ns = spry_clock_ns();
    uint32_t lane = answer->laps.lane ? answer->laps.lane : spry_trace_take_lane(trace, now_ns);
    spry_laps_begin(&answer->laps, trace, lane, now_ns);
}

/* The parts of the session and those before it make up the request; the remainder of its time is writing. */
static void sum_up(spry_answer *answer)
{
    spry_laps *laps = &answer->laps;
    spry_result *r = &answer->result;
    spry_joules after;
    double ms = 0;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++) {
        r->first_parts_ms[i] += (double)laps->ns[i] / 1e6;
        ms += r->parts_ms[i] + (double)laps->ns[i] / 1e6;
    }
    laps->last_ns = laps->began_ns + (uint64_t)(ms * 1e6);
    spry_lap(laps, SPRY_PART_WRITE);
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        r->parts_ms[i] += (double)laps->ns[i] / 1e6;
    r->total_ms = spry_answer_ms(answer);
    spry_energy_read(answer->meter, &after);
    answer->energy = spry_joules_between(&answer->before, &after);
    const spry_trace_span span = {
        .name = "request",
        .category = "request",
        .lane = laps->lane,
        .begin_ns = laps->began_ns,
        .end_ns = laps->last_ns,
        .args = {{"prompt_tokens", (int64_t)r->prompt_tokens}, {"generated_tokens", (int64_t)r->generated_tokens}}};
    spry_trace_add(laps->trace, &span);
}

spry_status spry_answer_generate(spry_answer *answer, const spry_answer_job *job, spry_error *error)
{
    generation g = {.answer = answer, .job = job};
    spry_request request;
    spry_request_default(&request);
    request.prompt = job->prompt->ids;
    request.n_prompt = job->prompt->count;
    request.spans = job->spans;
    request.n_spans = job->n_spans;
    request.span_repair = job->span_repair;
    request.speculation = job->speculation;
    request.draft_most = job->flags->draft_most;
    request.constraint = job->constraint;
    request.constraint_text = job->constraint_text;
    request.json_style = spry_answer_flags_style(job->flags);
    request.max_tokens = job->flags->max_tokens;
    spry_answer_flags_sampling(&request.sampling, job->flags, job->engine);
    request.sampling.seed = job->seed;
    request.stop = job->flags->stop.items;
    request.n_stop = job->flags->stop.count;
    request.special = job->flags->special;
    request.ignore_end = job->flags->ignore_end;
    request.logprobs = job->logprobs;
    request.on_text = on_text;
    request.on_token = job->keep_tokens ? on_token : NULL;
    request.on_prefill = on_prefill;
    request.user = &g;
    request.lane = answer->laps.lane;
    spry_session_set_slide(job->session, job->flags->slide || job->flags->keep, job->flags->keep);
    spry_buffer_clear(&answer->text);
    answer->n_tokens = 0;
    spry_shown_text_init(&g.shown, job->flags->plain || job->constraint != SPRY_ANY_TEXT, job->rated);
    spry_progress_begin(&g.progress, "reading the prompt");
    spry_lap(&answer->laps, SPRY_PART_TOKENIZE);
    spry_status status = spry_session_generate(job->session, &answer->result, &request, error);
    spry_progress_end(&g.progress);
    spry_shown_text_finish(&g.shown);
    sum_up(answer);
    if (status == SPRY_OK && g.short_of_memory)
        status = spry_fail_memory(error, "the answer", answer->text.size);
    return status;
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

static spry_status make_room(spry_tokens *out, size_t count, spry_error *error)
{
    size_t bytes;
    int32_t *ids = NULL;
    if (spry_checked_mul(&bytes, count, sizeof *ids))
        ids = realloc(out->ids, bytes ? bytes : sizeof *ids);
    if (!ids)
        return spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for %zu prompt tokens", count);
    out->ids = ids;
    out->capacity = count;
    return SPRY_OK;
}

spry_status spry_answer_chat_ids(spry_answer *answer, spry_tokens *out, const spry_engine *engine,
                                 const spry_message *messages, size_t n_messages, spry_error *error)
{
    json_t *list = json_array(), *request = json_pack("{s:o}", "messages", list);
    for (size_t i = 0; i < n_messages; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", messages[i].role, "content", messages[i].content));
    char *json = json_array_size(list) == n_messages ? json_dumps(request, 0) : NULL;
    spry_chat_prompt prompt = {0};
    spry_status status = json ? spry_engine_chat_prompt(engine, &prompt, json, strlen(json), error)
                              : spry_fail_memory(error, "the conversation", n_messages);
    uint64_t now = spry_clock_ns();
    spry_lap_until(&answer->laps, SPRY_PART_TEMPLATE, now - (uint64_t)(prompt.tokenize_ms * 1e6));
    spry_lap_until(&answer->laps, SPRY_PART_TOKENIZE, now);
    free(out->ids);
    *out = (spry_tokens){prompt.ids, prompt.count, prompt.count};
    prompt.ids = NULL;
    spry_chat_prompt_deinit(&prompt);
    free(json);
    json_decref(request);
    return status;
}

spry_status spry_answer_text_ids(spry_tokens *out, const spry_engine *engine, spry_view text, bool special,
                                 spry_error *error)
{
    /* A token is at least one byte of text, except for the few added before and after it. */
    spry_status status = make_room(out, text.size + 8, error);
    if (status == SPRY_OK)
        status =
            spry_engine_tokenize(engine, out->ids, out->capacity, &out->count, text.data, text.size, special, error);
    if (status != SPRY_OK || out->count <= out->capacity)
        return status;
    status = make_room(out, out->count, error);
    if (status != SPRY_OK)
        return status;
    return spry_engine_tokenize(engine, out->ids, out->capacity, &out->count, text.data, text.size, special, error);
}

/* ---- telling people ---------------------------------------------------------------------------------------------- */

static double per_second(size_t count, double ms)
{
    return ms > 0 ? (double)count * 1000 / ms : 0;
}

static const char *finish_words(spry_finish finish)
{
    static const char *const words[] = {
        [SPRY_FINISH_END] = "the model ended it",      [SPRY_FINISH_STOP] = "ended by a stop text",
        [SPRY_FINISH_LENGTH] = "length limit reached", [SPRY_FINISH_CONTEXT] = "the context is full",
        [SPRY_FINISH_CANCELLED] = "interrupted",
    };
    return words[finish];
}

/* KV cache usage and savings so far. */
static void print_kv(spry_engine *engine)
{
    char all[SPRY_AMOUNT_MAX], kept[SPRY_AMOUNT_MAX], host[SPRY_AMOUNT_MAX], disk[SPRY_AMOUNT_MAX];
    spry_kv_figures f;
    spry_engine_kv_figures(engine, &f);
    fprintf(stderr, "cache    %s of %s in use or kept; %" PRIu64 " of %" PRIu64 " prompt tokens reused",
            spry_amount_bytes(kept, (f.pages - f.free_pages) * f.page_bytes),
            spry_amount_bytes(all, f.pages * f.page_bytes), f.hit_tokens, f.hit_tokens + f.miss_tokens);
    if (f.evicted_pages + f.expired_pages)
        fprintf(stderr, "; %" PRIu64 " pages evicted", f.evicted_pages + f.expired_pages);
    if (f.host_saved_pages)
        fprintf(stderr, "; %s in host memory", spry_amount_bytes(host, f.host_pages * f.page_bytes));
    if (f.disk_files || f.disk_stored_pages)
        fprintf(stderr, "; %s on disk", spry_amount_bytes(disk, f.disk_bytes));
    fputs("\n", stderr);
}

void spry_answer_print_stats(const spry_answer *answer, spry_engine *engine, const char *model, uint64_t seed)
{
    const spry_result *r = &answer->result;
    char parameters[SPRY_AMOUNT_MAX], weights[SPRY_AMOUNT_MAX], kv[SPRY_AMOUNT_MAX], time[SPRY_AMOUNT_MAX];
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    fflush(stdout);
    fputs(spry_style_begin(stderr, SPRY_STYLE_DIM), stderr);
    fprintf(stderr, "model    %s (%s, %s parameters, %s), %" PRIu32 " threads, %s kernels", model, info.architecture,
            spry_amount_count(parameters, info.parameters), spry_amount_bytes(weights, info.weight_bytes), info.threads,
            info.cpu);
    bool cpu = !strcmp(info.device, "cpu");
    fprintf(stderr, "%s%s\n", cpu ? "" : ", ", cpu ? "" : info.device);
    fprintf(stderr, "context  %zu of %zu tokens, %s of keys and values each\n", r->prompt_tokens + r->generated_tokens,
            info.context, spry_amount_bytes(kv, info.kv_bytes_per_token));
    size_t computed = r->prompt_tokens - r->reused_tokens;
    fprintf(stderr, "prompt   %zu tokens in %s (%.1f tokens/s)", computed, spry_amount_time(time, r->prefill_ms),
            per_second(computed, r->prefill_ms));
    if (r->reused_tokens)
        fprintf(stderr, ", %zu more were cached", r->reused_tokens);
    if (r->restored_tokens)
        fprintf(stderr, ", %zu of them on disk (%s)", r->restored_tokens, spry_amount_time(time, r->restore_ms));
    if (r->span_tokens)
        fprintf(stderr, ", %zu in fragments", r->span_tokens);
    if (r->repaired_tokens)
        fprintf(stderr, ", %zu repaired", r->repaired_tokens);
    fputs("\n", stderr);
    print_kv(engine);
    fprintf(stderr, "answer   %zu tokens in %s", r->generated_tokens, spry_amount_time(time, r->decode_ms));
    /* The first token comes from the prompt's last step, so only the others are decoding. */
    if (r->generated_tokens > 1)
        fprintf(stderr, " (%.1f tokens/s)", per_second(r->generated_tokens - 1, r->decode_ms));
    fprintf(stderr, ", %s; seed %" PRIu64 "\n", finish_words(r->finish), seed);
    if (r->forced_tokens)
        fprintf(stderr, "grammar  %zu of %zu tokens decided by the constraint\n", r->forced_tokens,
                r->generated_tokens);
    if (r->drafts.drafted)
        fprintf(stderr, "drafts   %zu of %zu drafted tokens accepted, %.2f tokens per step, estimated %.2fx as fast\n",
                r->drafts.accepted, r->drafts.drafted, r->drafts.tokens_per_step, r->drafts.speedup);
    spry_answer_print_parts(answer);
    fputs(spry_style_end(stderr), stderr);
}

void spry_answer_warn_context(const spry_answer *answer, const spry_engine *engine, const char *hint)
{
    spry_engine_info info;
    if (answer->result.finish != SPRY_FINISH_CONTEXT)
        return;
    spry_engine_describe(engine, &info);
    spry_complain("the answer stops here because the context of %zu tokens is full; %s", info.context, hint);
}
