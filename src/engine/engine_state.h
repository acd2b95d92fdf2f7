/* Shared state of the files that implement spry.h. */
#ifndef SPRY_ENGINE_ENGINE_STATE_H
#define SPRY_ENGINE_ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "device/device.h"
#include "draft/draft_steps.h"
#include "draft/prompt_lookup.h"
#include "engine/generation.h"
#include "grammar/grammar.h"
#include "model/draft_head.h"
#include "model/model.h"
#include "sampling/sampler.h"
#include "spry.h"

struct spry_engine {
    spry_model *model;
    spry_kv_pool pool;
    spry_kv_cache cache;
    spry_kv_disk *disk;       /* NULL: none */
    spry_kv_disk *state_disk; /* the same for recurrent states */
    spry_kv_key fingerprint;  /* hash of everything that determines the contents of a page */
    spry_threads *threads;
    const spry_ops *ops;
    const spry_device_kind *kind;
    char device_name[48];                /* name by which the device is opened */
    uint32_t gpu_layers;                 /* layers on the GPU, if the device is composed */
    char device_text[96];                /* description of the device, for people */
    char why_cpu[SPRY_ERROR_MAX + 192];  /* why the CPU computes all or some of it; "": nothing else was asked for */
    size_t device_bytes;                 /* total memory of the device; 0: not known */
    bool automatic;                      /* chosen by the engine: the CPU replaces a GPU that cannot be opened */
    bool device_missing;                 /* the one asked for is not there: this is the CPU */
    spry_device *device;                 /* weights, pages and steps */
    spry_draft_steps steps;              /* cost of steps with and without drafts */
    spry_step_time times;                /* the same by rows and depth */
    spry_vocabulary *vocabulary;         /* for grammars; NULL until the first request with one */
    spry_vocabulary *call_vocabulary;    /* for tool calls: marks of calls and thoughts are text */
    spry_grammar_cache *grammars;        /* NULL until the first request with a grammar */
    spry_adapter_scales adapters;        /* for requests that choose no adapters */
    pthread_mutex_t making;              /* protects these: any thread may bring the first grammar */
    spry_session *drafter;               /* session of the draft engine; NULL: none */
    struct spry_head *head;              /* the model's own head as a drafter; NULL: none */
    size_t head_bytes;                   /* what it needs: weights, keys and values, working memory */
    struct spry_eyes *eyes;              /* NULL: the model sees no pictures */
    char *mmproj;                        /* file of the model's tower; NULL: its own folder, or none */
    size_t max_image_pixels, eyes_bytes; /* eyes_bytes: memory of the tower once it is used */
    bool eyes_on_gpu;                    /* the tower's layers are computed where the model is */
    uint32_t picture_rows; /* most rows of a picture that one step computes all; 0: any part of a picture is computed */
    struct spry_driver *driver; /* runs everything that computes */
    spry_log log;
    spry_trace *trace;    /* NULL: none */
    spry_op_watch *watch; /* times of ops, when they are traced; NULL: none */
    uint32_t context, chunk, sessions;
    uint32_t usual_context;          /* the one asked for; or that sessions other than the first have pages for */
    uint32_t kv_idle, kv_idle_share; /* seconds until memory is returned, 0: never; percent of pages that stay cached */
    size_t gpu_bytes;                /* limit for the memory of a GPU; 0: what is free */
    size_t expert_bytes;             /* limit for experts; 0: all are in memory */
    size_t experts_apart;            /* bytes of experts beyond it */
    uint32_t span_pages;       /* undeclared fragments with at least this number of cached pages are reused; 0: never */
    int32_t start_token;       /* begins every text, and fragments are computed after it; -1: texts have none */
    uint32_t logit_rows;       /* maximum per step */
    uint32_t n_sessions;       /* existing, and reserved for jobs; protected by the driver's lock */
    spry_device_source source; /* its `quantize` is valid only while the engine is opened */
    bool restores;             /* there is a disk tier */
    bool mapped;               /* the model is in mapped files: released pages can be read again */
    bool borrows_threads;      /* the engine is a drafter and uses the threads of its target */
};

struct spry_session {
    spry_engine *engine;
    spry_sequence sequence;
    spry_kv_key salted;         /* root of its pages without adapters */
    spry_prompt_lookup *lookup; /* NULL until first use */
    spry_drafter propose;       /* drafter of the current answer */
    bool precise;               /* only tokens that are almost certain are drafted */
    spry_draft_cost cost;
    size_t (*cost_of)(void *, int32_t *, size_t, const int32_t *, size_t, spry_draft_times *); /* the drafter that the
                                                                                                * costs belong to */
    float *logits; /* [n_vocab] after the last id, of an evaluation; NULL until the first */
    atomic_bool cancelled;

    /* protected by the driver's lock */
    spry_job *job; /* the job that uses it */
    bool in_use;   /* a job or a call uses it */
    bool orphan;   /* destroyed in a callback: freed when it is no longer in use */
};

/* Rows of logits per step of any engine: enough for verification of drafts and small batches; longer lists are split.
 * An engine with several sessions has more, at least one for each. */
enum { SPRY_MAX_LOGIT_ROWS = 16 };

/* Segments of a sequence per step. */
enum { SPRY_STEP_SEGMENTS = 64 };

/* Decides how many bytes of experts are in memory together: `asked`, or, 0, as many as fit where not all do. */
spry_status spry_engine_choose_experts(spry_engine *engine, size_t asked, spry_error *error);

/* Replaces the KV type "auto" by Q8_0 where one full session of F16 does not fit, and logs that. */
void spry_engine_choose_kv_type(const spry_engine *engine, spry_kv_shape *shape, const spry_engine_options *options);

/* The sizes of an engine from its model and options, and the KV pool's shape; once the weights' types are known, its
 * device, and the context and steps that follow from the device's memory; then the number of pages, which must fit the
 * machine. Allocates nothing. */
spry_status spry_engine_set_sizes(spry_engine *engine, spry_kv_shape *shape, const spry_engine_options *options,
                                  spry_error *error);
spry_status spry_engine_place(spry_engine *engine, const spry_kv_shape *shape, const spry_engine_options *options,
                              spry_error *error);
spry_status spry_engine_count_pages(const spry_engine *engine, size_t *pages, spry_kv_shape *shape, size_t kv_bytes,
                                    spry_error *error);

/* Bytes of host memory for pages that a device evicts: as many as asked for or, SIZE_MAX, a share of the machine's. */
size_t spry_engine_host_bytes(const spry_engine *engine, size_t asked);

enum { SPRY_CHUNK_DEFAULT = 128 }; /* default of the option; a device may have its own */

/* Tokens of a session on the CPU where no context is asked for. */
uint32_t spry_engine_default_context(const spry_model *model);

/* Chooses another device where one of "auto" cannot be opened, and logs why. */
spry_status spry_engine_retreat(spry_engine *engine, spry_status why, const char *reason, spry_error *error);

/* Rows of a step: a chunk, and a picture besides that is computed whole. */
static inline uint32_t spry_engine_step_rows(const spry_engine *e)
{
    return e->chunk + e->picture_rows;
}

/* What the device is opened with. */
spry_device_setup spry_engine_setup(const spry_engine *engine);

/* Evicts cached pages beyond the share that stays, and returns the memory of free pages to the system. The caller owns
 * the engine. */
void spry_engine_return_memory(spry_engine *engine);

/* Names everything besides the tokens that decides the bits of a page: the model, kernels (spry_device_identify),
 * types, long rope's list, the layout. Pages on disk carry it. */
spry_status spry_engine_fingerprint(spry_kv_key *out, const spry_engine *engine, const char *kernels,
                                    const char *quantize, spry_error *error);

/* Bytes of memory. */
typedef struct spry_engine_needs {
    size_t weights; /* unpacked and packed */
    size_t kv;      /* the whole pool, used or not */
    size_t kv_full; /* bytes of pages that the sessions can fill */
    size_t scratch;
    size_t whole;
} spry_engine_needs;

/* Plans the sizes of an engine without opening it, whether or not they fit this machine. The caller closes
 * engine->model, also after a failure. */
spry_status spry_engine_plan(spry_engine *engine, const char *name, const void *data, size_t size,
                             const spry_engine_options *options, spry_error *error);

/* For an open engine; and for one to be opened. `data` NULL: `name` is a path. */
spry_status spry_engine_measure(spry_engine_needs *needs, const spry_engine *engine, spry_error *error);
spry_status spry_engine_estimate(spry_engine_needs *needs, const char *name, const void *data, size_t size,
                                 const spry_engine_options *options, spry_error *error);

/* Records the time of the step that the device was waited for. */
void spry_engine_stepped(spry_engine *engine, const spry_step_load *load, bool plain, uint64_t ns);

/* Converts a request of any version to this version; checks only its size. */
spry_status spry_request_read(spry_request *own, const spry_request *theirs, spry_error *error);

/* Initialises a result for a prompt of `n_prompt` tokens. */
void spry_result_init(spry_result *result, size_t n_prompt);

spry_status spry_engine_check_ids(const spry_engine *engine, const int32_t *ids, size_t count, bool slides,
                                  spry_error *error);

/* Checks a request, for a session that slides or not. Thread-safe. */
spry_status spry_engine_check_request(const spry_engine *engine, const spry_request *request, bool slides,
                                      spry_error *error);

/* Creates a matcher for a request's constraint; NULL when it has none. Thread-safe. */
spry_status spry_engine_make_matcher(spry_engine *engine, spry_matcher **matcher, const spry_request *request,
                                     spry_error *error);

/* Makes a session ready for a generation whose request was checked: its drafter. `alone`: the
 * engine's draft model, which serves one answer at a time; otherwise prompt lookup. */
spry_status spry_session_prepare(spry_session *session, spry_generation *generation, bool alone, spry_error *error);

/* Uses a chat template instead of the model's own: a file, or a text that contains a tag. */
spry_status spry_engine_use_template(spry_engine *engine, const char *file_or_text, spry_error *error);

/* Creates a session beyond those the engine was opened for; only the owner of the engine may destroy it. */
spry_status spry_session_make(spry_session **out, spry_engine *engine, spry_error *error);
void spry_session_unmake(spry_session *session);

/* The source of a request's pages, besides its tokens. */
typedef struct spry_page_source {
    spry_kv_key salted; /* the root of pages without adapters */
    spry_kv_key root;   /* root of the keys of its own pages */
    spry_adapter_scales adapters;
} spry_page_source;

/* The source of pages with a salt and a choice of adapters (adapter.h); NULL: the engine's. Any thread. */
spry_status spry_engine_page_source(spry_engine *engine, spry_page_source *source, const void *salt, size_t salt_size,
                                    const char *lora, spry_error *error);

/* Empties a session and sets the source of its pages. The caller owns the engine. */
void spry_session_restart(spry_session *session, const spry_page_source *source);

bool spry_session_slides(const spry_session *session); /* any thread */

/* Assigns the session to a job, or (NULL) to a call that computes nothing, until it leaves; the job gets the root of
 * its pages. SPRY_ERR_BUSY: another one uses it. */
spry_status spry_session_join(spry_session *session, spry_job *job, spry_error *error);
void spry_session_leave(spry_session *session);

/* Runs a job on the session and waits for it. */
spry_status spry_session_run(spry_session *session, spry_job *job, spry_error *error);

/* The most likely token and, where it is not NULL, its log probability after ids that the session is made to hold, or
 * (`append`) that follow what it holds. */
spry_status spry_session_likeliest(spry_session *session, int32_t *token, double *logprob, const int32_t *ids,
                                   size_t count, bool append, spry_error *error);

/* Checks that these ids have an embedding. Thread-safe. */
spry_status spry_embed_check(const spry_engine *engine, const int32_t *ids, size_t count, spry_error *error);

/* ---- head.c: a model's own drafter ------------------------------------------------------------------------------- */

/* A model's own head as its drafter (model/draft_head.h). It reads along: after each step it takes the hidden states of
 * the rows that were computed, and adds its own keys and values for them, in pages of its own, later and many rows at a
 * time. To draft, it computes the row of the last decided token, then its own drafts one after the other; rows of
 * drafts are forgotten again.
 *
 * It follows one text at a time. Rows whose states it has not seen, because pages were found in the cache, are left
 * out: drafts are then worse, answers are the same. */

typedef struct spry_head spry_head;

/* Finds the head of an engine's model, as the option draft_head asks for it, and sets the model's tap; before the
 * device is opened. *out is NULL if there is none. */
spry_status spry_head_find(spry_draft_head **out, struct spry_engine *engine, const char *asked, spry_error *error);

/* Opens the head, which it takes over, after the engine's device. `found` NULL: *out is NULL. */
spry_status spry_head_create(spry_head **out, struct spry_engine *engine, spry_draft_head *found, spry_error *error);
void spry_head_destroy(spry_head *head);

/* Draft only what it is sure of. */
void spry_head_set_precise(spry_head *head, bool precise);

/* As a source of drafts. */
spry_drafter spry_head_drafter(spry_head *head);

#endif
