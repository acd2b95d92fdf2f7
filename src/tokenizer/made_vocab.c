/* Word k of a length is the number k written with its first symbol changing fastest, so that every first letter occurs
 * at any count. All words of one length precede those of the next: the parts of a word always exist. */
#include "tokenizer/made_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/gguf_keys.h"
#include "tokenizer/symbols.h"

enum {
    LETTERS = 26,
    FIRST_SYMBOLS = LETTERS + 1, /* a word may begin with a space */
    SPELLING_MAX = 24,
    WORD_MAX = 12, /* symbols; enough for any vocabulary size */
};

static const char *const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

typedef struct vocab_text {
    char (*tokens)[SPELLING_MAX]; /* [size] */
    char (*merges)[SPELLING_MAX]; /* [n_words] */
    spry_view *views;             /* [size] */
    int32_t *types;               /* [size] */
} vocab_text;

static void spell_bytes(vocab_text *text)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        size_t length = spry_byte_spelling(text->tokens[byte], (unsigned char)byte);
        text->tokens[byte][length] = '\0';
    }
}

/* Spells word `index` of `n_symbols`; returns the number of bytes before the last symbol. */
static size_t spell_word(char out[SPELLING_MAX], size_t index, size_t n_symbols)
{
    size_t first = index % FIRST_SYMBOLS, used = 1;
    index /= FIRST_SYMBOLS;
    if (first < LETTERS)
        out[0] = (char)('a' + first);
    else
        used = spry_byte_spelling(out, ' ');
    for (size_t i = 1; i < n_symbols; i++, index /= LETTERS)
        out[used++] = (char)('a' + index % LETTERS);
    out[used] = '\0';
    return used - 1;
}

static void spell_words(vocab_text *text, size_t n_words)
{
    size_t index = 0, n_symbols = 2, of_this_length = FIRST_SYMBOLS * LETTERS;
    for (size_t i = 0; i < n_words; i++, index++) {
        if (index == of_this_length && n_symbols < WORD_MAX) {
            index = 0;
            n_symbols++;
            of_this_length *= LETTERS;
        }
        char *word = text->tokens[256 + i];
        size_t split = spell_word(word, index, n_symbols);
        snprintf(text->merges[i], SPELLING_MAX, "%.*s %s", (int)split, word, word + split);
    }
}

static void write_strings(spry_gguf_writer *writer, const char *key, spry_view *views, char (*texts)[SPELLING_MAX],
                          size_t count)
{
    for (size_t i = 0; i < count; i++)
        views[i] = spry_view_of(texts[i]);
    spry_gguf_writer_strings(writer, key, views, count);
}

static void write_all(spry_gguf_writer *writer, vocab_text *text, size_t size, const char *pattern)
{
    size_t n_words = size - SPRY_MADE_VOCAB_MIN, first_special = 256 + n_words;
    uint32_t end_of_text = (uint32_t)first_special, end_of_turn = (uint32_t)first_special + 2;
    spell_bytes(text);
    spell_words(text, n_words);
    for (size_t i = 0; i < SPRY_COUNT(specials); i++)
        snprintf(text->tokens[first_special + i], SPELLING_MAX, "%s", specials[i]);
    for (size_t id = 0; id < size; id++)
        text->types[id] = id < first_special ? SPRY_GGUF_NORMAL : SPRY_GGUF_CONTROL;
    spry_gguf_writer_string(writer, SPRY_KEY_MODEL, SPRY_VIEW("gpt2"));
    spry_gguf_writer_string(writer, SPRY_KEY_PATTERN, spry_view_of(pattern));
    write_strings(writer, SPRY_KEY_TOKENS, text->views, text->tokens, size);
    spry_gguf_writer_i32s(writer, SPRY_KEY_TYPES, text->types, size);
    write_strings(writer, SPRY_KEY_MERGES, text->views, text->merges, n_words);
    spry_gguf_writer_u32(writer, SPRY_KEY_BOS, end_of_text);
    spry_gguf_writer_u32(writer, SPRY_KEY_EOS, end_of_turn);
    spry_gguf_writer_u32(writer, SPRY_KEY_PADDING, end_of_text);
    spry_gguf_writer_bool(writer, SPRY_KEY_ADD_BOS, false);
}

bool spry_made_vocab_write(spry_gguf_writer *writer, size_t size, const char *pattern)
{
    vocab_text text = {.tokens = calloc(size, sizeof *text.tokens),
                       .merges = calloc(size, sizeof *text.merges),
                       .views = calloc(size, sizeof *text.views),
                       .types = calloc(size, sizeof *text.types)};
    bool made = text.tokens && text.merges && text.views && text.types;
    if (made)
        write_all(writer, &text, size, pattern);
    free(text.tokens);
    free(text.merges);
    free(text.views);
    free(text.types);
    return made;
}
