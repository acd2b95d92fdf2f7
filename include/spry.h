/* spry: a local language-model engine. The public header; docs/API.md shows how to use it.
 *
 * An *engine* is one model, loaded once, with its KV memory. A *session* is one conversation on it: the caller passes
 * the whole token prefix each time, and the session reuses what it has computed before. Functions that can fail return
 * a spry_status and, when `error` is not NULL, write one sentence there. The library never prints and never exits.
 *
 * Structs grow without breaking programs:
 * - A struct that the caller fills begins with `size`, which its *_default macro sets: a call of *_default_sized with
 *   the size that the program was compiled with. It writes that many bytes, never more. The library accepts the smaller
 *   struct of an older program (fields it does not have get their defaults) and the larger struct of a newer one if all
 *   bytes that this library does not know are zero; anything else is SPRY_ERR_INPUT.
 * - A struct that the library fills, or that is inside another struct, keeps its size: new fields use its `reserved`
 *   bytes. The caller leaves `reserved` zero; the library zeroes what it does not use.
 * - Elements of arrays (spry_message, spry_span, spry_logit_bias, spry_logprob_entry) never change. New members of an
 *   enum get new values; programs must expect values they do not know.
 *
 * Threads: each section says which of its functions may be called at the same time. "Any thread" means from any
 * thread at any time between the open or create and the close or destroy of the object. */
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

#define SPRY_VERSION_MAJOR  0
#define SPRY_VERSION_MINOR  1
#define SPRY_VERSION_PATCH  0
#define SPRY_VERSION_NUMBER (SPRY_VERSION_MAJOR * 10000 + SPRY_VERSION_MINOR * 100 + SPRY_VERSION_PATCH)

/* ---- status ---------------------------------------------------------------------------------------------------- */

typedef enum spry_status {
    SPRY_OK = 0,
    SPRY_ERR_INPUT = 1,       /* an argument, option or prompt is wrong */
    SPRY_ERR_FILE = 2,        /* a file cannot be opened, read or written */
    SPRY_ERR_FORMAT = 3,      /* a file is corrupt, or not what it claims to be */
    SPRY_ERR_UNSUPPORTED = 4, /* well formed, but not known to this version */
    SPRY_ERR_MEMORY = 5,      /* not enough memory */
    SPRY_ERR_CONTEXT = 6,     /* the tokens do not fit the context */
    SPRY_ERR_CANCELLED = 7,   /* the caller asked to stop */
    SPRY_ERR_BUSY = 8,        /* not now: in use, or too many requests wait */
    SPRY_ERR_DEVICE = 9,      /* the hardware failed, or is not there */
} spry_status;

enum { SPRY_ERROR_MAX = 512 };

typedef struct spry_error {
    spry_status status;
    char message[SPRY_ERROR_MAX]; /* one sentence, no newline */
} spry_error;

SPRY_API const char *spry_status_name(spry_status status); /* "input". Any thread; also the next two. */
SPRY_API const char *spry_version(void);                   /* version of the library: "0.1.0" */
SPRY_API uint32_t spry_version_number(void);               /* the SPRY_VERSION_NUMBER the library was built with */
SPRY_API void spry_free(void *memory); /* texts and arrays that the library gave to the caller: any thread */

/* ---- engine ---------------------------------------------------------------------------------------------------- */
/* Engines are independent. Functions of an open engine: any thread; spry_engine_close: one, while no other uses it. */

typedef struct spry_engine spry_engine;
typedef struct spry_session spry_session;

enum { SPRY_LOG_DEBUG = 0, SPRY_LOG_INFO = 1, SPRY_LOG_WARN = 2 }; /* severity of a log sentence */

typedef struct spry_engine_options {
    size_t size;             /* set by spry_engine_options_default */
    uint32_t context;        /* tokens a session can hold; 0: the model's own limit, or what fits the memory */
    uint32_t sessions;       /* sessions that can be full at once; at least 1 */
    uint32_t chunk;          /* maximum rows of a prefill step; 0: a whole prompt in one step */
    uint32_t threads;        /* 0: one for every processor this process may use */
    const char *kv_type;     /* "f16", "q8_0", "q4_0", "f32", or "auto": the first of these of which a session fits */
    size_t kv_bytes;         /* limit for KV memory with cached pages; 0: depends on the machine's memory */
    size_t cache_bytes;      /* limit for shared cached pages; pages in use are never evicted; 0: no limit */
    const char *cache_dir;   /* NULL, or a folder where cached pages survive the process */
    size_t cache_disk_bytes; /* limit for that folder; 0: no limit */
    uint32_t cache_ttl;      /* seconds after which unused cached pages expire; 0: never */
    bool data_is_mapped;     /* spry_engine_open_memory's memory is mapped or constant: its pages can be dropped */
    const char *device; /* the device that computes: "cpu", "cuda:0", "vulkan:0", or "auto": the GPU if there is one */
    const char *cpu;    /* "auto", or the name of a kernel set: "ref" */
    const char *quantize;      /* NULL, or the type float matrices become, as by `spry convert`; "auto": q8_0 */
    const char *chat_template; /* NULL: the model's own; a file name, or the text of a template */
    struct spry_trace *trace;  /* NULL, or the trace of steps and answers; it must outlive the engine */
    void (*log)(void *user, int level, const char *sentence); /* NULL: no log. Called on any thread of the engine */
    void *log_user;
    uint32_t kv_idle, kv_idle_share; /* seconds until idle KV memory returns, 0: never; percent kept: docs/KV.md */
    const char *lora;                /* NULL, or LoRA adapters beside the model: "PATH,PATH=SCALE", docs/MODELS.md */
    uint32_t span_pages;     /* undeclared text is reused if it has this many cached pages; 0: never. docs/SPANS.md */
    size_t expert_bytes;     /* limit for experts in memory; others stay in mapped files; 0: all, or what fits */
    const char *gpu_layers;  /* layers on the device, counted from the last, others on the CPU: "12", "auto" */
    size_t cache_host_bytes; /* limit for a GPU's cached pages in host memory; 0: none; SIZE_MAX: by the memory */
    const char *mmproj;      /* a GGUF file with the vision tower; NULL: one beside the model, if any; "": none */
    size_t max_image_pixels; /* larger pictures are made smaller for the model; 0: 1 megapixel */
    const char *draft_head;  /* "head": the checkpoint's own head drafts; "auto": if it has one; NULL: it does not */
    size_t gpu_bytes;        /* limit for the memory of the GPU that is used; 0: what is free */
} spry_engine_options;

SPRY_API void spry_engine_options_default_sized(spry_engine_options *options, size_t size);
#define spry_engine_options_default(options) spry_engine_options_default_sized(options, sizeof(spry_engine_options))

/* Opens a .gguf file, a Hugging Face folder or a model by name (docs/API.md). `options` NULL: defaults. Any thread. */
SPRY_API spry_status spry_engine_open(spry_engine **out, const char *path, const spry_engine_options *options,
                                      spry_error *error);

/* Opens a GGUF file in memory, which must stay unchanged; `name` replaces its path in messages. Any thread. */
SPRY_API spry_status spry_engine_open_memory(spry_engine **out, const void *data, size_t size, const char *name,
                                             const spry_engine_options *options, spry_error *error);

/* Closes an engine. SPRY_ERR_BUSY, and it stays open: it has sessions or jobs, or this is one of its callbacks. */
SPRY_API spry_status spry_engine_close(spry_engine *engine);

SPRY_API spry_status spry_engine_warm_up(spry_engine *engine, spry_error *error); /* makes the first request fast */

typedef struct spry_engine_info {
    size_t size;                              /* its size without `reserved`; set by the library */
    const char *architecture;                 /* "Qwen3" */
    size_t vocabulary, embedding, parameters; /* embedding: floats in one embedding */
    size_t context;                           /* tokens a session can hold */
    size_t weight_bytes, copied_bytes;        /* bytes mapped; bytes of these that had to be copied */
    size_t kv_bytes_per_token;                /* layers x key/value heads x head size x 2 (keys, values) x type */
    size_t kv_bytes;                          /* limit for the whole pool of pages */
    size_t scratch_bytes;                     /* working memory of a step */
    const char *cpu;                          /* the kernel set in use */
    uint32_t threads, chunk;                  /* chunk: maximum rows of a prefill step */
    const char *device;                       /* the device: "cuda:0", "cpu+cuda:0, 12 of 28 layers on cuda:0" */
    uint64_t reserved[15];
} spry_engine_info;
SPRY_API void spry_engine_describe(const spry_engine *engine, spry_engine_info *info);

/* KV memory. "Now": at this moment; other figures count from the opening of the engine. */
typedef struct spry_kv_figures {
    size_t size;                                               /* as in spry_engine_info */
    size_t page_bytes, page_tokens, pages;                     /* the pool */
    size_t free_pages, cached_pages, idle_pages, pinned_pages; /* now: free; cached; of these not in use; pinned */
    uint64_t lookups, hit_tokens, miss_tokens;                 /* lookups of prompts; tokens found and not found */
    uint64_t restored_tokens, span_tokens, repaired_tokens, inserted_pages, evicted_pages, expired_pages;
    uint64_t disk_bytes, disk_files; /* now, in the cache folder */
    uint64_t disk_stored_pages, disk_loaded_pages, disk_bad_pages, disk_skipped_pages, disk_removed_pages;
    size_t held_pages; /* now: pages that occupy memory, including free ones not returned to the system */
    uint64_t host_bytes, host_pages, host_saved_pages,
        host_loaded_pages;                              /* a GPU's pages in host memory; first two now */
    uint64_t known_prompts, found_prompts, reserved[9]; /* first page was computed before; of these: still cached */
} spry_kv_figures;
SPRY_API void spry_engine_kv_figures(spry_engine *engine, spry_kv_figures *figures);

/* Lets a smaller model with the same vocabulary draft tokens for this one; NULL: ends that. The drafter is borrowed
 * until then or until the engine is closed; it ends its own threads and uses the engine's. */
SPRY_API spry_status spry_engine_set_drafter(spry_engine *engine, spry_engine *drafter, spry_error *error);

/* ---- where the time goes --------------------------------------------------------------------------------------- */

/* A file of Chrome trace events (for ui.perfetto.dev), for any number of engines; `ops`: with every op of every step.
 * Closing reports what could not be written; the events in the file are complete in any case. Any thread may open one;
 * one thread closes it, after its engines are closed. */
typedef struct spry_trace spry_trace;

SPRY_API spry_status spry_trace_open(spry_trace **out, const char *path, bool ops, spry_error *error);
SPRY_API spry_status spry_trace_close(spry_trace *trace, spry_error *error);
SPRY_API spry_trace *spry_engine_trace(const spry_engine *engine); /* from its options, or NULL. Any thread. */

/* What the time of a request is spent on. Parts follow each other without a gap and add up to the total. */
typedef enum spry_part {
    SPRY_PART_READ = 0,        /* receiving the request */
    SPRY_PART_TEMPLATE = 1,    /* messages to text */
    SPRY_PART_TOKENIZE = 2,    /* text to ids */
    SPRY_PART_QUEUE = 3,       /* waiting for its turn */
    SPRY_PART_LOOKUP = 4,      /* finding what is cached of the prompt */
    SPRY_PART_RESTORE = 5,     /* reading cached pages from disk */
    SPRY_PART_PREFILL = 6,     /* computing the prompt */
    SPRY_PART_DRAFT = 7,       /* drafting, and building steps */
    SPRY_PART_DECODE = 8,      /* computing the answer */
    SPRY_PART_SAMPLING = 9,    /* logits to a token */
    SPRY_PART_GRAMMAR = 10,    /* compiling the grammar, masks, matching tokens */
    SPRY_PART_DETOKENIZE = 11, /* ids to text, stop strings */
    SPRY_PART_WRITE = 12,      /* delivering the text */
    SPRY_PART_OTHERS = 13,     /* between steps, and other requests of the same step */
    SPRY_PART_PREPROCESS = 14, /* decoding and resizing pictures */
    SPRY_PART_ENCODE = 15,     /* the vision tower: pictures to rows of the prompt */
    SPRY_PART_COUNT = 16       /* number of parts in this header */
} spry_part;

enum { SPRY_PARTS_ROOM = 32 };                       /* length of arrays of parts: no version has more */
SPRY_API const char *spry_part_name(spry_part part); /* "prefill"; "unknown". Any thread. */

/* ---- text ------------------------------------------------------------------------------------------------------ */
/* Any thread, also while the engine computes. */

/* Writes the ids of a text to `ids`. *count becomes their number; if it exceeds `capacity`, only the first `capacity`
 * ids are written. `special`: spellings of control tokens become control tokens; never set it for a user's text. */
SPRY_API spry_status spry_engine_tokenize(const spry_engine *engine, int32_t *ids, size_t capacity, size_t *count,
                                          const char *text, size_t size, bool special, spry_error *error);

/* Writes the text of ids, zero-terminated if that fits; *size becomes its length without the zero, even if that exceeds
 * `capacity`. `special`: with control tokens. */
SPRY_API spry_status spry_engine_detokenize(const spry_engine *engine, char *text, size_t capacity, size_t *size,
                                            const int32_t *ids, size_t count, bool special, spry_error *error);

typedef struct spry_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} spry_message;

/* The ids of a conversation as the model's chat template writes it, ready for the model's answer. Text of messages
 * never becomes a control token. */
SPRY_API spry_status spry_engine_chat(const spry_engine *engine, int32_t *ids, size_t capacity, size_t *count,
                                      const spry_message *messages, size_t n_messages, spry_error *error);

/* A fragment of a prompt, tokens [begin, end), that is computed once and reused at any position: a document, a list of
 * tools. It is computed without the text before it; some of its pages are computed again in place. */
typedef struct spry_span {
    size_t begin, end;
} spry_span;

enum { SPRY_PAGE_TOKENS = 32 };              /* tokens of a KV page, the unit of reuse */
#define SPRY_REPAIR_ALL    SIZE_MAX          /* fragments are computed like other text, never reused */
#define SPRY_REPAIR_FIRST  ((size_t)1 << 30) /* + tokens: the first pages of each, instead of those that count most */
#define SPRY_REPAIR_SPREAD ((size_t)1 << 29) /* + tokens: pages spread over each */
#define SPRY_REPAIR_BOUND  ((size_t)1 << 28) /* + thousandths of a nat: as many as the expected divergence needs */

/* A prompt made from a conversation. */
typedef struct spry_chat_prompt {
    size_t size; /* as in spry_engine_info */
    int32_t *ids;
    size_t count;
    spry_span *spans; /* ascending */
    size_t n_spans;
    double template_ms, tokenize_ms; /* duration of its two parts */
    /* With tools: a SPRY_TOOL_CALLS constraint; "tool_choice" decides whether a call is required. */
    char *call_constraint;               /* NULL: no tools, or too many */
    char *reserved_texts[2];             /* NULL */
    struct spry_placed *pictures;        /* spry_pictures.h */
    uint64_t n_pictures, picture_tokens; /* picture_tokens: of `count`, those that are rows of pictures */
    double preprocess_ms, encode_ms;     /* before the template: duration of the pictures' parts */
    uint64_t reserved[3];
} spry_chat_prompt;

/* Makes a prompt of a conversation, a JSON object: "messages" as in OpenAI's API, and optionally "tools", "tool_choice",
 * "parallel_tool_calls", "chat_template" (not the model's), "chat_template_kwargs" (its variables), "continuation" (the
 * answer's beginning), "add_generation_prompt" (default true); or "prompt": parts, without a template. Parts can be
 * fragments: {"type": "text", "text": "...", "cache": "span"}. Always call spry_chat_prompt_deinit. */
SPRY_API spry_status spry_engine_chat_prompt(const spry_engine *engine, spry_chat_prompt *prompt, const char *json,
                                             size_t size, spry_error *error);
SPRY_API void spry_chat_prompt_deinit(spry_chat_prompt *prompt);

/* The text that the template makes from such JSON, *size bytes and a zero; the caller frees it with spry_free. */
SPRY_API spry_status spry_engine_chat_text(const spry_engine *engine, char **text, size_t *size, const char *json,
                                           size_t json_size, spry_error *error);

/* The source text of the chat template, or of the one for tools; valid as long as the engine. */
SPRY_API const char *spry_engine_chat_template(const spry_engine *engine, bool tools, size_t *size);

/* ---- sampling -------------------------------------------------------------------------------------------------- */

typedef struct spry_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY: never drawn */
} spry_logit_bias;

/* Settings apply in this order; docs/SAMPLING.md has the formulas. A part of spry_request: its size never changes. */
typedef struct spry_sampling {
    float repeat_penalty;        /* 1: off; divides positive logits of seen tokens, multiplies negative ones */
    float presence_penalty;      /* 0: off; subtracted once from seen tokens */
    float frequency_penalty;     /* 0: off; subtracted per occurrence */
    uint32_t penalty_window;     /* number of last tokens that count as seen; 0: all */
    const spry_logit_bias *bias; /* borrowed */
    size_t n_bias;
    float temperature;         /* 0: greedy: the first of the tokens with the largest logit */
    uint32_t top_k;            /* 0: off */
    float top_p;               /* 1: off */
    float min_p;               /* 0: off */
    float typical_p;           /* 1: off */
    uint64_t seed;             /* the same seed gives the same stream on every platform */
    const char *penalty_scope; /* tokens that penalties count: "generated" (or NULL); "all": also the prompt */
    uint64_t reserved[7];
} spry_sampling;
SPRY_API void spry_sampling_default(spry_sampling *settings); /* any thread */
/* Any thread. Overwrites `settings` with the model's recommendations (temperature, top-k, top-p, min-p, repeat
 * penalty); fields without a recommendation stay. */
SPRY_API void spry_engine_sampling(const spry_engine *engine, spry_sampling *settings);

/* ---- session --------------------------------------------------------------------------------------------------- */
/* Different sessions: any thread, also at the same time; their computations then share steps. One session: one call or
 * job at a time; during it other calls fail with SPRY_ERR_BUSY and change nothing, except spry_session_cancel and
 * spry_session_destroy. Callbacks run on the thread of the call; but while several threads compute on the engine, or it
 * has a thread of its own (see jobs), on one of those threads. */

SPRY_API spry_status spry_session_create(spry_session **out, spry_engine *engine, spry_error *error);
/* Cancels a call or job that uses the session and waits for its end. In a callback of the engine it does not wait: the
 * session is destroyed when the call or job ends. NULL is allowed. */
SPRY_API void spry_session_destroy(spry_session *session);

/* Sessions with different salts never share computed pages; the salt of a new session is empty. Empties the session. */
SPRY_API spry_status spry_session_set_salt(spry_session *session, const void *salt, size_t size);

/* What happens when the context is full. `slide` false (the default): an error. True: the oldest tokens after the first
 * `keep` are dropped, by whole pages, and the conversation continues. */
SPRY_API spry_status spry_session_set_slide(spry_session *session, bool slide, size_t keep);

/* Pins (or unpins) the session's current pages, which are then never evicted; *tokens: the tokens in them. */
SPRY_API spry_status spry_session_pin(spry_session *session, size_t *tokens, bool pin);

/* Makes the session hold exactly `ids`, computing only what it does not hold yet, and gives the logits after the last
 * one (vocabulary floats, valid until the next call on the session). */
SPRY_API spry_status spry_session_eval(spry_session *session, const float **logits, const int32_t *ids, size_t count,
                                       spry_error *error);

/* As spry_session_eval, with fragments in the prompt, in ascending order. `repair`: span_repair of spry_request. */
SPRY_API spry_status spry_session_eval_spans(spry_session *session, const float **logits, const int32_t *ids,
                                             size_t count, const spry_span *spans, size_t n_spans, size_t repair,
                                             spry_error *error);

/* As spry_session_eval, but calls `row` with the logits after every id in turn; false ends it. Uses no cached pages. */
SPRY_API spry_status spry_session_eval_rows(spry_session *session, const int32_t *ids, size_t count,
                                            bool (*row)(void *user, size_t index, const float *logits), void *user,
                                            spry_error *error);

/* As spry_session_eval_rows, from index `first` on. The ids before it that the session holds are not computed again, so
 * a long text can be evaluated in parts. */
SPRY_API spry_status spry_session_eval_from(spry_session *session, const int32_t *ids, size_t count, size_t first,
                                            bool (*row)(void *user, size_t index, const float *logits), void *user,
                                            spry_error *error);

/* The embedding of a text: the mean of the final hidden states of all ids (after the norm), scaled to length 1, unless
 * the model's settings differ. Writes spry_engine_info.embedding floats. Afterwards the session holds `ids`. */
SPRY_API spry_status spry_session_embed(spry_session *session, float *out, const int32_t *ids, size_t count,
                                        spry_error *error);

/* The tokens that the session holds, valid until its next call or job. NULL: a call or job uses it now. */
SPRY_API const int32_t *spry_session_tokens(const spry_session *session, size_t *count);

typedef struct spry_logprob_entry {
    int32_t id;
    double logprob; /* log softmax of the raw logits */
} spry_logprob_entry;

enum { SPRY_TOP_LOGPROBS_MAX = 20 };

/* The form that an answer must have. */
typedef enum spry_constraint {
    SPRY_ANY_TEXT = 0,
    SPRY_GBNF = 1,        /* a grammar in llama.cpp's notation */
    SPRY_JSON_SCHEMA = 2, /* the text of a schema */
    SPRY_REGEX = 3,       /* for the whole answer */
    SPRY_CHOICE = 4,      /* one of the strings in a JSON array */
    SPRY_JSON_OBJECT = 5, /* any object; there is no text */
    SPRY_TOOL_CALLS = 6   /* calls of tools in the model's own syntax: spry_chat_prompt.call_constraint */
} spry_constraint;

/* How an answer under SPRY_JSON_SCHEMA or SPRY_JSON_OBJECT is written. The first three allow less than the schema:
 * members in the schema's order, no undeclared ones unless additionalProperties or patternProperties are given,
 * integers as digits. */
typedef enum spry_json_style {
    SPRY_JSON_COMPACT = 0, /* at most one space after a colon or comma */
    SPRY_JSON_PRETTY = 1,  /* one line for each member and item */
    SPRY_JSON_FREE = 2,    /* whitespace between tokens as the model writes it, bounded */
    SPRY_JSON_ANY = 3,     /* every text that is valid against the schema */
    SPRY_JSON_LENIENT = 16 /* or-ed to a style: ignores, with a warning, what cannot be enforced */
} spry_json_style;

/* Checks a constraint without an engine: SPRY_OK if it can be used; SPRY_ERR_INPUT and a sentence with the position of
 * the error if not. Compiles it, in bounded time and memory. Any thread. */
SPRY_API spry_status spry_constraint_check(spry_constraint constraint, const char *text, size_t size,
                                           spry_error *error);

/* What drafts tokens ahead. It changes the speed of an answer, never its tokens. */
typedef enum spry_speculation {
    SPRY_DRAFT_AUTO = 0,   /* the engine's drafter, or lookup if it has none, while that is faster */
    SPRY_DRAFT_NONE = 1,   /* no drafts */
    SPRY_DRAFT_LOOKUP = 2, /* what followed the same words earlier in the text */
    SPRY_DRAFT_MODEL = 3   /* the engine's drafter; an error without one */
} spry_speculation;

typedef struct spry_request {
    size_t size;           /* set by spry_request_default */
    const int32_t *prompt; /* the whole token prefix, each time */
    size_t n_prompt;
    const spry_span *spans; /* ascending ranges of the prompt */
    size_t n_spans;
    size_t span_repair; /* average tokens of a span that are computed in place; default: a page */
    spry_sampling sampling;
    const char *const *stop; /* strings that end the answer and are not part of it; valid UTF-8 */
    size_t n_stop;
    const char *constraint_text;
    spry_constraint constraint;
    spry_speculation speculation;
    uint32_t max_tokens; /* 0: until the model ends its answer or the context is full */
    uint32_t draft_most; /* maximum tokens drafted for a step; 0: as many as make it faster */
    uint32_t logprobs;   /* number of alternatives for on_token, at most SPRY_TOP_LOGPROBS_MAX */
    uint32_t lane;       /* number of its lane in the engine's trace; 0: a lane of its own */
    /* Called with the next whole characters of the answer; false stops it. May be NULL. */
    bool (*on_text)(void *user, const char *text, size_t size);
    /* Called with every generated token, before its text; `top` is sorted. NULL: no logprobs are computed. */
    bool (*on_token)(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top);
    /* Called with the number of prompt tokens computed so far; false stops. May be NULL. */
    bool (*on_prefill)(void *user, size_t done, size_t total);
    void *user;
    bool special;             /* control tokens appear in the text */
    bool ignore_end;          /* continue after the end token */
    bool marks;               /* control tokens of calls and thoughts appear in the text, for spry_chat_parser */
    unsigned char json_style; /* spry_json_style, or-ed with SPRY_JSON_LENIENT or not */
    bool draft_precise;       /* draft only tokens that are likely accepted (about nine of ten) */
    uint32_t thought_budget;  /* maximum tokens of the thought at the answer's beginning; 0: no limit */
    const struct spry_placed *pictures; /* pictures in the prompt: spry_pictures.h */
    size_t n_pictures;
} spry_request;

typedef enum spry_finish {
    SPRY_FINISH_END = 0,      /* the model ended its answer */
    SPRY_FINISH_STOP = 1,     /* the answer contained a stop string */
    SPRY_FINISH_LENGTH = 2,   /* max_tokens were generated */
    SPRY_FINISH_CONTEXT = 3,  /* the context is full */
    SPRY_FINISH_CANCELLED = 4 /* a callback returned false, or spry_session_cancel */
} spry_finish;

enum { SPRY_DRAFT_MOST = 16 }; /* maximum tokens drafted for a step */

/* Drafting in an answer. A part of spry_result: its size never changes. */
typedef struct spry_draft_report {
    size_t steps, drafted, accepted;
    size_t tried_at[SPRY_DRAFT_MOST], accepted_at[SPRY_DRAFT_MOST]; /* by position, if all before were accepted */
    size_t lengths[SPRY_DRAFT_MOST + 1];                            /* number of steps by number of tokens drafted */
    double tokens_per_step, speedup;                                /* estimated; speedup compared to no drafts */
    uint32_t refused_p50, refused_p95;                              /* refused tokens per step: 50th, 95th percentile */
    double prefill_ms;                                              /* time of the draft model's prefill */
    double step_cost, acceptance; /* estimates: time of a step with one draft relative to one without; its chance */
    uint64_t reserved[5];
} spry_draft_report;

typedef struct spry_result {
    size_t size; /* as in spry_engine_info */
    size_t prompt_tokens, generated_tokens;
    size_t reused_tokens;                                 /* tokens of the prompt found in the cache */
    size_t restored_tokens, span_tokens, repaired_tokens; /* of these: from disk; in spans; recomputed in place */
    double lookup_ms, restore_ms;                         /* parts of prefill_ms */
    double prefill_ms, first_token_ms;                    /* until the prompt was computed; until the first token */
    double decode_ms, total_ms;                           /* decode_ms begins with the first token */
    spry_draft_report drafts;
    double parts_ms[SPRY_PARTS_ROOM];       /* by spry_part, for the whole request */
    double first_parts_ms[SPRY_PARTS_ROOM]; /* the same until the first token */
    size_t n_parts;                         /* parts this library knows */
    spry_finish finish;
    uint32_t stop;          /* with SPRY_FINISH_STOP: index of the stop string */
    size_t forced_tokens;   /* tokens of the answer that the constraint determined without a run of the model */
    size_t dropped_tokens;  /* tokens of the conversation that sliding dropped */
    double span_divergence; /* estimated cost of reused spans, in nats per token; 0: none were reused */
    size_t picture_tokens;  /* tokens of the prompt that are rows of pictures */
    uint64_t reserved[12];
} spry_result;

SPRY_API void spry_request_default_sized(spry_request *request, size_t size); /* any thread */
#define spry_request_default(request) spry_request_default_sized(request, sizeof(spry_request))

/* The parts of the request's lenient schema that are ignored, one sentence per line; empty: none. The caller frees
 * *warnings with spry_free. Any thread. */
SPRY_API spry_status spry_engine_warnings(spry_engine *engine, char **warnings, const spry_request *request,
                                          spry_error *error);

/* Generates the answer to a request; returns when it is complete. A cancelled answer is not an error: it finishes with
 * SPRY_FINISH_CANCELLED. */
SPRY_API spry_status spry_session_generate(spry_session *session, spry_result *result, const spry_request *request,
                                           spry_error *error);

SPRY_API void spry_session_cancel(spry_session *session); /* at its next step; any thread, signal handlers */

SPRY_API const char *spry_finish_name(spry_finish finish); /* "end", "stop", "length", ... Any thread. */

/* ---- jobs ------------------------------------------------------------------------------------------------------ */
/* A *job* computes in the background: an answer, an evaluation or an embedding. Jobs of one engine, and calls on its
 * sessions, share steps: rows of answers come first, then prompts, evaluations and embeddings. Clients take turns. The
 * results of a job do not depend on what runs beside it.
 *
 * Threads: every function of this section may be called on any thread, and in callbacks. The first submitted job starts
 * the engine's thread. Callbacks of jobs run on it, one at a time, and must not block: all jobs of the engine wait
 * meanwhile. (One exception: a thread that frees a job or destroys a session may end other cancelled jobs, and runs
 * their on_done.) Calls on sessions are computed by the engine's thread, too, once there is one; their callers wait.
 *
 * A callback may submit, cancel and free jobs, its own too. It cannot wait for its own engine: spry_job_wait and the
 * calls on sessions of the engine that compute fail there with SPRY_ERR_BUSY. */
typedef struct spry_job spry_job;

typedef enum spry_policy {
    SPRY_POLICY_INTERACTIVE = 0, /* one at a time; more while steps become less than 10 % slower (95th percentile) */
    SPRY_POLICY_OFFLINE = 1,     /* 2, 4, 8, ... while each adds 10 % to tokens/s and less to the 95th percentile */
    SPRY_POLICY_AUTO = 2,        /* a job begins at once if it can; when many wait, like THROUGHPUT */
    SPRY_POLICY_THROUGHPUT = 3   /* the number with the most tokens per second, by measurement */
} spry_policy;

typedef struct spry_jobs_options {
    size_t size;          /* set by spry_jobs_options_default */
    uint32_t max_running; /* maximum jobs that run at once; 0: the free sessions, but at most the rows of a step */
    uint32_t max_waiting; /* maximum jobs that wait in addition to those that can begin; more are refused */
    double max_stall_ms;  /* maximum time that other rows may add between two tokens of an answer */
    bool gentle;          /* the step also takes at most the time that those tokens take alone */
    spry_policy policy;
} spry_jobs_options;

SPRY_API void spry_jobs_options_default_sized(spry_jobs_options *options, size_t size);
#define spry_jobs_options_default(options) spry_jobs_options_default_sized(options, sizeof(spry_jobs_options))
/* Sets the limits of an engine's jobs and reserves max_running of its sessions for them; the first submit sets the
 * defaults. SPRY_ERR_BUSY: the engine has jobs. */
SPRY_API spry_status spry_engine_set_jobs(spry_engine *engine, const spry_jobs_options *options, spry_error *error);

typedef struct spry_job_options {
    size_t size;           /* set by spry_job_options_default */
    spry_session *session; /* NULL: an empty session; else the job continues it, with its own salt, slide and keep */
    const void *salt;      /* as in spry_session_set_salt */
    size_t salt_size;
    bool slide; /* as in spry_session_set_slide */
    size_t keep;
    uint64_t client; /* the jobs of one client take turns with those of other clients */
    /* Called once for every submitted job, as its last callback, unless the job is freed before. May be NULL. */
    void (*on_done)(void *user, spry_job *job);
    void *user;       /* argument of on_done */
    uint64_t batch;   /* not 0: its rows come after those of other jobs in a step */
    const char *lora; /* LoRA adapters of the job, "NAME=SCALE,..."; "": none; NULL: the engine's setting */
} spry_job_options;

SPRY_API void spry_job_options_default_sized(spry_job_options *options, size_t size);
#define spry_job_options_default(options) spry_job_options_default_sized(options, sizeof(spry_job_options))
/* Creates a job that answers a request. What the request and the options point to is copied; the session stays borrowed
 * until the job is over. The request is checked and its grammar compiled here. `options` may be NULL. */
SPRY_API spry_status spry_job_create_answer(spry_job **out, spry_engine *engine, const spry_request *request,
                                            const spry_job_options *options, spry_error *error);

/* Ids to evaluate. With on_row or on_token, every row from `first` on is computed, none is taken from the cache; with
 * neither, the ids are only computed and cached, for answers that begin with them. */
typedef struct spry_evaluation {
    size_t size;        /* set by spry_evaluation_default */
    const int32_t *ids; /* copied, like spans */
    size_t count;
    size_t first;
    const spry_span *spans; /* as in spry_request; only without on_row and on_token */
    size_t n_spans;
    size_t span_repair;
    uint32_t n_logprobs; /* number of alternatives for on_token, at most SPRY_TOP_LOGPROBS_MAX */
    /* Called with the logits after ids[index], in order, valid during the call. False cancels the job. May be NULL. */
    bool (*on_row)(void *user, size_t index, const float *logits);
    /* Called with the log probability of ids[index], from first + 1 on; `top` is sorted. May be NULL. */
    bool (*on_token)(void *user, size_t index, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top);
    void *user;
} spry_evaluation;

SPRY_API void spry_evaluation_default_sized(spry_evaluation *evaluation, size_t size);
#define spry_evaluation_default(evaluation) spry_evaluation_default_sized(evaluation, sizeof(spry_evaluation))
SPRY_API spry_status spry_job_create_evaluation(spry_job **out, spry_engine *engine, const spry_evaluation *evaluation,
                                                const spry_job_options *options, spry_error *error);

/* Creates a job that computes the embedding of a text, as spry_session_embed does. */
SPRY_API spry_status spry_job_create_embedding(spry_job **out, spry_engine *engine, const int32_t *ids, size_t count,
                                               const spry_job_options *options, spry_error *error);

/* Submits a job, once. SPRY_ERR_BUSY: too many jobs wait, or its session is in use; try again later. */
SPRY_API spry_status spry_job_submit(spry_job *job, spry_error *error);

SPRY_API bool spry_job_done(const spry_job *job); /* true if it has ended and its result can be read */

/* Waits until the job has ended and on_done has returned; a negative timeout_ms: no limit. SPRY_ERR_BUSY: it has not
 * ended by then, or the wait would never end: in a callback of its engine, or before it is submitted. */
SPRY_API spry_status spry_job_wait(spry_job *job, double timeout_ms, spry_error *error);

/* The status of a job that has ended, and its result and error if the pointers are not NULL. A cancelled answer has
 * SPRY_OK and SPRY_FINISH_CANCELLED, other cancelled jobs SPRY_ERR_CANCELLED. SPRY_ERR_BUSY: not ended. */
SPRY_API spry_status spry_job_result(const spry_job *job, spry_result *result, spry_error *error);

/* The spry_engine_info.embedding floats of an embedding that succeeded, until the job is freed; else NULL. */
SPRY_API const float *spry_job_embedding(const spry_job *job);

/* Ends a job before its next step, even one that waits or is submitted later. A second call changes nothing. */
SPRY_API void spry_job_cancel(spry_job *job);

/* Frees a job, which is cancelled first if it has not ended. After this returns none of its callbacks runs, except, in
 * a callback of the engine, those that are running. NULL is allowed. */
SPRY_API void spry_job_free(spry_job *job);

typedef struct spry_jobs_figures {
    size_t size;                            /* as in spry_engine_info */
    uint32_t running, waiting, max_running; /* now */
    uint32_t batch_limit;                   /* answers that are computed together now */
    uint64_t finished, cancelled, failed, refused, preempted;
    uint64_t steps, rows, decode_rows;  /* totals since the engine was opened */
    char evidence[160];                 /* the reason for batch_limit: one sentence with figures */
    uint64_t ahead, waits, reserved[6]; /* steps begun before the last one ended; waits of a thread for the device */
} spry_jobs_figures;

SPRY_API void spry_engine_jobs_figures(spry_engine *engine, spry_jobs_figures *figures);

#ifdef __cplusplus
}
#endif
#endif
