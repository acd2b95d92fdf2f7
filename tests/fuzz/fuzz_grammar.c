/* Any bytes as a grammar and a text: the first byte says of what kind the grammar is (128 and more: Lark's notation), a
 * zero byte ends it. Compiling is fine or a clean refusal; a compiled grammar can be walked, and from every state
 * something may follow. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(spry_matcher *matcher, const uint8_t *text, size_t size)
{
    spry_error error;
    for (size_t i = 0; i < size; i++) {
        size_t taken;
        spry_view byte = {(const char *)text + i, 1};
        if (spry_matcher_bytes(matcher, &taken, byte, &error) != SPRY_OK)
            return;
        uint64_t next[4];
        spry_matcher_next_bytes(matcher, next);
        if (taken > 1 || (!spry_matcher_may_end(matcher) && !(next[0] | next[1] | next[2] | next[3])))
            abort();
    }
    spry_matcher_undo(matcher, size / 2);
    spry_buffer forced;
    spry_buffer_init(&forced, 1 << 16);
    spry_matcher_forced(matcher, &forced, &error);
    spry_buffer_deinit(&forced);
}

static spry_status compile(spry_grammar **out, uint8_t first, spry_view source, spry_error *error)
{
    spry_ir *ir;
    if (first < 128)
        return spry_grammar_create(out, (spry_grammar_kind)(first % (SPRY_GRAMMAR_JSON_OBJECT + 1)), source, error);
    spry_status status = spry_ir_create(&ir, error);
    if (status)
        return status;
    status = spry_grammar_from_ir(out, ir, spry_ir_lark(ir, source, first % 2), error);
    spry_ir_destroy(ir);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 1 << 14)
        return 0;
    const uint8_t *end = memchr(data + 1, 0, size - 1);
    size_t source = end ? (size_t)(end - data) - 1 : size - 1;
    spry_grammar *grammar;
    spry_matcher *matcher;
    spry_error error;
    if (compile(&grammar, data[0], (spry_view){(const char *)data + 1, source}, &error) != SPRY_OK)
        return 0;
    if (spry_matcher_create(&matcher, grammar, NULL, &error) == SPRY_OK) {
        if (end)
            walk(matcher, end + 1, size - source - 2);
        spry_matcher_destroy(matcher);
    }
    spry_grammar_unref(grammar);
    return 0;
}
