/* The splits are listed first, because the table needs the number of merges. */
#include "tokenizer/spm.h"

#include <stdlib.h>

#include "base/utf8.h"

enum { TOKEN_BYTES_MAX = 1024 }; /* each split is looked up, so the cost is quadratic in a token's length */

typedef struct scored_token {
    float score;
    uint32_t id;
} scored_token;

static int by_score(const void *a, const void *b)
{
    float x = ((const scored_token *)a)->score, y = ((const scored_token *)b)->score;
    return (x < y) - (x > y); /* highest first */
}

/* ranks[id]: the number of distinct higher scores. */
static bool rank_tokens(uint32_t *ranks, const spry_vocab *vocab)
{
    scored_token *tokens = malloc(vocab->size * sizeof *tokens);
    if (!tokens)
        return false;
    for (size_t i = 0; i < vocab->size; i++)
        tokens[i] = (scored_token){vocab->scores[i], (uint32_t)i};
    qsort(tokens, vocab->size, sizeof *tokens, by_score);
    uint32_t rank = 0;
    for (size_t i = 0; i < vocab->size; i++) {
        rank += i > 0 && tokens[i].score < tokens[i - 1].score;
        ranks[tokens[i].id] = rank;
    }
    free(tokens);
    return true;
}

/* The symbol of a `part` of a token; -1: none. */
static int32_t symbol_of(const spry_vocab *vocab, const spry_symbols *symbols, spry_view part)
{
    uint32_t character;
    if (spry_utf8_decode(&character, part.data, part.size) == part.size)
        return spry_symbols_find(symbols, part);
    int32_t id = spry_vocab_find(vocab, part);
    return id >= 0 && vocab->kinds[id] == SPRY_TOKEN_NORMAL ? id : -1;
}

/* Appends the merges that produce one token. */
static bool list_splits(spry_buffer *out, const spry_vocab *vocab, const spry_symbols *symbols, size_t id,
                        uint32_t rank)
{
    spry_view name = vocab->names[id];
    for (size_t i = 1; i < name.size; i++) {
        if (((unsigned char)name.data[i] & 0xC0) == 0x80)
            continue; /* inside a character */
        spry_merge merge = {.rank = rank, .merged = (int32_t)id};
        merge.left = symbol_of(vocab, symbols, (spry_view){name.data, i});
        if (merge.left < 0)
            continue;
        merge.right = symbol_of(vocab, symbols, (spry_view){name.data + i, name.size - i});
        if (merge.right >= 0 && !spry_buffer_append(out, &merge, sizeof merge))
            return false;
    }
    return true;
}

static spry_status list_merges(spry_buffer *out, const spry_vocab *vocab, const spry_symbols *symbols,
                               const uint32_t *ranks, spry_error *error)
{
    for (size_t id = 0; id < vocab->size; id++) {
        if (vocab->kinds[id] != SPRY_TOKEN_NORMAL)
            continue;
        if (vocab->names[id].size > TOKEN_BYTES_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "token %zu has %zu bytes; at most %d are sensible", id,
                             vocab->names[id].size, TOKEN_BYTES_MAX);
        if (!list_splits(out, vocab, symbols, id, ranks[id]))
            return spry_fail_memory(error, "merges", out->size);
    }
    return SPRY_OK;
}

spry_status spry_spm_merges(spry_merges *merges, spry_arena *arena, const spry_vocab *vocab,
                            const spry_symbols *symbols, spry_error *error)
{
    spry_buffer list;
    spry_buffer_init(&list, SIZE_MAX / 2);
    spry_status status = SPRY_OK;
    uint32_t *ranks = malloc(vocab->size * sizeof *ranks);
    if (!ranks || !rank_tokens(ranks, vocab))
        status = spry_fail_memory(error, "scores", vocab->size * sizeof *ranks);
    if (!status)
        status = list_merges(&list, vocab, symbols, ranks, error);
    size_t count = list.size / sizeof(spry_merge);
    if (!status && !spry_merges_init(merges, arena, count))
        status = spry_fail_memory(error, "merges", list.size);
    for (size_t i = 0; i < count && !status; i++) {
        spry_merge merge;
        memcpy(&merge, list.data + i * sizeof merge, sizeof merge);
        spry_merges_add(merges, merge);
    }
    spry_buffer_deinit(&list);
    free(ranks);
    return status;
}
