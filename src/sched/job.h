/* A job computes rows until it is done: an answer, an evaluation, an embedding, or a list of segments. The driver knows
 * only this interface.
 *
 *   begin -> { next -> (a step) -> on_step_done } until is_done -> end
 *
 * In between, a job can be suspended, which frees its pages for others, and resumed; its results do not change.
 *
 * Except for creation, all of this happens on the thread that owns the engine at that time (driver.h). */
#ifndef SPRY_SCHED_JOB_H
#define SPRY_SCHED_JOB_H

#include "base/buffer.h"
#include "base/error.h"
#include "engine/engine_state.h"

/* What a job may add to a step. */
typedef struct spry_room {
    spry_segment *segments; /* [capacity] */
    size_t capacity;
    size_t rows, logits; /* maximum rows, and maximum rows with logits */
    size_t other_rows;   /* rows of the step that belong to other jobs */
    bool alone;          /* no other job runs */
} spry_room;

/* The rows of a job in a step that was computed. */
typedef struct spry_rows {
    size_t n_rows, n_logits, n_hidden;
    size_t first_logits, first_hidden; /* index of the first, for spry_device_logits and spry_device_hidden */
    const spry_segment *segments;      /* [n_segments] */
    size_t n_segments, first_tap;      /* index of its first row in a tap, for spry_device_hidden */
} spry_rows;

/* The operations of a kind of job. begin, suspend, resume and end may be NULL: there is nothing to do. */
typedef struct spry_job_kind {
    const char *name; /* name of its span in a trace; NULL: it is not traced */
    /* Looks up what is cached. Nothing is computed yet. */
    spry_status (*begin)(spry_job *job, bool alone, spry_error *error);
    /* True if its next rows are rows of an answer, which come first in a step. */
    bool (*decodes)(const spry_job *job);
    /* Writes the next rows as *n segments. */
    spry_status (*next)(spry_job *job, size_t *n, const spry_room *room, spry_error *error);
    /* Writes the draws for these rows; `first_logits` is the index of its first row with logits in the step. Returns
     * their number, at most SPRY_DRAFT_MOST + 1. May be NULL. */
    size_t (*draws)(spry_job *job, spry_draw **draws, size_t first_logits);
    /* The single row and draw of its step after this one, except for the row's token (spry_generation_ahead); false:
     * not known. May be NULL. */
    bool (*ahead)(const spry_job *job, spry_segment *segment, spry_draw *draw);
    /* Called when the rows have been computed. */
    spry_status (*on_step_done)(spry_job *job, const spry_rows *rows, spry_error *error);
    bool (*is_done)(const spry_job *job);
    /* Cancels the job; returns its final status. Also called for jobs that never began. */
    spry_status (*cancel)(spry_job *job, spry_error *error);
    void (*suspend)(spry_job *job);
    spry_status (*resume)(spry_job *job, spry_error *error);
    /* Completes the result, also after a failure. Called only for jobs that began. */
    void (*end)(spry_job *job);
} spry_job_kind;

typedef struct spry_answer {
    spry_request request; /* a copy; what it points to belongs to the caller or is in the job's arena */
    spry_generation generation;
    spry_matcher *matcher; /* matcher of the request's constraint; NULL: none */
    const spry_drafter *drafter;
    bool keeps_pictures; /* the job holds references to the request's pictures */
    bool needs_quiet;    /* the drafter is a model, which is used only while no other job runs */
} spry_answer;

/* Reads a list of ids: for evaluations and embeddings. */
typedef struct spry_reading {
    spry_prompt prompt; /* its pointers belong to the caller, or are in the job's arena */
    bool append;        /* the ids are appended to the session's tokens */
    spry_want want;     /* what is wanted: logits of the last row, logits of all rows from `next` on, or hidden
                         * states */
    size_t next;        /* first row whose result has not come yet */
    size_t n_held;      /* number of tokens the session held when the job was suspended */
    float *logits;      /* SPRY_WANT_LAST: [n_vocab], or NULL if not wanted */
    spry_draw *draw;    /* SPRY_WANT_LAST: a draw from these logits; NULL: none */
    double *sum;        /* SPRY_WANT_HIDDEN: [n_embd], to which rows are added in order */
    bool (*on_row)(void *user, size_t index, const float *logits); /* SPRY_WANT_ALL; may be NULL, like on_token */
    bool (*on_token)(void *user, size_t index, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top);
    uint32_t n_top;
    void *user;
    bool stopped; /* a callback returned false */
    uint64_t start_ns;
} spry_reading;

/* Segments of tables that belong to no session. */
typedef struct spry_segment_list {
    const spry_segment *segments;
    size_t count, n_done;
    size_t rows_done; /* rows computed of the first segment that is not complete */
} spry_segment_list;

struct spry_job {
    /* set before the job is submitted */
    spry_engine *engine;
    const spry_job_kind *kind;
    spry_session *session; /* the caller's session; otherwise one of the driver's, from begin to end, even while
                            * suspended */
    bool is_callers;       /* the session belongs to the caller, or no session is needed */
    bool reuses;           /* the prompt can reuse pages that another job is computing now */
    spry_kv_key root;
    spry_page_source source; /* for jobs without a caller's session; its root is the job's */
    bool slide;
    size_t keep;
    uint64_t client;
    bool batch;         /* jobs that are not batch jobs come first */
    const int32_t *ids; /* ids of its prompt */
    size_t n_ids, n_spans;
    atomic_bool *cancelled; /* the job's own flag, or the session's */
    uint32_t lane;          /* lane in the trace; 0: one of its own */
    void (*on_done)(void *user, spry_job *job);
    void *user;
    union {
        spry_answer answer;
        spry_reading reading;
        spry_segment_list list;
    };

    /* set when the job has finished */
    spry_status status;
    spry_error error;
    spry_result result;

    /* for handles: jobs that spry_job_create_* created */
    bool is_handle;
    spry_arena arena; /* copies of what the caller has passed */
    atomic_bool own_cancelled;
    spry_request callbacks; /* the caller's callbacks */
    float *embedding;       /* [n_embd] */

    /* protected by the driver's lock */
    bool submitted, finished, over; /* over: on_done has returned */
    atomic_bool freed;              /* no callback is called any more; the job is destroyed when it is over */

    /* used by the owner only */
    spry_laps laps;
    bool begun, past_prompt;
    struct spry_job *next; /* the next job in the queue */

    /* state of the current step */
    bool is_decoding;
    size_t first_segment, n_segments;
    spry_rows rows;
    spry_status step_status; /* the message is in `error` */
    bool starved;            /* the job could not go on because pages were short */
};

extern const spry_job_kind spry_answer_kind;

/* Initialises a job that computes nothing yet, on a caller's session or (NULL) on one of the driver's. */
void spry_job_init(spry_job *job, spry_engine *engine, const spry_job_kind *kind, spry_session *session);

/* Initialises an answer: checks the request and compiles its grammar. What the request points to stays the caller's.
 * After a failure the job needs no deinit. */
spry_status spry_job_init_answer(spry_job *job, spry_engine *engine, const spry_request *request, spry_session *session,
                                 bool slides, spry_error *error);

/* Initialises the reading of `prompt`, which has been checked. */
void spry_job_init_reading(spry_job *job, spry_engine *engine, const spry_prompt *prompt, spry_want want,
                           spry_session *session);

/* Frees what the job holds; not while it runs. spry_job_destroy does so for a handle and frees it. */
void spry_job_deinit(spry_job *job);
void spry_job_destroy(spry_job *job);

/* Begins and ends the laps (time measurements) of a job in the trace; the end fills in result.parts_ms. */
void spry_job_begin_laps(spry_job *job);
void spry_job_end_laps(spry_job *job);

/* The queue of waiting jobs. Clients take turns, one job each; the jobs of one client keep their order. Jobs that were
 * taken and put back come before all others. Batch jobs come after all other jobs. The queue belongs to a driver and is
 * used under its lock. */

/* A list of jobs, linked through their `next`. */
typedef struct spry_job_list {
    spry_job *first, *last;
} spry_job_list;

/* The jobs of one client, either its batch jobs or the others. */
typedef struct spry_client_jobs {
    uint64_t client;
    bool batch;
    spry_job_list jobs;
} spry_client_jobs;

typedef struct spry_job_queue {
    spry_job_list ahead; /* jobs that were taken and put back, or parked; they come before all others */
    size_t n_ahead;
    spry_client_jobs *turns; /* [n_turns], the next turn is first; none is empty */
    size_t n_turns, capacity;
    size_t count; /* number of all jobs, with those in `ahead` */
} spry_job_queue;

/* An empty queue is all zero. Allocates memory for `capacity` jobs that wait for a turn; none may be waiting. */
spry_status spry_job_queue_resize(spry_job_queue *queue, size_t capacity, spry_error *error);
void spry_job_queue_deinit(spry_job_queue *queue);

void spry_job_queue_add(spry_job_queue *queue, spry_job *job);
/* Takes the job with the next turn; NULL when no job waits for a turn. */
spry_job *spry_job_queue_take(spry_job_queue *queue);

/* True if the next turn belongs to a job that is not a batch job. */
bool spry_job_queue_is_urgent(const spry_job_queue *queue);

/* The number of jobs that were put back and come before the next turn. */
size_t spry_job_queue_before(const spry_job_queue *queue);

/* Puts a job back, before or after the other jobs that were put back. */
void spry_job_queue_put_back(spry_job_queue *queue, spry_job *job);
void spry_job_queue_park(spry_job_queue *queue, spry_job *job);

/* Takes the first job that was put back and is ready; NULL when none is. */
spry_job *spry_job_queue_take_ready(spry_job_queue *queue, bool (*ready)(const void *context, const spry_job *job),
                                    const void *context);

/* Takes a job that was cancelled; NULL when there is none. */
spry_job *spry_job_queue_take_cancelled(spry_job_queue *queue);

#endif
