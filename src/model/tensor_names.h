/* Names of tensors. Our own names are GGUF's usual ones; the spellings of files are found through one table and
 * the architecture's own list. */
#ifndef SPRY_MODEL_TENSOR_NAMES_H
#define SPRY_MODEL_TENSOR_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "model/arch.h"

enum { SPRY_TENSOR_NAME_MAX = 160 };

/* "blk.7.attn_q.weight" of `ours` "attn_q". */
void spry_tensor_gguf_name(char name[SPRY_TENSOR_NAME_MAX], const spry_arch *arch, uint32_t layer, const char *ours,
                           const char *suffix);

/* "model.layers.7.self_attn.q_proj.weight", with `prefix` "model.". `expert` counts where each has a tensor. False when
 * Hugging Face files have no such tensor. */
bool spry_tensor_hf_name(char name[SPRY_TENSOR_NAME_MAX], const spry_arch *arch, const char *prefix, uint32_t layer,
                         const char *ours, uint32_t expert, const char *suffix);

#endif
