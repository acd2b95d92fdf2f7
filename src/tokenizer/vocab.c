/* Spellings are stored in one block: a vocabulary has about 10^5 of them. */
#include "tokenizer/vocab.h"

enum { HOLES_ALLOWED = 1 << 16 };

spry_status spry_vocab_init(spry_vocab *vocab, spry_arena *arena, size_t size, size_t named, size_t text_size,
                            spry_error *error)
{
    *vocab = (spry_vocab){.size = size, .text_size = text_size};
    spry_map_init(&vocab->by_name);
    if (size == 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "the vocabulary is empty");
    if (size > SPRY_VOCAB_MAX || size > 4 * named + HOLES_ALLOWED)
        return spry_fail(error, SPRY_ERR_FORMAT, "the vocabulary has an id of %zu but only %zu entries", size - 1,
                         named);
    vocab->names = spry_arena_alloc(arena, size, sizeof *vocab->names);
    vocab->kinds = spry_arena_alloc(arena, size, sizeof *vocab->kinds);
    vocab->scores = spry_arena_alloc(arena, size, sizeof *vocab->scores);
    vocab->text = spry_arena_alloc(arena, text_size ? text_size : 1, 1);
    if (!vocab->names || !vocab->kinds || !vocab->scores || !vocab->text)
        return spry_fail_memory(error, "a vocabulary", size * sizeof *vocab->names + text_size);
    for (size_t i = 0; i < size; i++) {
        vocab->names[i] = SPRY_VIEW("");
        vocab->kinds[i] = SPRY_TOKEN_UNUSED;
    }
    return SPRY_OK;
}

void spry_vocab_deinit(spry_vocab *vocab)
{
    spry_map_deinit(&vocab->by_name);
}

bool spry_vocab_set(spry_vocab *vocab, size_t id, spry_view name, spry_token_kind kind)
{
    if (id >= vocab->size || name.size > vocab->text_size - vocab->text_used)
        return false;
    spry_view kept = {vocab->text + vocab->text_used, name.size};
    if (name.size)
        memcpy(vocab->text + vocab->text_used, name.data, name.size);
    vocab->text_used += name.size;
    vocab->names[id] = kept;
    vocab->kinds[id] = (unsigned char)kind;
    return spry_map_add(&vocab->by_name, kept, (uint32_t)id, NULL);
}

int32_t spry_vocab_find(const spry_vocab *vocab, spry_view name)
{
    uint32_t id;
    return spry_map_find(&vocab->by_name, name, &id) ? (int32_t)id : -1;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool spry_vocab_byte(spry_view name, unsigned char *byte)
{
    if (name.size != 6 || memcmp(name.data, "<0x", 3) != 0 || name.data[5] != '>')
        return false;
    int high = hex_digit(name.data[3]), low = hex_digit(name.data[4]);
    if (high < 0 || low < 0)
        return false;
    *byte = (unsigned char)(high << 4 | low);
    return true;
}
