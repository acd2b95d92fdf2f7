#include "grammar/match/vocabulary.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "grammar/ir/grow.h"

/* Which control tokens are text. */
typedef struct shown_tokens {
    bool (*shows)(const void *user, spry_view spelling); /* NULL: none */
    const void *user;
} shown_tokens;

/* The bytes of a token that can be text; empty: it cannot. */
static spry_view text_of(const spry_tokenizer *tokenizer, int32_t id, const shown_tokens *shown)
{
    spry_token_kind kind = spry_tokenizer_kind(tokenizer, id);
    spry_view bytes = spry_tokenizer_bytes(tokenizer, id), none = {"", 0};
    bool mark = false;
    if (kind == SPRY_TOKEN_CONTROL && shown->shows) {
        bytes = bytes.size ? bytes : spry_tokenizer_name(tokenizer, id);
        mark = shown->shows(shown->user, bytes);
    }
    bool text = mark || kind == SPRY_TOKEN_NORMAL || kind == SPRY_TOKEN_ADDED || kind == SPRY_TOKEN_BYTE;
    return text && !spry_tokenizer_is_end(tokenizer, id) && bytes.size <= SPRY_TOKEN_BYTES_MAX ? bytes : none;
}

/* Copies the bytes of every token that can be text. */
static bool copy_texts(spry_vocabulary *made, const spry_tokenizer *tokenizer, size_t known, const shown_tokens *shown)
{
    size_t total = 0, used = 0;
    for (size_t i = 0; i < known; i++)
        total += text_of(tokenizer, (int32_t)i, shown).size;
    made->bytes = malloc(total + 1);
    made->texts = calloc(made->n_ids + 1, sizeof *made->texts);
    made->order = malloc((known + 1) * sizeof *made->order);
    made->ends = calloc(made->n_words + 1, sizeof *made->ends);
    if (!made->bytes || !made->texts || !made->order || !made->ends)
        return false;
    for (size_t i = 0; i < known; i++) {
        spry_view text = text_of(tokenizer, (int32_t)i, shown);
        if (spry_tokenizer_is_end(tokenizer, (int32_t)i))
            spry_bit_set(made->ends, (uint32_t)i);
        if (!text.size)
            continue;
        memcpy(made->bytes + used, text.data, text.size);
        made->texts[i] = (spry_view){made->bytes + used, text.size};
        used += text.size;
        made->order[made->n_tokens++] = (int32_t)i;
        if (text.size > made->longest)
            made->longest = (uint32_t)text.size;
    }
    return true;
}

/* A token to sort: comparing the first bytes as a number decides most comparisons. */
typedef struct sortable {
    unsigned slice;
    uint64_t head;
    spry_view text;
    int32_t id;
} sortable;

static int compare_tokens(const void *left, const void *right)
{
    const sortable *a = left, *b = right;
    if (a->slice != b->slice)
        return a->slice > b->slice ? 1 : -1;
    if (a->head != b->head)
        return a->head > b->head ? 1 : -1;
    size_t common = a->text.size < b->text.size ? a->text.size : b->text.size;
    int order = memcmp(a->text.data, b->text.data, common);
    if (order)
        return order;
    if (a->text.size != b->text.size)
        return a->text.size > b->text.size ? 1 : -1;
    return (a->id > b->id) - (a->id < b->id);
}

static bool sort_tokens(spry_vocabulary *made)
{
    sortable *tokens = malloc((made->n_tokens + 1) * sizeof *tokens);
    if (!tokens)
        return false;
    for (size_t i = 0; i < made->n_tokens; i++) {
        spry_view text = made->texts[made->order[i]];
        tokens[i] = (sortable){spry_slice_of(text), 0, text, made->order[i]};
        made->tries[tokens[i].slice].n_tokens++;
        for (size_t j = 0; j < 8; j++)
            tokens[i].head = tokens[i].head << 8 | (j < text.size ? (unsigned char)text.data[j] : 0);
    }
    qsort(tokens, made->n_tokens, sizeof *tokens, compare_tokens);
    for (size_t i = 0; i < made->n_tokens; i++)
        made->order[i] = tokens[i].id;
    free(tokens);
    return true;
}

/* Adds the trie of a slice, whose tokens begin at `first` in `order`. */
static bool make_trie(spry_vocabulary *made, spry_trie *trie, uint32_t first, size_t *room, uint32_t *path)
{
    size_t depth = 0;
    spry_view last = {"", 0};
    trie->begin = made->n_nodes;
    for (uint32_t i = first; i < first + trie->n_tokens; i++) {
        spry_view text = made->texts[made->order[i]];
        trie->longest = text.size > trie->longest ? (uint32_t)text.size : trie->longest;
        size_t common = 0;
        while (common < text.size && common < last.size && text.data[common] == last.data[common])
            common++;
        while (depth > common)
            made->nodes[path[--depth]].skip = made->n_nodes;
        if (!spry_grow(&made->nodes, room, made->n_nodes + (text.size - common) + 1, sizeof *made->nodes))
            return false;
        for (; depth < text.size; depth++) {
            path[depth] = made->n_nodes;
            made->nodes[made->n_nodes++] =
                (spry_trie_node){0, i, (uint16_t)(depth + 1), (unsigned char)text.data[depth]};
        }
        last = text;
    }
    while (depth > 0)
        made->nodes[path[--depth]].skip = made->n_nodes;
    trie->end = made->n_nodes;
    memset(trie->roots, 0xFF, sizeof trie->roots);
    for (uint32_t i = trie->begin; i < trie->end; i = made->nodes[i].skip)
        trie->roots[made->nodes[i].byte] = i;
    return true;
}

static bool make_tries(spry_vocabulary *made)
{
    size_t room = 0;
    uint32_t *path = malloc((made->longest + 1) * sizeof *path); /* the nodes of the previous token */
    bool ok = path != NULL;
    for (uint32_t slice = 0, first = 0; slice < SPRY_SLICES && ok; slice++) {
        spry_trie *trie = &made->tries[slice];
        ok = make_trie(made, trie, first, &room, path);
        if (ok && slice != SPRY_SLICE_REST)
            ok = (trie->bits = calloc(made->n_words + 1, sizeof *trie->bits)) != NULL;
        for (uint32_t i = 0; i < first + trie->n_tokens && trie->bits; i++)
            spry_bit_set(trie->bits, (uint32_t)made->order[i]);
        first += trie->n_tokens;
    }
    ok = ok && spry_grow(&made->nodes, &room, made->n_nodes + 1, sizeof *made->nodes);
    if (ok)
        made->nodes[made->n_nodes] = (spry_trie_node){made->n_nodes, made->n_tokens, 0, 0};
    free(path);
    return ok;
}

spry_status spry_vocabulary_create(spry_vocabulary **out, const spry_tokenizer *tokenizer, size_t n_ids,
                                   spry_error *error)
{
    return spry_vocabulary_create_marks(out, tokenizer, n_ids, NULL, NULL, error);
}

spry_status spry_vocabulary_create_marks(spry_vocabulary **out, const spry_tokenizer *tokenizer, size_t n_ids,
                                         bool (*shows)(const void *user, spry_view spelling), const void *user,
                                         spry_error *error)
{
    const shown_tokens shown = {shows, user};
    static atomic_ullong serial = 1;
    size_t known = spry_tokenizer_size(tokenizer);
    spry_vocabulary *made = *out = calloc(1, sizeof *made);
    if (!made)
        return spry_fail_memory(error, "a vocabulary", sizeof *made);
    made->serial = atomic_fetch_add(&serial, 1);
    made->n_ids = n_ids;
    made->n_words = (n_ids + 31) / 32;
    made->share = spry_mask_share_create();
    made->marks = shows != NULL;
    if (made->share && copy_texts(made, tokenizer, known < n_ids ? known : n_ids, &shown) && sort_tokens(made) &&
        make_tries(made))
        return SPRY_OK;
    spry_vocabulary_destroy(made);
    *out = NULL;
    return spry_fail_memory(error, "a vocabulary", n_ids * sizeof *made->texts);
}

void spry_vocabulary_destroy(spry_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    spry_mask_share_destroy(vocabulary->share);
    for (unsigned i = 0; i < SPRY_SLICES; i++)
        free(vocabulary->tries[i].bits);
    free(vocabulary->nodes);
    free(vocabulary->order);
    free(vocabulary->texts);
    free(vocabulary->bytes);
    free(vocabulary->ends);
    free(vocabulary);
}
