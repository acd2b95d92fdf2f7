/* A device: one model on one piece of hardware. It holds the placed weights and the KV pages, runs steps, draws tokens
 * and reports what ops took. Rows in, logits or tokens out: the device does not know why a row is there; prefill,
 * decode and verification are only different lists.
 *
 * Steps are asynchronous: submit checks a step and starts it, wait returns when its results are there. At most one step
 * is under way, and after it one that takes its tokens from the draws of the first. Calls on one device come from one
 * thread at a time, the engine's owner; only `read` of a page may come from any thread at any time. Everything a step
 * needs is allocated when the device is opened.
 *
 * Nothing outside src/device reads or writes a page, a placed weight or a row of logits through a pointer into the
 * device's memory: what `logits`, `hidden` and `read` return is host memory, copied where the device is not the host.
 *
 * A device kind is a row in the table of device.c; device_impl.h is what an implementation sees. */
#ifndef SPRY_DEVICE_DEVICE_H
#define SPRY_DEVICE_DEVICE_H

#include "base/dtype.h"
#include "base/error.h"
#include "kv/kv_table.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/picture.h"
#include "model/weights.h"
#include "platform/threads.h"
#include "platform/trace.h"
#include "spry_tools.h"

/* What a step's time goes to, op by op: the thread that runs a step charges the time since the last op to the op that
 * just ended, so that ops add up to steps. Counts the work, too, so that speeds can be compared with the machine's. A
 * pass without a watch reads no clock. */

typedef struct spry_op_figures {
    uint64_t ns, calls;
    double bytes;    /* of weights, or keys and values, that had to be read */
    double products; /* multiplications */
} spry_op_figures;

enum { SPRY_OP_SPANS = 64 };

typedef struct spry_op_watch {
    spry_trace *trace; /* NULL: ops are counted, not written */
    uint32_t lane;
    uint64_t last_ns;
    spry_trace_span spans[SPRY_OP_SPANS]; /* not handed over yet */
    size_t n_spans;
    /* By the type of the matrix, or of keys and values; SPRY_F32 where there is none. */
    spry_op_figures ops[SPRY_OP_COUNT][SPRY_DTYPE_COUNT];
} spry_op_watch;

/* Hands its spans over: at the end of a step. */
void spry_op_watch_flush(spry_op_watch *watch);

/* The time since the last op was this op's. */
void spry_op_watch_add(spry_op_watch *watch, spry_op op, spry_dtype type, const char *kernels, double bytes,
                       double products);

/* The same for an op that ended at `end_ns`, not before the last one. */
void spry_op_watch_until(spry_op_watch *watch, uint64_t end_ns, spry_op op, spry_dtype type, const char *kernels,
                         double bytes, double products);

typedef struct spry_device spry_device;
typedef struct spry_device_kind spry_device_kind;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

typedef struct spry_step_limits {
    uint32_t max_rows;                  /* rows of a step */
    uint32_t max_logits;                /* rows whose logits a step can give */
    uint32_t session;                   /* tokens a sequence can have: chooses long rope's list */
    uint32_t n_adapters, adapter_ranks; /* adapters of the weights; sum of their ranks */
} spry_step_limits;

/* Where the model came from, for a device that opens it again elsewhere. */
typedef struct spry_device_source {
    const char *name, *quantize; /* path, or a name for messages; NULL: as it is */
    const void *data;            /* NULL, or the file in memory */
    size_t size;
} spry_device_source;

#define SPRY_LAYERS_AUTO UINT32_MAX /* as many as fit */

/* Everything but the limits is borrowed while the device is open. */
typedef struct spry_device_setup {
    const spry_config *config;
    const spry_weights *weights; /* on the host; once placed, the device may give pages of mapped files back */
    const spry_kv_pool *pool;    /* the numbers, layout and turns of pages; the device holds their bytes */
    const spry_ops *ops;         /* the host's kernels, and */
    spry_threads *threads;       /* its workers: what the CPU computes with, and others may use to place weights */
    spry_step_limits limits;
    spry_device_source source;
    bool mapped;         /* the weights are in mapped files, whose pages can be read again */
    bool restores;       /* there is a disk tier: many KV pages are written at once */
    size_t late_bytes;   /* from this number of bytes on, weights are packed by the first steps; CPUs only */
    size_t expert_bytes; /* 0, or the limit for experts, which are packed when they are used; CPUs only */
    const char *name;    /* of a composed device, "cpu+cuda:0", and */
    uint32_t layers;     /* how many of the last layers are on its second part */
    spry_log log;
} spry_device_setup;

/* The kind a name such as "cpu" or "cuda:0" begins with, up to a colon; the error lists the known ones. "cpu+cuda:0" is
 * composed: the first layers of a model are on the one, the last on the other (split/split_device.h). */
spry_status spry_device_find(const spry_device_kind **kind, const char *name, spry_error *error);

/* Refuses models with parts that such a device does not compute; spry_device_open does so too. */
spry_status spry_device_check(const spry_device_kind *kind, const spry_config *config, spry_error *error);

/* The same by name; of a composed device both parts are asked. */
spry_status spry_device_check_named(const char *name, const spry_config *config, spry_error *error);

/* Prompt tokens that pay in one step where nothing else was asked for; 0: as many as on the CPU. */
uint32_t spry_device_chunk(const spry_device_kind *kind);

/* Bytes of memory the named device has in all; 0: not known, for the reason that `explain` gives. */
size_t spry_device_total(const char *name);
void spry_device_explain(const char *name, spry_error *why);

/* Bytes of the named device that are free now; 0: not known. */
size_t spry_device_available(const char *name);

/* The GPU that "auto" means, or NULL for the CPU, and why: there is none, or it does not compute such a model. `config`
 * NULL: any model. */
const char *spry_device_auto(const spry_config *config, const spry_step_limits *limits, spry_error *why);

const char *spry_device_kind_name(const spry_device_kind *kind);

/* Places the weights and allocates pages and working memory. `name`: the kind, and after a colon which piece of
 * hardware of that kind ("cuda:0"). */
spry_status spry_device_open(spry_device **out, const char *name, const spry_device_setup *setup, spry_error *error);
void spry_device_close(spry_device *device);

/* Layers on the second part of a composed device. */
uint32_t spry_device_layers(const spry_device *device);

/* Names the kernels of such a device and their revision: pages that devices of one name compute are alike in every bit.
 * Of the setup, config and ops are needed. */
enum { SPRY_DEVICE_IDENTITY = 96 };
void spry_device_identify(const spry_device_kind *kind, char identity[SPRY_DEVICE_IDENTITY],
                          const spry_device_setup *setup);

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* What a segment gives: nothing, the logits of its last row or of all rows, or the normalised hidden states of all
 * rows, from which logits would be made. */
typedef enum spry_want { SPRY_WANT_NOTHING, SPRY_WANT_LAST, SPRY_WANT_ALL, SPRY_WANT_HIDDEN } spry_want;

/* Consecutive rows of one sequence. */
typedef struct spry_segment {
    const spry_kv_table *table; /* holds at least first_position + n_rows tokens: extend it before the step */
    const int32_t *tokens;      /* [n_rows] */
    uint32_t first_position, n_rows;
    spry_want want;
    spry_adapter_scales adapters; /* what its rows go through */
    int32_t shift;                /* of rope's positions against those of the table: pictures before it (picture.h) */
    const spry_picture *picture;  /* NULL: the rows are tokens; else rows of it from `picture_row` on */
    uint32_t picture_row;         /* two-way pictures are one segment */
} spry_segment;

/* Where rope sees row i of a segment: time, row and column, which are equal except in pictures with columns. */
static inline void spry_segment_place(uint32_t out[3], const spry_segment *g, uint32_t i)
{
    uint32_t columns = g->picture ? g->picture->columns : 0, row = g->picture_row + i;
    uint32_t first = g->first_position + (uint32_t)g->shift;
    for (int axis = 0; axis < 3; axis++)
        out[axis] = columns ? first - g->picture_row : first + i;
    if (columns) {
        out[1] += g->picture->top + row / columns;
        out[2] += g->picture->left + row % columns;
    }
}

/* Rows of a segment before the first one that is wanted. */
static inline size_t spry_segment_unwanted(const spry_segment *segment)
{
    switch (segment->want) {
    case SPRY_WANT_ALL:
    case SPRY_WANT_HIDDEN: return 0;
    case SPRY_WANT_LAST: return segment->n_rows ? segment->n_rows - 1 : 0;
    case SPRY_WANT_NOTHING: break;
    }
    return segment->n_rows;
}

/* Rows of a segment whose logits are wanted. */
static inline size_t spry_segment_logits(const spry_segment *segment)
{
    return segment->want == SPRY_WANT_HIDDEN ? 0 : segment->n_rows - spry_segment_unwanted(segment);
}

/* A token to be drawn from a row of logits: penalties, bias and mask, temperature and cuts as docs/SAMPLING.md says.
 * The generator stays on the host, so a seed gives the same tokens on every device. Inputs are borrowed until the draw
 * is done. */
typedef struct spry_draw {
    size_t row;                    /* its number among the step's rows with logits */
    const spry_sampling *settings; /* checked (spry_sampling_check) */
    const int32_t *history;        /* what penalties look at, oldest first */
    size_t n_history;
    const uint32_t *mask; /* NULL, or n_vocab bits: 1 = allowed */
    double u;             /* in [0, 1), from the generator; not used at temperature 0 */
    bool wants_logprob;   /* of the drawn token */
    uint32_t max_top;     /* most likely tokens wanted; at most SPRY_TOP_LOGPROBS_MAX */
    /* results */
    spry_status status; /* of this draw alone: nothing was allowed, or logits hold a NaN */
    int32_t token;
    double logprob; /* log softmax of the raw logits */
    size_t n_top;
    spry_logprob_entry top[SPRY_TOP_LOGPROBS_MAX]; /* most likely first */
    spry_error error;                              /* set where status is not SPRY_OK */
} spry_draw;

typedef struct spry_device_step {
    const spry_segment *segments; /* with tables and tokens: read before submit returns */
    size_t n_segments;
    spry_draw *const *draws; /* done as part of the step; borrowed until wait */
    size_t n_draws;
    const float *inputs; /* NULL, or [rows, n_embd]: rows from the layers before, where there is no embedding; borrowed
                          * until wait */
} spry_device_step;

/* Starts a step. Refuses ids outside the vocabulary, pictures that do not fit the model, and more rows than the limits;
 * then nothing has changed. */
spry_status spry_device_submit(spry_device *device, const spry_device_step *step, spry_error *error);

/* Starts a step after the one under way, before anything of that was read: every segment is one row, and its token is
 * what the draw of this number of the step under way gives, or 0 where that draw fails; `tokens` are not read. Refused,
 * with nothing changed, by devices that cannot do so, and while not exactly one step is under way. */
spry_status spry_device_submit_after(spry_device *device, const spry_device_step *step, const uint32_t *drawn,
                                     spry_error *error);

/* Whether the device can. */
bool spry_device_goes_ahead(const spry_device *device);

/* Refuses a picture that the device or the model cannot take. */
spry_status spry_device_check_picture(const spry_device *device, const spry_picture *picture, spry_error *error);

/* Returns when the step is done, the older one of two; its results stay until the next submit; while a step follows it,
 * only the results of draws stay. Fails when the hardware did. Without a step under way it returns at once. */
spry_status spry_device_wait(spry_device *device, spry_error *error);

/* Draws from rows of the step that was waited for last: what could not be known when it was submitted. Each draw has
 * its own status; the returned one is the hardware's. */
spry_status spry_device_draw(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error);

/* Logits of the step's wanted rows in the order of the list, [count, n_vocab]; valid until the next call on the device.
 */
spry_status spry_device_logits(spry_device *device, const float **logits, size_t first, size_t count,
                               spry_error *error);

/* The same of hidden states, [count, n_embd]; counted apart from the logits. After them come all rows of the step as
 * they leave each of the config's taps, to be asked for one tap at a time. */
spry_status spry_device_hidden(spry_device *device, const float **hidden, size_t first, size_t count,
                               spry_error *error);

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Moves bytes of pages for the pool: see spry_kv_mover for what each function promises. */
spry_kv_mover spry_device_mover(spry_device *device);

/* ---- figures ----------------------------------------------------------------------------------------------------- */

/* How long the draws of the last step took, at the end of it; 0 where it is not measured separately. */
uint64_t spry_device_sampling_ns(const spry_device *device);

/* Whether the last step also placed weights: what it took says nothing about later ones. */
bool spry_device_placed_weights(const spry_device *device);

/* How long attention took in the last step; 0 where it is not measured separately. */
uint64_t spry_device_attention_ns(const spry_device *device);

/* How often a thread waited for the hardware since the device was opened: for a step, its draws, rows that were asked
 * for, or pages. 0 where the host computes itself. */
uint64_t spry_device_waits(spry_device *device);

/* Steps become spans in a lane of the trace; NULL: no longer. */
void spry_device_set_trace(spry_device *device, spry_trace *trace, uint32_t lane);

/* Ops are counted from now on; NULL: no longer. Borrowed. */
void spry_device_set_watch(spry_device *device, spry_op_watch *watch);

/* The host's workers are these from now on: a drafter shares its target's. */
void spry_device_set_threads(spry_device *device, spry_threads *threads);

/* Bytes of the device's memory, by part. */
typedef struct spry_device_memory {
    size_t weights; /* as placed, with those that stay as their file has them */
    size_t kv;      /* pages */
    size_t scratch; /* working memory of steps */
    size_t experts; /* estimates: bytes of experts' weights, which may be limited; 0: no limit is possible */
    size_t expert;  /* and of the largest one */
} spry_device_memory;

/* How far a device would be used. */
typedef struct spry_device_use {
    size_t tokens;       /* held at once, of all sequences, besides */
    size_t cached_pages; /* full pages */
    size_t rows, logits; /* of the longest step */
} spry_device_use;

/* What a device of this kind takes: all that it reserves, or, with `use`, what of that is touched. Nothing is
 * allocated; of the setup, threads are not needed, and of the pool only shape, page_bytes and n_pages. False when that
 * overflows. */
bool spry_device_estimate(const spry_device_kind *kind, spry_device_memory *memory, const spry_device_setup *setup,
                          const spry_device_use *use);

/* What it takes now: placed weights (not what stays in a file), pages, scratch. False where the system does not report
 * it.
 */
bool spry_device_measure(spry_device *device, spry_device_memory *memory);

/* The bytes of these pages that are in memory now. */
bool spry_device_measure_pages(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages);

#endif
