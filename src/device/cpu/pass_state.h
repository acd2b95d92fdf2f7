/* State shared by the files of the forward pass. Buffers are row-major, one row per token of the step. */
#ifndef SPRY_DEVICE_CPU_PASS_STATE_H
#define SPRY_DEVICE_CPU_PASS_STATE_H

#include "device/cpu/packing.h"
#include "device/cpu/pass.h"
#include "model/arch.h"

/* The RoPE angles of every row, for one kind of RoPE. */
typedef struct spry_angles {
    size_t n_pairs;     /* rope_dim / 2 of the layers that use it */
    float *frequencies; /* [n_pairs] */
    float magnitude;
    float *cosine, *sine;           /* [max_rows, n_pairs] */
    float *turn_cosine, *turn_sine; /* [SPRY_KV_TURNS_MAX, n_pairs] */
    spry_turn turns[SPRY_KV_TURNS_MAX];
} spry_angles;

typedef struct spry_slot {
    unsigned char *page;
    size_t token;
} spry_slot;

struct spry_pass {
    const spry_config *config;
    const spry_weights *weights;
    const spry_kv_pool *pool;
    const spry_host_pages *pages, *states;
    const spry_ops *ops;
    spry_threads *threads;
    spry_step_limits limits;
    spry_trace *trace; /* NULL: none */
    uint32_t lane;
    spry_op_watch *watch;              /* NULL: none */
    struct spry_expert_store *experts; /* NULL: all experts are packed, or used as the file has them */
    bool packed;                       /* the last step packed weights */
    unsigned char *memory;             /* memory of everything below */
    size_t memory_bytes;

    /* the current step */
    const spry_segment *segments;
    size_t n_segments, n_rows, n_logits, n_hidden;
    uint64_t attention_ns;              /* time that attention took */
    const float *inputs;                /* NULL, or [n_rows, n_embd]: inputs that replace token embeddings */
    int32_t *tokens;                    /* [max_rows] */
    uint32_t *positions;                /* [max_rows] */
    spry_slot *slots;                   /* [max_rows]: where a row's keys and values are stored */
    bool adapted;                       /* some rows use adapters */
    const spry_adapter_scales **scales; /* [max_rows]: scales of each row's adapters; NULL: it uses none */
    const uint32_t *row_numbers;        /* numbers of the rows that are being multiplied; NULL: all rows of the step */
    uint32_t *gathered;                 /* [max_rows]: numbers of the wanted rows */
    float *narrow;                      /* [SPRY_PASS_ADAPTED, max_rows, adapter_ranks]: rows times matrix a */

    float *x;             /* [max_rows, n_embd]: the residual stream */
    float *h;             /* [max_rows, n_embd]: normalised input of attention or feed-forward; at the end the wanted
                           * rows */
    float *y;             /* [max_rows, n_embd]: result of attention or feed-forward */
    const float *in;      /* current input of attention or feed-forward: h, or x if there is no norm */
    bool reads_x;         /* x is read after the current layer, so its last residual is added at once */
    bool adds;            /* y must still be added to x, which is done with the next input */
    float *taps;          /* [n_taps, max_rows, n_embd]: the residual stream after the tapped layers */
    float *draft_in;      /* a head that drafts: [max_rows, n_draft_in]: what its first matrix reads */
    const float *encoded; /* the rows whose encoding is in act, until the next product; or NULL */
    float *ones;          /* [widest feed-forward or head]: ones */
    float *q, *attn;      /* [max_rows, n_heads * head_dim] */
    float *k, *v;         /* [max_rows, n_kv_heads * head_dim] */
    /* An indexer: queries, [max_rows, n_index_heads * index_dim]; the key of each row; weights of its heads; scores of
     * SPRY_INDEX_ROWS rows, [SPRY_INDEX_ROWS, session]; the tokens that each row has selected, ascending, [max_rows,
     * index_top]; selected keys in pages of floats, and these pages as a table. */
    float *index_q, *index_k, *index_weights, *index_scores;
    uint32_t *index_chosen;
    float *index_heap;          /* [SPRY_INDEX_ROWS, index_top] */
    unsigned char *index_pages; /* [SPRY_INDEX_SHARES, spry_index_pages, SPRY_PAGE_TOKENS, head_dim] */
    spry_kv_entry *index_entries;
    /* Compressed attention: values and gates of entries, [max_rows, 2 * head_dim], and of the indexer's, [max_rows, 2 *
     * index_dim]; results of heads, group by group. Hyper-connections: streams, [max_rows, n_hyper, n_embd]; the same,
     * normalised or mixed; weights. */
    float *joined_values, *joined_gates, *index_values, *index_gates, *group_in, *group_out;
    float *hyper, *hyper_flat, *hyper_mix;
    float *raw, *low; /* latent attention: [max_rows, n_heads * the model's own head size], [max_rows, n_q_rank];
                       * attention with gates: q with its gates */
    float *delta_mixed, *delta_gate, *delta_ba; /* delta nets: inputs, gates, betas and decays */
    float *delta_conv;                          /* [max_rows + 2 * SPRY_PAGE_TOKENS, mixed]: results of convolutions */
    float *delta_taps;                          /* [n_delta_layers, n_conv, mixed]: weights of convolutions */
    float *delta_ahead;                         /* [n_delta_layers, n_delta_heads, key_dim, value_dim]: states after the
                                                 * last row of the last step, if that step was of one sequence */
    bool is_ahead, leads;        /* this step goes on from delta_ahead; this step leaves its states there */
    uint32_t ahead_state;        /* the sequence's state; 0: there is nothing in delta_ahead */
    size_t ahead_end;            /* the position after the last row */
    uint64_t ahead_changes;      /* states->changes at that time */
    float *delta_result;         /* results of states: [max_rows, n_delta_heads * delta_value_dim] */
    float *beside_state;         /* [max_rows, n_embd]: result of a recurrent part beside attention */
    float *embedded, *wide;      /* blocks that layers share: [max_rows, n_embd], the embeddings;
                                  * [max_rows, 2 * n_embd], their input */
    float *low_rows, *low_out;   /* additions of low rank: [max_rows, block_rank], [max_rows, widest] */
    float *latent;               /* [2, max_rows, n_latent]: inputs and results of experts with projected
                                  * rows */
    float *conv;                 /* short convolutions: [max_rows, 3 * n_embd] */
    float *streams, *predicted;  /* Gemma 3n: [n_streams, max_rows, n_embd] */
    float *laurel;               /* [max_rows, n_embd] */
    float *modality;             /* [max_rows, n_streams] */
    float *layer_in, *layer_row; /* [max_rows, n_layers * n_layer_embd], one row */
    float sparsity;              /* threshold factor of the current gates; -INFINITY: gates are not
                                  * sparse */
    float *gate, *up;            /* [max_rows, widest feed-forward] */
    size_t gate_width;           /* floats of `gate` per row */
    spry_act_block *act;         /* [max_rows, widest input]: the current rows, encoded for integer
                                  * kernels */
    uint16_t *halves;            /* the current rows, rounded to BF16 */
    float *router;
    float *choice;                 /* [n_experts]: values by which experts are selected for the current
                                    * row */
    uint32_t *chosen;              /* [max_rows, n_experts_used], ascending */
    float *chosen_weight;          /* [max_rows, n_experts_used] */
    uint32_t *expert_rows;         /* [max_rows]: numbers of the rows of the current expert */
    float *expert_weight;          /* [max_rows] */
    float *expert_in, *expert_out; /* [max_rows, n_embd] */
    float *limited;                /* [max_rows, widest input]: the input of a matrix with limits */
    float *beside;                 /* [max_rows, n_embd]: result of the dense part of a layer with
                                    * experts */
    spry_angles full, sliding;
    int32_t turned[SPRY_KV_TURNS_MAX]; /* the distances for which the turns (rotations) were computed */
    float *logits;                     /* [max_logits, n_vocab] */
    spry_team *team;                   /* NULL: this process computes alone */
    float *part, *exchanged; /* this process's share of some rows; the shares of all processes, rank after rank */
    float *joined;           /* [max_rows, widest input of out and down]: these shares as complete rows */
};

/* out[n_rows, stride] = w * in[n_rows, w->n_in] + bias */
typedef struct spry_product {
    float *out;
    size_t stride; /* floats from one row to the next */
    const spry_weight *w;
} spry_product;

/* Charges the time since the last op to this op; no effect without a watch. Products of several matrices count as
 * products of the first matrix's type. */
void spry_pass_charge(spry_pass *pass, spry_op op);
void spry_pass_took_products(spry_pass *pass, spry_op op, const spry_product *products, size_t n_products,
                             size_t n_rows);
void spry_pass_took_attention(spry_pass *pass, uint32_t layer);

/* Computes several products of the same rows at once, divided among workers by outputs; `op` is the op to charge. */
void spry_pass_products(spry_pass *pass, spry_op op, const spry_product *products, size_t n_products, const float *in,
                        size_t n_rows);
void spry_pass_linear(spry_pass *pass, spry_op op, float *out, size_t stride, const spry_weight *w, const float *in,
                      size_t n_rows);

/* The same in a team, where each process has a share of w's outputs; `out` gets complete rows, `stride` floats
 * apart. */
void spry_pass_linear_whole(spry_pass *pass, spry_op op, float *out, size_t stride, const spry_weight *w,
                            const float *in, size_t n_rows);

/* Completes rows of which this process has computed `part`: `each` values for each of its heads, or its share of
 * `total` outputs. Without a team it returns `part`. */
const float *spry_pass_join_heads(spry_pass *pass, const float *part, size_t each);
const float *spry_pass_join_outputs(spry_pass *pass, float *whole, const float *part, size_t total, size_t n_rows);

/* Norms of q and k over all heads, of which this process has a share. */
void spry_pass_join_norms(spry_pass *pass, const spry_layer *layer);

/* Adds the products of the adapters of each row. */
enum { SPRY_PASS_ADAPTED = 6 }; /* maximum products at a time */
void spry_pass_adapt(spry_pass *pass, const spry_product *products, size_t n_products, const float *in, size_t n_rows);

/* out = norm(in) * weight + bias for n_rows rows of n values; bias may be NULL. */
void spry_pass_norm(spry_pass *pass, float *out, const float *in, const float *weight, const float *bias, size_t n_rows,
                    size_t n);

/* out = down(activation(gate(in)) * up(in)), or down(activation(up(in))) without a gate. */
void spry_pass_gated(spry_pass *pass, float *out, const spry_weight *gate, const spry_weight *up,
                     const spry_weight *down, const float *in, size_t n_rows);

/* block.c: stores a row's keys and values of a layer in its page. */
void spry_pass_store_row(const spry_pass *pass, size_t row, size_t layer);

/* block.c: multiplies the queries of a row by a factor that depends on its position. */
void spry_pass_cool(const spry_pass *pass, float *q, size_t row, uint32_t layer);

/* attention.c: attention over the pages, from q to attn. */
void spry_pass_attend(spry_pass *pass, uint32_t layer);

/* attention.c: the arguments of attention for the rows of a segment from number `skip` on; `first_row`: the segment's
 * first row in the step. */
spry_attend spry_pass_attend_rows(const spry_pass *pass, uint32_t layer, const spry_segment *segment, size_t first_row,
                                  size_t skip);

/* sparse.c: selects the keys of each row, and attends to them. `low`: the normalised latents of queries. */
enum { SPRY_INDEX_ROWS = 8, SPRY_INDEX_SHARES = 32 };
void spry_pass_select(spry_pass *pass, const spry_layer *layer, uint32_t index);
void spry_pass_attend_selected(spry_pass *pass, uint32_t layer);

/* The number of first rows of a segment that attend to all keys, because there are no more than an indexer selects. */
size_t spry_pass_dense_rows(const spry_pass *pass, const spry_segment *segment);

/* The number of pages of a row's selected keys in sessions of up to `session` tokens. */
size_t spry_index_pages(const spry_config *config, size_t session);

/* sparse.c: scores of SPRY_PAGE_TOKENS keys of an indexer, transposed, for a row. Selection of the best of n scores, n
 * > index_top, for a row whose scores are in memory number `i`. */
void spry_index_score(const spry_pass *pass, float scores[SPRY_PAGE_TOKENS], const float *keys, size_t row);
void spry_index_choose(const spry_pass *pass, size_t i, size_t row, size_t n);

/* compressed.c: y = compressed attention of the input. Copies the keys that a row attends to to pages of floats, and
 * returns their number. */
void spry_pass_compressed(spry_pass *pass, const spry_layer *layer, uint32_t index);
size_t spry_pass_gather_compressed(const spry_pass *pass, uint32_t layer, const spry_segment *segment, size_t row,
                                   unsigned char *pages);

/* hyper.c: all streams become x; x becomes the input of attention or feed-forward; its result, y, is added; x becomes
 * the result of all layers. */
void spry_pass_hyper_begin(spry_pass *pass);
void spry_pass_hyper_take(spry_pass *pass, const spry_hyper *hyper);
void spry_pass_hyper_add(spry_pass *pass, const spry_hyper *hyper);
void spry_pass_hyper_end(spry_pass *pass);

/* streams.c: the parts of Gemma 3n, in the order of their use. Gemma 4 uses the layer inputs, too: y = the contribution
 * of a layer's input, gated by `in`. */
void spry_pass_streams_begin(spry_pass *pass);
void spry_pass_layer_inputs(spry_pass *pass);
void spry_pass_layer_part(spry_pass *pass, const spry_side *side, const float *in, uint32_t index);
void spry_pass_streams_predict(spry_pass *pass, const spry_side *side);
void spry_pass_laurel(spry_pass *pass, const spry_side *side);
void spry_pass_add_laurel(spry_pass *pass);
void spry_pass_sparsify(float *gate, size_t n, const float *row, size_t n_row, float times);
void spry_pass_streams_correct(spry_pass *pass, const spry_side *side, uint32_t index);
void spry_pass_streams_end(spry_pass *pass);

/* attention.c: y = attention of the input. */
void spry_pass_latent(spry_pass *pass, const spry_layer *layer, uint32_t index);

/* recurrent.c: y = gated delta net of the input. */
void spry_pass_delta(spry_pass *pass, const spry_layer *layer, uint32_t index);

/* recurrent.c: decides before a step whether its states go on from those after the last step; records it after a step.
 */
void spry_pass_recur_begin(spry_pass *pass);
void spry_pass_recur_end(spry_pass *pass);

/* recurrent.c: y = short convolution of the input. */
void spry_pass_convolution(spry_pass *pass, const spry_layer *layer, uint32_t index);

/* One layer: x += attention(norm(x)); x += feed-forward(norm(x)). */
void spry_pass_block(spry_pass *pass, uint32_t layer);

#endif
