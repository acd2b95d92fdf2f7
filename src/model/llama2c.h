/* Checkpoints of llama2.c: a header of seven numbers, then all weights as floats. Its vocabulary follows in the same
 * file, or lies beside it in tokenizer.bin. */
#ifndef SPRY_MODEL_LLAMA2C_H
#define SPRY_MODEL_LLAMA2C_H

#include "base/error.h"

/* Whether a file can be one: its size is what its header says, with or without a vocabulary. */
bool spry_llama2c_is(const char *path);

/* Writes it as GGUF, in floats; layouts agree, so no value changes. */
spry_status spry_llama2c_to_gguf(const char *out, const char *path, spry_error *error);

#endif
