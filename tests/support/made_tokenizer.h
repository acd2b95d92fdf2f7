/* Tokenizers from the bytes of their files. */
#ifndef SPRY_TESTS_MADE_TOKENIZER_H
#define SPRY_TESTS_MADE_TOKENIZER_H

#include "base/error.h"
#include "tokenizer/tokenizer_impl.h"

static inline spry_status make_tokenizer_json(spry_tokenizer **out, spry_view json, const char *name, spry_error *error)
{
    spry_tokenizer *made = spry_tokenizer_create();
    spry_status status = made ? spry_tokenizer_load_json(made, json, error) : SPRY_ERR_MEMORY;
    return spry_tokenizer_complete(out, made, status, name, error);
}

static inline spry_status make_tokenizer_spm(spry_tokenizer **out, spry_view model, const char *name, spry_error *error)
{
    spry_tokenizer *made = spry_tokenizer_create();
    spry_status status = made ? spry_tokenizer_load_spm(made, model, NULL, error) : SPRY_ERR_MEMORY;
    return spry_tokenizer_complete(out, made, status, name, error);
}

#endif
