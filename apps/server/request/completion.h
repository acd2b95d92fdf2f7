/* One request for answers, from the fields of its body to the last byte of its reply, for every interface. The phases,
 * in the order of spry_completion_serve, and the members each of them fills:
 *
 *   read     the interface reads its fields                                       options
 *   prompt   the model is loaded; templates and tokenizer make the prompts        model, prompts
 *   submit   every answer becomes a job of the model's scheduler                  choices, jobs
 *   collect  the scheduler's thread posts text and tokens to a channel; the       choices
 *            connection's thread parses them and adds them to the choices, or
 *   stream   has the interface write them to the reply at once                    reply
 *   report   counters, timings and energy                                         costs
 *   done     jobs are cancelled and waited for, and everything is freed
 *
 * Only `choices[].progress` and `jobs.n_open` are written by the scheduler's thread. */
#ifndef SPRY_SERVER_COMPLETION_H
#define SPRY_SERVER_COMPLETION_H

#include "run/answer.h"
#include "server/request/channel.h"
#include "server/request/completion_options.h"
#include "server/request/request_costs.h"
#include "spry_serve.h"

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
    spry_request_status status; /* as the registry shows it */
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
    bool has_newline;     /* in its text */
    spry_buffer raw_text; /* with options.keep_raw_text */
    spry_buffer content, reasoning;
    spry_buffer arguments; /* of the tool call that has begun and not ended */
    json_t *calls;         /* {"id", "name", "arguments": text} */
    size_t n_calls;        /* that are complete */
    struct {
        uint64_t ns; /* 0: no call is complete */
        size_t tokens;
    } place, first_call;       /* of the text being read; when and with how many tokens the first call was complete */
    spry_answer_token *tokens; /* with options.want_logprobs */
    size_t n_tokens, tokens_capacity;

    /* stream */
    size_t progress_cached, progress_done, progress_total; /* tokens of the prompt, with options.want_progress */
    size_t n_written;                                      /* tokens whose log probabilities are in the stream */
} spry_choice;

/* What the interfaces (OpenAI, Ollama, llama-server) do differently. */
typedef struct spry_completion_interface {
    const char *id_prefix; /* of the completion's id */
    void (*read)(spry_completion_options *options, spry_fields *fields);
    spry_status (*make_prompts)(spry_completion *completion, spry_fields *fields, spry_error *error);

    /* Without "stream": the reply. */
    json_t *(*whole)(spry_completion *completion);

    /* With "stream": these append to completion->reply.out. `open` and `close` may be NULL. */
    const char *stream_type;
    void (*open)(spry_completion *completion);
    void (*delta)(spry_completion *completion, spry_choice *choice, const spry_chat_event *event);
    bool ordered; /* `delta` gets the events of replies that are not streamed, too, and keeps them in their order */
    void (*progress)(spry_completion *completion, spry_choice *choice); /* NULL: not reported */
    void (*close_choice)(spry_completion *completion, spry_choice *choice, bool last);
    void (*close)(spry_completion *completion);
    void (*fail)(spry_completion *completion, unsigned status, const char *sentence); /* NULL: the route's form */
} spry_completion_interface;

struct spry_completion {
    spry_exchange *exchange;
    const spry_completion_interface *interface;
    char id[48];
    int64_t created;        /* seconds since 1970 */
    json_t *root;           /* the body */
    json_t *derived;        /* the description of the model it names; NULL: it is not derived from another */
    const json_t *template; /* of that description; NULL: the model's own */

    spry_completion_options options;

    const spry_pooled *model;
    struct {
        spry_tokens ids[SPRY_ANSWERS_MAX];
        uint32_t count;
        const json_t *begun; /* text with which the answer begins; NULL: none */
        spry_span *spans;    /* of the only prompt */
        size_t n_spans;
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
        spry_error error;     /* of the first answer that failed; status SPRY_OK: none */
        bool disconnected;    /* the client has left */
    } jobs;

    struct {
        spry_buffer out;        /* bytes of the stream that are not written yet */
        bool ended;             /* `out` has the end of the stream */
        spry_kept_stream *kept; /* takes the bytes of `out`; NULL: they go to the connection */
        size_t position;        /* in `kept`, of the connection */
        bool detached;          /* the answer goes on without the connection */
    } reply;

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

typedef struct spry_usage_counts {
    size_t prompt, cached, generated, drafted, accepted, span, repaired, dropped;
} spry_usage_counts;

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

#endif
