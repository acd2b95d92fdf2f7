/* What the files of the CUDA device share. */
#ifndef SPRY_DEVICE_CUDA_CUDA_STATE_H
#define SPRY_DEVICE_CUDA_CUDA_STATE_H

#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_model.h"
#include "device/cuda/cuda_tune.h"
#include "device/cuda/lora_args.h"
#include "device/cuda/persistent_args.h"
#include "device/device_impl.h"

enum {
    SPRY_CUDA_DECODE_ROWS = 16,      /* rows of a segment, at most, whose pages are spread over blocks */
    SPRY_CUDA_DECODE_TILE_ROWS = 64, /* the same where a warp takes several rows, */
    SPRY_CUDA_DECODE_STEP_ROWS = 32, /* and of a whole step where chunks of runs can be spread, too */
    SPRY_CUDA_EXPERT_ALIGN = 8,      /* slots of an expert are multiples of this, or of the next */
    SPRY_CUDA_EXPERT_ALIGN_MANY = 128,
    SPRY_CUDA_DRAWS = 16, /* tokens drawn in one launch */
};

/* Working memory, as addresses on the GPU; rows are max_rows, slots those of experts. */
typedef struct spry_cuda_scratch {
    spry_cuda_memory memory;
    size_t bytes;
    spry_cuda_memory x, y;    /* [rows, n_embd] */
    spry_cuda_memory h;       /* [rows, n_embd]: normalised rows that are wanted */
    spry_cuda_memory q, attn; /* [rows, n_heads * head_dim] */
    spry_cuda_memory k, v;    /* [rows, n_kv_heads * head_dim] */
    spry_cuda_memory delta_mixed, delta_gate, delta_ba, delta_result; /* of delta nets, as in cpu/pass_state.h */
    spry_cuda_memory conv;            /* [rows, 3 * n_embd]: into short convolutions, whose results go to h */
    spry_cuda_memory gate, up;        /* [rows or slots, widest feed-forward] */
    spry_cuda_memory shared_out;      /* [rows, n_embd] */
    spry_cuda_memory expert_out;      /* [slots, n_embd] */
    spry_cuda_memory router;          /* [rows, n_experts] */
    spry_cuda_memory shared_gate;     /* [rows] */
    spry_cuda_memory chosen, weight;  /* [rows, n_used] */
    spry_cuda_memory slot;            /* [rows, n_used] */
    spry_cuda_memory source, experts; /* [slots] */
    spry_cuda_memory raw;          /* [rows, n_heads * a head's own size]: of latent attention; or heads with gates */
    spry_cuda_memory low;          /* [rows, n_q_rank] */
    spry_cuda_memory heads;        /* [slots of heads, n_kv_rank or value_dim] */
    spry_cuda_memory head_source;  /* [slots of heads] */
    spry_cuda_memory head_numbers; /* [slots of heads] */

    /* of Gemma 3n */
    spry_cuda_memory streams, predicted;   /* [n_streams, rows, n_embd] */
    spry_cuda_memory laurel, laurel_low;   /* [rows, n_embd]: the low-rank path, and inside of it */
    spry_cuda_memory modality;             /* [rows, n_streams] */
    spry_cuda_memory layer_in, layer_gate; /* [rows, n_layers * n_layer_embd] */

    spry_cuda_memory partial; /* [partial_floats]: of attention */
    size_t partial_floats;
    spry_cuda_memory cosine[2], sine[2];                   /* [rows, pairs]: of full and of sliding layers */
    spry_cuda_memory rotation_cosine[2], rotation_sine[2]; /* [turns, pairs] */
    spry_cuda_memory logits;                               /* [max_logits, n_vocab] */
    spry_cuda_memory act_values[SPRY_ACT_FORMATS], act_scales, act_norms;
    spry_cuda_memory x_values;                             /* rows of x in any form, in the order of wgmma */
    spry_cuda_memory draw_scores, draw_weight, draw_count; /* [SPRY_CUDA_DRAWS, n_vocab] */
    spry_cuda_memory draw_best;                            /* [SPRY_CUDA_DRAWS, SPRY_DRAW_SLICES] */
    spry_cuda_memory stage_lists;                          /* [SPRY_CUDA_GRAPHS, bytes of a list] */
    size_t n_slots;
    spry_cuda_memory
        plain; /* with adapters: [rows or slots, widest input], rows that are made while they are encoded */
    spry_cuda_memory shrunk; /* [SPRY_LORA_PARTS, rows or slots, adapter_ranks] */
} spry_cuda_scratch;

/* What a step sends ahead: fixed places, then the entries of all tables. Offsets in bytes. */
typedef struct spry_cuda_upload {
    unsigned char *both; /* pinned: for two steps */
    unsigned char *host; /* of the one that is laid out */
    spry_cuda_memory memory;
    size_t bytes; /* of a step */
    size_t rows, decode_rows, decode_tiles, prefill_tiles, segments, source, deltas, drawn, scales,
        entries; /* offsets */
} spry_cuda_upload;

/* The same for the draws of a step, and their results. */
typedef struct spry_cuda_draws {
    unsigned char *host; /* pinned */
    spry_cuda_memory memory;
    size_t bytes;
    spry_draw_result *results; /* pinned */
    spry_cuda_memory results_memory;
    size_t capacity; /* of results */
} spry_cuda_draws;

enum { SPRY_CUDA_COPIES = 64 };

/* Copies of pages to and from host memory. They have numbers, and are made in their order in a stream of their own. */
typedef struct spry_cuda_tier {
    void *stream;                  /* NULL until memory is first asked for */
    void *before;                  /* an event: what the steps' stream has to do before the last copy */
    void *after[SPRY_CUDA_COPIES]; /* events behind copy number n, modulo their number; of several the last */
    uint64_t newest;               /* the last copy; 0: none */
    uint64_t passed;               /* all up to this one come before what is submitted next */
    uint64_t *of_page;             /* [n_pages]: the last copy to or from it */
} spry_cuda_tier;

/* How attention is computed for a kind of pages and heads. */
typedef struct spry_cuda_attention {
    const char *split_kv, *prefill; /* names of kernels, with a place for `number` */
    const char *decode;             /* NULL: none, which takes rows that are alone in their sequences */
    const char *combine;            /* folds what is left of few rows */
    const char *combine_prefill;    /* NULL, or folds chunks of runs that were spread over blocks */
    bool multi_row;                 /* few rows: a warp takes several of a segment */
    size_t number;                  /* values of a head by 32, or values that a lane holds */
    size_t chunk_pages;             /* of few rows */
    size_t warps, prefill_warps;    /* of a block; of one for runs */
    size_t producer_warps;          /* of one for runs, besides */
    size_t prefill_full_grid;       /* from so many on chunks of runs are not spread over blocks */
    size_t queries;                 /* of a warp */
    size_t parts;                   /* warps that share the values of a head */
    size_t split_kv_bytes, prefill_bytes, decode_bytes, decode_fast_bytes; /* of shared memory of a block */
    bool uses_tma;                                                         /* runs are attended over maps of pages */
    spry_kv_tensor_maps maps;
} spry_cuda_attention;

/* What the launches of a step depend on; compared as bytes. */
typedef struct spry_cuda_graph_key {
    uint64_t alone, adapted, n_segments, n_rows, n_decode_rows, n_decode_tiles, n_prefill_tiles, longest_prefill_tile,
        n_chunks, n_kv_splits, n_logits, n_wanted, n_rotations, upload;
} spry_cuda_graph_key;

typedef struct spry_cuda_graph {
    spry_cuda_graph_key shape;
    void *exec;    /* NULL: not made yet */
    uint64_t used; /* when last; 0: never */
} spry_cuda_graph;

enum { SPRY_CUDA_GRAPHS = 32, SPRY_CUDA_WRITES = 64 };

/* Lists of phases (cuda_persistent.c), one for each graph: phases, then counters. */
typedef struct spry_cuda_stage_lists {
    unsigned char *host; /* pinned, [SPRY_CUDA_GRAPHS, bytes]; NULL: this model has none */
    size_t bytes;        /* of one */
    size_t most;         /* phases of one */
} spry_cuda_stage_lists;

/* One that was made. */
typedef struct spry_cuda_stage_list {
    void *kernel;
    spry_persistent_args args;
    size_t shared_bytes;
} spry_cuda_stage_list;

/* New bytes of pages: places for some, in the order in which they were begun. */
typedef struct spry_cuda_writes {
    unsigned char *host; /* pinned, [capacity, page_bytes] */
    size_t capacity, n;
    uint32_t pages[SPRY_CUDA_WRITES];
} spry_cuda_writes;

enum { SPRY_CUDA_MARKS = 1024 }; /* ops between two waits of a watched step */

typedef struct spry_cuda_marked {
    spry_op op;
    spry_dtype type;
    double bytes, products;
} spry_cuda_marked;

/* The ops of a watched step, each with an event behind it. */
typedef struct spry_cuda_marks {
    void *events[SPRY_CUDA_MARKS + 2]; /* before the first, behind each, and behind the draws */
    size_t n_events;                   /* that were created */
    spry_cuda_marked ops[SPRY_CUDA_MARKS];
    size_t n;
    bool under_way;
    const spry_segment *segments; /* of the step; borrowed while it is launched */
} spry_cuda_marks;

/* Rows of x that the product which made them has encoded, for a norm; 0: none are. */
typedef struct spry_cuda_prequantised {
    spry_cuda_memory norm;
    spry_act_format format;
    spry_activations activations;
} spry_cuda_prequantised;

typedef struct spry_cuda_device {
    spry_device device;
    spry_cuda driver;
    spry_cuda_context context;
    spry_cuda_model model;
    const spry_config *config;
    const spry_kv_pool *pool;
    spry_cuda_attention attention;
    spry_cuda_memory pages;
    spry_cuda_scratch scratch;
    spry_cuda_upload upload;
    spry_cuda_draws draws[2];
    spry_cuda_graph graphs[SPRY_CUDA_GRAPHS];
    uint64_t graph_clock;
    spry_cuda_stage_lists stage_lists;
    const spry_cuda_stage_list *stage_list;            /* NULL, or what stands for the launches of layers */
    spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES]; /* how decode steps are launched */
    spry_cuda_writes writes;
    spry_cuda_tier tier;
    float *host_rows; /* pinned: rows of logits or hidden states that were asked for */
    size_t host_rows_bytes;
    spry_op_watch *watch; /* NULL: none */
    spry_cuda_marks marks;
    spry_trace *trace;
    uint32_t lane;
    uint64_t traced_waits; /* until the last step in the trace */

    /* the steps under way: two where one is behind the other */
    struct {
        spry_draw *const *draws;
        size_t n_draws, n_queued; /* queued: those that are not at fault themselves */
        size_t n_rows, n_logits, n_segments;
        uint64_t begin_ns;
        bool behind; /* it was started behind another */
    } steps[2];
    size_t newest; /* of steps, and of draws */
    bool two;      /* the other one is under way, too */

    /* the step that is laid out */
    size_t n_segments, n_rows, n_decode_rows, n_decode_tiles, n_prefill_tiles, n_chunks, n_logits, n_wanted;
    size_t longest_prefill_tile;                    /* rows of it */
    size_t n_kv_splits;                             /* chunks of runs that are spread over blocks; 0: none are */
    bool mma_layout;                                /* rows are encoded in the order of lanes, however many they are */
    spry_activations activations[SPRY_ACT_FORMATS]; /* the rows that were encoded last, in each form */
    spry_cuda_prequantised prequantised;
    bool alone;                            /* every row is the only one of its sequence */
    bool adapted;                          /* some rows go through adapters */
    spry_cuda_memory lora_in, lora_source; /* the rows that were encoded last, as floats, and their numbers */
} spry_cuda_device;

/* cuda_scratch.c: a part of the working memory; where that has no address, it is only counted. And
 * places for the inputs of products. */
spry_cuda_memory spry_cuda_carve(spry_cuda_scratch *s, size_t rows, size_t width, size_t size);
void spry_cuda_carve_activations(spry_cuda_scratch *s, size_t rows, size_t width);

/* What a chunk of pages leaves of a row, in floats. */
size_t spry_cuda_partial_floats(const spry_config *config);

/* What a device of these limits takes. */
size_t spry_cuda_scratch_bytes(const spry_config *config, const spry_step_limits *limits);
spry_status spry_cuda_scratch_init(spry_cuda_device *d, spry_error *error);
void spry_cuda_scratch_deinit(spry_cuda_device *d);

/* cuda_pages.c: KV pages in the GPU's memory. `restores`: many are written at once. */
spry_status spry_cuda_pages_init(spry_cuda_device *d, bool restores, spry_error *error);
void spry_cuda_pages_deinit(spry_cuda_device *d);
spry_kv_mover spry_cuda_pages_mover(spry_device *device);
spry_cuda_memory spry_cuda_page(const spry_cuda_device *d, uint32_t page);

/* cuda_tier.c: pages in host memory. The functions of a mover; then, before the steps' stream uses a page, or those of
 * a step: it waits for their copies, and the host does not. */
void spry_cuda_tier_mover(spry_kv_mover *mover);
void spry_cuda_tier_pass(spry_cuda_device *d, uint32_t page);
void spry_cuda_tier_pass_step(spry_cuda_device *d, const spry_device_step *step);
void spry_cuda_tier_deinit(spry_cuda_device *d);

/* cuda_attention.c: the kernels for a kind of pages and heads. */
spry_cuda_attention spry_cuda_attention_of(const spry_cuda_context *gpu, const spry_config *config, spry_dtype type);

/* Attention of the normalised rows of a layer, in attn; true: in `acts`, as the product behind it takes them. A layer
 * without k and v attends to pages that are filled already. */
bool spry_cuda_attend(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer);

/* Its parts: runs, at most so many rows long, of which, where `n_kv_splits` is not 0, so many chunks are spread over
 * blocks and folded; arguments and pages of a layer. */
void spry_cuda_attend_prefill(spry_cuda_context *gpu, const spry_cuda_attention *attention,
                              const spry_attend_args *args, size_t n_prefill_tiles, size_t longest, size_t n_kv_splits);
spry_attend_args spry_cuda_attend_args(const spry_cuda_device *d, uint32_t layer);
spry_kv_pages spry_cuda_layer_pages(const spry_cuda_device *d, uint32_t layer);

/* cuda_upload.c: lays the step out and sends it ahead. `drawn`: NULL, or the draws of the step before that give the
 * tokens. */
spry_status spry_cuda_upload_init(spry_cuda_device *d, spry_error *error);
void spry_cuda_upload_deinit(spry_cuda_device *d);
spry_status spry_cuda_upload_step(spry_cuda_device *d, const spry_device_step *step, const uint32_t *drawn,
                                  spry_error *error);

/* Where `way` wants maps of pages: makes them. */
void spry_cuda_encode_tensor_maps(spry_cuda_context *gpu, spry_cuda_attention *attention, const spry_kv_pages *kv,
                                  size_t n_pages);

/* cuda_mla.c: the kernels of latent attention; what all layers of a step need; attention of the normalised rows of a
 * layer, [rows, n_heads * value_dim] in `raw`; slots of so many rows. */
spry_cuda_attention spry_cuda_mla_attention(void);
void spry_cuda_mla_begin(spry_cuda_device *d);
void spry_cuda_mla(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer);
size_t spry_cuda_mla_slots(const spry_config *config, size_t rows);

/* cuda_streams.c: Gemma 3n's parts, in their order. Attention's result, in y, is added to x by add_laurel. Gates of a
 * sparse layer, [rows, n], are made sparse before they are used. */
void spry_cuda_streams_begin(spry_cuda_device *d);
void spry_cuda_streams_predict(spry_cuda_device *d, const spry_cuda_side *side);
void spry_cuda_laurel(spry_cuda_device *d, const spry_cuda_layer *l);
void spry_cuda_add_laurel(spry_cuda_device *d, const spry_cuda_layer *l);
bool spry_cuda_is_sparse(const spry_cuda_device *d, uint32_t layer);
void spry_cuda_sparsify(spry_cuda_device *d, uint32_t layer, size_t n);
void spry_cuda_streams_correct(spry_cuda_device *d, const spry_cuda_side *side, uint32_t layer);
void spry_cuda_streams_end(spry_cuda_device *d);

/* cuda_block.c: all layers of the step, and the logits; the layers alone. */
void spry_cuda_run(spry_cuda_device *d);
void spry_cuda_layers(spry_cuda_device *d);

/* Its parts, which Whisper models run, too: rows of the embedding, attention of a layer, norm and logits of rows that
 * are wanted. */
void spry_cuda_embed(spry_cuda_device *d);
void spry_cuda_attention_part(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer);
void spry_cuda_unembed(spry_cuda_device *d);

/* cuda_graph.c: `run`, as a graph where a step of this shape came before. */
void spry_cuda_run_graph(spry_cuda_device *d, void (*run)(spry_cuda_device *d));
void spry_cuda_graphs_deinit(spry_cuda_device *d);

/* cuda_persistent.c: bytes of a list of phases; 0: a model whose layers are not made of phases. Room for lists, and
 * their end. */
size_t spry_cuda_stage_list_bytes(const spry_config *config);
spry_status spry_cuda_stage_lists_init(spry_cuda_device *d, spry_error *error);
void spry_cuda_stage_lists_deinit(spry_cuda_device *d);

/* Makes the list of the layers of the step that is laid out, as number `slot`; false: there are launches among them
 * that are no phases. Then launches one, in place of the layers. */
bool spry_cuda_stage_list_make(spry_cuda_stage_list *list, spry_cuda_device *d, size_t slot);
void spry_cuda_stage_list_launch(spry_cuda_device *d, const spry_cuda_stage_list *list);

/* What was chosen for steps of as many rows as the one that is laid out; 0: by rule. */
static inline unsigned spry_cuda_tuned(const spry_cuda_device *d, spry_cuda_tunable tunable)
{
    size_t index = spry_cuda_step_size_of(d->n_rows);
    return index < SPRY_CUDA_STEP_SIZES ? d->measured[index].config.of[tunable] : 0;
}

/* cuda_tune.c: fills `measured` from the profile, measures what that lacks and stores it. `timer`: NULL, or what
 * measures in place of the clock. */
spry_status spry_cuda_tune(spry_cuda_device *d, const char *profile, const spry_log *log, spry_cuda_timer timer,
                           void *context, spry_error *error);

/* cuda_moe.c: y = feed-forward of the normalised rows of a layer that has experts. */
void spry_cuda_experts(spry_cuda_device *d, const spry_cuda_layer *layer);

/* cuda_convolution.c: the short convolution of a layer; what its output matrix takes. */
spry_quantise_args spry_cuda_convolution(spry_cuda_device *d, const spry_cuda_layer *layer, uint32_t index);

/* cuda_delta.c: the same of a gated delta net; of attention, kernels for the gates of heads in `raw`. */
spry_quantise_args spry_cuda_delta(spry_cuda_device *d, const spry_cuda_layer *layer, uint32_t index);
void spry_cuda_head_gates(spry_cuda_device *d, const char *kernel, spry_cuda_memory x);

/* cuda_draw.c: queues draws of the newest step; when they are done their results are taken over. `which` of the steps.
 */
spry_status spry_cuda_draw_queue(spry_cuda_device *d, spry_draw *const *draws, size_t n, spry_error *error);
void spry_cuda_draw_take(spry_cuda_device *d, size_t which, spry_draw *const *draws, size_t n);
void spry_cuda_draw_deinit(spry_cuda_device *d);

/* ---- cuda_ops.c: launches -------------------------------------------------------------------------------------- */

/* out[n_rows, stride] = w * rows + bias; `add`: out += that. */
typedef struct spry_cuda_gemm {
    spry_cuda_memory out;
    size_t stride;
    const spry_cuda_matrix *w;
} spry_cuda_gemm;

/* Rows of experts: groups of `align` slots belong to one. */
typedef struct spry_cuda_expert_groups {
    spry_cuda_memory experts; /* 0: none */
    size_t align;
} spry_cuda_expert_groups;

void spry_cuda_gemms(spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products, size_t n_rows, bool add,
                     spry_cuda_expert_groups groups);

/* ---- cuda_lora.c --------------------------------------------------------------------------------------------- */

/* What the rows of a segment go through, into the upload. */
void spry_cuda_lora_rows(spry_cuda_device *d, const spry_segment *segment, size_t first_row);

/* Whether adapters of the step's rows change one of these products. */
bool spry_cuda_has_lora(const spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products);

/* Rows are encoded for such products: they are kept as floats. */
void spry_cuda_lora_input(spry_cuda_device *d, spry_quantise_args *args);

/* Adds to products what the adapters of their rows give. */
void spry_cuda_lora(spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products, size_t n_rows,
                    spry_cuda_expert_groups groups);

/* ---- cuda_ops.c again -------------------------------------------------------------------------------------------- */

/* Rows of n values for the products that follow: in the forms their types need. `args` says where from; in_stride 0: n.
 */
void spry_cuda_quantise(spry_cuda_device *d, spry_quantise_args args, const spry_cuda_gemm *products, size_t n_products,
                        size_t n_rows);

/* Rows of x, as a part takes them: normalised where there is a norm. */
spry_quantise_args spry_cuda_input(const spry_cuda_device *d, spry_cuda_memory norm, spry_cuda_memory bias);

/* Both, one behind the other or, for few rows, in one kernel. */
void spry_cuda_quantise_gemms(spry_cuda_device *d, spry_quantise_args args, const spry_cuda_gemm *products,
                              size_t n_products, size_t n_rows, bool add);

/* Both of a gate and its `up`, with the gated rows encoded for the product with `down`, in one kernel; false where that
 * cannot be, and nothing was done. */
bool spry_cuda_gate_up_gemms(spry_cuda_device *d, spry_quantise_args args, const spry_cuda_gemm both[2],
                             const spry_cuda_matrix *down, size_t n_rows);

/* Where a row of n values goes in the form that products with a matrix need. */
spry_activations spry_cuda_activations(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n);
/* Groups of rows in the order of wgmma, for a matrix of this type; 0: in the order of lanes. */
uint32_t spry_cuda_wgmma_groups(const spry_cuda_device *d, spry_dtype type, size_t n_rows);

/* cuda_watch.c, where there is a watch: what was launched since the last op was this op's. */
void spry_cuda_charge(spry_cuda_device *d, spry_op op, spry_dtype type, double bytes, double products);
void spry_cuda_charge_attention(spry_cuda_device *d, uint32_t layer);

/* Around a watched step; its end waits for the GPU. */
void spry_cuda_watch_begin(spry_cuda_device *d, uint64_t begin_ns);
void spry_cuda_watch_end(spry_cuda_device *d);
void spry_cuda_watch_deinit(spry_cuda_device *d);

void spry_cuda_charge_gemms(spry_cuda_device *d, spry_op op, const spry_cuda_gemm *products, size_t n_products,
                            size_t n_rows);

#endif
