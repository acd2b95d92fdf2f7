/* What tensors are called. Our own names are GGUF's; Hugging Face's are found through one table. */
#ifndef SPRY_MODEL_TENSOR_NAMES_H
#define SPRY_MODEL_TENSOR_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "model/arch.h"

enum { SPRY_TENSOR_NAME_MAX = 160, SPRY_TENSOR_ALIASES = 2 };

/* The Hugging Face spellings of a layer's tensor, given GGUF's ("attn_q"), without layer prefix and ".weight". "%u"
 * stands for the expert. The first is the architecture's own. NULL-filled when there is none. */
void spry_tensor_hf_names(const char *names[SPRY_TENSOR_ALIASES], const spry_arch *arch, const char *gguf_name);

#endif
