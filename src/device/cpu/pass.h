/* The forward pass on the host: rows in, logits out. Its working memory is allocated once; a step allocates nothing. */
#ifndef SPRY_DEVICE_CPU_PASS_H
#define SPRY_DEVICE_CPU_PASS_H

#include "device/cpu/team.h"
#include "device/device.h"
#include "kv/kv_pool.h"

/* KV pages in host memory: one mapping that is created at once; memory is taken when pages are written, and the memory
 * of free pages is returned when the pool asks for it. */

typedef struct spry_host_pages {
    unsigned char *memory;
    size_t page_bytes, n_pages;
    uint64_t changes; /* counts the calls of movers that change pages */
} spry_host_pages;

/* Maps memory for all pages of the pool. */
spry_status spry_host_pages_init(spry_host_pages *pages, const spry_kv_pool *pool, spry_error *error);
void spry_host_pages_deinit(spry_host_pages *pages);

static inline unsigned char *spry_host_page(const spry_host_pages *pages, uint32_t page)
{
    return pages->memory + (size_t)page * pages->page_bytes;
}

void spry_host_pages_copy(spry_host_pages *pages, uint32_t to, uint32_t from);

/* Returns the memory of consecutive pages to the system. */
void spry_host_pages_release(spry_host_pages *pages, uint32_t first, size_t count);

/* The functions that move pages for a pool: reads and writes use the pages directly. */
spry_kv_mover spry_host_pages_mover(spry_host_pages *pages);

typedef struct spry_pass spry_pass;

/* Borrows the placed weights, the pages, recurrent states as pages, and what the setup borrows. */
spry_status spry_pass_create(spry_pass **out, const spry_device_setup *setup, const spry_weights *weights,
                             const spry_host_pages *pages, const spry_host_pages *states, spry_team *team,
                             spry_error *error);
void spry_pass_destroy(spry_pass *pass);

/* Bytes of working memory for these limits; false when the size overflows. */
bool spry_pass_bytes(size_t *bytes, const spry_config *config, const spry_step_limits *limits);

/* Encodings of activations that are computed once for all outputs of a product: as spry_act_blocks, and as BF16. */
typedef struct spry_rounded_acts {
    bool integers, halves;
} spry_rounded_acts;

/* The part of the working memory that becomes resident if no step has more rows, or more rows with logits, than
 * these. */
bool spry_pass_touched_bytes(size_t *bytes, const spry_config *config, const spry_step_limits *limits, size_t rows,
                             size_t logits, spry_rounded_acts acts);

/* Computes a step that has been checked. */
void spry_pass_step(spry_pass *pass, const spry_segment *segments, size_t n_segments);

/* The time that attention took in the last step. */
uint64_t spry_pass_attention_ns(const spry_pass *pass);

/* Logits of the step's wanted rows in the order of the list, [n_vocab] each; valid until the next step. */
const float *spry_pass_logits(const spry_pass *pass, size_t index);

/* Hidden states of the step's wanted rows, [n_embd] each; `index` counts only rows with hidden states. */
const float *spry_pass_hidden(const spry_pass *pass, size_t index);

#endif
