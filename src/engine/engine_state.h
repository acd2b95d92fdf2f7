/* What the files behind spry.h share. */
#ifndef SPRY_ENGINE_ENGINE_STATE_H
#define SPRY_ENGINE_ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "device/device.h"
#include "draft/prompt_lookup.h"
#include "engine/generation.h"
#include "grammar/compile/grammar_cache.h"
#include "model/model.h"
#include "sampling/sampler.h"

struct spry_engine {
    spry_model *model;
    spry_kv_pool pool;
    spry_kv_cache cache;
    spry_kv_disk *disk;      /* NULL: none */
    spry_kv_key fingerprint; /* of everything that decides what a page holds */
    spry_threads *threads;
    const spry_ops *ops;
    const spry_device_kind *kind;
    size_t device_bytes;          /* of memory that it has in all; 0: not known */
    spry_device *device;          /* weights, pages and steps */
    spry_step_cost steps;         /* what steps cost as their rows grow */
    spry_vocabulary *vocabulary;  /* for grammars; NULL until the first */
    spry_grammar_cache *grammars; /* the same */
    pthread_mutex_t making;       /* of these two: any thread may bring the first grammar */
    spry_session *drafter;        /* of the engine that guesses ahead; NULL: none */
    struct spry_driver *driver;   /* runs everything that computes */
    spry_log log;
    spry_trace *trace;    /* NULL: none */
    spry_op_watch *watch; /* of its ops, when they are traced; NULL: none */
    uint32_t context, chunk, sessions;
    uint32_t logit_rows;  /* a step can give */
    uint32_t n_sessions;  /* alive, and reserved for jobs; under the driver's lock */
    bool mapped;          /* the model lies in mapped files: its pages come back when they were given up */
    bool borrows_threads; /* it is a drafter, and uses those of its target */
};

struct spry_session {
    spry_engine *engine;
    spry_sequence sequence;
    spry_sampler *sampler;
    spry_verifier verifier;
    spry_prompt_lookup *lookup; /* NULL until it is first used */
    spry_drafter propose;       /* who guesses for the answer under way */
    spry_draft_cost cost;
    size_t (*cost_of)(void *, int32_t *, size_t, const int32_t *, size_t, uint64_t *); /* whose costs these are */
    float *logits; /* [n_vocab] after the last id, of an evaluation; NULL until the first */
    atomic_bool cancelled;

    /* under the driver's lock */
    spry_job *job; /* that uses it */
    bool in_use;   /* by a job or a call */
    bool orphan;   /* destroyed in a callback: it goes when it is no longer in use */
};

/* Rows of logits a step of any engine can give: verification of drafts and small batches fit; longer lists go in parts.
 * An engine of several sessions has more, at least one for each. */
enum { SPRY_MAX_LOGIT_ROWS = 16 };

/* Segments a sequence gives to a step. */
enum { SPRY_STEP_SEGMENTS = 64 };

/* A conversation in JSON; *request is the caller's, and `input` points into it. Then its text. */
spry_status spry_engine_parse_chat(json_t **request, spry_chat_input *input, const char *json, size_t size,
                                   spry_error *error);
spry_status spry_engine_render(const spry_engine *engine, spry_chat_text *out, spry_chat_input *input,
                               spry_error *error);

/* Where `choice` requires a call of one of the tools: its beginning, at the end of `ids` and in the prompt, and what
 * follows. */
spry_status spry_engine_require_call(spry_chat_prompt *prompt, spry_tokens *ids, const spry_engine *engine,
                                     const json_t *tools, const json_t *choice, spry_error *error);

/* spry_engine_chat_prompt into arrays of the caller's; *count and *n_spans say how many there are. */
spry_status spry_engine_chat_spans(const spry_engine *engine, int32_t *ids, size_t capacity, size_t *count,
                                   spry_span *spans, size_t span_capacity, size_t *n_spans, const char *json,
                                   size_t size, spry_error *error);

/* Sizes an engine gets from its model and options, and the KV pool's shape; then how many pages that has, which must
 * fit the machine. Nothing is allocated. */
spry_status spry_engine_set_sizes(spry_engine *engine, spry_kv_shape *shape, const spry_engine_options *options,
                                  spry_error *error);
spry_status spry_engine_count_pages(const spry_engine *engine, size_t *pages, const spry_kv_shape *shape,
                                    size_t kv_bytes, spry_error *error);
spry_step_limits spry_engine_limits(const spry_engine *engine);

/* The device's name, and what it is opened with. */
const char *spry_engine_device(const spry_engine_options *options);
spry_device_setup spry_engine_setup(const spry_engine *engine);

/* Bytes of memory. */
typedef struct spry_engine_needs {
    size_t weights; /* as they lie, and packed */
    size_t kv;      /* the whole pool, used or not */
    size_t kv_full; /* as much as its sessions can fill */
    size_t scratch;
    size_t whole;
} spry_engine_needs;

/* An engine as it would be opened, as far as its sizes go, whether or not they fit this machine. The caller closes
 * engine->model, also after a failure. */
spry_status spry_engine_plan(spry_engine *engine, const char *name, const void *data, size_t size,
                             const spry_engine_options *options, spry_error *error);

/* Of an engine that is open; and of one that would be opened. `data` NULL: `name` is a path. */
spry_status spry_engine_measure(spry_engine_needs *needs, const spry_engine *engine, spry_error *error);
spry_status spry_engine_estimate(spry_engine_needs *needs, const char *name, const void *data, size_t size,
                                 const spry_engine_options *options, spry_error *error);

/* A step took so long. */
void spry_engine_stepped(spry_engine *engine, size_t rows, uint64_t ns);

/* A request as this version knows it, from one of any version; checked as far as its size goes. */
spry_status spry_request_read(spry_request *own, const spry_request *theirs, spry_error *error);

/* An empty result of a prompt. */
void spry_result_init(spry_result *result, size_t n_prompt);

spry_status spry_engine_check_ids(const spry_engine *engine, const int32_t *ids, size_t count, bool slides,
                                  spry_error *error);

/* Whether the engine can take a request, on a session that slides or not. From any thread. */
spry_status spry_engine_check_request(const spry_engine *engine, const spry_request *request, bool slides,
                                      spry_error *error);

/* A new matcher for a request's constraint; NULL when it has none. From any thread. */
spry_status spry_engine_make_matcher(spry_engine *engine, spry_matcher **matcher, const spry_request *request,
                                     spry_error *error);

/* Makes a session ready for a generation whose request was checked: its sampler and its drafter. `alone`: the
 * engine's draft model, which serves one answer at a time; otherwise prompt lookup. */
spry_status spry_session_prepare(spry_session *session, spry_generation *generation, bool alone, spry_error *error);
spry_status spry_session_draft(spry_session *session, spry_generation *generation, bool alone, spry_error *error);

/* Takes a chat template in the place of the model's own: a file, or a text that has a tag in it. */
spry_status spry_engine_use_template(spry_engine *engine, const char *file_or_text, spry_error *error);

/* A session that is not counted among those the engine was opened for; the caller owns the engine to unmake it. */
spry_status spry_session_make(spry_session **out, spry_engine *engine, spry_error *error);
void spry_session_unmake(spry_session *session);

/* Empties a session and sets which pages it shares and how it slides. The caller owns the engine. */
void spry_session_restart(spry_session *session, spry_kv_key root, bool slide, size_t keep);

/* A job uses the session until it leaves; SPRY_ERR_BUSY: another one does. */
spry_status spry_session_join(spry_session *session, spry_job *job, spry_error *error);
void spry_session_leave(spry_session *session);

/* Runs a job on the session and waits for it. */
spry_status spry_session_run(spry_session *session, spry_job *job, spry_error *error);

/* Appends tokens and computes the logits after the last, session->logits. */
spry_status spry_session_extend(spry_session *session, const int32_t *ids, size_t count, spry_error *error);

#endif
