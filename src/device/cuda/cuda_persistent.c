/* The layers of a decode step of one row as one kernel (kernels/persistent.cuh), in place of a launch for each part.
 * The code that launches them says what the phases are: it runs once while launches are recorded. A launch that is no
 * phase, of a model with experts, say, or of weights that no such kernel multiplies, and the step stays as it is. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda_state.h"

enum {
    LAYER_STAGES =
        7, /* at most: three products where q, k and v have types of their own, attention, out, gate and up, down */
    STAGE_THREADS = SPRY_STAGE_WARPS * 32,
    FLOATS = 1 << SPRY_STAGE_BF16 | 1 << SPRY_STAGE_F16,
    BLOCKS = 1 << SPRY_STAGE_Q4_0 | 1 << SPRY_STAGE_Q4_1 | 1 << SPRY_STAGE_Q5_0 | 1 << SPRY_STAGE_Q5_1 |
             1 << SPRY_STAGE_Q8_0,
    KQUANTS = 1 << SPRY_STAGE_Q4_K | 1 << SPRY_STAGE_Q5_K | 1 << SPRY_STAGE_Q6_K | 1 << SPRY_STAGE_Q8_0,
    COUNTER_BYTES = SPRY_STAGE_COUNTER * 4,
};

static const char *const type_names[SPRY_STAGE_TYPES] = {
    [SPRY_STAGE_BF16] = "bf16", [SPRY_STAGE_F16] = "f16",   [SPRY_STAGE_Q4_0] = "q4_0", [SPRY_STAGE_Q4_1] = "q4_1",
    [SPRY_STAGE_Q5_0] = "q5_0", [SPRY_STAGE_Q5_1] = "q5_1", [SPRY_STAGE_Q8_0] = "q8_0", [SPRY_STAGE_Q4_K] = "q4_k",
    [SPRY_STAGE_Q5_K] = "q5_k", [SPRY_STAGE_Q6_K] = "q6_k",
};

static const char *const gemv_names[SPRY_STAGE_GEMVS] = {[SPRY_STAGE_NORM_2] = "norm_2",
                                                         [SPRY_STAGE_NORM_4] = "norm_4",
                                                         [SPRY_STAGE_GATE_4] = "gate_4",
                                                         [SPRY_STAGE_OUT_1] = "out_1"};

/* Kernels, and the types that each multiplies. */
static const struct {
    const char *name;
    unsigned types;
} kernels[] = {{"floats", FLOATS}, {"blocks", BLOCKS}, {"kquants", KQUANTS}};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static size_t most_stages(const spry_config *c)
{
    bool plain = !c->n_experts && !c->n_kv_rank && !c->n_streams && !c->bidirectional;
    return plain ? (size_t)c->n_layers * LAYER_STAGES : 0;
}

/* Phases, their counters, those of key heads, the base. */
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
    return spry_cuda_fault(&d->context, "allocating lists of phases", error);
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
    unsigned types;      /* a bit for each */
    size_t shared_bytes; /* of the rooms */
    bool fits;
} recording;

/* decode_smem of attention_decode.cuh, of as many warps as a phase has. */
static size_t attend_bytes(size_t blocks)
{
    size_t queries = SPRY_DECODE_GQA_MAX * (blocks * 32 + 8) * sizeof(float);
    return (1 + SPRY_STAGE_WARPS) * queries + SPRY_STAGE_WARPS * SPRY_DECODE_GQA_MAX * 20 * sizeof(uint32_t) +
           2 * blocks * 32 * sizeof(float);
}

/* Blocks that share the pages of a key head: as many as there are, and pages for each. */
static uint32_t ranks_of(const spry_cuda_device *d)
{
    size_t n_kv = d->config->n_kv_heads, pages = d->n_chunks * d->attention.chunk_pages, ranks = 1;
    size_t chosen = spry_cuda_tuned(d, SPRY_TUNE_CLUSTER);
    while (!chosen && ranks * 2 * n_kv <= d->context.sm_count && ranks * 2 <= pages)
        ranks *= 2;
    return (uint32_t)(chosen ? chosen : ranks);
}

/* "spry_gemv_q4_0_norm_2": which one; SPRY_STAGE_ATTEND: none. */
static uint32_t gemv_kind(const char *name, unsigned *types)
{
    char known[SPRY_CUDA_KERNEL_NAME];
    for (uint32_t i = 0; i < SPRY_STAGE_TYPES * SPRY_STAGE_GEMVS; i++) {
        uint32_t type = i / SPRY_STAGE_GEMVS;
        snprintf(known, sizeof known, "spry_gemv_%s_%s", type_names[type], gemv_names[i % SPRY_STAGE_GEMVS]);
        if (!strcmp(known, name)) {
            *types |= 1u << type;
            return i;
        }
    }
    return SPRY_STAGE_ATTEND;
}

static void record(void *to, const char *kernel, size_t shared_bytes, const void *arguments)
{
    static const char attends[] = "spry_attend_decode_";
    recording *r = to;
    if (!r->fits || !kernel || r->n == r->most) {
        r->fits = false;
        return;
    }
    spry_stage *stage = &r->stages[r->n++];
    *stage = (spry_stage){.kind = gemv_kind(kernel, &r->types)};
    if (stage->kind != SPRY_STAGE_ATTEND) {
        memcpy(&stage->of.product, arguments, sizeof stage->of.product);
    } else {
        r->fits = !strncmp(kernel, attends, sizeof attends - 1);
        shared_bytes = attend_bytes(r->d->attention.number);
        stage->ranks = ranks_of(r->d);
        if (r->fits)
            memcpy(&stage->of.decode, arguments, sizeof stage->of.decode);
    }
    r->shared_bytes = shared_bytes > r->shared_bytes ? shared_bytes : r->shared_bytes;
}

/* The kernel for these types and heads; NULL: there is none. */
static void *find_kernel(spry_cuda_context *c, unsigned types, size_t blocks)
{
    char name[SPRY_CUDA_KERNEL_NAME];
    for (size_t i = 0; i < SPRY_COUNT(kernels) && (blocks == 1 || blocks == 2 || blocks == 4); i++)
        if (!(types & ~kernels[i].types)) {
            snprintf(name, sizeof name, "spry_persistent_%s_%zu", kernels[i].name, blocks);
            return spry_cuda_kernel(c, name);
        }
    return NULL;
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
    list->kernel = find_kernel(&d->context, r.types, d->attention.number);
    if (!list->kernel)
        return false;
    spry_cuda_write(&d->context, memory, host, l->bytes);
    return true;
}

void spry_cuda_stage_list_launch(spry_cuda_device *d, const spry_cuda_stage_list *list)
{
    spry_cuda_launch_cooperative(&d->context, list->kernel, d->context.sm_count, STAGE_THREADS, list->shared_bytes,
                                 &list->args);
}
