#include "run/answer.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json.h"
#include "base/number.h"
#include "base/utf8.h"
#include "cli/energy_figures.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "platform/clock.h"
#include "spry_serve.h"

/* ---- answers ----------------------------------------------------------------------------------------------------- */

enum { TEXT_BYTES_MAX = 1 << 28, MAX_PATH_BYTES = 1 << 16 };

void spry_answer_init(spry_answer *answer)
{
    *answer = (spry_answer){0};
    spry_buffer_init(&answer->text, TEXT_BYTES_MAX);
    spry_buffer_init(&answer->thoughts, TEXT_BYTES_MAX);
}

void spry_answer_deinit(spry_answer *answer)
{
    spry_buffer_deinit(&answer->text);
    spry_buffer_deinit(&answer->thoughts);
    free(answer->tokens);
    spry_chat_prompt_deinit(&answer->prompt);
    json_decref(answer->calls);
    *answer = (spry_answer){0};
}

/* ---- generating -------------------------------------------------------------------------------------------------- */

typedef struct generation {
    spry_answer *answer;
    const spry_answer_job *job;
    spry_chat_parser *parser; /* NULL: all text is the answer */
    spry_shown_text shown;
    spry_buffer arguments;         /* arguments of the call that has begun */
    bool short_of_memory, refused; /* a text was not accepted */
} generation;

static bool on_prefill(void *user, size_t done, size_t total)
{
    generation *g = user;
    spry_shown_text_prompt(&g->shown, done, total);
    return !spry_interrupt_seen();
}

static void add_text(generation *g, spry_view text, bool thought)
{
    spry_buffer *whole = thought ? &g->answer->thoughts : &g->answer->text;
    if (!spry_buffer_append(whole, text.data, text.size)) {
        g->short_of_memory = true;
        return;
    }
    bool shown = thought ? spry_shown_text_think(&g->shown, text) : spry_shown_text_add(&g->shown, text);
    if (!shown || (!thought && g->job->on_piece && !g->job->on_piece(g->job->user, text)))
        g->refused = true;
}

static void take_call(generation *g, const spry_chat_event *event)
{
    json_t *calls = g->answer->calls, *call = json_array_get(calls, json_array_size(calls) - 1);
    if (event->kind == SPRY_CHAT_CALL_BEGIN) {
        spry_buffer_clear(&g->arguments);
        json_array_append_new(calls, json_pack("{s:s, s:s#}", "id", event->id, "name", event->name, event->name_size));
    } else if (event->kind == SPRY_CHAT_ARGUMENTS) {
        spry_buffer_append(&g->arguments, event->text, event->text_size);
    } else if (event->kind == SPRY_CHAT_CALL_END) {
        json_object_set_new(call, "arguments", json_stringn(spry_buffer_view(&g->arguments).data, g->arguments.size));
    } else if (event->kind == SPRY_CHAT_CALL_CUT) {
        json_array_remove(calls, json_array_size(calls) - 1);
    }
}

static void on_event(void *user, const spry_chat_event *event)
{
    take_call(user, event);
    if (event->kind == SPRY_CHAT_CONTENT || event->kind == SPRY_CHAT_REASONING)
        add_text(user, (spry_view){event->text, event->text_size}, event->kind == SPRY_CHAT_REASONING);
}

static bool on_text(void *user, const char *text, size_t size)
{
    generation *g = user;
    if (!g->parser)
        add_text(g, (spry_view){text, size}, false);
    else if (spry_chat_parser_feed(g->parser, text, size, NULL) != SPRY_OK)
        g->short_of_memory = true;
    return !g->short_of_memory && !g->refused && !spry_interrupt_seen();
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

/* Answers to a conversation may contain thoughts, unless their form is given or control tokens are wanted. */
static spry_status create_parser(generation *g, spry_error *error)
{
    const spry_answer_job *job = g->job;
    spry_chat_prompt prompt = {.size = sizeof prompt, .ids = job->prompt->ids, .count = job->prompt->count};
    spry_chat_parser_options options;
    if (!job->chat || job->constraint != SPRY_ANY_TEXT || job->flags->special)
        return SPRY_OK;
    spry_chat_parser_options_default(&options);
    char *tools = g->answer->tools ? spry_json_text(g->answer->tools, JSON_COMPACT) : NULL;
    options.tools = tools;
    options.prompt = &prompt;
    options.reasoning = true;
    options.on_event = on_event;
    options.user = g;
    spry_status status = spry_chat_parser_create(&g->parser, job->engine, &options, error);
    free(tools);
    return status;
}

spry_status spry_answer_generate(spry_answer *answer, const spry_answer_job *job, spry_error *error)
{
    generation g = {.answer = answer, .job = job};
    spry_buffer_init(&g.arguments, TEXT_BYTES_MAX);
    json_decref(answer->calls);
    answer->calls = json_array();
    spry_request request;
    spry_status status = create_parser(&g, error);
    if (status != SPRY_OK)
        return status;
    spry_request_default(&request);
    request.prompt = job->prompt->ids;
    request.n_prompt = job->prompt->count;
    request.spans = answer->prompt.spans;
    request.n_spans = answer->prompt.n_spans;
    request.pictures = answer->prompt.pictures;
    request.n_pictures = (size_t)answer->prompt.n_pictures;
    request.span_repair = job->span_repair;
    request.speculation = job->speculation;
    request.draft_most = job->flags->draft_most;
    request.draft_precise = strcmp(job->flags->draft_mode, "precise") == 0;
    request.constraint = job->constraint;
    request.constraint_text = job->constraint_text;
    if (job->constraint == SPRY_ANY_TEXT && answer->prompt.call_constraint) {
        request.constraint = SPRY_TOOL_CALLS;
        request.constraint_text = answer->prompt.call_constraint;
    }
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
    request.marks = g.parser != NULL;
    spry_session_set_slide(job->session, job->flags->slide || job->flags->keep || job->slides, job->flags->keep);
    spry_buffer_clear(&answer->text);
    spry_buffer_clear(&answer->thoughts);
    answer->n_tokens = 0;
    const spry_shown_options how = {.streamed = job->stream,
                                    .plain = job->flags->plain || job->constraint != SPRY_ANY_TEXT,
                                    .rated = job->rated,
                                    .thoughts = strcmp(job->flags->think, "show") == 0};
    spry_shown_text_init(&g.shown, &how);
    spry_lap(&answer->laps, SPRY_PART_TOKENIZE);
    status = spry_session_generate(job->session, &answer->result, &request, error);
    if (g.parser)
        spry_chat_parser_finish(g.parser);
    spry_chat_parser_destroy(g.parser);
    spry_buffer_deinit(&g.arguments);
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

spry_status spry_answer_prompt(spry_answer *answer, spry_tokens *out, const spry_engine *engine,
                               const spry_answer_flags *flags, json_t *messages, spry_error *error)
{
    json_t *request = json_pack("{s:O}", "messages", messages);
    if (strcmp(flags->think, "off") == 0)
        json_object_set_new(request, "chat_template_kwargs", json_pack("{s:b}", "enable_thinking", 0));
    if (answer->tools)
        json_object_set(request, "tools", answer->tools);
    char *json = request ? spry_json_text(request, 0) : NULL;
    spry_chat_prompt_deinit(&answer->prompt);
    spry_status status = json ? spry_engine_chat_prompt(engine, &answer->prompt, json, strlen(json), error)
                              : spry_fail_memory(error, "the conversation", json_array_size(messages));
    spry_laps_prompt(&answer->laps, &answer->prompt);
    free(out->ids);
    *out = (spry_tokens){answer->prompt.ids, answer->prompt.count, answer->prompt.count};
    answer->prompt.ids = NULL;
    free(json);
    json_decref(request);
    return status;
}

/* A message, with its pictures where the model can see them. */
static json_t *message_json(const spry_engine *engine, const spry_message *message, spry_status *status,
                            spry_error *error)
{
    spry_buffer path;
    spry_view text = spry_view_of(message->content);
    json_t *parts = json_array();
    spry_buffer_init(&path, MAX_PATH_BYTES);
    while (!*status && spry_engine_sees(engine) && strcmp(message->role, "user") == 0 &&
           spry_image_line_take(&path, &text)) {
        const char *file = spry_buffer_view(&path).data;
        *status = spry_parts_add_image(parts, file, error);
        if (*status == SPRY_ERR_FILE) { /* the file was moved since: the chat continues without it */
            json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text",
                                                   json_sprintf("[image: %s, which is no longer there]\n", file)));
            *status = SPRY_OK;
        }
    }
    spry_buffer_deinit(&path);
    if (json_array_size(parts)) {
        json_array_append_new(parts, json_pack("{s:s, s:s%}", "type", "text", "text", text.data, text.size));
        return json_pack("{s:s, s:o}", "role", message->role, "content", parts);
    }
    json_decref(parts);
    return json_pack("{s:s, s:s}", "role", message->role, "content", message->content);
}

spry_status spry_answer_chat_ids(spry_answer *answer, spry_tokens *out, const spry_engine *engine,
                                 const spry_answer_flags *flags, const spry_message *messages, size_t n_messages,
                                 spry_error *error)
{
    spry_status status = SPRY_OK;
    json_t *list = json_array();
    for (size_t i = 0; !status && i < n_messages; i++)
        if (json_array_append_new(list, message_json(engine, &messages[i], &status, error)) && !status)
            status = spry_fail_memory(error, "the conversation", n_messages);
    if (answer->more)
        json_array_extend(list, answer->more);
    if (!status)
        status = spry_answer_prompt(answer, out, engine, flags, list, error);
    json_decref(list);
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

/* ---- the time of each part --------------------------------------------------------------------------------------- */

/* Time and energy of a request by part, as text and as JSON. */

double spry_answer_ms(const spry_answer *answer)
{
    return (double)(answer->laps.last_ns - answer->laps.began_ns) / 1e6;
}

json_t *spry_parts_json(const double ms[SPRY_PART_COUNT])
{
    json_t *object = json_object();
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        if (ms[i] > 0)
            json_object_set_new(object, spry_part_name((spry_part)i), json_real(ms[i]));
    return object;
}

/* Parts can be shorter than the smallest unit used elsewhere. */
static const char *small_time(char out[SPRY_AMOUNT_MAX], double ms)
{
    if (ms >= 1)
        return spry_amount_time(out, ms);
    snprintf(out, SPRY_AMOUNT_MAX, "%.0f us", ms * 1e3);
    return out;
}

/* Parts with a significant time, in order. */
static void list_parts(spry_buffer *out, const char *heading, const double ms[SPRY_PART_COUNT])
{
    const double worth = 0.005;
    char time[SPRY_AMOUNT_MAX];
    double sum = 0, small = 0;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        sum += ms[i];
    spry_buffer_format(out, "%s %s:", heading, spry_amount_time(time, sum));
    for (size_t i = 0; i < SPRY_PART_COUNT; i++) {
        if (ms[i] >= worth * sum)
            spry_buffer_format(out, " %s %s,", spry_part_name((spry_part)i), small_time(time, ms[i]));
        else
            small += ms[i];
    }
    spry_buffer_format(out, " the rest %s\n", small_time(time, small));
}

static void list_parts_and_energy(spry_buffer *out, const spry_answer *answer)
{
    const spry_result *r = &answer->result;
    list_parts(out, "first    token after", r->first_parts_ms);
    list_parts(out, "whole    request in", r->parts_ms);
    spry_buffer_text(out, "energy   ");
    spry_energy_words(out, answer->meter, &answer->energy, spry_answer_ms(answer), r->generated_tokens);
    spry_buffer_text(out, "\n");
}

/* ---- telling people ---------------------------------------------------------------------------------------------- */

enum { LABEL = 9, STATS_BYTES = 1 << 15 };

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
static void add_kv(spry_buffer *out, spry_engine *engine)
{
    char all[SPRY_AMOUNT_MAX], kept[SPRY_AMOUNT_MAX], host[SPRY_AMOUNT_MAX], disk[SPRY_AMOUNT_MAX];
    spry_kv_figures f;
    spry_engine_kv_figures(engine, &f);
    spry_buffer_format(out, "cache    %s of %s in use or kept; %" PRIu64 " of %" PRIu64 " prompt tokens reused",
                       spry_amount_bytes(kept, (f.pages - f.free_pages) * f.page_bytes),
                       spry_amount_bytes(all, f.pages * f.page_bytes), f.hit_tokens, f.hit_tokens + f.miss_tokens);
    if (f.evicted_pages + f.expired_pages)
        spry_buffer_format(out, "; %" PRIu64 " pages evicted", f.evicted_pages + f.expired_pages);
    if (f.host_saved_pages)
        spry_buffer_format(out, "; %s in host memory", spry_amount_bytes(host, f.host_pages * f.page_bytes));
    if (f.disk_files || f.disk_stored_pages)
        spry_buffer_format(out, "; %s on disk", spry_amount_bytes(disk, f.disk_bytes));
    spry_buffer_text(out, "\n");
}

static void add_stats(spry_buffer *out, const spry_answer *answer, spry_engine *engine, const char *model,
                      uint64_t seed)
{
    const spry_result *r = &answer->result;
    char parameters[SPRY_AMOUNT_MAX], weights[SPRY_AMOUNT_MAX], kv[SPRY_AMOUNT_MAX], time[SPRY_AMOUNT_MAX];
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    spry_buffer_format(out, "model    %s (%s, %s parameters, %s), %" PRIu32 " threads, %s kernels", model,
                       info.architecture, spry_amount_count(parameters, info.parameters),
                       spry_amount_bytes(weights, info.weight_bytes), info.threads, info.cpu);
    bool cpu = !strcmp(info.device, "cpu");
    spry_buffer_format(out, "%s%s\n", cpu ? "" : ", ", cpu ? "" : info.device);
    spry_buffer_format(out, "context  %zu of %zu tokens, %s of keys and values each\n",
                       r->prompt_tokens + r->generated_tokens - r->dropped_tokens, info.context,
                       spry_amount_bytes(kv, info.kv_bytes_per_token));
    size_t computed = r->prompt_tokens - r->reused_tokens;
    spry_buffer_format(out, "prompt   %zu tokens in %s (%.1f tokens/s)", computed,
                       spry_amount_time(time, r->prefill_ms), per_second(computed, r->prefill_ms));
    if (r->reused_tokens)
        spry_buffer_format(out, ", %zu more were cached", r->reused_tokens);
    if (r->restored_tokens)
        spry_buffer_format(out, ", %zu of them on disk (%s)", r->restored_tokens,
                           spry_amount_time(time, r->restore_ms));
    if (r->picture_tokens)
        spry_buffer_format(out, ", %zu in all are pictures", r->picture_tokens);
    if (r->span_tokens)
        spry_buffer_format(out, ", %zu in fragments", r->span_tokens);
    if (r->repaired_tokens)
        spry_buffer_format(out, ", %zu repaired", r->repaired_tokens);
    spry_buffer_text(out, "\n");
    add_kv(out, engine);
    spry_buffer_format(out, "answer   %zu tokens in %s", r->generated_tokens, spry_amount_time(time, r->decode_ms));
    /* The first token comes from the prompt's last step, so only the others are decoding. */
    if (r->generated_tokens > 1)
        spry_buffer_format(out, " (%.1f tokens/s)", per_second(r->generated_tokens - 1, r->decode_ms));
    spry_buffer_format(out, ", %s; seed %" PRIu64 "\n", finish_words(r->finish), seed);
    if (r->forced_tokens)
        spry_buffer_format(out, "grammar  %zu of %zu tokens decided by the constraint\n", r->forced_tokens,
                           r->generated_tokens);
    if (r->drafts.drafted)
        spry_buffer_format(
            out, "drafts   %zu of %zu drafted tokens accepted, %.2f tokens per step, estimated %.2fx as fast\n",
            r->drafts.accepted, r->drafts.drafted, r->drafts.tokens_per_step, r->drafts.speedup);
    else if (r->drafts.step_cost > 0)
        spry_buffer_format(out,
                           "drafts   none: a step with one takes %.2f times as long, and %.0f %% would be accepted\n",
                           r->drafts.step_cost, 100 * r->drafts.acceptance);
    list_parts_and_energy(out, answer);
}

void spry_answer_print_stats(const spry_answer *answer, spry_engine *engine, const char *model, uint64_t seed)
{
    spry_buffer lines;
    spry_buffer_init(&lines, STATS_BYTES);
    add_stats(&lines, answer, engine, model, seed);
    fflush(stdout);
    fputs(spry_style_begin(stderr, SPRY_STYLE_DIM), stderr);
    spry_print_lines(stderr, spry_buffer_view(&lines), LABEL);
    fputs(spry_style_end(stderr), stderr);
    spry_buffer_deinit(&lines);
}

void spry_answer_warn_context(const spry_answer *answer, const spry_engine *engine, const char *hint)
{
    spry_engine_info info;
    if (answer->result.finish != SPRY_FINISH_CONTEXT)
        return;
    spry_engine_describe(engine, &info);
    spry_complain("the answer stops here because the context of %zu tokens is full; %s", info.context, hint);
}

/* ---- as JSON ----------------------------------------------------------------------------------------------------- */

/* An answer as JSON. Token texts that are not valid UTF-8 are given as bytes. */

enum { TOKEN_TEXT_MAX = 1024 };

/* The bytes of a token in the middle of a text. (At the beginning of a text some tokenizers remove a space.) */
static spry_view token_bytes(char *room, size_t capacity, const spry_engine *engine, int32_t id)
{
    const int32_t twice[] = {id, id};
    size_t once_size = 0, size = 0;
    if (spry_engine_detokenize(engine, NULL, 0, &once_size, twice, 1, true, NULL) != SPRY_OK ||
        spry_engine_detokenize(engine, room, capacity, &size, twice, 2, true, NULL) != SPRY_OK || size >= capacity ||
        once_size > size)
        return (spry_view){"", 0};
    return (spry_view){room + once_size, size - once_size};
}

static json_t *bytes_to_json(spry_view bytes)
{
    json_t *array = json_array();
    for (size_t i = 0; i < bytes.size; i++)
        json_array_append_new(array, json_integer((unsigned char)bytes.data[i]));
    return array;
}

static json_t *entry_to_json(const spry_engine *engine, spry_logprob_entry entry)
{
    char room[TOKEN_TEXT_MAX];
    spry_view bytes = token_bytes(room, sizeof room, engine, entry.id);
    json_t *object = json_object();
    json_object_set_new(object, "id", json_integer(entry.id));
    if (spry_utf8_valid(bytes))
        json_object_set_new(object, "text", json_stringn(bytes.data, bytes.size));
    else
        json_object_set_new(object, "bytes", bytes_to_json(bytes));
    json_object_set_new(object, "logprob", isfinite(entry.logprob) ? json_real(entry.logprob) : json_null());
    return object;
}

static json_t *logprobs_to_json(const spry_answer *answer, const spry_engine *engine)
{
    json_t *array = json_array();
    for (size_t i = 0; i < answer->n_tokens; i++) {
        const spry_answer_token *token = &answer->tokens[i];
        json_t *object = entry_to_json(engine, token->token), *top = json_array();
        for (size_t k = 0; k < token->n_top; k++)
            json_array_append_new(top, entry_to_json(engine, token->top[k]));
        json_object_set_new(object, "top", top);
        json_array_append_new(array, object);
    }
    return array;
}

/* JSON integers reach 2^63 here; larger seeds are written as strings, which spry also reads. */
static json_t *seed_to_json(uint64_t seed)
{
    if (seed <= INT64_MAX)
        return json_integer((json_int_t)seed);
    return json_sprintf("%llu", (unsigned long long)seed);
}

/* Reuse by this answer, and since the model was opened. */
static void add_cache(json_t *object, spry_engine *engine, const spry_result *r)
{
    spry_kv_figures f;
    spry_engine_kv_figures(engine, &f);
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {{"page_bytes", f.page_bytes},
                   {"page_tokens", f.page_tokens},
                   {"pages", f.pages},
                   {"free_pages", f.free_pages},
                   {"cached_pages", f.cached_pages},
                   {"idle_pages", f.idle_pages},
                   {"lookups", f.lookups},
                   {"hit_tokens", f.hit_tokens},
                   {"miss_tokens", f.miss_tokens},
                   {"restored_tokens", f.restored_tokens},
                   {"span_tokens", f.span_tokens},
                   {"repaired_tokens", f.repaired_tokens},
                   {"evicted_pages", f.evicted_pages},
                   {"expired_pages", f.expired_pages},
                   {"host_bytes", f.host_bytes},
                   {"host_pages", f.host_pages},
                   {"host_saved_pages", f.host_saved_pages},
                   {"host_loaded_pages", f.host_loaded_pages},
                   {"disk_bytes", f.disk_bytes},
                   {"disk_files", f.disk_files},
                   {"disk_stored_pages", f.disk_stored_pages},
                   {"disk_loaded_pages", f.disk_loaded_pages},
                   {"disk_bad_pages", f.disk_bad_pages}};
    json_t *kv = json_object();
    for (size_t i = 0; i < SPRY_COUNT(figures); i++)
        json_object_set_new(kv, figures[i].name, json_integer((json_int_t)figures[i].value));
    json_object_set_new(object, "kv", kv);
    if (r->picture_tokens)
        json_object_set_new(object, "picture_tokens", json_integer((json_int_t)r->picture_tokens));
    json_object_set_new(object, "restored_tokens", json_integer((json_int_t)r->restored_tokens));
    json_object_set_new(object, "span_tokens", json_integer((json_int_t)r->span_tokens));
    json_object_set_new(object, "repaired_tokens", json_integer((json_int_t)r->repaired_tokens));
    json_object_set_new(object, "span_divergence", json_real(r->span_divergence));
    json_object_set_new(object, "lookup_ms", json_real(r->lookup_ms));
    json_object_set_new(object, "restore_ms", json_real(r->restore_ms));
}

static json_t *counts_to_json(const size_t *counts, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_integer((json_int_t)counts[i]));
    return array;
}

static json_t *drafts_to_json(const spry_draft_report *d)
{
    return json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:i, s:i, s:f, s:f}", "steps", (json_int_t)d->steps, "drafted",
                     (json_int_t)d->drafted, "accepted", (json_int_t)d->accepted, "tried_at",
                     counts_to_json(d->tried_at, SPRY_DRAFT_MOST), "accepted_at",
                     counts_to_json(d->accepted_at, SPRY_DRAFT_MOST), "lengths",
                     counts_to_json(d->lengths, SPRY_DRAFT_MOST + 1), "refused_p50", (int)d->refused_p50, "refused_p95",
                     (int)d->refused_p95, "tokens_per_step", d->tokens_per_step, "speedup", d->speedup);
}

/* Time and energy by part. */
static void add_parts(json_t *object, const spry_answer *answer)
{
    char why[SPRY_ENERGY_TEXT];
    const spry_result *r = &answer->result;
    json_object_set_new(object, "parts_ms", spry_parts_json(r->parts_ms));
    json_object_set_new(object, "first_parts_ms", spry_parts_json(r->first_parts_ms));
    json_t *energy = spry_energy_json(&answer->energy, spry_answer_ms(answer), r->generated_tokens);
    if (json_is_null(energy)) {
        spry_energy_why(why, answer->meter);
        json_object_set_new(object, "why_no_energy", json_string(why));
    }
    json_object_set_new(object, "energy", energy);
}

json_t *spry_answer_to_json(const spry_answer *answer, spry_engine *engine, const char *model, uint64_t seed,
                            bool with_logprobs)
{
    const spry_result *r = &answer->result;
    json_t *ids = json_array();
    for (size_t i = 0; i < answer->n_tokens; i++)
        json_array_append_new(ids, json_integer(answer->tokens[i].token.id));
    spry_view text = spry_buffer_view(&answer->text);
    json_t *object =
        json_pack("{s:s, s:o, s:s, s:o, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "model", model, "text",
                  json_stringn(text.data, text.size), "finish", spry_finish_name(r->finish), "seed", seed_to_json(seed),
                  "prompt_tokens", (json_int_t)r->prompt_tokens, "reused_tokens", (json_int_t)r->reused_tokens,
                  "generated_tokens", (json_int_t)r->generated_tokens, "prefill_ms", r->prefill_ms, "first_token_ms",
                  r->first_token_ms, "decode_ms", r->decode_ms, "total_ms", r->total_ms, "tokens", ids);
    if (object && r->forced_tokens)
        json_object_set_new(object, "forced_tokens", json_integer((json_int_t)r->forced_tokens));
    if (object)
        add_cache(object, engine, r);
    if (object && r->drafts.steps)
        json_object_set_new(object, "drafts", drafts_to_json(&r->drafts));
    if (object)
        add_parts(object, answer);
    spry_view thoughts = spry_buffer_view(&answer->thoughts);
    if (object && thoughts.size)
        json_object_set_new(object, "thoughts", json_stringn(thoughts.data, thoughts.size));
    if (object && with_logprobs)
        json_object_set_new(object, "logprobs", logprobs_to_json(answer, engine));
    return object;
}
