/* Any bytes as a tokenizer.json, or after a zero byte as a tokenizer.model: one that encodes and decodes, or a clean
 * refusal. */
#include <stddef.h>
#include <stdint.h>

#include "support/made_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "Once upon a time, 12345 \xC3\xA9t\xC3\xA9 <|im_end|>\n\n  \xF0\x9F\x98\x80 don't";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_tokenizer *tokenizer;
    spry_error error;
    spry_tokens ids = {0};
    spry_buffer out;
    bool model = size && data[0] == 0;
    spry_view file = {(const char *)data + model, size - model};
    spry_status status = model ? make_tokenizer_spm(&tokenizer, file, "fuzz", &error)
                               : make_tokenizer_json(&tokenizer, file, "fuzz", &error);
    if (status != SPRY_OK)
        return 0;
    spry_buffer_init(&out, 1 << 20);
    if (spry_tokenizer_encode(tokenizer, &ids, SPRY_VIEW(text), NULL, 0, SPRY_ENCODE_SPECIAL, &error) == SPRY_OK)
        (void)spry_tokenizer_decode(tokenizer, &out, ids.ids, ids.count, true, &error);
    spry_buffer_deinit(&out);
    spry_tokens_deinit(&ids);
    spry_tokenizer_destroy(tokenizer);
    return 0;
}
