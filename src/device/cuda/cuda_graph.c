/* Steps as CUDA graphs, and the layers of a decode step as one persistent kernel. */
#include <string.h>

#include "device/cuda/cuda_state.h"
#include "device/cuda/smem_sizes.h"

/* ---- persistent kernel ------------------------------------------------------------------------------------------- */

/* The persistent kernel (kernels/persistent.cu) replaces the launches of the layers of a decode step of one row. Its
 * stages are recorded: the code that launches the layers runs once while launches are passed to record(). If one launch
 * is not a possible stage, because the model has experts or an unsupported weight type, the step is launched as usual.
 */

enum {
    LAYER_STAGES = 7, /* maximum: q, k and v of different types, attention, output, gate and up, down */
    FLOATS = 1 << SPRY_STAGE_BF16 | 1 << SPRY_STAGE_F16,
    BLOCKS = 1 << SPRY_STAGE_Q4_0 | 1 << SPRY_STAGE_Q4_1 | 1 << SPRY_STAGE_Q5_0 | 1 << SPRY_STAGE_Q5_1 |
             1 << SPRY_STAGE_Q8_0,
    KQUANTS = 1 << SPRY_STAGE_Q4_K | 1 << SPRY_STAGE_Q5_K | 1 << SPRY_STAGE_Q6_K | 1 << SPRY_STAGE_Q8_0,
    COUNTER_BYTES = SPRY_STAGE_COUNTER * 4,
};

/* The GEMV of each stage of a weight type. */
#define STAGE(T, dtype)                                                                                                \
    [SPRY_STAGE_##dtype] = {[SPRY_STAGE_NORM_2] = spry_gemv_##T##_norm_2_id,                                           \
                            [SPRY_STAGE_NORM_4] = spry_gemv_##T##_norm_4_id,                                           \
                            [SPRY_STAGE_GATE_4] = spry_gemv_##T##_gate_4_id,                                           \
                            [SPRY_STAGE_OUT_1] = spry_gemv_##T##_out_1_id}
static const spry_kernel_id stage_gemvs[SPRY_STAGE_TYPES][SPRY_STAGE_GEMVS] = {
    STAGE(bf16, BF16), STAGE(f16, F16),   STAGE(q4_0, Q4_0), STAGE(q4_1, Q4_1), STAGE(q5_0, Q5_0),
    STAGE(q5_1, Q5_1), STAGE(q8_0, Q8_0), STAGE(q4_k, Q4_K), STAGE(q5_k, Q5_K), STAGE(q6_k, Q6_K),
};

/* The persistent kernels, by head size / 32, and the weight types that they support. */
#define PERSISTENT(types)                                                                                              \
    {                                                                                                                  \
        [1] = spry_persistent_##types##_1_id, [2] = spry_persistent_##types##_2_id,                                    \
        [4] = spry_persistent_##types##_4_id                                                                           \
    }
static const struct {
    unsigned types;
    spry_kernel_id kernels[SPRY_HEAD_BLOCKS];
} persistent[] = {{FLOATS, PERSISTENT(floats)}, {BLOCKS, PERSISTENT(blocks)}, {KQUANTS, PERSISTENT(kquants)}};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static size_t most_stages(const spry_config *c)
{
    bool plain = !c->n_experts && !c->n_kv_rank && !c->n_streams && !c->bidirectional;
    return plain ? (size_t)c->n_layers * LAYER_STAGES : 0;
}

/* Stages, their counters, counters of KV heads, the base. */
size_t spry_cuda_stage_list_bytes(const spry_config *c)
{
    size_t most = most_stages(c);
    return most ? most * (sizeof(spry_stage) + COUNTER_BYTES) + (size_t)(c->n_kv_heads + 1) * COUNTER_BYTES : 0;
}

spry_status spry_cuda_stage_lists_init(spry_cuda_device *d, spry_error *error)
{
    spry_cuda_stage_lists *l = &d->stage_lists;
    l->bytes = spry_cuda_stage_list_bytes(d->config);
    l->most = most_stages(d->config);
    if (l->bytes)
        l->host = spry_cuda_allocate_host(&d->context, SPRY_CUDA_GRAPHS * l->bytes);
    return spry_cuda_fault(&d->context, "allocating stage lists", error);
}

void spry_cuda_stage_lists_deinit(spry_cuda_device *d)
{
    spry_cuda_free_host(&d->context, d->stage_lists.host);
    d->stage_lists = (spry_cuda_stage_lists){0};
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

typedef struct recording {
    const spry_cuda_device *d;
    spry_stage *stages;
    size_t n, most;
    unsigned types;      /* one bit per type */
    size_t shared_bytes; /* of the largest stage */
    bool fits;
} recording;

/* Blocks that share the pages of a KV head: as many as have at least one page. */
static uint32_t ranks_of(const spry_cuda_device *d)
{
    size_t n_kv = d->config->n_kv_heads, pages = d->n_chunks * d->attention.chunk_pages, ranks = 1;
    size_t chosen = spry_cuda_tuned(d, SPRY_TUNE_CLUSTER);
    while (!chosen && ranks * 2 * n_kv <= d->context.sm_count && ranks * 2 <= pages)
        ranks *= 2;
    return (uint32_t)(chosen ? chosen : ranks);
}

/* The stage of a GEMV; SPRY_STAGE_ATTEND: not a GEMV of a stage. */
static uint32_t gemv_kind(spry_kernel_id kernel, unsigned *types)
{
    for (uint32_t i = 0; i < SPRY_STAGE_TYPES * SPRY_STAGE_GEMVS; i++)
        if (stage_gemvs[i / SPRY_STAGE_GEMVS][i % SPRY_STAGE_GEMVS] == kernel) {
            *types |= 1u << i / SPRY_STAGE_GEMVS;
            return i;
        }
    return SPRY_STAGE_ATTEND;
}

/* True for the fused decode attention of this head size, the general kernel or a fast one. */
static bool is_decode_attention(spry_kernel_id kernel, size_t blocks)
{
    bool is = kernel == spry_cuda_head_kernels[blocks].decode;
    for (size_t i = 0; (blocks == 2 || blocks == 4) && i < SPRY_FULL_HEADS * SPRY_FAST_PAGES; i++) {
        const spry_full_head_kernels *k = &spry_cuda_full_head_kernels[i / SPRY_FAST_PAGES][blocks == 4];
        is = is || kernel == k->decode_q8[i % SPRY_FAST_PAGES] || kernel == k->decode_bf16[i % SPRY_FAST_PAGES];
    }
    return is;
}

static void record(void *to, spry_kernel_id kernel, size_t shared_bytes, const void *arguments)
{
    recording *r = to;
    if (!r->fits || r->n == r->most) {
        r->fits = false;
        return;
    }
    spry_stage *stage = &r->stages[r->n++];
    *stage = (spry_stage){.kind = gemv_kind(kernel, &r->types)};
    if (stage->kind != SPRY_STAGE_ATTEND) {
        memcpy(&stage->of.product, arguments, sizeof stage->of.product);
    } else {
        r->fits = is_decode_attention(kernel, r->d->attention.number);
        shared_bytes = spry_smem_decode(r->d->attention.number, SPRY_STAGE_WARPS);
        stage->ranks = ranks_of(r->d);
        if (r->fits)
            memcpy(&stage->of.decode, arguments, sizeof stage->of.decode);
    }
    r->shared_bytes = shared_bytes > r->shared_bytes ? shared_bytes : r->shared_bytes;
}

/* The kernel for these types and this head size; SPRY_NO_KERNEL: none. */
static spry_kernel_id find_kernel(unsigned types, size_t blocks)
{
    for (size_t i = 0; i < SPRY_COUNT(persistent); i++)
        if (!(types & ~persistent[i].types))
            return persistent[i].kernels[blocks];
    return SPRY_NO_KERNEL;
}

bool spry_cuda_stage_list_make(spry_cuda_stage_list *list, spry_cuda_device *d, size_t slot)
{
    const spry_cuda_stage_lists *l = &d->stage_lists;
    if (!l->host || !d->context.sm90_up || d->context.fault)
        return false;
    unsigned char *host = l->host + slot * l->bytes;
    spry_cuda_memory memory = d->scratch.stage_lists + slot * l->bytes,
                     counters = memory + l->most * sizeof(spry_stage);
    recording r = {.d = d, .stages = (spry_stage *)(void *)host, .most = l->most, .fits = true};
    memset(host, 0, l->bytes); /* counters begin at 0 */
    spry_cuda_record(&d->context, record, &r);
    spry_cuda_layers(d);
    spry_cuda_record(&d->context, NULL, NULL);
    *list = (spry_cuda_stage_list){.shared_bytes = SPRY_STAGE_SMEM + r.shared_bytes,
                                   .args = {.stages = memory,
                                            .counters = counters,
                                            .heads = counters + l->most * COUNTER_BYTES,
                                            .base = counters + (l->most + d->config->n_kv_heads) * COUNTER_BYTES,
                                            .n_stages = (uint32_t)r.n}};
    if (!r.fits || !r.n || list->shared_bytes > d->context.shared_bytes)
        return false;
    list->kernel = find_kernel(r.types, d->attention.number);
    if (!list->kernel)
        return false;
    spry_cuda_write(&d->context, memory, host, l->bytes);
    return true;
}

void spry_cuda_stage_list_launch(spry_cuda_device *d, const spry_cuda_stage_list *list)
{
    spry_cuda_launch_cooperative(&d->context, list->kernel, d->context.sm_count, list->shared_bytes, &list->args);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* A step whose key came before is launched as one CUDA graph: everything that differs between such steps is in the
 * upload, and the kernels' arguments depend only on the key. A graph is captured when a key comes for the second time.
 * The layers may be one persistent kernel in it, if that was tuned. */

enum { GRAPH_ROWS = 64 }; /* larger steps take longer than their launches */

static spry_cuda_graph_key key_of(const spry_cuda_device *d)
{
    return (spry_cuda_graph_key){.alone = d->alone,
                                 .adapted = d->adapted,
                                 .n_segments = d->config->n_delta_layers ? d->n_segments : 0,
                                 .n_rows = d->n_rows,
                                 .n_decode_rows = d->n_decode_rows,
                                 .n_decode_tiles = d->n_decode_tiles,
                                 .n_prefill_tiles = d->n_prefill_tiles,
                                 .n_chunks = d->n_chunks,
                                 .longest_prefill_tile = d->longest_prefill_tile,
                                 .n_kv_splits = d->n_kv_splits,
                                 .n_logits = d->n_logits,
                                 .n_wanted = d->n_wanted,
                                 .n_rotations = d->pool->turns.end,
                                 .upload = d->upload.memory};
}

/* Finds the graph of a key; a new key replaces the least recently used one. */
static spry_cuda_graph *find_graph(spry_cuda_device *d, const spry_cuda_graph_key *shape)
{
    spry_cuda_graph *oldest = &d->graphs[0];
    for (size_t i = 0; i < SPRY_CUDA_GRAPHS; i++) {
        spry_cuda_graph *g = &d->graphs[i];
        if (!memcmp(&g->shape, shape, sizeof *shape))
            return g;
        oldest = g->used < oldest->used ? g : oldest;
    }
    spry_cuda_graph_destroy(&d->context, oldest->exec);
    *oldest = (spry_cuda_graph){.shape = *shape};
    return oldest;
}

static void capture(spry_cuda_device *d, spry_cuda_graph *g, void (*run)(spry_cuda_device *d))
{
    spry_cuda_stage_list list;
    bool listed = run == spry_cuda_run && d->n_rows == 1 && spry_cuda_tuned(d, SPRY_TUNE_LAUNCHES) == 2 &&
                  spry_cuda_stage_list_make(&list, d, (size_t)(g - d->graphs));
    spry_cuda_capture_begin(&d->context);
    d->stage_list = listed ? &list : NULL;
    run(d);
    d->stage_list = NULL;
    g->exec = spry_cuda_capture_end(&d->context);
}

void spry_cuda_run_graph(spry_cuda_device *d, void (*run)(spry_cuda_device *d))
{
    if (d->watch || d->n_rows > GRAPH_ROWS || spry_cuda_tuned(d, SPRY_TUNE_LAUNCHES) == 1) {
        run(d);
        return;
    }
    spry_cuda_graph_key shape = key_of(d);
    spry_cuda_graph *g = find_graph(d, &shape);
    bool known = g->used;
    g->used = ++d->graph_clock;
    if (known && !g->exec)
        capture(d, g, run);
    if (g->exec)
        spry_cuda_graph_launch(&d->context, g->exec);
    else
        run(d);
}

void spry_cuda_graphs_deinit(spry_cuda_device *d)
{
    for (size_t i = 0; i < SPRY_CUDA_GRAPHS; i++)
        spry_cuda_graph_destroy(&d->context, d->graphs[i].exec);
    memset(d->graphs, 0, sizeof d->graphs);
}
