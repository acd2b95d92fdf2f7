/* One request to a model, from its prompt to the last byte of the reply, whatever interface it came through. The
 * interface fills in what is asked for and says how answers are written; the rest happens here.
 *
 *   create -> (fields, prompt) -> serve
 *
 * The scheduler's thread posts text and tokens to the channel. The connection's thread takes them out, finds thoughts
 * and calls of tools in them, and has the form write them: as they come, or once all is there. */
#ifndef SPRY_SERVER_COMPLETION_H
#define SPRY_SERVER_COMPLETION_H

#include <jansson.h>

#include "run/answer.h"
#include "server/request/channel.h"
#include "server/request/request_costs.h"
#include "template/tool_calls.h"

enum { SPRY_BIAS_MAX = 1024, SPRY_CHOICES_MAX = 16, SPRY_ANSWERS_MAX = 128 };

typedef struct spry_completion spry_completion;

/* One answer. */
typedef struct spry_choice {
    spry_completion *owner;
    uint32_t index;
    const spry_tokens *prompt;
    spry_job job;
    spry_request_status status;
    spry_answer_parser *parser; /* NULL: the text is the content */
    bool submitted, done, closed;

    /* the scheduler's thread writes these until the answer is over */
    uint64_t last_ns; /* when text came */
    uint64_t done_ns; /* when it was over */
    spry_histogram gaps;
    bool overflow; /* its reader is too slow */

    spry_buffer said; /* as the model said it, with keep_text */
    /* what came, where it is not streamed */
    spry_buffer content, reasoning;
    json_t *calls;         /* {"id", "name", "arguments": text} */
    spry_buffer arguments; /* of the call that has begun and not ended */
    size_t n_calls;
    spry_answer_token *tokens; /* with their probabilities, when asked for */
    size_t n_tokens, tokens_capacity;
    size_t n_told; /* of the tokens, in the stream so far */
} spry_choice;

/* What a reply looks like. All but `whole` append to completion->out. */
typedef struct spry_answer_form {
    const char *stream_type;
    void (*open)(spry_completion *completion); /* may be NULL, like `close` */
    void (*delta)(spry_completion *completion, spry_choice *choice, const spry_answer_event *event);
    void (*close_choice)(spry_completion *completion, spry_choice *choice, bool last);
    void (*close)(spry_completion *completion);
    json_t *(*whole)(spry_completion *completion);
} spry_answer_form;

struct spry_completion {
    spry_exchange *exchange;
    const spry_pooled *model;
    const spry_answer_form *form;
    json_t *root; /* the request; strings are borrowed from it */

    /* what is asked for */
    spry_request request; /* of every answer, but for its seed */
    spry_tokens prompts[SPRY_ANSWERS_MAX];
    spry_span *spans; /* of the only prompt */
    size_t n_spans;
    const char *stops[SPRY_STOPS_MAX];
    spry_logit_bias bias[SPRY_BIAS_MAX];
    char *constraint_text;
    uint32_t n_prompts, n_each;                        /* prompts; answers to each */
    bool stream, include_usage, want_logprobs, silent; /* silent: nothing is to be generated */
    bool keep_text;                                    /* fill choice->said */
    bool look_for_tools, look_for_thoughts;
    json_t *tools;                /* borrowed */
    char *call_open, *call_close; /* a call that was begun for the model; NULL: none */
    bool echo;
    void *extra; /* the interface's own */
    void (*free_extra)(void *extra);

    /* what became of it */
    spry_choice *choices; /* n of them: answers to the first prompt, then to the second, ... */
    uint32_t n;
    spry_channel channel;
    bool has_channel, gone, ended;
    atomic_uint open;  /* jobs that the scheduler has, and one while they are handed over */
    spry_buffer out;   /* of the stream, not written yet */
    spry_buffer taken; /* records being read */
    spry_error error;  /* of the first answer that failed */
    int64_t created;   /* seconds since 1970 */
    char id[48];
    spry_costs costs;
    spry_laps before; /* its laps when its jobs were handed over */
    bool stopped;     /* the last answer is over */
};

/* Takes `root`. Loads the model, if need be. NULL when a reply was given instead. */
spry_completion *spry_completion_create(spry_exchange *exchange, json_t *root, const char *model,
                                        const spry_answer_form *form, const char *id_prefix);

/* Without serving it. */
void spry_completion_destroy(spry_completion *completion);

/* Replies, and destroys the completion when the reply is over. */
void spry_completion_serve(spry_completion *completion);

/* The model a request names, loaded; NULL when a reply was given instead. */
const spry_pooled *spry_completion_model(spry_exchange *exchange, const char *name);

/* The reply when the pool refused a model; `name` NULL: none was named. */
void spry_completion_refuse_model(spry_exchange *exchange, const char *name, const spry_error *error);

/* ---- for those who write replies --------------------------------------------------------------------------------- */

/* "data: {...}" and a blank line; takes the reference. */
void spry_completion_event(spry_completion *completion, json_t *json);
/* {...} and a newline. */
void spry_completion_line(spry_completion *completion, json_t *json);

/* Every millisecond of the request, and its tokens. */
json_t *spry_completion_timings(const spry_completion *completion);

typedef struct spry_usage_counts {
    size_t prompt, cached, generated, drafted, accepted, span, repaired;
} spry_usage_counts;

void spry_completion_count(const spry_completion *completion, spry_usage_counts *counts);

/* Adds to what the answer has so far, as is done where nothing is streamed. */
void spry_choice_keep(spry_choice *choice, const spry_answer_event *event);

/* "stop", "length" or "tool_calls". */
const char *spry_choice_finish(const spry_choice *choice);

json_t *spry_buffer_json(const spry_buffer *text); /* as a string */
json_t *spry_view_json(spry_view text);

#endif
