/* A job: something that computes rows until it is done. An answer, an evaluation, an embedding, a list of segments: the
 * driver knows only this interface.
 *
 *   begin -> { next -> (a step) -> on_step_done } until is_done -> end
 *
 * In between a job can be suspended, which gives its pages to others, and resumed; that changes none of its results.
 *
 * All of it happens on the thread that owns the engine at that time (driver.h), except creation. */
#ifndef SPRY_SCHED_JOB_H
#define SPRY_SCHED_JOB_H

#include "base/buffer.h"
#include "base/error.h"
#include "engine/engine_state.h"

/* What a step has room for. */
typedef struct spry_room {
    spry_segment *segments; /* [capacity] */
    size_t capacity;
    size_t rows, logits; /* most rows, and most rows with logits */
    size_t other_rows;   /* rows of the step that belong to other jobs */
    bool alone;          /* no other job runs */
} spry_room;

/* The rows of a job in a step that was computed. */
typedef struct spry_rows {
    size_t n_rows, n_logits, n_hidden;
    size_t first_logits, first_hidden; /* for spry_device_logits, spry_device_hidden */
} spry_rows;

/* begin, suspend, resume and end may be NULL: there is nothing to do. */
typedef struct spry_job_kind {
    const char *name; /* of its span in a trace; NULL: it is not traced */
    /* Looks up what was computed before. Nothing is computed yet. */
    spry_status (*begin)(spry_job *job, bool alone, spry_error *error);
    /* Whether its next rows are of an answer: those come first in a step. */
    bool (*decodes)(const spry_job *job);
    /* The next rows, in *n segments. */
    spry_status (*next)(spry_job *job, size_t *n, const spry_room *room, spry_error *error);
    /* The draws that go with these rows, where the first row with logits has this number in the step; returns how
     * many, at most SPRY_DRAFT_MOST + 1. May be NULL. */
    size_t (*draws)(spry_job *job, spry_draw **draws, size_t first_logits);
    /* The one row and draw of its step after this one, except for the row's token (spry_generation_ahead). May be NULL.
     */
    bool (*ahead)(const spry_job *job, spry_segment *segment, spry_draw *draw);
    /* The rows were computed. */
    spry_status (*on_step_done)(spry_job *job, const spry_rows *rows, spry_error *error);
    bool (*is_done)(const spry_job *job);
    /* The job is cancelled; gives the status it ends with. Also for jobs that never began. */
    spry_status (*cancel)(spry_job *job, spry_error *error);
    void (*suspend)(spry_job *job);
    spry_status (*resume)(spry_job *job, spry_error *error);
    /* Completes the result, also after a failure. Only for jobs that began. */
    void (*end)(spry_job *job);
} spry_job_kind;

typedef struct spry_answer {
    spry_request request; /* a copy; what it points to is the caller's or in the job's arena */
    spry_generation generation;
    spry_matcher *matcher; /* of its constraint; NULL: none */
    const spry_drafter *drafter;
    bool keeps_pictures; /* the request's pictures are referenced */
    bool needs_quiet;    /* its drafter is a model, which works only while no other job runs */
} spry_answer;

/* A list of ids that is read: evaluations and embeddings. */
typedef struct spry_reading {
    spry_prompt prompt; /* its pointers are the caller's, or in the job's arena */
    bool append;        /* the ids follow what the session holds */
    spry_want want;     /* logits of the last row, logits of all rows from `next` on, hidden states */
    size_t next;        /* first row whose result is still to come */
    size_t n_held;      /* tokens the session held when it was suspended */
    float *logits;      /* SPRY_WANT_LAST: [n_vocab], or NULL: not wanted */
    spry_draw *draw;    /* SPRY_WANT_LAST: from those logits; NULL: none */
    double *sum;        /* SPRY_WANT_HIDDEN: [n_embd], rows are added in order */
    bool (*on_row)(void *user, size_t index, const float *logits); /* SPRY_WANT_ALL; may be NULL, like on_token */
    bool (*on_token)(void *user, size_t index, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top);
    uint32_t n_top;
    void *user;
    bool stopped; /* a callback returned false */
    uint64_t start_ns;
} spry_reading;

/* Segments of tables that are not a session's. */
typedef struct spry_segment_list {
    const spry_segment *segments;
    size_t count, n_done;
    size_t rows_done; /* rows done of the first one that is not complete */
} spry_segment_list;

struct spry_job {
    /* set before it is submitted */
    spry_engine *engine;
    const spry_job_kind *kind;
    spry_session *session; /* the caller's; else one of the driver's, from begin to end, also while suspended */
    bool is_callers;       /* the session is the caller's, or none is needed */
    bool reuses;           /* its prompt profits from pages that another job computes now */
    spry_kv_key root;
    spry_page_source source; /* of jobs without a caller's session; its root is the job's */
    bool slide;
    size_t keep;
    uint64_t client;
    bool batch;         /* gives way to jobs that are not */
    const int32_t *ids; /* of its prompt */
    size_t n_ids, n_spans;
    atomic_bool *cancelled; /* its own flag, or the session's */
    uint32_t lane;          /* of the trace; 0: one of its own */
    void (*on_done)(void *user, spry_job *job);
    void *user;
    union {
        spry_answer answer;
        spry_reading reading;
        spry_segment_list list;
    };

    /* set when it has finished */
    spry_status status;
    spry_error error;
    spry_result result;

    /* of handles: jobs that spry_job_create_* made */
    bool is_handle;
    spry_arena arena; /* copies of what the caller passed */
    atomic_bool own_cancelled;
    spry_request callbacks; /* the caller's */
    float *embedding;       /* [n_embd] */

    /* under the driver's lock */
    bool submitted, finished, over; /* over: on_done has returned, too */
    atomic_bool freed;              /* no callback is called any more; it is destroyed when it is over */

    /* the owner's */
    spry_laps laps;
    bool begun, past_prompt;
    struct spry_job *next; /* in the queue */

    /* of the step under way */
    bool is_decoding;
    size_t first_segment, n_segments;
    spry_rows rows;
    spry_status step_status; /* the sentence is in `error` */
    bool starved;            /* pages were short, nothing else */
};

extern const spry_job_kind spry_answer_kind;

/* A job that computes nothing yet: on a caller's session, or (NULL) on one of the driver's. */
void spry_job_init(spry_job *job, spry_engine *engine, const spry_job_kind *kind, spry_session *session);

/* An answer. Checks the request and compiles its grammar; what the request points to stays the caller's. A job that
 * failed needs no deinit. */
spry_status spry_job_init_answer(spry_job *job, spry_engine *engine, const spry_request *request, spry_session *session,
                                 bool slides, spry_error *error);

/* A reading of job->reading.prompt, which was checked. */
void spry_job_init_reading(spry_job *job, spry_engine *engine, const spry_prompt *prompt, spry_want want,
                           spry_session *session);

/* Frees what the job itself holds; not for jobs under way. spry_job_destroy: of a handle, and the handle. */
void spry_job_deinit(spry_job *job);
void spry_job_destroy(spry_job *job);

/* The laps of a job begin in the trace, and end; the end fills result.parts_ms. */
void spry_job_begin_laps(spry_job *job);
void spry_job_end_laps(spry_job *job);

/* Jobs that wait. Clients take turns, one job each; a client's own jobs keep their order. Jobs whose turn it was, and
 * that wait again for another reason, come before all others. Batch jobs come after all that are not. Belongs to a
 * driver and is used under its lock. */

/* Jobs in a row, linked through their `next`. */
typedef struct spry_job_list {
    spry_job *first, *last;
} spry_job_list;

/* One client's jobs, of one kind. */
typedef struct spry_client_jobs {
    uint64_t client;
    bool batch;
    spry_job_list jobs;
} spry_client_jobs;

typedef struct spry_job_queue {
    spry_job_list ahead; /* jobs that were taken and put back, or parked: before all others */
    size_t n_ahead;
    spry_client_jobs *turns; /* [n_turns], whose turn is next comes first; none is empty */
    size_t n_turns, capacity;
    size_t count; /* jobs, those ahead too */
} spry_job_queue;

/* An empty queue is all zero. Makes room for `capacity` jobs that wait for a turn; none may wait for one. */
spry_status spry_job_queue_resize(spry_job_queue *queue, size_t capacity, spry_error *error);
void spry_job_queue_deinit(spry_job_queue *queue);

void spry_job_queue_add(spry_job_queue *queue, spry_job *job);
/* Takes out the job whose turn it is; NULL when none waits for one. */
spry_job *spry_job_queue_take(spry_job_queue *queue);

/* Whether the next turn is that of a job that is not a batch job. */
bool spry_job_queue_is_urgent(const spry_job_queue *queue);

/* How many of those whose turn it was come before the next turn. */
size_t spry_job_queue_before(const spry_job_queue *queue);

/* Back to the jobs whose turn it was: before them, or after them. */
void spry_job_queue_put_back(spry_job_queue *queue, spry_job *job);
void spry_job_queue_park(spry_job_queue *queue, spry_job *job);

/* Takes out the first of them that is ready; NULL when none is. */
spry_job *spry_job_queue_take_ready(spry_job_queue *queue, bool (*ready)(const void *context, const spry_job *job),
                                    const void *context);

/* Takes out a job that was cancelled; NULL when there is none. */
spry_job *spry_job_queue_take_cancelled(spry_job_queue *queue);

#endif
