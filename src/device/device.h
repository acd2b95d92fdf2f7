/* A device: one model on one piece of hardware. It holds the weights in its own layout (placed weights) and the KV
 * pages, runs steps, draws tokens and reports the times of ops. Rows in, logits or tokens out: the device does not know
 * why a row is there; prefill, decode and verification are only different lists.
 *
 * Steps are asynchronous: submit checks a step and starts it, wait returns when its results are there. At most two
 * steps are submitted: one, and after it one that takes its tokens from the draws of the first. Calls on one device
 * come from one thread at a time, the engine's owner; only `read` of a page may come from any thread at any time.
 * Everything a step needs is allocated when the device is opened.
 *
 * Nothing outside src/device reads or writes a page, a placed weight or a row of logits through a pointer into the
 * device's memory: what `logits`, `hidden` and `read` return is host memory, copied where the device is not the host.
 *
 * A device kind is a row in the table of device.c; device_impl.h is the interface for implementations. */
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

/* The time of each op in a step. The thread that runs a step charges the time since the last op to the op that has just
 * ended, so that ops add up to steps. The work of ops is counted, too, so that speeds can be compared with the
 * machine's. Without a watch, no clock is read. */

typedef struct spry_op_figures {
    uint64_t ns, calls;
    double bytes;    /* bytes of weights, or of keys and values, that had to be read */
    double products; /* multiplications */
} spry_op_figures;

enum { SPRY_OP_SPANS = 64 };

typedef struct spry_op_watch {
    spry_trace *trace; /* NULL: ops are counted, not written */
    uint32_t lane;
    uint64_t last_ns;
    spry_trace_span spans[SPRY_OP_SPANS]; /* spans that have not been written to the trace yet */
    size_t n_spans;
    /* By the type of the matrix, or of keys and values; SPRY_F32 where there is none. */
    spry_op_figures ops[SPRY_OP_PLACES][SPRY_OP_COUNT][SPRY_DTYPE_COUNT];
} spry_op_watch;

/* Writes its spans to the trace, at the end of a step. */
void spry_op_watch_flush(spry_op_watch *watch);

/* The time since the last op was this op's. `kernels`: a kernel set of the CPU, or one of these. */
#define SPRY_OP_ON_GPU  "cuda"
#define SPRY_OP_ON_HOST "host"

void spry_op_watch_add(spry_op_watch *watch, spry_op op, spry_dtype type, const char *kernels, double bytes,
                       double products);

/* The same for an op that ended at `end_ns`, not before the last one. */
void spry_op_watch_until(spry_op_watch *watch, uint64_t end_ns, spry_op op, spry_dtype type, const char *kernels,
                         double bytes, double products);

typedef struct spry_device spry_device;
typedef struct spry_device_kind spry_device_kind;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

typedef struct spry_step_limits {
    uint32_t max_rows;                  /* maximum rows of a step */
    uint32_t max_logits;                /* maximum rows of a step that have logits */
    uint32_t session;                   /* maximum tokens of a sequence, which selects a list of long RoPE */
    uint32_t n_adapters, adapter_ranks; /* number of adapters of the weights; sum of their ranks */
} spry_step_limits;

/* Where the model comes from, for a device that opens it again in another process. */
typedef struct spry_device_source {
    const char *name, *quantize; /* path, or a name for messages; type to quantise to, NULL: unchanged */
    const void *data;            /* NULL, or the file in memory */
    size_t size;
} spry_device_source;

#define SPRY_LAYERS_AUTO UINT32_MAX /* put as many layers on the GPU as fit */

/* Everything except the limits is borrowed while the device is open. */
typedef struct spry_device_setup {
    const spry_config *config;
    const spry_weights *weights; /* weights on the host; after copying them, the device may release pages of mapped
                                  * files */
    const spry_kv_pool *pool;    /* numbers, layout and turns of pages; the device holds the pages' bytes */
    const spry_ops *ops;         /* the host's kernels, and */
    spry_threads *threads;       /* its threads: the CPU device computes with them, others may use them to convert
                                  * weights */
    spry_step_limits limits;
    spry_device_source source;
    const spry_device *lender; /* NULL, or the device of the model for which this one's head drafts: on the same kind
                                * its embedding and output matrix are used. It must outlive this one */
    bool mapped;               /* the weights are in mapped files, whose pages can be released and read again */
    bool restores;             /* there is a disk tier, so many KV pages are written at once */
    size_t late_bytes;         /* CPU only: weights of at least this size are packed by the first steps */
    size_t expert_bytes;       /* CPU only: 0, or the limit for experts, which are packed when they are used */
    size_t gpu_bytes;          /* GPU only: limit for its memory that is used; 0: what is free */
    const char *name;          /* name of a composed device, "cpu+cuda:0", and */
    uint32_t layers;           /* the number of last layers on its second part */
    spry_log log;
} spry_device_setup;

/* Finds a kind by name: the part before the colon of a name such as "cuda:0". The error lists the known kinds.
 * "cpu+cuda:0" is composed: the first layers of a model are on the one, the last on the other
 * (split/split_device.h). */
spry_status spry_device_find(const spry_device_kind **kind, const char *name, spry_error *error);

/* Refuses models with features that this kind cannot compute; spry_device_open does so, too. */
spry_status spry_device_check(const spry_device_kind *kind, const spry_config *config, spry_error *error);

/* The same for a device's name; a composed device must be able to on both parts. */
spry_status spry_device_check_named(const char *name, const spry_config *config, spry_error *error);

/* The default number of prompt tokens in a step; 0: the same as for the CPU. */
uint32_t spry_device_chunk(const spry_device_kind *kind);

/* Total bytes of memory of a device; 0: not known, for the reason that `explain` gives. */
size_t spry_device_total(const char *name);
void spry_device_explain(const char *name, spry_error *why);

/* Whether a device of another kind is this machine's CPU after all, such as one that imitates a GPU. */
bool spry_device_is_host(const char *name);

/* Free bytes of memory of a device; 0: not known. */
size_t spry_device_available(const char *name);

/* The GPU that "auto" selects, or NULL for the CPU with the reason: there is no GPU, or it cannot compute such a model.
 * `config` NULL: any model. */
const char *spry_device_auto(const spry_config *config, const spry_step_limits *limits, spry_error *why);

/* True if devices of this kind can give the output of layers (the config's taps). */
bool spry_device_taps(const spry_device_kind *kind);

/* True if devices of this kind compute the layers of vision towers. */
bool spry_device_towers(const spry_device_kind *kind);

/* True if devices of this kind compute keys and values of Q4_0. */
bool spry_device_nibbles(const spry_device_kind *kind);

const char *spry_device_kind_name(const spry_device_kind *kind);

/* Opens a device: copies or converts weights, allocates pages and working memory. `name`: the kind and, after a colon,
 * the piece of hardware ("cuda:0"). */
spry_status spry_device_open(spry_device **out, const char *name, const spry_device_setup *setup, spry_error *error);
void spry_device_close(spry_device *device);

/* The number of layers on the second part of a composed device. */
uint32_t spry_device_layers(const spry_device *device);

/* A text that names the kernels of a device and their revision: devices with equal identities compute pages with the
 * same bits. Of the setup only config and ops are used. */
enum { SPRY_DEVICE_IDENTITY = 96 };
void spry_device_identify(const spry_device_kind *kind, char identity[SPRY_DEVICE_IDENTITY],
                          const spry_device_setup *setup);

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* The results wanted of a segment: none, the logits of its last row or of all rows, or the normalised hidden states of
 * all rows, from which logits would be computed. */
typedef enum spry_want { SPRY_WANT_NOTHING, SPRY_WANT_LAST, SPRY_WANT_ALL, SPRY_WANT_HIDDEN } spry_want;

/* Consecutive rows of one sequence. */
typedef struct spry_segment {
    spry_kv_table *table;  /* holds at least first_position + n_rows tokens: extend it before the step. Where it has a
                            * recurrent state, submit sets `state_from` to what it is after the step */
    const int32_t *tokens; /* [n_rows] */
    uint32_t first_position, n_rows;
    spry_want want;
    spry_adapter_scales adapters; /* LoRA adapters of its rows */
    int32_t shift;                /* difference of RoPE's positions to those of the table, because of earlier pictures
                                   * (picture.h) */
    const spry_picture *picture;  /* NULL: the rows are tokens; otherwise they are rows of this picture from
                                   * `picture_row` on */
    uint32_t picture_row;         /* a two-way picture must be one segment */
} spry_segment;

/* The coordinates of row i for RoPE: time, row and column, which are equal except in pictures with columns. */
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

/* The number of rows of a segment before the first wanted one. */
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

/* The number of rows of a segment whose logits are wanted. */
static inline size_t spry_segment_logits(const spry_segment *segment)
{
    return segment->want == SPRY_WANT_HIDDEN ? 0 : segment->n_rows - spry_segment_unwanted(segment);
}

/* A token to be drawn from a row of logits: penalties, bias and mask, temperature and cuts as in docs/SAMPLING.md. The
 * generator stays on the host, so a seed gives the same tokens on every device. Inputs are borrowed until the draw is
 * done. */
typedef struct spry_draw {
    size_t row;                    /* index among the step's rows with logits */
    const spry_sampling *settings; /* checked (spry_sampling_check) */
    const int32_t *history;        /* tokens that penalties count, oldest first */
    size_t n_history;
    const uint32_t *mask; /* NULL, or n_vocab bits: 1 = allowed */
    double u;             /* in [0, 1), from the generator; not used at temperature 0 */
    bool wants_logprob;   /* the log probability of the drawn token is wanted */
    uint32_t max_top;     /* number of most likely tokens wanted; at most SPRY_TOP_LOGPROBS_MAX */
    /* results */
    spry_status status; /* an error if no token was allowed, or a logit is NaN */
    int32_t token;
    double logprob; /* log softmax of the raw logits */
    size_t n_top;
    spry_logprob_entry top[SPRY_TOP_LOGPROBS_MAX]; /* most likely first */
    spry_error error;                              /* set if status is not SPRY_OK */
} spry_draw;

typedef struct spry_device_step {
    const spry_segment *segments; /* segments, their tables and tokens are read before submit returns */
    size_t n_segments;
    spry_draw *const *draws; /* computed as part of the step; borrowed until wait */
    size_t n_draws;
    const float *inputs; /* NULL, or [rows, n_embd]: results of earlier layers, which replace tokens, or, for a head
                          * that drafts, are computed together with them; borrowed until wait */
} spry_device_step;

/* Starts a step. Refuses ids outside the vocabulary, pictures that do not fit the model, and too many rows; then
 * nothing has changed. */
spry_status spry_device_submit(spry_device *device, const spry_device_step *step, spry_error *error);

/* Starts a step after the current one, before any result of that has been read. Every segment is one row; its token is
 * the one that draw drawn[i] of the current step gives, or 0 if that draw fails; `tokens` are not read. Refused, with
 * nothing changed, by devices that cannot do it, and unless exactly one step has been submitted. */
spry_status spry_device_submit_after(spry_device *device, const spry_device_step *step, const uint32_t *drawn,
                                     spry_error *error);

/* True if the device supports submit_after. */
bool spry_device_goes_ahead(const spry_device *device);

/* Fails for a picture that the device or the model cannot process. */
spry_status spry_device_check_picture(const spry_device *device, const spry_picture *picture, spry_error *error);

/* Returns when the (older) step is done; its results stay until the next submit, or, if a step follows it, only the
 * results of draws. Fails when the hardware failed. Without a step it returns at once. */
spry_status spry_device_wait(spry_device *device, spry_error *error);

/* Draws from rows of the last step that was waited for, for draws that were not known when it was submitted. Each draw
 * has its own status; the returned status is the hardware's. */
spry_status spry_device_draw(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error);

/* Logits of the step's wanted rows in the order of the list, [count, n_vocab]; valid until the next call on the device.
 */
spry_status spry_device_logits(spry_device *device, const float **logits, size_t first, size_t count,
                               spry_error *error);

/* Hidden states of the step's wanted rows, [count, n_embd]; `first` counts only rows with hidden states. After them
 * come all rows of the step as they leave each of the config's taps; ask for one tap at a time. */
spry_status spry_device_hidden(spry_device *device, const float **hidden, size_t first, size_t count,
                               spry_error *error);

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Moves bytes of pages: see spry_kv_mover for what each function promises. */
spry_kv_mover spry_device_mover(spry_device *device);

/* Lets the pool of the setup move bytes of pages and of recurrent states. */
void spry_device_attach(spry_device *device, spry_kv_pool *pool);

/* ---- figures ----------------------------------------------------------------------------------------------------- */

/* The duration of the draws at the end of the last step; 0 if it is not measured separately. */
uint64_t spry_device_sampling_ns(const spry_device *device);

/* True if the last step also converted weights, so that its duration says nothing about later steps. */
bool spry_device_placed_weights(const spry_device *device);

/* The duration of attention in the last step; 0 if it is not measured separately. */
uint64_t spry_device_attention_ns(const spry_device *device);

/* How often a thread has waited for the hardware since the device was opened: for a step, its draws, rows, or pages. 0
 * if the host computes itself. */
uint64_t spry_device_waits(spry_device *device);

/* Writes steps as spans to a lane of the trace; NULL: no longer. */
void spry_device_set_trace(spry_device *device, spry_trace *trace, uint32_t lane);

/* Counts ops from now on; NULL: no longer. The watch is borrowed. */
void spry_device_set_watch(spry_device *device, spry_op_watch *watch);

/* Replaces the host's worker threads: a drafter uses those of its target. */
void spry_device_set_threads(spry_device *device, spry_threads *threads);

/* Bytes of the device's memory, by use. */
typedef struct spry_device_memory {
    size_t weights; /* weights, with those that are used in file layout */
    size_t kv;      /* pages */
    size_t scratch; /* working memory of steps */
    size_t experts; /* in estimates: bytes of all experts' weights if they can be limited; 0: they cannot */
    size_t expert;  /* bytes of the largest expert */
} spry_device_memory;

/* The use for which memory is estimated. */
typedef struct spry_device_use {
    size_t tokens;       /* tokens held at once, of all sequences, in addition to cached pages */
    size_t cached_pages; /* number of full cached pages */
    size_t rows, logits; /* rows of the longest step */
} spry_device_use;

/* Estimates the memory of a device of this kind: all that it reserves, or, with `use`, the part of it that would be
 * touched. Nothing is allocated. The setup needs no threads, and of the pool only shape, page_bytes and n_pages. False
 * when a size overflows. */
bool spry_device_estimate(const spry_device_kind *kind, spry_device_memory *memory, const spry_device_setup *setup,
                          const spry_device_use *use);

/* The memory in use now: weights (without those that stay in a file), pages, working memory. False if the system does
 * not report it. */
bool spry_device_measure(spry_device *device, spry_device_memory *memory);

/* The number of bytes of these pages that are resident now. */
bool spry_device_measure_pages(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages);

#endif
