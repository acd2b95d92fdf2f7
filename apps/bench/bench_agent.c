/* `spry bench --agent`: a session of a coding agent, replayed turn by turn, and the first turn of a second session in
 * another folder. Every turn sends the whole conversation again, one call of a tool and its result longer; twice the
 * agent clears old results in the middle of it, as agents do when a context fills. All texts are made up here.
 *
 * The instructions have the form of agents that server/request/agents.json knows, so that their changing part comes
 * last here and on a server of spry. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "bench/bench.h"
#include "bench/mix.h"
#include "eval/eval_run.h"

/* Lengths in tokens, without what templates write around them. */
enum { TURNS = 20, INSTRUCTIONS = 5000, TOOLS = 14, TOOL = 460, TASK = 60, ANSWER = 32 };

/* What the agent does after a turn: the tool that it calls, and the lengths of the call and of its result. */
typedef struct action {
    const char *tool, *argument;
    uint32_t call, result;
} action;

static const action find = {"search_files", "pattern", 8, 250}, view = {"read_file", "path", 8, 1200},
                    edit = {"edit_file", "change", 220, 40}, test = {"run_tests", "filter", 8, 450};
static const action *const actions[TURNS - 1] = {&find, &view, &view, &edit, &test, &view, &edit, &test, &edit, &test,
                                                 &view, &view, &edit, &test, &find, &view, &edit, &edit, &test};

/* From a turn on, the results of the first calls are cleared. */
static const struct {
    size_t turn, calls;
} clearings[] = {{9, 3}, {16, 7}};

static const char *const tools[TOOLS] = {"read_file",   "edit_file",  "search_files", "run_tests",   "list_folder",
                                         "create_file", "move_file",  "delete_file",  "run_command", "show_changes",
                                         "fetch_page",  "ask_person", "keep_note",    "plan_work"};

/* ---- texts ------------------------------------------------------------------------------------------------------- */

enum { LINES = 5, BYTES_PER_TOKEN = 8, TEXT_BYTES = 160 };

/* Lines in which every '%' becomes a word. */
typedef const char *const lines[LINES];

static lines prose = {"- Before you change a %, look at the % that it belongs to, and at its %.",
                      "- Keep every % short, and name it after what its % does with the %.",
                      "- A % that fails is read first; its % says which % is wrong.",
                      "- Never remove the % of another person without the % that they asked for.",
                      "- When a % is long, give the % in parts, each with its own %."};
static lines code = {"static int %_%(struct % *self)", "    return self->% + %_%(self, 7);", "    if (%->% < self->%)",
                     "        % = %_next(%);", "    /* The % of a % is the % that came first. */"};
static lines output = {"ok   %_%_%", "ok   % with % after %", "time %_%: 12 ms, %", "FAIL %_%: expected %", "skip %"};
static const char *const words[] = {"change", "folder", "window", "reader", "number", "branch", "record", "market",
                                    "letter", "module", "stream", "vector", "bridge", "symbol", "packet", "signal",
                                    "filter", "anchor", "border", "column", "device", "engine", "figure", "garden"};

typedef struct writer {
    spry_mix *mix;
    spry_engine *engine;
    spry_random random;
    json_t *tools, *calls; /* calls: messages of calls and of their results, in turns */
    spry_status status;
    spry_error *error;
} writer;

static void add_line(writer *w, spry_buffer *text, lines of)
{
    const char *line = of[spry_random_next(&w->random) % LINES];
    for (; *line; line++)
        if (*line == '%')
            spry_buffer_text(text, words[spry_random_next(&w->random) % SPRY_COUNT(words)]);
        else
            spry_buffer_append(text, line, 1);
    spry_buffer_text(text, "\n");
}

/* `begin` and lines, `tokens` tokens together, before they are scaled: a new string; NULL: w->status says why. */
static json_t *write_text(writer *w, const char *begin, lines of, uint32_t tokens)
{
    const size_t wanted = spry_mix_scaled(tokens, w->mix->scale);
    char *cut = NULL;
    spry_buffer text;
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_buffer_text(&text, begin);
    while (!text.failed && text.size < BYTES_PER_TOKEN * wanted)
        add_line(w, &text, of);
    if (text.failed)
        w->status = spry_fail_memory(w->error, "a text", BYTES_PER_TOKEN * wanted);
    if (!w->status)
        w->status = spry_mix_cut(&cut, w->engine, spry_buffer_view(&text), wanted, w->error);
    json_t *out = w->status ? NULL : json_string(cut);
    if (!out && !w->status)
        w->status = spry_fail(w->error, SPRY_ERR_UNSUPPORTED, "the model's tokens do not give back a text in UTF-8");
    spry_buffer_deinit(&text);
    free(cut);
    return out;
}

/* Appends; takes `item`. */
static void append(writer *w, json_t *list, json_t *item)
{
    if (json_array_append_new(list, item) && !w->status)
        w->status = spry_fail_memory(w->error, "a session", 0);
}

static void write_tools(writer *w)
{
    char begin[TEXT_BYTES];
    w->tools = json_array();
    for (size_t i = 0; !w->status && i < TOOLS; i++) {
        snprintf(begin, sizeof begin, "The tool %s does what its name says.\n", tools[i]);
        append(w, w->tools,
               json_pack("{s:s, s:{s:s, s:o, s:{s:s, s:{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}}}}}", "type", "function",
                         "function", "name", tools[i], "description", write_text(w, begin, prose, TOOL), "parameters",
                         "type", "object", "properties", "path", "type", "string", "pattern", "type", "string",
                         "change", "type", "string", "filter", "type", "string"));
    }
}

/* The messages of a call: what the agent says and asks for, and the result. */
static void write_call(writer *w, size_t index)
{
    const action *a = actions[index];
    char id[32], begin[TEXT_BYTES];
    snprintf(id, sizeof id, "call_%zu", index + 1);
    snprintf(begin, sizeof begin, "Part %zu: ", index + 1);
    json_t *argument = write_text(w, begin, code, a->call), *object = json_pack("{s:o}", a->argument, argument);
    char *arguments = object ? spry_json_text(object, 0) : NULL;
    json_decref(object);
    append(w, w->calls,
           json_pack("{s:s, s:s, s:[{s:s, s:s, s:{s:s, s:s}}]}", "role", "assistant", "content", "The next step.",
                     "tool_calls", "id", id, "type", "function", "function", "name", a->tool, "arguments",
                     arguments ? arguments : "{}"));
    free(arguments);
    snprintf(begin, sizeof begin, "Result of %s, %zu:\n", a->tool, index + 1);
    append(w, w->calls,
           json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id, "content",
                     write_text(w, begin, a == &test ? output : code, a->result)));
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

/* Instructions and a task. What is said about the folder is in the middle of the instructions. */
static json_t *begin_session(writer *w, const char *folder, const char *task, uint64_t seed)
{
    char begin[TEXT_BYTES];
    json_t *messages = json_array();
    spry_buffer system;
    spry_buffer_init(&system, SIZE_MAX / 2);
    spry_random_seed(&w->random, seed);
    snprintf(begin, sizeof begin, "You are the coding agent of spry bench.\nRun %llx.\n",
             (unsigned long long)w->mix->run);
    json_t *first = write_text(w, begin, prose, INSTRUCTIONS / 4),
           *rest = write_text(w, "", prose, INSTRUCTIONS * 3 / 4);
    spry_buffer_format(&system, "%s\n<environment>\nWorking folder: /src/%s\nDate: 2026-11-18\n</environment>\n%s",
                       first ? json_string_value(first) : "", folder, rest ? json_string_value(rest) : "");
    json_decref(first);
    json_decref(rest);
    append(w, messages, json_pack("{s:s, s:s}", "role", "system", "content", spry_buffer_view(&system).data));
    append(w, messages, json_pack("{s:s, s:o}", "role", "user", "content", write_text(w, task, prose, TASK)));
    spry_buffer_deinit(&system);
    return messages;
}

/* The conversation as it is sent in a turn, from 1 on. */
static json_t *messages_of(writer *w, const json_t *begun, size_t turn)
{
    json_t *messages = json_copy((json_t *)(uintptr_t)begun);
    size_t cleared = 0;
    for (size_t i = 0; i < SPRY_COUNT(clearings); i++)
        cleared = turn >= clearings[i].turn ? clearings[i].calls : cleared;
    for (size_t call = 0; call + 1 < turn; call++) {
        json_t *result = json_incref(json_array_get(w->calls, 2 * call + 1));
        if (call < cleared) {
            json_t *copy = json_copy(result);
            json_object_set_new(copy, "content", json_string("[old result cleared]"));
            json_decref(result);
            result = copy;
        }
        append(w, messages, json_incref(json_array_get(w->calls, 2 * call)));
        append(w, messages, result);
    }
    return messages;
}

spry_status spry_mix_agent_init(spry_mix *mix, double scale, uint64_t seed, spry_error *error)
{
    *mix = (spry_mix){.name = "agent session", .agent = true, .scale = scale, .seed = seed};
    mix->list = calloc(TURNS + 1, sizeof *mix->list);
    if (!mix->list)
        return spry_fail_memory(error, "requests", (TURNS + 1) * sizeof *mix->list);
    mix->count = TURNS + 1;
    for (size_t i = 0; i < mix->count; i++)
        mix->list[i] =
            (spry_mix_request){.answer_tokens = spry_mix_scaled(ANSWER, scale), .system = SPRY_MIX_CHOICES_MAX};
    return SPRY_OK;
}

spry_status spry_mix_agent_write(spry_mix *mix, spry_engine *engine, spry_error *error)
{
    writer w = {.mix = mix, .engine = engine, .error = error, .calls = json_array()};
    spry_random_seed(&w.random, mix->seed);
    write_tools(&w);
    for (size_t i = 0; !w.status && i + 1 < TURNS; i++)
        write_call(&w, i);
    json_t *first = begin_session(&w, "first", "Find out why the tests fail, and correct it.\n", mix->seed + 1);
    json_t *second = begin_session(&w, "second", "Say what this program does.\n", mix->seed + 1);
    for (size_t i = 0; !w.status && i < mix->count; i++) {
        mix->list[i].messages = messages_of(&w, i < TURNS ? first : second, i < TURNS ? i + 1 : 1);
        mix->list[i].tools = json_incref(w.tools);
    }
    json_decref(first);
    json_decref(second);
    json_decref(w.tools);
    json_decref(w.calls);
    return w.status;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Sums of requests [from, to) of a run; null: they were not all answered. */
static json_t *sum(const json_t *requests, size_t from, size_t to)
{
    double prompt = 0, hits = 0, ttft = 0, total = 0;
    bool known = true;
    if (json_array_size(requests) < to)
        return json_null();
    for (size_t i = from; i < to; i++) {
        const json_t *r = json_array_get(requests, i);
        prompt += spry_bench_number(r, "prompt_tokens");
        hits += spry_bench_number(r, "hit_tokens");
        ttft += spry_bench_number(r, "ttft_ms");
        total += spry_bench_number(r, "total_ms");
        known = known && json_is_integer(json_object_get(r, "hit_tokens"));
    }
    return json_pack("{s:I, s:f, s:o, s:f, s:f}", "turns", (json_int_t)(to - from), "prompt_tokens", prompt,
                     "hit_share", known && prompt > 0 ? json_real(hits / prompt) : json_null(), "ttft_ms", ttft,
                     "total_ms", total);
}

/* Of the predictions of all answers; null: they were not compared. */
static json_t *agreement(const json_t *requests)
{
    double compared = 0, same = 0, identical = 0, divergence = 0;
    const json_t *r;
    size_t i;
    json_array_foreach(requests, i, r)
    {
        compared += spry_bench_number(r, "agreement.predictions");
        same += spry_bench_number(r, "agreement.same_top");
        identical += spry_bench_number(r, "agreement.identical");
        divergence += spry_bench_number(r, "agreement.divergence");
    }
    return compared > 0 ? json_pack("{s:I, s:I, s:f, s:f, s:f}", "turns", (json_int_t)i, "predictions",
                                    (json_int_t)compared, "same_top", same / compared, "identical",
                                    identical / compared, "divergence", divergence / compared)
                        : json_null();
}

void spry_mix_agent_sums(json_t *run)
{
    const json_t *requests = json_object_get(run, "requests");
    json_object_set_new(run, "session", sum(requests, 0, TURNS));
    json_object_set_new(run, "second", sum(requests, TURNS, TURNS + 1));
    json_object_set_new(run, "agreement", agreement(requests));
}

/* The predictions after the prompt and after each token of the answer. */
static spry_status compare(spry_mix_answer *answer, spry_session *warm, spry_session *cold, const int32_t *ids,
                           size_t n_prompt, size_t n_ids, size_t vocabulary, spry_error *error)
{
    spry_status status = SPRY_OK;
    for (size_t count = n_prompt; !status && count <= n_ids; count++) {
        const float *here, *base;
        status = spry_session_eval(warm, &here, ids, count, error);
        if (!status)
            status = spry_session_eval(cold, &base, ids, count, error);
        if (status)
            break;
        const spry_eval_pair pair = spry_eval_compare(here, base, vocabulary, 0);
        answer->compared++;
        answer->same += pair.same_top;
        answer->identical += memcmp(here, base, vocabulary * sizeof *here) == 0;
        answer->divergence += pair.divergence;
    }
    return status;
}

spry_status spry_mix_agreement(spry_mix_answer *answer, spry_session *session, spry_engine *engine, size_t n_prompt,
                               uint64_t salt, spry_error *error)
{
    spry_engine_info info;
    spry_session *cold = NULL;
    size_t held = 0;
    const int32_t *tokens = spry_session_tokens(session, &held);
    int32_t *ids = malloc((held + 1) * sizeof *ids);
    spry_status status = ids ? SPRY_OK : spry_fail_memory(error, "an answer", held * sizeof *ids);
    if (!status)
        memcpy(ids, tokens, held * sizeof *ids);
    spry_engine_describe(engine, &info);
    if (!status)
        status = spry_session_create(&cold, engine, error);
    if (!status)
        status = spry_session_set_salt(cold, &salt, sizeof salt);
    if (!status)
        status = compare(answer, session, cold, ids, n_prompt, held, info.vocabulary, error);
    spry_session_destroy(cold);
    free(ids);
    return status;
}

/* A row of the table: one turn, or a sum, here and on the server. */
static json_t *row_of(const char *name, const json_t *here, const json_t *there)
{
    double prompt = spry_bench_number(here, "prompt_tokens"), other = spry_bench_number(there, "prompt_tokens");
    json_t *row =
        json_pack("{s:s, s:f, s:O*, s:O*, s:O*, s:O*}", "turn", name, "tokens", prompt, "ttft_ms",
                  json_object_get(here, "ttft_ms"), "hit_share", json_object_get(here, "hit_share"), "server_ttft_ms",
                  json_object_get(there, "ttft_ms"), "server_hit_share", json_object_get(there, "hit_share"));
    if (json_is_integer(json_object_get(here, "hit_tokens")) && prompt > 0)
        json_object_set_new(row, "hit_share", json_real(spry_bench_number(here, "hit_tokens") / prompt));
    if (json_is_integer(json_object_get(there, "hit_tokens")) && other > 0)
        json_object_set_new(row, "server_hit_share", json_real(spry_bench_number(there, "hit_tokens") / other));
    return row;
}

static void print(const json_t *report)
{
    static const spry_bench_column columns[] = {
        {"Turn", -18, "turn", SPRY_BENCH_TEXT, NULL},
        {"prompt", 8, "tokens", SPRY_BENCH_COUNT, NULL},
        {"cached", 9, "hit_share", SPRY_BENCH_SHARE, "not told"},
        {"first token, ms", 17, "ttft_ms", SPRY_BENCH_TENTHS, NULL},
        {"server: cached", 16, "server_hit_share", SPRY_BENCH_SHARE, "not told"},
        {"first token, ms", 17, "server_ttft_ms", SPRY_BENCH_TENTHS, NULL}};
    const json_t *runs = json_object_get(report, "runs"), *here = json_array_get(runs, 0),
                 *there = json_array_get(runs, 1), *row;
    json_t *rows = json_array();
    char name[32];
    size_t i;
    json_array_foreach(json_object_get(here, "requests"), i, row)
    {
        snprintf(name, sizeof name, i < TURNS ? "%zu" : "another session", i + 1);
        json_array_append_new(rows, row_of(name, row, json_array_get(json_object_get(there, "requests"), i)));
    }
    if (json_is_object(json_object_get(here, "session")))
        json_array_append_new(
            rows, row_of("all of the session", json_object_get(here, "session"), json_object_get(there, "session")));
    spry_bench_print_bold(spry_bench_text(report, "model"));
    spry_out_format(": a session of a coding agent; old results are cleared at turns %zu and %zu\n", clearings[0].turn,
                    clearings[1].turn);
    spry_bench_table(columns, there ? SPRY_COUNT(columns) : 4, rows, NULL, "");
    const json_t *agreed = json_object_get(here, "agreement");
    if (json_is_object(agreed))
        spry_out_format("%.0f predictions of %.0f answers, with the cache and without: the same most probable token "
                        "%.2f %%, the same bits %.2f %%\n",
                        spry_bench_number(agreed, "predictions"), spry_bench_number(agreed, "turns"),
                        100 * spry_bench_number(agreed, "same_top"), 100 * spry_bench_number(agreed, "identical"));
    json_array_foreach(runs, i, row)
    {
        if (json_is_object(json_object_get(row, "session")))
            spry_out_quote("%s: %.1f s in all\n", spry_bench_text(row, "where"),
                           spry_bench_number(row, "wall_ms") / 1000);
    }
    json_decref(rows);
}

const spry_bench_kind spry_bench_agent_kind = {"--agent", SPRY_AGENT_FORMAT, spry_bench_measure_mix, print};
