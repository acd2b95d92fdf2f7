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
    SPRY_ERR_BUSY,        /* not now: too much is waiting, or somebody uses it */
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
    uint32_t context;        /* tokens a session can hold; 0: the model's own limit, at most 8192 */
    uint32_t sessions;       /* sessions that can be full at once; at least 1 */
    uint32_t chunk;          /* rows of a prefill step */
    uint32_t threads;        /* 0: every processor this process may use */
    const char *kv_type;     /* "f16", "q8_0" or "f32" */
    size_t kv_bytes;         /* of KV memory: sessions, and what is kept of them; 0: by the machine's memory */
    size_t cache_bytes;      /* of it, at most, what is known to everybody; what is in use stays all the same; 0: all */
    uint32_t cache_ttl;      /* seconds after which what was not used goes; 0: never */
    const char *cache_dir;   /* NULL, or a folder where pages outlive the process */
    size_t cache_disk_bytes; /* of that folder; 0: no limit */
    const char *cpu;         /* "auto", or the name of a kernel set: "ref" */
    /* NULL, or a type as `spry convert` takes it ("q4_k_m"): float matrices are quantised to it while the model is
     * opened, exactly as if it had been converted first. */
    const char *quantize;
    const char *chat_template; /* NULL: the model's own; a file, or a template where it has a tag in it */
    /* What spry_engine_open_memory is given is a file, mapped and only read, or constants of a program: pages of it may
     * be given back to the system, as they come back from the file when somebody reads them. */
    bool data_is_mapped;
    struct spry_trace *trace; /* NULL, or where steps and answers are written to; it outlives the engine */
    void (*log)(void *user, int level, const char *sentence); /* NULL: silence */
    void *log_user;
} spry_engine_options;

SPRY_API void spry_engine_options_default(spry_engine_options *options);

/* Opens a .gguf file or a Hugging Face folder. */
SPRY_API spry_status spry_engine_open(spry_engine **out, const char *path, const spry_engine_options *options,
                                      spry_error *error);

/* Opens a GGUF file that lies in memory and stays there, unchanged; `name` stands for its path in messages. */
SPRY_API spry_status spry_engine_open_memory(spry_engine **out, const void *data, size_t size, const char *name,
                                             const spry_engine_options *options, spry_error *error);

/* Every session must be gone. */
SPRY_API void spry_engine_close(spry_engine *engine);

typedef struct spry_engine_info {
    const char *architecture; /* what people call it: "Qwen3" */
    size_t vocabulary;
    size_t embedding; /* numbers of one */
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

/* What became of KV memory since the engine was opened; "now" where a figure is of this moment. */
typedef struct spry_kv_figures {
    size_t page_bytes, page_tokens, pages;       /* the pool */
    size_t free_pages, cached_pages, idle_pages; /* now: free; known by content; of those, held by nobody else */
    size_t pinned_pages;                         /* now */
    uint64_t lookups, hit_tokens, miss_tokens;   /* prompts; their tokens */
    uint64_t restored_tokens, span_tokens, repaired_tokens;
    uint64_t inserted_pages, evicted_pages, expired_pages;
    uint64_t disk_bytes, disk_files; /* now, in the folder */
    uint64_t disk_stored_pages, disk_loaded_pages, disk_bad_pages, disk_skipped_pages, disk_removed_pages;
} spry_kv_figures;

SPRY_API void spry_engine_kv_figures(spry_engine *engine, spry_kv_figures *figures);

/* Lets a smaller model with the same vocabulary guess ahead; NULL: nobody any more. Borrowed until then or until the
 * engine is closed, with its threads given up: it works with the engine's. */
SPRY_API spry_status spry_engine_set_drafter(spry_engine *engine, spry_engine *drafter, spry_error *error);

/* ---- where the time goes --------------------------------------------------------------------------------------- */

/* A file of Chrome trace events (ui.perfetto.dev opens it) for any number of engines; `ops`: every op of every step,
 * too. Closing says what could not be written; the file holds whole events all the same. */
typedef struct spry_trace spry_trace;

SPRY_API spry_status spry_trace_open(spry_trace **out, const char *path, bool ops, spry_error *error);
SPRY_API spry_status spry_trace_close(spry_trace *trace, spry_error *error);

/* What the time of a request goes to. Parts follow each other without a gap: they add up to the whole. */
typedef enum spry_part {
    SPRY_PART_READ,       /* of the request itself, before anything is done with it */
    SPRY_PART_TEMPLATE,   /* messages to text */
    SPRY_PART_TOKENIZE,   /* text to ids */
    SPRY_PART_QUEUE,      /* until its turn came */
    SPRY_PART_LOOKUP,     /* finding what was computed before */
    SPRY_PART_RESTORE,    /* reading it from disk */
    SPRY_PART_PREFILL,    /* computing the prompt */
    SPRY_PART_DRAFT,      /* guessing ahead, and putting a step together */
    SPRY_PART_DECODE,     /* computing the answer */
    SPRY_PART_SAMPLING,   /* logits to a token */
    SPRY_PART_GRAMMAR,    /* compiling, masks, following */
    SPRY_PART_DETOKENIZE, /* ids to text, stop strings */
    SPRY_PART_WRITE,      /* handing the text out */
    SPRY_PART_OTHERS,     /* between steps, and while others of the same step were served */
    SPRY_PART_COUNT
} spry_part;

SPRY_API const char *spry_part_name(spry_part part); /* "prefill" */

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

/* The same from the text of a JSON object: "messages" as OpenAI's interface has them, and where wanted "tools",
 * "chat_template_kwargs" (variables for the template) and "add_generation_prompt" (true unless said otherwise). */
SPRY_API spry_status spry_engine_chat_json(const spry_engine *engine, int32_t *ids, size_t capacity, size_t *count,
                                           const char *json, size_t size, spry_error *error);

/* A fragment of a prompt, tokens [begin, end), that is computed once and used wherever it stands: a document, a list of
 * tools. What stands before it is not known to it but for its first tokens, which are computed again in place. */
typedef struct spry_span {
    size_t begin, end;
} spry_span;

#define SPRY_REPAIR_ALL SIZE_MAX /* fragments are computed like any text */

/* The same, with the fragments that parts of a message's content declare: {"type": "text", "text": "...", "cache":
 * "span"}. *n_spans is how many there are, of which span_capacity are written. */
SPRY_API spry_status spry_engine_chat_spans(const spry_engine *engine, int32_t *ids, size_t capacity, size_t *count,
                                            spry_span *spans, size_t span_capacity, size_t *n_spans, const char *json,
                                            size_t size, spry_error *error);

/* What the template makes of that JSON, as text; *size as in spry_engine_detokenize. */
SPRY_API spry_status spry_engine_chat_text(const spry_engine *engine, char *text, size_t capacity, size_t *size,
                                           const char *json, size_t json_size, spry_error *error);

/* The source of the template that writes conversations, or those with tools. */
SPRY_API const char *spry_engine_chat_template(const spry_engine *engine, bool tools, size_t *size);

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

/* Sessions with different salts never share what they computed; at first it is empty. Forgets what the session holds.
 */
SPRY_API void spry_session_set_salt(spry_session *session, const void *salt, size_t size);

/* When the context is full: `slide` off, an error (at first); on, the oldest tokens after the first `keep` go, by whole
 * pages, and the conversation goes on. */
SPRY_API void spry_session_set_slide(spry_session *session, bool slide, size_t keep);

/* Keeps what the session holds now in memory, for all sessions, or no longer so; returns how many tokens that are. */
SPRY_API size_t spry_session_pin(spry_session *session, bool pin);

/* Makes the session hold exactly `ids`, computing only what it does not hold yet, and gives the logits after the last
 * one (vocabulary floats, valid until the next call on any session of the engine). */
SPRY_API spry_status spry_session_eval(spry_session *session, const float **logits, const int32_t *ids, size_t count,
                                       spry_error *error);

/* The same with fragments in the prompt, in ascending order. `repair`: how many tokens of each are computed in place,
 * rounded up to whole pages. */
SPRY_API spry_status spry_session_eval_spans(spry_session *session, const float **logits, const int32_t *ids,
                                             size_t count, const spry_span *spans, size_t n_spans, size_t repair,
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

/* One vector for a whole text, to compare it with others: the mean of the hidden states after every id behind the final
 * norm, scaled to length 1. Writes spry_engine_info.embedding floats. The session holds `ids` then. */
SPRY_API spry_status spry_session_embed(spry_session *session, float *out, const int32_t *ids, size_t count,
                                        spry_error *error);

/* What it holds now: prompt and answer. */
SPRY_API const int32_t *spry_session_tokens(const spry_session *session, size_t *count);

typedef struct spry_logprob_entry {
    int32_t id;
    double logprob; /* log softmax of the raw logits */
} spry_logprob_entry;

enum { SPRY_TOP_LOGPROBS_MAX = 20 };

/* What an answer must look like. */
typedef enum spry_constraint {
    SPRY_ANY_TEXT,
    SPRY_GBNF,        /* a grammar, as llama.cpp writes them */
    SPRY_JSON_SCHEMA, /* the text of one */
    SPRY_REGEX,       /* over the whole answer */
    SPRY_CHOICE,      /* one of the strings in a JSON array */
    SPRY_JSON_OBJECT  /* any; there is no text to it */
} spry_constraint;

/* Who guesses ahead; the tokens of an answer do not depend on it, its speed does. */
typedef enum spry_speculation {
    SPRY_DRAFT_AUTO,   /* the drafter, where the engine has one, or lookup, as long as it pays */
    SPRY_DRAFT_NONE,   /* nobody */
    SPRY_DRAFT_LOOKUP, /* what followed the last time these words were said */
    SPRY_DRAFT_MODEL   /* the drafter; an error without one */
} spry_speculation;

typedef struct spry_request {
    const int32_t *prompt; /* the whole prefix, each time */
    size_t n_prompt;
    const spry_span *spans; /* of the prompt, ascending */
    size_t n_spans;
    size_t span_repair;  /* tokens of each that are computed in place; a page when not set */
    uint32_t max_tokens; /* 0: until the model ends or the context is full */
    spry_sampling sampling;
    const char *const *stop; /* strings that end the answer and are not part of it; valid UTF-8 */
    size_t n_stop;
    spry_constraint constraint;
    const char *constraint_text;
    spry_speculation speculation;
    uint32_t draft_most; /* tokens guessed at once, at most; 0: as many as pay */
    bool special;        /* control tokens appear in the text */
    bool ignore_end;     /* go on past the end token */
    uint32_t logprobs;   /* alternatives on_token gets, at most SPRY_TOP_LOGPROBS_MAX */
    /* Whole characters as they become certain; false stops the answer. */
    bool (*on_text)(void *user, const char *text, size_t size);
    /* Every generated token, before its text; `top` is sorted. May be NULL; then logprobs are not computed. */
    bool (*on_token)(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top);
    /* How much of the prompt is done; false stops. May be NULL. */
    bool (*on_prefill)(void *user, size_t done, size_t total);
    void *user;
    uint32_t lane; /* of the engine's trace; 0: one of its own */
} spry_request;

typedef enum spry_finish {
    SPRY_FINISH_END,      /* the model ended its answer */
    SPRY_FINISH_STOP,     /* a stop string */
    SPRY_FINISH_LENGTH,   /* max_tokens */
    SPRY_FINISH_CONTEXT,  /* the context is full */
    SPRY_FINISH_CANCELLED /* a callback said so, or spry_session_cancel */
} spry_finish;

enum { SPRY_DRAFT_MOST = 16 }; /* tokens guessed for a step */

/* What guessing ahead came to in an answer. */
typedef struct spry_draft_report {
    size_t steps, drafted, accepted;
    size_t tried_at[SPRY_DRAFT_MOST], accepted_at[SPRY_DRAFT_MOST]; /* by place, where all before were accepted */
    size_t lengths[SPRY_DRAFT_MOST + 1];                            /* steps by tokens guessed */
    uint32_t refused_p50, refused_p95;                              /* tokens taken back by steps that guessed */
    double tokens_per_step, speedup;                                /* against no guessing, estimated */
} spry_draft_report;

typedef struct spry_result {
    spry_finish finish;
    spry_draft_report drafts;
    size_t prompt_tokens, generated_tokens;
    size_t reused_tokens;                                  /* of the prompt: not computed now */
    size_t restored_tokens, span_tokens, repaired_tokens;  /* from disk; in fragments, as they were, and repaired */
    double lookup_ms, restore_ms;                          /* parts of prefill_ms */
    double prefill_ms, first_step_ms, decode_ms, total_ms; /* first token out at prefill_ms + first_step_ms */
    double parts_ms[SPRY_PART_COUNT];                      /* of the whole */
    double first_parts_ms[SPRY_PART_COUNT];                /* until the first token was out */
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
