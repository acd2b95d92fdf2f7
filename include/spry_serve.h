/* spry_serve: functions that servers need in addition to spry.h: single tokens, the parts of an answer (text, thoughts,
 * calls of tools) while it is generated, and a pool of models that are loaded on demand. Structs follow spry.h's
 * rules. */
#ifndef SPRY_SERVE_H
#define SPRY_SERVE_H

#include "spry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- several processes ----------------------------------------------------------------------------------------- */

/* Connects the processes that mpirun has started together. Call it once, before any engine is opened. When a rank for
 * which others wait does not answer any more, on_quit is called with the reason, and all processes are ended. */
SPRY_API spry_status spry_ranks_join(void (*on_quit)(const char *why), spry_error *error);

/* One of two modes: all ranks share each model. Rank 0 calls spry_ranks_share, then opens engines as usual; the other
 * ranks call spry_ranks_serve, which computes for rank 0 and returns when rank 0 leaves. */
SPRY_API void spry_ranks_share(void);
SPRY_API spry_status spry_ranks_serve(spry_error *error);

/* The other mode: each rank has engines of its own, and ranks send each other messages. Any thread. */
SPRY_API bool spry_ranks_post(uint32_t to, const void *bytes, size_t size); /* false: the rank does not answer */
SPRY_API bool spry_ranks_fetch(uint32_t *from, char **bytes, size_t *size); /* false: there is no message now; the
                                                                             * caller frees *bytes */

/* The number of this process, and the number of processes; a single process is 0 of 1. */
SPRY_API uint32_t spry_ranks_number(uint32_t *size);

/* Every rank calls it at its end, after closing its engines. No effect in a single process. */
SPRY_API void spry_ranks_leave(void);

/* ---- LoRA adapters --------------------------------------------------------------------------------------------- */
/* Any thread. A choice of adapters is a text: "NAME" or "NAME=SCALE", separated by commas; "": none. The name is the
 * last part of the adapter's path, or its number. */

typedef struct spry_lora_info {
    size_t size; /* as in spry_engine_info */
    const char *name, *path;
    uint32_t rank; /* the largest rank of its matrices */
    float scale;   /* scale for requests that choose no adapters */
    uint64_t reserved[4];
} spry_lora_info;

/* The adapter with this index, in the order in which they were loaded; false: there are no more. */
SPRY_API bool spry_engine_lora(spry_engine *engine, size_t index, spry_lora_info *info);

/* Sets the choice for requests and new sessions that do not choose. */
SPRY_API spry_status spry_engine_set_lora(spry_engine *engine, const char *choice, spry_error *error);

/* Sets the choice for a session, and empties the session; NULL: the engine's choice. */
SPRY_API spry_status spry_session_set_lora(spry_session *session, const char *choice, spry_error *error);

/* ---- tokens ---------------------------------------------------------------------------------------------------- */
/* Any thread, also while the engine computes. */

/* The ids of a text that continues other text: as spry_engine_tokenize, without the tokens that begin and end a text.
 */
SPRY_API bool spry_engine_is_end(const spry_engine *engine, int32_t id); /* whether a token ends an answer */
SPRY_API spry_status spry_engine_tokenize_part(const spry_engine *engine, int32_t *ids, size_t capacity, size_t *count,
                                               const char *text, size_t size, bool special, spry_error *error);

/* The bytes of one token within a text, which need not be whole characters; they live as long as the engine. Control
 * tokens have none, or with `special` their spelling. NULL: there is no such token. */
SPRY_API const char *spry_engine_token_bytes(const spry_engine *engine, int32_t id, bool special, size_t *size);

/* The token that begins a text; -1: there is none. */
SPRY_API int32_t spry_engine_begin_token(const spry_engine *engine);

/* The text to put before texts to be embedded, which the model's settings have under a name such as "query"; `name`
 * NULL: the text for all. Valid as long as the engine. NULL: there is none. */
SPRY_API const char *spry_engine_embedding_prompt(const spry_engine *engine, const char *name);

/* True if the model is a cross-encoder, whose embedding of two texts is one number: the larger it is, the better the
 * second text fits the first. */
SPRY_API bool spry_engine_ranks(const spry_engine *engine);

/* The ids of a pair of texts, as cross-encoders expect it; ids, capacity and count as in spry_engine_tokenize. */
SPRY_API spry_status spry_engine_tokenize_pair(const spry_engine *engine, int32_t *ids, size_t capacity, size_t *count,
                                               const char *first, const char *second, spry_error *error);

/* True if the model computes embeddings only, and generates no text. */
SPRY_API bool spry_engine_only_embeds(const spry_engine *engine);

/* The number of tokens that the answer of a job has so far. For the job's own callbacks. */
SPRY_API size_t spry_job_generated(const spry_job *job);

/* ---- answers of chats ------------------------------------------------------------------------------------------ */
/* One thread at a time for a parser; different parsers at the same time. */

typedef enum spry_chat_event_kind {
    SPRY_CHAT_CONTENT = 0,    /* text for the user */
    SPRY_CHAT_REASONING = 1,  /* text of a thought */
    SPRY_CHAT_CALL_BEGIN = 2, /* index, id, name: also in the other events of the call */
    SPRY_CHAT_ARGUMENTS = 3,  /* text: the next part of the arguments' JSON; any number of these */
    SPRY_CHAT_CALL_END = 4,   /* the arguments are complete and valid */
    SPRY_CHAT_CALL_CUT = 5    /* in place of CALL_END: the call is incomplete or wrong, and its arguments are not JSON;
                               * text: what the model wrote */
} spry_chat_event_kind;

/* Valid during the call of on_event. Texts are not zero-terminated. */
typedef struct spry_chat_event {
    size_t size; /* as in spry_engine_info */
    spry_chat_event_kind kind;
    uint32_t index; /* index of the call */
    const char *id; /* id of the call: nine letters and digits, unless the model wrote one */
    const char *name, *text;
    size_t name_size, text_size;
    uint64_t reserved[4];
} spry_chat_event;

typedef struct spry_chat_parser_options {
    size_t size;                    /* set by spry_chat_parser_options_default */
    const spry_chat_prompt *prompt; /* NULL, or the prompt of the answer: it may have begun a thought or a call */
    const char *tools; /* NULL: no calls; else the JSON array of tools, or "[]" to guess types of arguments */
    bool reasoning;    /* recognise thoughts */
    bool reserved[7];
    uint64_t seed; /* for the ids of calls */
    void (*on_event)(void *user, const spry_chat_event *event);
    void *user;
} spry_chat_parser_options;

/* Any thread. */
SPRY_API void spry_chat_parser_options_default_sized(spry_chat_parser_options *options, size_t size);
#define spry_chat_parser_options_default(options)                                                                      \
    spry_chat_parser_options_default_sized(options, sizeof(spry_chat_parser_options))

/* Splits the text of an answer into events. It may be fed in pieces of any size. Text is held back only while it could
 * still be part of a mark. A call begins as soon as its name is certain, its arguments follow as they come, and text
 * that only resembles a call becomes content, so nothing is lost. Requests whose answers are parsed set `marks`. */
typedef struct spry_chat_parser spry_chat_parser;

SPRY_API spry_status spry_chat_parser_create(spry_chat_parser **out, const spry_engine *engine,
                                             const spry_chat_parser_options *options, spry_error *error);
SPRY_API void spry_chat_parser_destroy(spry_chat_parser *parser);

/* Adds more text of the answer. Fails only when memory is short. */
SPRY_API spry_status spry_chat_parser_feed(spry_chat_parser *parser, const char *text, size_t size, spry_error *error);

/* Ends the answer: text that was held back is reported. */
SPRY_API void spry_chat_parser_finish(spry_chat_parser *parser);

/* ---- the pool of models ---------------------------------------------------------------------------------------- */
/* Any thread, also at the same time, except create and destroy. */

/* Models are loaded on first use, shared by all users, and unloaded, least recently used first, when others would not
 * fit. A name is looked up in the entries, then in the models folder; no name can refer to a file outside that folder,
 * neither by "..", nor as an absolute path, nor through a link. */
typedef struct spry_model_pool spry_model_pool;

/* A model that is not in the folder: linked into the program, or named on its command line. */
typedef struct spry_pool_entry {
    const char *name;
    const char *alias;   /* NULL, or a second name that is accepted but not listed */
    const char *path;    /* NULL when `data` is set */
    const void *data;    /* NULL, or a GGUF file in memory */
    size_t size;         /* of data */
    const char *drafter; /* NULL, or the name of the entry that drafts tokens for this one */
    bool pinned;
    bool reserved[7];
} spry_pool_entry;

/* Memory that it points to is borrowed until the pool is destroyed, except `entries`, `engine` and `jobs`, which are
 * copied. */
typedef struct spry_pool_options {
    size_t size;            /* set by spry_pool_options_default */
    const char *models_dir; /* NULL: there are only the entries */
    const spry_pool_entry *entries;
    size_t n_entries;
    size_t max_bytes;                  /* limit for all loaded models; 0: three quarters of the memory */
    double keep_alive_s;               /* unused models are unloaded after this time; negative: never */
    const spry_engine_options *engine; /* of every model, and the pool's log; NULL: the defaults */
    const spry_jobs_options *jobs;     /* of every model; NULL: the defaults */
    size_t max_models;                 /* limit for the number of loaded models; 0: none */
} spry_pool_options;

SPRY_API void spry_pool_options_default_sized(spry_pool_options *options, size_t size);
#define spry_pool_options_default(options) spry_pool_options_default_sized(options, sizeof(spry_pool_options))

/* A loaded model. Its engine stays open until the model is released. */
typedef struct spry_pooled {
    const char *name;
    spry_engine *engine;
} spry_pooled;

SPRY_API spry_status spry_model_pool_create(spry_model_pool **out, const spry_pool_options *options, spry_error *error);
SPRY_API void spry_model_pool_destroy(spry_model_pool *pool); /* all models must have been released */

/* Loads and warms up the model unless it is loaded; NULL: the first entry. A model that another call is loading is not
 * loaded twice: both calls wait for it. SPRY_ERR_FILE: there is no model of that name. SPRY_ERR_MEMORY: it can never
 * fit; the message has the figures. SPRY_ERR_BUSY: it fits when other models have been released. */
SPRY_API spry_status spry_model_pool_acquire(spry_model_pool *pool, const spry_pooled **out, const char *name,
                                             spry_error *error);
SPRY_API void spry_model_pool_release(spry_model_pool *pool, const spry_pooled *model);
/* As release, for a caller that has not used the model: it does not count as a use. */
SPRY_API void spry_model_pool_release_unused(spry_model_pool *pool, const spry_pooled *model);

/* Unloads a model. SPRY_ERR_BUSY: it is pinned, is being loaded, or is in use; in the last case it is unloaded when it
 * is released. */
SPRY_API spry_status spry_model_pool_unload(spry_model_pool *pool, const char *name, spry_error *error);

/* Pins or unpins a model: a pinned model is never unloaded. Pinning does not load it. */
SPRY_API spry_status spry_model_pool_pin(spry_model_pool *pool, const char *name, bool pin, spry_error *error);

/* Replaces keep_alive_s for an acquired model until it is unloaded; negative: it is not unloaded when unused. */
SPRY_API void spry_model_pool_keep(spry_model_pool *pool, const spry_pooled *model, double seconds);

/* KV memory of a loaded model, without counting as a use of it; false: it is not loaded. Waits for at most one step. */
SPRY_API bool spry_model_pool_kv(spry_model_pool *pool, const char *name, spry_kv_figures *figures);

typedef enum spry_pool_state { SPRY_POOL_ON_DISK = 0, SPRY_POOL_LOADING = 1, SPRY_POOL_LOADED = 2 } spry_pool_state;

typedef struct spry_pool_info {
    size_t size; /* as in spry_engine_info */
    char name[128];
    char path[1024]; /* empty for models in memory */
    spry_pool_state state;
    uint32_t users;
    size_t file_bytes, loaded_bytes; /* size of the file; measured memory */
    size_t estimated_bytes;          /* estimate before it was loaded */
    int64_t modified;                /* seconds since 1970 */
    double load_ms, idle_s;          /* of loaded models */
    double expires_s;                /* seconds until it is unloaded; negative: not planned */
    bool pinned;
    spry_jobs_figures work; /* of loaded models */
    size_t context;         /* tokens of a session, of loaded models */
    uint64_t sees;          /* a loaded model can process pictures */
    uint64_t reserved[6];
} spry_pool_info;

/* Calls `visit` for every model until `visit` returns false. */
SPRY_API void spry_model_pool_each(spry_model_pool *pool, bool (*visit)(void *context, const spry_pool_info *info),
                                   void *context);

#ifdef __cplusplus
}
#endif
#endif
