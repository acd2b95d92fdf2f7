/* First tokens as a user waits for them: of a new process of this program, and of requests through a session. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "bench/bench.h"
#include "cli/interrupt.h"
#include "platform/child.h"
#include "platform/clock.h"
#include "platform/os.h"
#include "run/answer.h"
#include "voice/synthesiser.h"

/* ---- a new process ----------------------------------------------------------------------------------------------- */

enum { ARGUMENTS_MAX = 64, VALUE_TEXT = 64 };

typedef struct arguments {
    const char *list[ARGUMENTS_MAX]; /* ends with NULL */
    size_t count;
    char texts[ARGUMENTS_MAX][VALUE_TEXT], program[PATH_MAX];
} arguments;

static void add(arguments *a, const char *text)
{
    if (a->count + 1 < ARGUMENTS_MAX)
        a->list[a->count++] = text;
}

/* `spry run` with `--name=value` for every engine option with a value, so that the new process has the same settings.
 */
static void fill_arguments(arguments *a, const spry_bench *b)
{
    const char *const fixed[] = {a->program, "run",           "-p", "Once upon a time", "--raw",         "-n",
                                 "1",        "--temperature", "0",  "--ignore-end",     "--profile=none"};
    spry_option_table table = spry_engine_flags_table(&b->flags->engine);
    for (size_t i = 0; i < SPRY_COUNT(fixed); i++)
        add(a, fixed[i]);
    for (size_t i = 0; i < table.count && a->count + 1 < ARGUMENTS_MAX; i++) {
        char value[VALUE_TEXT], *text = a->texts[a->count];
        const char *unset = table.options[i].unset;
        spry_options_print(value, sizeof value, &table, &table.options[i]);
        int length = snprintf(text, VALUE_TEXT, "--%s=%s", table.options[i].name, value);
        if (value[0] && !(unset && strcmp(value, unset) == 0) && length < VALUE_TEXT &&
            table.options[i].kind != SPRY_OPTION_FLAG)
            add(a, text);
    }
    add(a, "--");
    add(a, b->source->path ? b->source->path : b->source->name);
}

static bool note_first_byte(void *user, const char *data, size_t size)
{
    uint64_t *first = user;
    (void)data;
    *first = *first || !size ? *first : spry_clock_ns();
    return true;
}

/* Milliseconds from starting a new process to the first byte of its answer. */
static spry_status run_process(spry_bench *b, void *context, double *values)
{
    arguments a = {0};
    uint64_t first = 0;
    (void)context;
    if (!spry_os_program(a.program, sizeof a.program))
        return spry_fail(b->error, SPRY_ERR_UNSUPPORTED, "this system does not tell where the program is");
    fill_arguments(&a, b);
    uint64_t began = spry_clock_ns();
    const spry_child child = {.arguments = a.list, .is_self = true, .on_output = note_first_byte, .user = &first};
    spry_status status = spry_child_run(&child, b->error);
    values[0] = (double)(first - began) / 1e6;
    return status || first ? status : spry_fail(b->error, SPRY_ERR_UNSUPPORTED, "spry run gives no answer");
}

spry_status spry_bench_first_token(spry_bench *b)
{
    spry_bench_series series;
    snprintf(b->doing, sizeof b->doing, "first token of a new process:");
    if (spry_bench_repeat(b, &series, true, run_process, NULL))
        return spry_interrupt_seen() ? spry_bench_go_on(b) : SPRY_OK;
    spry_bench_stat ms = spry_bench_stat_of(series.values[0], series.count);
    spry_bench_put(b, "first_token_ms", spry_bench_positive_json(ms.median));
    spry_bench_put(b, "first_token_spread", json_real(spry_bench_spread(&ms)));
    return SPRY_OK;
}

/* ---- requests through a session ---------------------------------------------------------------------------------- */

/* A part that a model cannot do is told in the report; the rest is measured. */
static spry_status finish(spry_bench *b, spry_status status, const char *key)
{
    char why_key[32];
    snprintf(why_key, sizeof why_key, "why_no_%s", key);
    if (status) {
        b->error->message[150] = '\0';
        spry_bench_put(b, why_key, spry_bench_text_json(b->error->message));
    }
    return status == SPRY_ERR_CANCELLED || status == SPRY_ERR_MEMORY ? status : SPRY_OK;
}

/* The repeat whose value is in the middle. */
static size_t middle_of(const spry_bench_series *series, size_t which)
{
    const double *values = series->values[which];
    for (size_t i = 0; i < series->count; i++) {
        size_t smaller = 0;
        for (size_t k = 0; k < series->count; k++)
            smaller += values[k] < values[i] || (values[k] == values[i] && k < i);
        if (smaller == series->count / 2)
            return i;
    }
    return 0;
}

/* A session under whose salt nothing is cached, unless the salt was used before. */
static spry_status open_session(spry_bench *b, spry_session **session, uint64_t salt)
{
    spry_status status = spry_session_create(session, b->engine, b->error);
    if (!status)
        spry_session_set_salt(*session, &salt, sizeof salt);
    return status;
}

/* ---- a request of about a thousand tokens ------------------------------------------------------------------------ */

enum { PROMPT = 1000, ROOM = 8, SENTENCES_MAX = 512 };

static const char sentence[] = "The miller had three sons, a mill, a donkey and a cat, and every evening they counted "
                               "what was left of the flour. ";

typedef struct ttft {
    char *conversation;
    uint64_t salt;
    size_t prompt_tokens, count;
    size_t hit_tokens[SPRY_BENCH_REPEAT_MAX + 1];
    double parts_ms[2][SPRY_BENCH_REPEAT_MAX + 1][SPRY_PART_COUNT]; /* cold, warm */
} ttft;

/* A conversation of `n_sentences` as JSON; the caller frees it. NULL: memory was short. */
static char *write_conversation(size_t n_sentences)
{
    spry_buffer text;
    spry_buffer_init(&text, SENTENCES_MAX * sizeof sentence);
    for (size_t i = 0; i < n_sentences; i++)
        spry_buffer_text(&text, sentence);
    json_t *json = text.failed ? NULL
                               : json_pack("{s:[{s:s, s:s#}]}", "messages", "role", "user", "content",
                                           spry_buffer_view(&text).data, (int)text.size);
    char *out = json ? spry_json_text(json, 0) : NULL;
    json_decref(json);
    spry_buffer_deinit(&text);
    return out;
}

/* Finds as many sentences as fit into `limit` tokens. */
static spry_status find_conversation(spry_bench *b, char **out, size_t limit)
{
    size_t fits = 0, too_many = SENTENCES_MAX;
    spry_status status = SPRY_OK;
    while (!status && fits + 1 < too_many) {
        size_t middle = (fits + too_many) / 2;
        spry_chat_prompt prompt = {0};
        char *text = write_conversation(middle);
        status = text ? spry_engine_chat_prompt(b->engine, &prompt, text, strlen(text), b->error)
                      : spry_fail_memory(b->error, "a conversation", middle * sizeof sentence);
        if (prompt.count <= limit)
            fits = middle;
        else
            too_many = middle;
        spry_chat_prompt_deinit(&prompt);
        free(text);
    }
    if (!status && !fits)
        return spry_fail(b->error, SPRY_ERR_CONTEXT, "a context of %u tokens is too short for a request", b->context);
    *out = status ? NULL : write_conversation(fits);
    return status || *out ? status : spry_fail_memory(b->error, "a conversation", fits * sizeof sentence);
}

static spry_status ask(spry_bench *b, ttft *t, bool warm, double *ms)
{
    spry_chat_prompt prompt = {0};
    spry_session *session = NULL;
    spry_result result;
    double *parts = t->parts_ms[warm][t->count];
    spry_status status = open_session(b, &session, t->salt);
    if (!status)
        status = spry_engine_chat_prompt(b->engine, &prompt, t->conversation, strlen(t->conversation), b->error);
    const spry_request request = spry_bench_request(prompt.ids, prompt.count, 1);
    if (!status)
        status = spry_session_generate(session, &result, &request, b->error);
    *ms = 0;
    if (!status)
        memcpy(parts, result.first_parts_ms, SPRY_PART_COUNT * sizeof *parts);
    parts[SPRY_PART_PREPROCESS] += prompt.preprocess_ms;
    parts[SPRY_PART_ENCODE] += prompt.encode_ms;
    parts[SPRY_PART_TEMPLATE] += prompt.template_ms;
    parts[SPRY_PART_TOKENIZE] += prompt.tokenize_ms;
    for (size_t i = 0; !status && i < SPRY_PART_COUNT; i++)
        *ms += parts[i];
    t->prompt_tokens = prompt.count;
    t->hit_tokens[t->count] = status ? 0 : result.reused_tokens;
    spry_session_destroy(session);
    spry_chat_prompt_deinit(&prompt);
    return status;
}

/* Cold and warm alternate, so that changes of the machine's speed affect both alike. */
static spry_status ask_cold_and_warm(spry_bench *b, void *context, double *values)
{
    ttft *t = context;
    t->salt++;
    spry_status status = ask(b, t, false, &values[0]);
    if (!status)
        status = ask(b, t, true, &values[1]);
    t->count += t->salt > 1; /* the first one warms up */
    return status;
}

static json_t *ttft_json(const ttft *t, const spry_bench_series *series)
{
    size_t cold = middle_of(series, 0), warm = middle_of(series, 1);
    return json_pack("{s:I, s:f, s:f, s:o, s:o, s:I, s:I}", "prompt_tokens", (json_int_t)t->prompt_tokens, "cold_ms",
                     series->values[0][cold], "warm_ms", series->values[1][warm], "parts_ms",
                     spry_parts_json(t->parts_ms[0][cold]), "warm_parts_ms", spry_parts_json(t->parts_ms[1][warm]),
                     "hit_tokens", (json_int_t)t->hit_tokens[warm], "miss_tokens",
                     (json_int_t)(t->prompt_tokens - t->hit_tokens[warm]));
}

spry_status spry_bench_ttft(spry_bench *b)
{
    spry_bench_series series;
    ttft *t = calloc(1, sizeof *t);
    size_t room = b->context > ROOM ? b->context - ROOM : 0;
    snprintf(b->doing, sizeof b->doing, "a request:");
    if (!t)
        return spry_fail_memory(b->error, "requests", sizeof *t);
    spry_status status = find_conversation(b, &t->conversation, room < PROMPT ? room : PROMPT);
    if (!status)
        status = spry_bench_repeat(b, &series, true, ask_cold_and_warm, t);
    if (!status)
        spry_bench_put(b, "ttft", ttft_json(t, &series));
    free(t->conversation);
    free(t);
    return finish(b, status, "ttft");
}

/* ---- a call of a tool -------------------------------------------------------------------------------------------- */

enum { CALL_TOKENS = 256, CALL_TOKENS_MIN = 32 };

/* A question, one tool and the order to call it. The answer is held to the tool's schema in the model's own syntax, and
 * ends with the call. */
static const char question[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"What will the weather be like in Paris tomorrow?\"}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"get_weather\","
    "\"description\": \"The weather of a day in a city\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"city\": {\"type\": \"string\", \"maxLength\": 40}, \"days\": {\"type\": \"integer\", \"minimum\": 0, "
    "\"maximum\": 9},"
    "\"unit\": {\"enum\": [\"celsius\", \"fahrenheit\"]}}, \"required\": [\"city\", \"days\", \"unit\"],"
    "\"additionalProperties\": false}}}], \"tool_choice\": \"required\", \"parallel_tool_calls\": false}";

static spry_status generate_call(spry_bench *b, double *tokens, spry_session *session, const spry_chat_prompt *prompt)
{
    spry_result result;
    size_t room = b->context > prompt->count ? b->context - prompt->count : 0;
    if (room < CALL_TOKENS_MIN)
        return spry_fail(b->error, SPRY_ERR_CONTEXT, "a context of %u tokens is too short for a call", b->context);
    if (!prompt->call_constraint)
        return spry_fail(b->error, SPRY_ERR_UNSUPPORTED, "the model has no calls of tools");
    spry_request request =
        spry_bench_request(prompt->ids, prompt->count, room < CALL_TOKENS ? (uint32_t)room : CALL_TOKENS);
    request.ignore_end = false;
    request.constraint = SPRY_TOOL_CALLS;
    request.constraint_text = prompt->call_constraint;
    spry_status status = spry_session_generate(session, &result, &request, b->error);
    if (!status && result.finish != SPRY_FINISH_END)
        status = spry_fail(b->error, SPRY_ERR_CONTEXT, "no call is complete after %zu tokens", result.generated_tokens);
    *tokens = (double)result.generated_tokens;
    return status;
}

/* `context`: the last salt that was used. */
static spry_status ask_call(spry_bench *b, void *context, double *values)
{
    spry_chat_prompt prompt = {0};
    spry_session *session = NULL;
    uint64_t began = spry_clock_ns(), *salt = context;
    spry_status status = open_session(b, &session, ++*salt);
    if (!status)
        status = spry_engine_chat_prompt(b->engine, &prompt, question, sizeof question - 1, b->error);
    if (!status)
        status = generate_call(b, &values[1], session, &prompt);
    values[0] = spry_bench_ms_since(began);
    spry_session_destroy(session);
    spry_chat_prompt_deinit(&prompt);
    return status;
}

spry_status spry_bench_first_call(spry_bench *b)
{
    spry_bench_series series;
    uint64_t salt = 2 * SPRY_BENCH_REPEAT_MAX; /* above the salts of the requests before */
    snprintf(b->doing, sizeof b->doing, "a call:");
    spry_status status = spry_bench_repeat(b, &series, false, ask_call, &salt);
    size_t middle = status ? 0 : middle_of(&series, 0);
    if (!status)
        spry_bench_put(
            b, "first_call",
            json_pack("{s:f, s:I}", "ms", series.values[0][middle], "tokens", (json_int_t)series.values[1][middle]));
    return finish(b, status, "first_call");
}

/* ---- an answer --------------------------------------------------------------------------------------------------- */

enum { ANSWER_PROMPT = 32 };

/* Generates one answer with draws on the device, for two figures that points without draws do not have: how often the
 * host waits, and how many steps begin before the tokens of the step before are read. */
static spry_status ask_answer(spry_bench *b, spry_session *session)
{
    spry_jobs_figures before, after;
    spry_result result;
    const spry_request request = spry_bench_request(b->ids, ANSWER_PROMPT, b->flags->tokens);
    spry_engine_jobs_figures(b->engine, &before);
    spry_status status = spry_session_generate(session, &result, &request, b->error);
    spry_engine_jobs_figures(b->engine, &after);
    double tokens = (double)result.generated_tokens;
    if (status || result.generated_tokens < 2)
        return status;
    spry_bench_put(
        b, "answer",
        json_pack("{s:I, s:f, s:f, s:f}", "tokens", (json_int_t)result.generated_tokens, "tps",
                  spry_bench_ratio((tokens - 1) * 1e3, result.decode_ms), "waits_per_token",
                  (double)(after.waits - before.waits) / tokens, "ahead_share",
                  spry_bench_ratio((double)(after.ahead - before.ahead), (double)(after.steps - before.steps))));
    return SPRY_OK;
}

/* The first answer warms up. A model that cannot answer is measured without this. */
spry_status spry_bench_answer(spry_bench *b)
{
    if (!strcmp(spry_engine_device_kind(b->engine), "cpu") || b->context < ANSWER_PROMPT + b->flags->tokens ||
        b->n_ids < ANSWER_PROMPT)
        return SPRY_OK;
    snprintf(b->doing, sizeof b->doing, "an answer:");
    spry_status status = spry_bench_go_on(b);
    for (int i = 0; !status && i < 2; i++) {
        spry_session *session = NULL;
        status = spry_session_create(&session, b->engine, b->error);
        if (!status)
            status = ask_answer(b, session);
        spry_session_destroy(session);
    }
    return status == SPRY_ERR_CANCELLED || status == SPRY_ERR_MEMORY ? status : SPRY_OK;
}
