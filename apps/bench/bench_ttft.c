/* The time to the first token of a request of about a thousand tokens, through a session: a conversation is rendered,
 * tokenised, looked up and computed. A cold request has its own salt, under which nothing is cached; the warm one
 * follows in a new session with the same salt. Cold and warm alternate, so that changes of the machine's speed affect
 * both alike. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "bench/bench_runner.h"

enum { PROMPT = 1000, ROOM = 8, SENTENCES_MAX = 512 };

static const char sentence[] = "The miller had three sons, a mill, a donkey and a cat, and every evening they counted "
                               "what was left of the flour. ";

/* ---- what is asked -------------------------------------------------------------------------------------------------
 */

/* The messages of a conversation of `n_sentences`. */
static spry_status write_messages(json_t **messages, size_t n_sentences, spry_error *error)
{
    spry_buffer text;
    spry_buffer_init(&text, SENTENCES_MAX * sizeof sentence);
    for (size_t i = 0; i < n_sentences; i++)
        spry_buffer_text(&text, sentence);
    *messages = text.failed ? NULL
                            : json_pack("[{s:s, s:s#}]", "role", "user", "content", spry_buffer_view(&text).data,
                                        (int)text.size);
    spry_buffer_deinit(&text);
    return *messages ? SPRY_OK : spry_fail_memory(error, "a conversation", n_sentences * sizeof sentence);
}

/* Template and tokenizer; their times go to `request`, which may be NULL. */
static spry_status write_prompt(spry_tokens *ids, const spry_bench_runner *r, json_t *messages,
                                spry_bench_request *request)
{
    spry_chat_prompt prompt = {0};
    json_t *conversation = json_pack("{s:O}", "messages", messages);
    char *json = conversation ? json_dumps(conversation, 0) : NULL;
    spry_status status = json ? spry_engine_chat_prompt(r->engine, &prompt, json, strlen(json), r->error)
                              : spry_fail_memory(r->error, "a conversation", 0);
    if (request) {
        request->parts_ms[SPRY_PART_TEMPLATE] += prompt.template_ms;
        request->parts_ms[SPRY_PART_TOKENIZE] += prompt.tokenize_ms;
    }
    free(ids->ids);
    *ids = (spry_tokens){prompt.ids, prompt.count, prompt.count};
    prompt.ids = NULL;
    spry_chat_prompt_deinit(&prompt);
    free(json);
    json_decref(conversation);
    return status;
}

/* Messages with as many sentences as fit into `limit` tokens. */
static spry_status find_messages(json_t **messages, const spry_bench_runner *r, size_t limit)
{
    spry_tokens ids = {0};
    size_t fits = 0, not = SENTENCES_MAX;
    spry_status status = SPRY_OK;
    while (!status && fits + 1 < not ) {
        size_t middle = (fits + not ) / 2;
        status = write_messages(messages, middle, r->error);
        if (!status)
            status = write_prompt(&ids, r, *messages, NULL);
        json_decref(*messages);
        *messages = NULL;
        if (ids.count <= limit)
            fits = middle;
        else
            not = middle;
    }
    spry_tokens_deinit(&ids);
    if (!status && !fits)
        return spry_fail(r->error, SPRY_ERR_CONTEXT, "a context of %u tokens is too short for a request", r->context);
    return status ? status : write_messages(messages, fits, r->error);
}

/* ---- asking --------------------------------------------------------------------------------------------------------
 */

static spry_status ask(spry_bench_runner *r, spry_bench_request *out, json_t *messages, uint64_t salt)
{
    spry_tokens ids = {0};
    spry_session *session = NULL;
    spry_request request;
    spry_result result;
    *out = (spry_bench_request){0};
    spry_status status = spry_bench_go_on(r);
    if (!status)
        status = spry_session_create(&session, r->engine, r->error);
    if (!status)
        spry_session_set_salt(session, &salt, sizeof salt);
    if (!status)
        status = write_prompt(&ids, r, messages, out);
    spry_request_default(&request);
    request.prompt = ids.ids;
    request.n_prompt = ids.count;
    request.max_tokens = 1;
    request.ignore_end = true;
    request.speculation = SPRY_DRAFT_NONE;
    request.sampling.temperature = 0;
    if (!status)
        status = spry_session_generate(session, &result, &request, r->error);
    if (!status) {
        out->prompt_tokens = ids.count;
        out->hit_tokens = result.reused_tokens;
        for (size_t i = 0; i < SPRY_PART_COUNT; i++)
            out->ms += out->parts_ms[i] += result.first_parts_ms[i];
    }
    spry_session_destroy(session);
    spry_tokens_deinit(&ids);
    return status;
}

static int by_ms(const void *a, const void *b)
{
    const spry_bench_request *x = a, *y = b;
    return (x->ms > y->ms) - (x->ms < y->ms);
}

static spry_bench_request median(spry_bench_request *requests, size_t count)
{
    qsort(requests, count, sizeof *requests, by_ms);
    return requests[count / 2];
}

static spry_status ask_often(spry_bench_runner *r, json_t *messages)
{
    spry_bench_request cold[SPRY_BENCH_REPEAT_MAX], warm[SPRY_BENCH_REPEAT_MAX];
    uint32_t repeat = r->settings->repeat;
    spry_status status = ask(r, &cold[0], messages, 0); /* warms up */
    for (uint32_t i = 0; !status && i < repeat; i++) {
        status = ask(r, &cold[i], messages, i + 1);
        if (!status)
            status = ask(r, &warm[i], messages, i + 1);
    }
    if (status)
        return status;
    r->report->ttft.cold = median(cold, repeat);
    r->report->ttft.warm = median(warm, repeat);
    return SPRY_OK;
}

/* A model without a tokenizer, or with too short a context, is measured without this. */
spry_status spry_bench_measure_ttft(spry_bench_runner *r)
{
    json_t *messages = NULL;
    size_t room = r->context > ROOM ? r->context - ROOM : 0;
    snprintf(r->doing, sizeof r->doing, "a request:");
    spry_status status = find_messages(&messages, r, room < PROMPT ? room : PROMPT);
    if (!status)
        status = ask_often(r, messages);
    json_decref(messages);
    r->measured++;
    if (status)
        snprintf(r->report->ttft.why_not, sizeof r->report->ttft.why_not, "%.*s", 150, r->error->message);
    return status == SPRY_ERR_CANCELLED || status == SPRY_ERR_MEMORY ? status : SPRY_OK;
}
