/* One request for answers: its options, its costs, and its phases from the fields of the body to the reply. */
#ifndef SPRY_SERVER_REQUEST_COMPLETION_H
#define SPRY_SERVER_REQUEST_COMPLETION_H

#include "cli/common_options.h"
#include "platform/trace.h"
#include "run/answer.h"
#include "server/fields/fields.h"
#include "server/http/exchange.h"
#include "server/request/streams.h"
#include "server/server.h"
#include "spry_pictures.h"
#include "spry_serve.h"

enum { SPRY_BIAS_MAX = 1024, SPRY_CHOICES_MAX = 16, SPRY_ANSWERS_MAX = 128 };

enum { SPRY_OVERFLOW_ERROR, SPRY_OVERFLOW_SLIDE, SPRY_OVERFLOW_CUT_MIDDLE }; /* in the order of the field's words */

/* The options of a request for answers, filled from the fields of its body by the tables of fields/field_tables.c.
 * `request` points into the struct, which therefore must not be moved. Strings are borrowed from the body. */
typedef struct spry_completion_options {
    spry_request request; /* common to all answers; prompt, seed and callbacks are set when they are submitted */
    const char *stops[SPRY_STOPS_MAX];
    spry_logit_bias bias[SPRY_BIAS_MAX];
    char *constraint_text;
    char *lora;                    /* choice of adapters (spry_serve.h); NULL: the engine's */
    const spry_engine *engine;     /* NULL until the model is loaded */
    const char *stream_id;         /* with stream: the stream is kept under this name; NULL: it is not kept */
    size_t keep;                   /* first tokens that a sliding context keeps; SIZE_MAX: the whole prompt */
    double keep_alive_s;           /* seconds that the unused model stays loaded; negative: no limit */
    uint32_t n_each;               /* answers to each prompt */
    unsigned char overflow;        /* SPRY_OVERFLOW_...: what happens when the context is full */
    unsigned char batch;           /* 1: the request gives way to interactive ones */
    unsigned char parse_reasoning; /* not 0: find reasoning in the text */
    bool has_keep_alive;
    bool parse_tools;           /* find tool calls in the text */
    bool one_call;              /* at most one call */
    bool no_answer;             /* nothing is generated: max_tokens is 0 */
    bool no_draft;              /* without drafts */
    bool echo;                  /* the prompt is part of the reply */
    bool want_logprobs;         /* log probabilities of generated tokens, and of echoed ones */
    bool return_tokens;         /* ids of the answer in the reply */
    bool json_lenient;          /* ignore parts of a schema that cannot be enforced */
    bool stream, include_usage; /* include_usage: at the end of a stream */
    bool verbose;               /* the reply has the prompt and the settings */
    bool must_fit, no_shift;    /* where a context would slide: a long prompt is an error; an answer ends */
    bool want_progress;         /* with stream: events while the prompt is computed */
    bool want_timings;          /* with stream: timings in every event */
    bool several;               /* the prompt is a list of prompts, and so is the reply */
    bool keep_raw_text;         /* keep the text as generated, in addition to the parsed parts */
    bool answer_span;           /* the answer becomes a fragment */
} spry_completion_options;

/* Defaults of every interface, some of which the server's settings give. */
void spry_completion_options_init(spry_completion_options *options, const spry_serve_settings *settings);
void spry_completion_options_deinit(spry_completion_options *options);

struct spry_completion_interface;

/* Reads the fields of a body: the interface's defaults, its table, and its checks. */
void spry_completion_options_read(spry_completion_options *options, spry_fields *fields,
                                  const struct spry_completion_interface *interface);

/* Applies --max-tokens. */
void spry_completion_options_limit(spry_completion_options *options, const spry_serve_settings *settings);

/* Sets the constraint from the value of field `key`; an error when there is one already. */
void spry_fields_set_constraint(spry_completion_options *options, spry_fields *fields, const char *key,
                                spry_constraint constraint, const json_t *value);

/* A choice of adapters as a text, to be freed; NULL when it was refused. */
char *spry_fields_lora(spry_fields *fields, const char *key, const json_t *value);

/* For the tables: the sampling settings of completion options, and readers whose target is completion options. */
spry_option_table spry_completion_sampling(void *options);
void spry_read_limit(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_keep(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_stop(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_bias(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_thinking(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_thoughts(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_logprobs(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_constraint(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_response_format(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_lora(void *options, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_stream_id(void *options, spry_fields *fields, const spry_field *field, const json_t *value);

/* ---- costs ------------------------------------------------------------------------------------------------------- */

/* The costs of a request: its time by parts, and its share of the machine's energy.
 *
 * Time counts from the moment the request's head was read to the last byte of its reply. Energy counts only while the
 * request has jobs in a scheduler, so that a slow reader is not charged. */

typedef struct spry_costs {
    spry_exchange *exchange;
    spry_laps laps;
    uint64_t share_began_ns, share_ended_ns; /* 0: not yet */
    spry_energy_share share;
    spry_joules used; /* once the share has ended */
} spry_costs;

void spry_costs_begin(spry_costs *costs, spry_exchange *exchange);

/* Only the first call of each has an effect; an end without a begin has none. Any thread, one at a time. */
void spry_costs_begin_share(spry_costs *costs);
void spry_costs_end_share(spry_costs *costs);

/* The request has ended: the remaining time is charged to writing, and the request is added to the trace. */
void spry_costs_end(spry_costs *costs, size_t prompt_tokens, size_t generated_tokens);

/* The parts of the time until now. */
void spry_costs_parts(const spry_costs *costs, double ms[SPRY_PART_COUNT]);

/* Adds total_ms, parts_ms and energy to the timings of a reply; `generated`: tokens, for joules per token. */
void spry_costs_tell(const spry_costs *costs, json_t *timings, const double ms[SPRY_PART_COUNT], size_t generated);

/* ---- the completion ---------------------------------------------------------------------------------------------- */

/* One request for answers, from the fields of its body to the last byte of its reply, for every interface. The phases,
 * in the order of spry_completion_serve, and the members each of them fills:
 *
 *   read     the interface's table stores the fields                              options
 *   prompt   the model is loaded; templates and tokenizer make the prompts        model, prompts
 *   submit   every answer becomes a job of the model's scheduler                  choices, jobs
 *   collect  the scheduler's thread posts text and tokens to a channel; the       choices
 *            connection's thread parses them and adds them to the choices, or
 *   stream   has the interface write them to the reply at once                    reply
 *   report   counters, timings and energy                                         costs
 *   done     jobs are cancelled and waited for, and everything is freed
 *
 * Only `choices[].progress` and `jobs.n_open` are written by the scheduler's thread. */

typedef struct spry_completion spry_completion;

/* One answer. */
typedef struct spry_choice {
    spry_completion *owner;
    uint32_t index;
    const spry_tokens *prompt;

    /* submit */
    struct {
        spry_job *handle; /* NULL: none */
        spry_status status;
        spry_error error;
        spry_result result;
    } job; /* all but the handle are set when it is done */
    bool submitted;
    spry_request_status status; /* the request in the registry */
    struct {
        uint64_t last_text_ns; /* when the last text came; 0: none yet */
        uint64_t done_ns;      /* when the job ended; 0: not yet */
        spry_histogram gaps;   /* between two pieces of text */
        bool overflow;         /* the channel was full: the client reads too slowly */
        size_t prefilled;      /* tokens of the prompt */
    } progress;                /* written by the scheduler's thread until the job has ended */

    /* collect */
    spry_chat_parser *parser; /* NULL: all text is content */
    bool done;
    bool text_ended;      /* the parser has all text of the job */
    bool has_newline;     /* the text contains a newline */
    spry_buffer raw_text; /* with options.keep_raw_text */
    spry_buffer content, reasoning;
    spry_buffer arguments; /* arguments of the tool call that has begun and not ended */
    json_t *calls;         /* {"id", "name", "arguments": text} */
    size_t n_calls;        /* number of complete calls */
    struct {
        uint64_t ns; /* 0: no call is complete */
        size_t tokens;
    } place, first_call;       /* the position in the text being read; when the first call was complete */
    spry_answer_token *tokens; /* with options.want_logprobs */
    size_t n_tokens, tokens_capacity;

    /* stream */
    size_t progress_cached, progress_done, progress_total; /* tokens of the prompt, of streams */
    size_t n_written;                                      /* tokens whose log probabilities are in the stream */
} spry_choice;

typedef struct spry_usage_counts {
    size_t prompt, cached, generated, drafted, accepted, span, repaired, dropped;
} spry_usage_counts;

/* The functions in which the interfaces (OpenAI, Ollama, llama-server, ...) differ. */
typedef struct spry_completion_interface {
    const char *id_prefix; /* prefix of the completion's id */
    const spry_field_table *table;
    void (*defaults)(spry_completion_options *options); /* sets defaults before the table is read; NULL: none */
    void (*read)(spry_completion_options *options, spry_fields *fields); /* fields that the table does not store */
    spry_status (*make_prompts)(spry_completion *completion, spry_fields *fields, spry_error *error);

    /* Without "stream": the reply. */
    json_t *(*whole)(spry_completion *completion);

    /* With "stream": these append to completion->reply.out. `open` and `close` may be NULL. */
    const char *stream_type;
    void (*open)(spry_completion *completion);
    void (*delta)(spry_completion *completion, spry_choice *choice, const spry_chat_event *event);
    bool ordered; /* `delta` gets the events of replies that are not streamed, too, and keeps them in their order */
    /* Reports how much of a prompt is computed; also called when nothing happened for a while. NULL: not reported. */
    void (*progress)(spry_completion *completion, spry_choice *choice);
    void (*close_choice)(spry_completion *completion, spry_choice *choice, bool last);
    void (*close)(spry_completion *completion);
    bool overflow_in_stream; /* a prompt that is too long fails as an event, with status 200 */
    void (*fail)(spry_completion *completion, unsigned status, const char *sentence); /* NULL: the route's form */

    /* For tools that the server calls (rounds.h): the prompt of a further round, and a call that was made, which
     * appends to the stream. NULL: the server calls none. */
    spry_status (*next_prompt)(spry_completion *completion, spry_fields *fields, spry_error *error);
    void (*called)(spry_completion *completion, spry_choice *choice, const json_t *call);
} spry_completion_interface;

struct spry_completion {
    spry_exchange *exchange;
    const spry_completion_interface *interface;
    char id[48];
    int64_t created;        /* seconds since 1970 */
    json_t *root;           /* the body */
    json_t *derived;        /* the description of the model it names; NULL: it is not derived from another */
    const json_t *template; /* the description's template; NULL: the model's own */

    spry_completion_options options;

    const spry_pooled *model;
    struct {
        spry_tokens ids[SPRY_ANSWERS_MAX];
        uint32_t count;
        const char *agent;   /* coding agent whose conversation it is; NULL: no known agent */
        const json_t *begun; /* text with which the answer begins; NULL: none */
        spry_span *spans;    /* of the only prompt */
        size_t n_spans;
        spry_placed *pictures; /* of the only prompt */
        size_t n_pictures;
        size_t dropped; /* tokens that did not fit */
        void *extra;    /* the interface's own */
        void (*free_extra)(void *extra);
    } prompts;

    spry_choice *choices; /* answers to the first prompt, then to the second, ... */
    uint32_t n_choices;
    struct {
        spry_channel channel;
        bool has_channel;
        atomic_uint n_open;   /* jobs in the scheduler, plus one while they are being submitted */
        spry_buffer received; /* records being read */
        spry_error error;     /* error of the first answer that failed; status SPRY_OK: none */
        bool disconnected;    /* the client has left */
    } jobs;

    struct {
        spry_buffer out;        /* bytes of the stream that are not written yet */
        bool ended;             /* `out` has the end of the stream */
        spry_kept_stream *kept; /* takes the bytes of `out`; NULL: they go to the connection */
        size_t position;        /* the connection's position in `kept` */
        uint64_t event_ns;      /* when the last event was written */
        bool detached;          /* the answer goes on without the connection */
    } reply;

    struct {
        bool active;    /* the request has tools that the server calls: rounds.h */
        uint32_t count; /* rounds that have ended with calls */
        size_t n_jobs;  /* submitted after the first */
        bool in_call;   /* the events are of a call that the server makes */
        json_t *calls,
            *made; /* calls of this round, and of all rounds: [{"id", "name", "arguments", "output" or "error"}] */
        spry_buffer text, thought, arguments; /* text and thoughts of this round; arguments of its last call */
        spry_usage_counts before;             /* counts of the rounds that have ended */
    } rounds;

    spry_costs costs;
    spry_laps laps_before_jobs; /* the laps when the jobs were submitted */
    bool jobs_ended;            /* the laps go on */
};

/* Serves a request whose body is `root`, which it takes, with the model `model` (NULL: the first one). Fields may have
 * been read and refused before. Gives the exchange its reply in every case. */
void spry_completion_serve(spry_exchange *exchange, json_t *root, spry_fields *fields, const char *model,
                           const spry_completion_interface *interface);

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* The model of this name, loaded, to be released to the pool; NULL when a reply was given instead. */
const spry_pooled *spry_completion_model(spry_exchange *exchange, const char *name);

/* How long a model stays loaded after its last use, at the wish of a request. The wish of a key that is not an admin's
 * has no effect: many clients send it with every request. */
void spry_completion_keep(const spry_exchange *exchange, const spry_pooled *model, double seconds);

/* Whether a model, as the pool knows it (NULL: the first one), is there and not loaded. */
bool spry_completion_sleeps(const spry_server *server, const char *name);

/* The reply when the pool could not provide a model; `name` NULL: none was named. */
void spry_completion_refuse_model(spry_exchange *exchange, const char *name, const spry_error *error);

/* ---- for interfaces ---------------------------------------------------------------------------------------------- */

/* Appends "data: {...}" and a blank line to the stream; takes the reference. */
void spry_completion_event(spry_completion *completion, json_t *json);

/* Appends "event: NAME", "data: {...}" and a blank line; takes the reference. */
void spry_completion_named_event(spry_completion *completion, const char *name, json_t *json);

/* Appends {...} and a newline to the stream; takes the reference. */
void spry_completion_line(spry_completion *completion, json_t *json);

/* {"total", "cache", "processed", "time_ms"} of the prompt. */
json_t *spry_choice_progress(const spry_choice *choice);

/* Rates of an answer that is not complete, in llama-server's form. */
json_t *spry_choice_live_timings(const spry_choice *choice);

/* The times and token counts of the request, once its answers are complete. */
json_t *spry_completion_timings(const spry_completion *completion);

void spry_completion_count(const spry_completion *completion, spry_usage_counts *counts);

/* Adds an event to the choice's content, reasoning or calls, as is done when the reply is not streamed. */
void spry_choice_add(spry_choice *choice, const spry_chat_event *event);

/* The stop string that ended an answer with SPRY_FINISH_STOP. */
const char *spry_choice_stop(const spry_choice *choice);

/* "stop", "length" or "tool_calls". */
const char *spry_choice_finish_reason(const spry_choice *choice);

static inline spry_view spry_event_text(const spry_chat_event *event)
{
    return (spry_view){event->text, event->text_size};
}

static inline spry_view spry_event_name(const spry_chat_event *event)
{
    return (spry_view){event->name, event->name_size};
}

json_t *spry_buffer_json(const spry_buffer *text); /* as a string */
json_t *spry_view_json(spry_view text);

/* ---- parts of an answer in order --------------------------------------------------------------------------------- */

/* The parts of an answer in the order in which the model wrote them: text, thoughts and calls of tools. For interfaces
 * whose replies are lists of such parts (Anthropic's blocks, items of OpenAI's Responses), whole or as a stream. */

typedef struct spry_answer_part {
    spry_chat_event_kind kind; /* SPRY_CHAT_CONTENT, _REASONING or _CALL_BEGIN */
    size_t index;              /* among the parts */
    spry_buffer text;          /* of a call: its arguments */
    spry_buffer name, id;      /* of a call */
} spry_answer_part;

/* Writes the stream of an interface. `close` is called before the next part opens, and at the end. */
typedef struct spry_part_writer {
    void (*open)(spry_completion *completion, const spry_answer_part *part);
    void (*add)(spry_completion *completion, const spry_answer_part *part, spry_view text);
    void (*close)(spry_completion *completion, const spry_answer_part *part);
} spry_part_writer;

typedef struct spry_answer_parts {
    const spry_part_writer *writer; /* NULL: nothing is streamed */
    spry_answer_part *list;
    size_t count, capacity;
    bool open;   /* the last part is not closed */
    bool failed; /* memory was short */
} spry_answer_parts;

void spry_answer_parts_add(spry_answer_parts *parts, spry_completion *completion, const spry_chat_event *event);

/* Closes the last part. */
void spry_answer_parts_end(spry_answer_parts *parts, spry_completion *completion);

void spry_answer_parts_deinit(spry_answer_parts *parts);

/* ---- the phases -------------------------------------------------------------------------------------------------- */

/* ---- submit ------------------------------------------------------------------------------------------------------ */

/* Submits the job of the next round, whose prompt has been made; the completion has one answer. */
spry_status spry_completion_submit_round(spry_completion *completion, spry_error *error);

/* Cancels the jobs that have not ended. */
void spry_completion_cancel(spry_completion *completion);

/* The posted records. A token record is followed by its n_top alternatives. */
enum { SPRY_RECORD_TEXT, SPRY_RECORD_TOKEN, SPRY_RECORD_PROGRESS, SPRY_RECORD_PLACE };

/* Before a text in which a call may end: when it came, and with how many tokens. */
typedef struct spry_place_record {
    uint64_t ns;
    size_t tokens;
} spry_place_record;

typedef struct spry_progress_record {
    size_t done, total; /* tokens of the prompt */
} spry_progress_record;

typedef struct spry_token_record {
    spry_logprob_entry token;
    size_t n_top;
} spry_token_record;

/* ---- collect ----------------------------------------------------------------------------------------------------- */

typedef enum spry_collected {
    SPRY_COLLECTED_SOME,
    SPRY_COLLECTED_ALL,          /* every answer has ended */
    SPRY_COLLECTED_DISCONNECTED, /* the client has left */
} spry_collected;

/* Waits for records and adds them to their choices. */
spry_collected spry_completion_collect(spry_completion *completion);

/* A parser for tool calls and reasoning, where the options ask for one. */
spry_status spry_choice_make_parser(spry_choice *choice, spry_error *error);

/* Parses the rest of an answer's text, once its job has ended. */
void spry_choice_end_text(spry_choice *choice);

/* ---- stream, or reply at once ------------------------------------------------------------------------------------ */

/* Replies, and destroys the completion when the reply is complete. */
void spry_completion_reply(spry_completion *completion);

/* Ends the kept stream, if there is one. */
void spry_completion_release_stream(spry_completion *completion);

/* Replies with a stream that only has the completion's error, before it has jobs. */
void spry_completion_reply_failed_stream(spry_completion *completion);

/* Replies with the completion's error, and destroys it. */
void spry_completion_reply_failure(spry_completion *completion);

/* When a stream in which nothing happens gets its next event; 0: never. */
uint64_t spry_completion_event_due(const spry_completion *completion);

/* ---- report ------------------------------------------------------------------------------------------------------ */

/* The request's laps pause when its jobs are submitted, and its share of the energy begins. */
void spry_completion_jobs_begin(spry_completion *completion);

/* The laps continue when the last job has ended. Only the first call has an effect. */
void spry_completion_jobs_end(spry_completion *completion);

/* After spry_completion_jobs_end: the round that has ended becomes part of what was before, and jobs may begin. */
void spry_completion_add_round(spry_completion *completion);

/* The parts of an answer's time so far. */
void spry_choice_parts(const spry_choice *choice, double ms[SPRY_PART_COUNT]);

/* Adds the request to the counters of its model, and to the log. */
void spry_completion_record(const spry_completion *completion);

/* Ends the laps and writes the trace. */
void spry_completion_costs_end(spry_completion *completion);

/* ---- done -------------------------------------------------------------------------------------------------------- */

void spry_completion_destroy(spry_completion *completion);

/* ---- other jobs of a request ------------------------------------------------------------------------------------- */

/* Jobs of a request that its connection's thread waits for: evaluations and embeddings. */

/* The options of an exchange's jobs: its key's pages, its client's turn. */
void spry_job_options_of(spry_job_options *options, const spry_exchange *exchange);

/* Submits a job; then waits for it. SPRY_ERR_CANCELLED: the client has disconnected, or --answer-timeout has passed.
 * Waiting is charged to the request: until the first of its jobs began as queueing, the rest as prefill. */
spry_status spry_job_begin(spry_job *job, const spry_costs *costs, spry_error *error);
spry_status spry_job_finish(spry_job *job, spry_costs *costs, spry_error *error);

/* ---- answer_spans.c: answers as fragments ------------------------------------------------------------------------ */

/* After an answer is complete its text is computed once more, alone, as a fragment is, so that the next request that
 * contains it as one finds it, at any position. It is computed again because a fragment must not
 * depend on the text before it; it runs as batch jobs, which give way to all requests, on a thread that waits
 * for them. */

typedef struct spry_answer_spans spry_answer_spans;

spry_status spry_answer_spans_create(spry_answer_spans **out, spry_model_pool *pool, spry_error *error);
/* Drops texts that still wait. */
void spry_answer_spans_destroy(spry_answer_spans *spans);

/* Makes a text known as a fragment of a model that the caller holds, under the key's salt. Returns at once; when too
 * many wait, or memory is short, the text is not made known. */
void spry_answer_spans_add(spry_answer_spans *spans, const spry_pooled *model, spry_view key, spry_view text);

#endif
