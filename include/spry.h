/* spry: a local language-model engine. This is the only public header.
 *
 * An *engine* is one model, loaded once, with its KV memory. A *session* is one conversation on it: the caller hands
 * over the whole token prefix each time and the session decides what it can reuse. Functions that can fail return a
 * spry_status and, when `error` is not NULL, leave one sentence there. The library never prints and never exits. */
#ifndef SPRY_H
#define SPRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SPRY_API __attribute__((visibility("default")))
#else
#define SPRY_API
#endif

/* ---- status ---------------------------------------------------------------------------------------------------- */

typedef enum spry_status {
    SPRY_OK = 0,
    SPRY_ERR_INPUT,       /* an argument, option or prompt is wrong */
    SPRY_ERR_FILE,        /* a file cannot be opened, read or written */
    SPRY_ERR_FORMAT,      /* a file is corrupt, or not what it claims to be */
    SPRY_ERR_UNSUPPORTED, /* well formed, but nothing this version knows */
    SPRY_ERR_MEMORY,      /* not enough memory */
    SPRY_ERR_CONTEXT,     /* the tokens do not fit the context */
    SPRY_ERR_CANCELLED,   /* the caller asked to stop */
} spry_status;

enum { SPRY_ERROR_MAX = 512 };

typedef struct spry_error {
    spry_status status;
    char message[SPRY_ERROR_MAX]; /* one sentence, no newline */
} spry_error;

SPRY_API const char *spry_status_name(spry_status status);
SPRY_API const char *spry_version(void);

/* ---- engine ---------------------------------------------------------------------------------------------------- */

typedef struct spry_engine spry_engine;
typedef struct spry_session spry_session;

/* Severity of a log sentence. */
enum { SPRY_LOG_DEBUG, SPRY_LOG_INFO, SPRY_LOG_WARN };

typedef struct spry_engine_options {
    uint32_t context;    /* tokens a session can hold; 0: the model's own limit, at most 8192 */
    uint32_t sessions;   /* sessions that can be full at once; at least 1 */
    uint32_t chunk;      /* rows of a prefill step */
    uint32_t threads;    /* 0: every processor this process may use */
    const char *kv_type; /* "f16", "q8_0" or "f32" */
    const char *cpu;     /* "auto", or the name of a kernel set: "ref" */
    /* NULL, or a type as `spry convert` takes it ("q4_k_m"): float matrices are quantised to it while the model is
     * opened, exactly as if it had been converted first. */
    const char *quantize;
    void (*log)(void *user, int level, const char *sentence); /* NULL: silence */
    void *log_user;
} spry_engine_options;

SPRY_API void spry_engine_options_default(spry_engine_options *options);

/* Opens a .gguf file or a Hugging Face folder. */
SPRY_API spry_status spry_engine_open(spry_engine **out, const char *path, const spry_engine_options *options,
                                      spry_error *error);

/* Opens a GGUF file that lies in memory and stays there; `name` stands for its path in messages. */
SPRY_API spry_status spry_engine_open_memory(spry_engine **out, const void *data, size_t size, const char *name,
                                             const spry_engine_options *options, spry_error *error);

/* Every session must be gone. */
SPRY_API void spry_engine_close(spry_engine *engine);

typedef struct spry_engine_info {
    const char *architecture; /* what people call it: "Qwen3" */
    size_t vocabulary;
    size_t parameters;
    size_t context;            /* tokens a session can hold */
    size_t weight_bytes;       /* mapped */
    size_t copied_bytes;       /* of weights that had to be copied out of the mapping */
    size_t kv_bytes_per_token; /* layers x key/value heads x head size x 2 x type */
    size_t kv_bytes;           /* the whole pool */
    size_t scratch_bytes;      /* working memory of a step */
    uint32_t threads;
    const char *cpu; /* the kernel set in use */
} spry_engine_info;

SPRY_API void spry_engine_describe(const spry_engine *engine, spry_engine_info *info);

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* Ids of a text into `ids`. *count is how many there are, also when that passes `capacity` (then only so many are
 * written). `special`: spellings of control tokens become control tokens; never set it for what a user typed. */
SPRY_API spry_status spry_engine_tokenize(const spry_engine *engine, int32_t *ids, size_t capacity, size_t *count,
                                          const char *text, size_t size, bool special, spry_error *error);

/* The text of ids, zero-terminated when that fits; *size as above, in bytes without the zero. */
SPRY_API spry_status spry_engine_detokenize(const spry_engine *engine, char *text, size_t capacity, size_t *size,
                                            const int32_t *ids, size_t count, bool special, spry_error *error);

typedef struct spry_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} spry_message;

/* A conversation as the model's chat template writes it, as ids, ready for the model's answer. What the messages say
 * never becomes a control token. */
SPRY_API spry_status spry_engine_chat(const spry_engine *engine, int32_t *ids, size_t capacity, size_t *count,
                                      const spry_message *messages, size_t n_messages, spry_error *error);

/* ---- sampling -------------------------------------------------------------------------------------------------- */

typedef struct spry_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY bans */
} spry_logit_bias;

/* Applied in this order; docs/SAMPLING.md has the formulas. */
typedef struct spry_sampling {
    float repeat_penalty;        /* 1: off; divides positive logits of seen tokens, multiplies negative ones */
    float presence_penalty;      /* 0: off; subtracted once from seen tokens */
    float frequency_penalty;     /* 0: off; subtracted per occurrence */
    uint32_t penalty_window;     /* how many last tokens count as seen; 0: all */
    const spry_logit_bias *bias; /* borrowed */
    size_t n_bias;
    float temperature; /* 0: greedy, the first of the largest */
    uint32_t top_k;    /* 0: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    float typical_p;   /* 1: off */
    uint64_t seed;     /* the same seed gives the same stream on every platform */
} spry_sampling;

SPRY_API void spry_sampling_default(spry_sampling *settings);

/* ---- session --------------------------------------------------------------------------------------------------- */

SPRY_API spry_status spry_session_create(spry_session **out, spry_engine *engine, spry_error *error);
SPRY_API void spry_session_destroy(spry_session *session);

/* Makes the session hold exactly `ids`, computing only what it does not hold yet, and gives the logits after the last
 * one (vocabulary floats, valid until the next call on any session of the engine). */
SPRY_API spry_status spry_session_eval(spry_session *session, const float **logits, const int32_t *ids, size_t count,
                                       spry_error *error);

/* The same, with the logits after every id, handed to `row` one at a time in order. Computes everything anew. */
SPRY_API spry_status spry_session_eval_rows(spry_session *session, const int32_t *ids, size_t count,
                                            bool (*row)(void *user, size_t index, const float *logits), void *user,
                                            spry_error *error);

/* The same, with the logits after every id from number `first` on. What the session holds of the ids before that is
 * reused, so a long text can be gone through in parts. */
SPRY_API spry_status spry_session_eval_from(spry_session *session, const int32_t *ids, size_t count, size_t first,
                                            bool (*row)(void *user, size_t index, const float *logits), void *user,
                                            spry_error *error);

/* What it holds now: prompt and answer. */
SPRY_API const int32_t *spry_session_tokens(const spry_session *session, size_t *count);

typedef struct spry_logprob_entry {
    int32_t id;
    double logprob; /* log softmax of the raw logits */
} spry_logprob_entry;

enum { SPRY_TOP_LOGPROBS_MAX = 20 };

typedef struct spry_request {
    const int32_t *prompt; /* the whole prefix, each time */
    size_t n_prompt;
    uint32_t max_tokens; /* 0: until the model ends or the context is full */
    spry_sampling sampling;
    const char *const *stop; /* strings that end the answer and are not part of it; valid UTF-8 */
    size_t n_stop;
    bool special;      /* control tokens appear in the text */
    bool ignore_end;   /* go on past the end token */
    uint32_t logprobs; /* alternatives on_token gets, at most SPRY_TOP_LOGPROBS_MAX */
    /* Whole characters as they become certain; false stops the answer. */
    bool (*on_text)(void *user, const char *text, size_t size);
    /* Every generated token, before its text; `top` is sorted. May be NULL; then logprobs are not computed. */
    bool (*on_token)(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top);
    /* How much of the prompt is done; false stops. May be NULL. */
    bool (*on_prefill)(void *user, size_t done, size_t total);
    void *user;
} spry_request;

typedef enum spry_finish {
    SPRY_FINISH_END,      /* the model ended its answer */
    SPRY_FINISH_STOP,     /* a stop string */
    SPRY_FINISH_LENGTH,   /* max_tokens */
    SPRY_FINISH_CONTEXT,  /* the context is full */
    SPRY_FINISH_CANCELLED /* a callback said so, or spry_session_cancel */
} spry_finish;

typedef struct spry_result {
    spry_finish finish;
    size_t prompt_tokens, reused_tokens, generated_tokens;
    double prefill_ms, first_step_ms, decode_ms, total_ms; /* first token out at prefill_ms + first_step_ms */
} spry_result;

SPRY_API void spry_request_default(spry_request *request);

/* Answers. Cancelling is not an error: it is a way to finish. */
SPRY_API spry_status spry_session_generate(spry_session *session, spry_result *result, const spry_request *request,
                                           spry_error *error);

/* Ends the generation in progress at its next step. Safe from a signal handler and from other threads. */
SPRY_API void spry_session_cancel(spry_session *session);

SPRY_API const char *spry_finish_name(spry_finish finish); /* "end", "stop", "length", "context", "cancelled" */

#ifdef __cplusplus
}
#endif
#endif
