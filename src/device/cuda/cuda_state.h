/* The state of the CUDA device, and the functions that its files share. */
#ifndef SPRY_DEVICE_CUDA_CUDA_STATE_H
#define SPRY_DEVICE_CUDA_CUDA_STATE_H

#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_model.h"
#include "device/cuda/kernel_args.h"
#include "device/device_impl.h"

enum {
    SPRY_CUDA_DECODE_ROWS = 16,      /* maximum rows of a segment that are decoded with split-KV, */
    SPRY_CUDA_DECODE_TILE_ROWS = 64, /* the same for kernels whose warps compute several rows together, */
    SPRY_CUDA_DECODE_STEP_ROWS = 32, /* maximum rows of a decode step, if prefill can be split, too */
    SPRY_CUDA_EXPERT_ALIGN = 8,      /* the number of slots of an expert is a multiple of this or of the next
                                      * constant */
    SPRY_CUDA_EXPERT_ALIGN_MANY = 128,
    SPRY_CUDA_DRAWS = 16, /* maximum draws of one launch */
};

/* Working memory, as addresses on the GPU; rows: max_rows, slots: slots of experts. */
typedef struct spry_cuda_scratch {
    spry_cuda_memory memory;
    size_t bytes;
    spry_cuda_memory x, y;    /* [rows, n_embd] */
    spry_cuda_memory h;       /* [rows, n_embd]: normalised rows that the caller asked for */
    spry_cuda_memory taps;    /* [n_taps, rows, n_embd]: rows of x after some layers of a tower */
    spry_cuda_memory q, attn; /* [rows, n_heads * head_dim] */
    spry_cuda_memory k, v;    /* [rows, n_kv_heads * head_dim] */
    spry_cuda_memory delta_mixed, delta_gate, delta_ba, delta_result; /* gated delta nets; see cpu/pass_state.h */
    spry_cuda_memory conv;            /* [rows, 3 * n_embd]: inputs of short convolutions; the results are in h */
    spry_cuda_memory gate, up;        /* [rows or slots, widest feed-forward] */
    spry_cuda_memory shared_out;      /* [rows, n_embd] */
    spry_cuda_memory expert_out;      /* [slots, n_embd or n_latent] */
    spry_cuda_memory latent;          /* [rows, n_latent] */
    spry_cuda_memory router;          /* [rows, n_experts] */
    spry_cuda_memory shared_gate;     /* [rows] */
    spry_cuda_memory chosen, weight;  /* [rows, n_used] */
    spry_cuda_memory slot;            /* [rows, n_used] */
    spry_cuda_memory source, experts; /* [slots] */
    spry_cuda_memory raw;             /* [rows, n_heads * unprojected head size]: queries of MLA, or heads with gates */
    spry_cuda_memory low;             /* [rows, n_q_rank] */
    spry_cuda_memory heads;           /* [slots of heads, n_kv_rank or value_dim] */
    spry_cuda_memory head_source;     /* [slots of heads] */
    spry_cuda_memory head_numbers;    /* [slots of heads] */

    /* Gemma 3n */
    spry_cuda_memory streams, predicted;   /* [n_streams, rows, n_embd] */
    spry_cuda_memory laurel, laurel_low;   /* [rows, n_embd]: the low-rank branch, and its inner values */
    spry_cuda_memory modality;             /* [rows, n_streams] */
    spry_cuda_memory layer_in, layer_gate; /* [rows, n_layers * n_layer_embd] */

    spry_cuda_memory partial; /* [partial_floats]: partial results of attention */
    size_t partial_floats;
    spry_cuda_memory cosine[2], sine[2];                   /* [rows, pairs]: for full and for sliding layers */
    spry_cuda_memory rotation_cosine[2], rotation_sine[2]; /* [rotations, pairs] */
    spry_cuda_memory logits;                               /* [max_logits, n_vocab] */
    spry_cuda_memory act_values[SPRY_ACT_FORMATS], act_norms;
    spry_cuda_memory x_values;                             /* rows of x in any format, in the wgmma layout */
    spry_cuda_memory draw_scores, draw_weight, draw_count; /* [SPRY_CUDA_DRAWS, n_vocab] */
    spry_cuda_memory draw_best;                            /* [SPRY_CUDA_DRAWS, SPRY_DRAW_SLICES] */
    size_t n_slots;
    spry_cuda_memory plain;   /* with adapters or limits: [rows or slots, widest input], the rows before quantisation */
    spry_cuda_memory limited; /* with limits: the same rows within those of a matrix */
    spry_cuda_memory shrunk;  /* [SPRY_LORA_PARTS, rows or slots, adapter_ranks] */
} spry_cuda_scratch;

/* What a step uploads: fixed sections, then the entries of all page tables. Offsets in bytes. */
typedef struct spry_cuda_upload {
    unsigned char *both; /* pinned, for two steps */
    unsigned char *host; /* the half of the step that is being prepared */
    spry_cuda_memory memory;
    size_t bytes; /* bytes of one step */
    size_t rows, window_rows, decode_rows, decode_tiles, prefill_tiles, runs, source, deltas, drawn, scales,
        entries; /* offsets */
} spry_cuda_upload;

/* Upload and results of a step's draws. */
typedef struct spry_cuda_draws {
    unsigned char *host; /* pinned */
    spry_cuda_memory memory;
    size_t bytes;
    spry_draw_result *results; /* pinned */
    spry_cuda_memory results_memory;
    size_t capacity; /* number of results that fit */
} spry_cuda_draws;

enum { SPRY_CUDA_COPIES = 64 };

/* Copies of pages to and from host memory. They are numbered, and run in order in their own stream. */
typedef struct spry_cuda_tier {
    void *stream;                  /* NULL until host memory is first requested */
    void *before;                  /* an event in the steps' stream, which the last copy waits for */
    void *after[SPRY_CUDA_COPIES]; /* event after copy n, at index n modulo SPRY_CUDA_COPIES */
    uint64_t newest;               /* number of the last copy; 0: none */
    uint64_t passed;               /* all copies up to this number precede the next submission */
    uint64_t *of_page;             /* [n_pages]: the last copy to or from the page */
} spry_cuda_tier;

/* The attention kernels for a KV type and a head size. */
typedef struct spry_cuda_attention {
    spry_kernel_id split_kv, prefill;
    spry_kernel_id
        decode; /* SPRY_NO_KERNEL, or the fused kernel for rows that are the only new row of their sequence */
    spry_kernel_id combine;         /* combines the partial results of decode rows */
    spry_kernel_id combine_prefill; /* SPRY_NO_KERNEL, or combines the partial results of prefill with split-KV */
    bool multi_row;                 /* a warp computes several decode rows of a segment together */
    size_t chunk_pages;             /* pages of a chunk of decode rows */
    size_t warps, prefill_warps;    /* per block, for decode and for prefill */
    size_t prefill_full_grid;       /* prefill is not split if its grid has at least this many blocks */
    size_t queries;                 /* queries per warp */
    size_t parts;                   /* warps that share the values of a head */
    size_t split_kv_bytes, prefill_bytes, decode_bytes, decode_fast_bytes; /* dynamic shared memory of a block */
    bool uses_tma; /* prefill reads pages through TMA descriptors */
    spry_kv_tensor_maps maps;
} spry_cuda_attention;

/* Everything that the launches of a step depend on; compared as bytes. */
typedef struct spry_cuda_graph_key {
    uint64_t alone, adapted, n_segments, n_rows, n_decode_rows, n_decode_tiles, n_prefill_tiles, longest_prefill_tile,
        n_chunks, n_kv_splits, n_logits, n_wanted, n_rotations, upload;
} spry_cuda_graph_key;

typedef struct spry_cuda_graph {
    spry_cuda_graph_key shape;
    void *exec;    /* NULL: not captured yet */
    uint64_t used; /* time of the last use; 0: never */
} spry_cuda_graph;

enum { SPRY_CUDA_GRAPHS = 32, SPRY_CUDA_WRITES = 64 };

/* Pages that are being written: staging slots in the order in which the writes began. */
typedef struct spry_cuda_writes {
    unsigned char *host; /* pinned, [capacity, page_bytes] */
    size_t capacity, n;
    uint32_t pages[SPRY_CUDA_WRITES];
} spry_cuda_writes;

/* Recurrent states, one of which can be written at a time. */
typedef struct spry_cuda_states {
    spry_cuda_memory memory;
    unsigned char *host; /* pinned, one state; NULL until the first is written */
} spry_cuda_states;

enum { SPRY_CUDA_MARKS = 1024 }; /* maximum ops between two waits of a watched step */

typedef struct spry_cuda_marked {
    spry_op op;
    spry_dtype type;
    double bytes, products;
} spry_cuda_marked;

/* The ops of a watched step, with an event after each. */
typedef struct spry_cuda_marks {
    void *events[SPRY_CUDA_MARKS + 2]; /* before the first op, after each op, after the draws */
    size_t n_events;                   /* number of events that exist */
    spry_cuda_marked ops[SPRY_CUDA_MARKS];
    size_t n;
    bool under_way;
    const spry_segment *segments; /* the step's segments, borrowed during the launch */
} spry_cuda_marks;

/* Quantised rows, the input of GEMMs, in each format that a product needs. With adapters, `plain` also has the rows as
 * floats, and `source` the number of each row in the step (0: rows are in order). */
typedef struct spry_cuda_rows {
    spry_activations in[SPRY_ACT_FORMATS];
    spry_cuda_memory plain, source;
} spry_cuda_rows;

typedef struct spry_cuda_device {
    spry_device device;
    spry_cuda driver;
    spry_cuda_context context;
    spry_cuda_model model;
    const spry_config *config;
    const spry_kv_pool *pool;
    spry_cuda_attention attention[2]; /* for full layers, or all; for sliding layers whose heads have other sizes */
    spry_cuda_memory pages;
    spry_cuda_scratch scratch;
    spry_cuda_upload upload;
    spry_cuda_draws draws[2];
    spry_cuda_graph graphs[SPRY_CUDA_GRAPHS];
    uint64_t graph_clock;
    spry_cuda_writes writes;
    spry_cuda_states states;
    spry_cuda_tier tier;
    float *host_rows; /* pinned: rows of logits or hidden states that the caller asked for */
    size_t host_rows_bytes;
    spry_op_watch *watch; /* NULL: none */
    spry_cuda_marks marks;
    spry_trace *trace;
    uint32_t lane;
    uint64_t traced_waits; /* number of waits at the last step in the trace */

    /* the steps in flight; two if one was submitted after the other */
    struct {
        spry_draw *const *draws;
        size_t n_draws, n_queued; /* n_queued: the draws without an input error */
        size_t n_rows, n_logits, n_segments;
        uint64_t begin_ns;
        bool after; /* submitted after another step */
    } steps[2];
    size_t newest; /* index into steps and draws */
    bool two;      /* both steps are in flight */

    /* the step that is being prepared */
    size_t n_segments, n_rows, n_decode_rows, n_decode_tiles, n_prefill_tiles, n_chunks, n_logits, n_wanted;
    size_t longest_prefill_tile;  /* rows of the longest tile */
    size_t n_kv_splits;           /* split-KV parts of prefill; 0: not split */
    bool alone;                   /* every row is the only new row of its sequence */
    bool adapted;                 /* some rows use adapters */
    bool sees;                    /* some rows come from pictures */
    const spry_segment *segments; /* borrowed until the step is launched */
    size_t n_step_segments;
} spry_cuda_device;

/* cuda_scratch.c: carve takes a part of the working memory, or only counts it if the memory has no address yet;
 * carve_activations does so for the buffers of quantised activations. */
spry_cuda_memory spry_cuda_carve(spry_cuda_scratch *s, size_t rows, size_t width, size_t size);
void spry_cuda_carve_activations(spry_cuda_scratch *s, size_t rows, size_t width);

/* Floats of the partial result of a chunk for one row. */
size_t spry_cuda_partial_floats(const spry_config *config);

/* Bytes of working memory for these limits. */
size_t spry_cuda_scratch_bytes(const spry_config *config, const spry_step_limits *limits);
spry_status spry_cuda_scratch_init(spry_cuda_device *d, spry_error *error);
void spry_cuda_scratch_deinit(spry_cuda_device *d);

/* cuda_pages.c: KV pages in GPU memory. `restores`: many pages are written at once. */
spry_status spry_cuda_pages_init(spry_cuda_device *d, bool restores, spry_error *error);
void spry_cuda_pages_deinit(spry_cuda_device *d);
spry_kv_mover spry_cuda_pages_mover(spry_device *device);
spry_kv_mover spry_cuda_states_mover(spry_device *device);
spry_cuda_memory spry_cuda_page(const spry_cuda_device *d, uint32_t page);

/* The host tier of pages. `pass`: the steps' stream waits for the copies of a page, or of a step's pages; the host does
 * not wait. */
void spry_cuda_tier_mover(spry_kv_mover *mover);
void spry_cuda_tier_pass(spry_cuda_device *d, uint32_t page);
void spry_cuda_tier_pass_step(spry_cuda_device *d, const spry_device_step *step);
void spry_cuda_tier_deinit(spry_cuda_device *d);

/* cuda_attention.c: the kernels for a KV type and head size; `slides`: of sliding layers. */
spry_cuda_attention spry_cuda_attention_of(const spry_cuda_context *gpu, const spry_config *config, spry_dtype type,
                                           bool slides);

/* Multiplies queries, [rows, n_heads, head_dim], by the factor of their positions, if the layer has one. */
void spry_cuda_cool(spry_cuda_device *d, spry_cuda_memory q, size_t head_dim, uint32_t layer);

/* Attention of a layer, which reads x. Returns the rows in attn as the input of the output projection, quantised if the
 * kernels do that. A layer without k and v uses pages that are filled already. */
spry_quantise_args spry_cuda_attend(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer,
                                    const spry_cuda_rows *x);

/* Parts of spry_cuda_attend. attend_prefill launches prefill with tiles of at most `longest` rows, split over
 * `n_kv_splits` parts if that is not 0; attend_args and layer_pages give the arguments and pages of a layer. */
void spry_cuda_attend_prefill(spry_cuda_context *gpu, const spry_cuda_attention *attention,
                              const spry_attend_args *args, size_t n_prefill_tiles, size_t longest, size_t n_kv_splits);
spry_attend_args spry_cuda_attend_args(const spry_cuda_device *d, uint32_t layer);
spry_kv_pages spry_cuda_layer_pages(const spry_cuda_device *d, uint32_t layer);

/* cuda_upload.c: prepares the step and uploads it. `drawn`: NULL, or the draws of the previous step that give the
 * tokens. */
spry_status spry_cuda_upload_init(spry_cuda_device *d, spry_error *error);
void spry_cuda_upload_deinit(spry_cuda_device *d);
spry_status spry_cuda_upload_step(spry_cuda_device *d, const spry_device_step *step, const uint32_t *drawn,
                                  spry_error *error);

/* Encodes the TMA descriptors, if the attention kernels use them. */
void spry_cuda_encode_tensor_maps(spry_cuda_context *gpu, spry_cuda_attention *attention, const spry_kv_pages *kv,
                                  size_t n_pages);

/* cuda_mla.c: mla_attention selects the kernels; mla_begin prepares a step, once for all layers; mla is the attention
 * of a layer and returns the input of the output projection; mla_slots is the number of slots for some rows. */
spry_cuda_attention spry_cuda_mla_attention(spry_dtype type);
void spry_cuda_mla_begin(spry_cuda_device *d);
spry_quantise_args spry_cuda_mla(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer);
size_t spry_cuda_mla_slots(const spry_config *config, size_t rows);

/* cuda_streams.c: the inputs that tokens give to each layer, for all layers; y = what a layer makes of its input, gated
 * by rows `from`. Then the parts of Gemma 3n in their order. add_laurel adds attention's result, in y, to x. sparsify
 * changes the gates of a sparse layer, [rows, n], before they are used. */
void spry_cuda_layer_inputs(spry_cuda_device *d);
void spry_cuda_layer_part(spry_cuda_device *d, const spry_cuda_side *side, spry_cuda_memory from, uint32_t layer);
void spry_cuda_streams_begin(spry_cuda_device *d);
void spry_cuda_streams_predict(spry_cuda_device *d, const spry_cuda_side *side);
void spry_cuda_laurel(spry_cuda_device *d, const spry_cuda_layer *l);
void spry_cuda_add_laurel(spry_cuda_device *d, const spry_cuda_layer *l);
bool spry_cuda_is_sparse(const spry_cuda_device *d, uint32_t layer);
void spry_cuda_sparsify(spry_cuda_device *d, uint32_t layer, size_t n);
void spry_cuda_streams_correct(spry_cuda_device *d, const spry_cuda_side *side, uint32_t layer);
void spry_cuda_streams_end(spry_cuda_device *d);

/* cuda_block.c: all layers of the step and the logits. */
void spry_cuda_run(spry_cuda_device *d);

/* Its parts, which Whisper uses, too: embedding, attention of a layer (see spry_cuda_input and spry_cuda_gemms for x
 * and the result), norm and logits of the wanted rows. */
void spry_cuda_embed(spry_cuda_device *d);
spry_cuda_rows spry_cuda_attention_part(spry_cuda_device *d, const spry_cuda_layer *l, uint32_t layer,
                                        const spry_cuda_rows *x);
void spry_cuda_unembed(spry_cuda_device *d);

/* cuda_graph.c: runs `run`, as a CUDA graph if a step with the same key came before. */
void spry_cuda_run_graph(spry_cuda_device *d, void (*run)(spry_cuda_device *d));
void spry_cuda_graphs_deinit(spry_cuda_device *d);

/* cuda_moe.c: out = feed-forward of a layer with experts, or out += that; `out` may be the rows of x that the inputs
 * are made from. The router and the experts may have inputs of their own. */
void spry_cuda_experts(spry_cuda_device *d, const spry_cuda_layer *layer, spry_quantise_args router,
                       spry_quantise_args input, spry_cuda_memory out, bool add);

/* cuda_recurrent.c: the short convolution of a layer; returns the input of the output projection. */
spry_quantise_args spry_cuda_convolution(spry_cuda_device *d, const spry_cuda_layer *layer, uint32_t index);

/* cuda_recurrent.c: the gated delta net of a layer; returns the input of the output projection. */
spry_quantise_args spry_cuda_delta(spry_cuda_device *d, const spry_cuda_layer *layer, uint32_t index);

/* cuda_draw.c: queues the draws of the newest step; take copies the results of finished draws. `which`: index into
 * `steps`. */
spry_status spry_cuda_draw_queue(spry_cuda_device *d, spry_draw *const *draws, size_t n, spry_error *error);
void spry_cuda_draw_take(spry_cuda_device *d, size_t which, spry_draw *const *draws, size_t n);
void spry_cuda_draw_deinit(spry_cuda_device *d);

/* ---- cuda_gemm.c ------------------------------------------------------------------------------------------------- */

/* out[n_rows, stride] = w * rows + bias, or += with `add`. */
typedef struct spry_cuda_gemm {
    spry_cuda_memory out;
    size_t stride;
    const spry_cuda_matrix *w;
} spry_cuda_gemm;

/* cuda_block.c: multiplies the results of products by the factors of their matrices, if they have some. */
void spry_cuda_scale_products(spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products);

/* Rows grouped by expert: each group of `align` slots belongs to one expert. */
typedef struct spry_cuda_expert_groups {
    spry_cuda_memory experts; /* 0: none */
    size_t align;
} spry_cuda_expert_groups;

/* Multiplies rows. A kernel whose result is x may also quantise it for the norm that follows: returns these rows, with
 * values = 0 in formats that it has not stored. */
spry_cuda_rows spry_cuda_gemms(spry_cuda_device *d, const spry_cuda_rows *rows, const spry_cuda_gemm *products,
                               size_t n_products, size_t n_rows, bool add, spry_cuda_expert_groups groups);

/* ---- cuda_lora.c ------------------------------------------------------------------------------------------------- */

/* Writes the adapters of a segment's rows to the upload. */
void spry_cuda_lora_rows(spry_cuda_device *d, const spry_segment *segment, size_t first_row);

/* True if adapters of the step's rows change one of these products. */
bool spry_cuda_has_lora(const spry_cuda_device *d, const spry_cuda_gemm *products, size_t n_products);

/* The address of the rows as floats, for products that adapters change. If the rows exist only as the result of the
 * quantisation, it stores the floats, too. */
spry_cuda_memory spry_cuda_lora_input(const spry_cuda_device *d, spry_quantise_args *args);

/* Adds the adapters' part to products. */
void spry_cuda_lora(spry_cuda_device *d, const spry_cuda_rows *rows, const spry_cuda_gemm *products, size_t n_products,
                    size_t n_rows, spry_cuda_expert_groups groups);

/* ---- cuda_gemm.c: activations and fused products ----------------------------------------------------------------- */

/* Quantises rows of n values in the formats that the products need, unless `to` has them already. in_stride 0: n.
 * mma_layout: not in the wgmma layout, however many rows there are. */
spry_cuda_rows spry_cuda_quantise(spry_cuda_device *d, spry_quantise_args args, const spry_cuda_gemm *products,
                                  size_t n_products, size_t n_rows, bool mma_layout);

/* The rows of x as the input of a part, normalised if there is a norm. x: NULL, or what the previous product of x has
 * returned. */
spry_quantise_args spry_cuda_input(const spry_cuda_device *d, spry_cuda_memory norm, spry_cuda_memory bias,
                                   const spry_cuda_rows *x);

/* Quantises and multiplies; if possible with one kernel, for at most 8 rows. Returns the same as spry_cuda_gemms. */
spry_cuda_rows spry_cuda_quantise_gemms(spry_cuda_device *d, spry_quantise_args args, const spry_cuda_gemm *products,
                                        size_t n_products, size_t n_rows, bool add);

/* Multiplies by gate and up, gates, and quantises for the product with `down`, whose input this result is, in one
 * kernel. Returns false, having done nothing, if there is no such kernel. */
bool spry_cuda_gate_up_gemms(spry_cuda_device *d, spry_quantise_args *result, spry_quantise_args args,
                             const spry_cuda_gemm both[2], const spry_cuda_matrix *down, size_t n_rows);

/* Address and layout of a row of n values in the format that products with a matrix need. */
spry_activations spry_cuda_activations(const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n);
/* Groups of rows in the wgmma layout for a matrix of this type; 0: mma layout. */
uint32_t spry_cuda_wgmma_groups(const spry_cuda_device *d, spry_dtype type, size_t n_rows);

/* cuda_watch.c: if there is a watch, adds the time of the launches since the last call to the time of `op`. */
void spry_cuda_charge(spry_cuda_device *d, spry_op op, spry_dtype type, double bytes, double products);
void spry_cuda_charge_attention(spry_cuda_device *d, uint32_t layer);

/* Begin and end of a watched step; the end waits for the GPU. */
void spry_cuda_watch_begin(spry_cuda_device *d, uint64_t begin_ns);
void spry_cuda_watch_end(spry_cuda_device *d);
void spry_cuda_watch_deinit(spry_cuda_device *d);

void spry_cuda_charge_gemms(spry_cuda_device *d, spry_op op, const spry_cuda_gemm *products, size_t n_products,
                            size_t n_rows);

#endif
