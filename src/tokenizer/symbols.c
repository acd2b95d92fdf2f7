/* Invariant: symbols below `first_extra` are vocabulary ids; the others index `extra`. */
#include "tokenizer/symbols.h"

#include "base/utf8.h"

/* The byte-level alphabet maps the bytes 00-20 to U+0100, 7F-A0 to U+0121 and AD to U+0143; the others are
 * unchanged. */
size_t spry_byte_spelling(char out[4], unsigned char byte)
{
    uint32_t character = byte;
    if (byte <= 0x20)
        character = 0x100u + byte;
    else if (byte >= 0x7F && byte <= 0xA0)
        character = 0x121u + byte - 0x7F;
    else if (byte == 0xAD)
        character = 0x143;
    return spry_utf8_encode(out, character);
}

/* The byte of a character of the alphabet; -1: none. */
static int character_byte(uint32_t c)
{
    if (c <= 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c > 0x143)
        return -1;
    if (c < 0x100)
        return (int)c;
    if (c <= 0x120)
        return (int)(c - 0x100);
    return c == 0x143 ? 0xAD : (int)(c - 0x121 + 0x7F);
}

bool spry_byte_decode(spry_buffer *out, spry_view name)
{
    size_t start = out->size, length;
    for (size_t i = 0; i < name.size; i += length) {
        uint32_t character = 0;
        length = spry_utf8_decode(&character, name.data + i, name.size - i);
        int byte = length ? character_byte(character) : -1;
        if (byte < 0) {
            out->size = start;
            return false;
        }
        char one = (char)byte;
        if (!spry_buffer_append(out, &one, 1))
            return false;
    }
    return true;
}

static void find_bytes(spry_symbols *symbols, const spry_vocab *vocab)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char spelling[4];
        size_t length = spry_byte_spelling(spelling, (unsigned char)byte);
        int32_t id = spry_vocab_find(vocab, (spry_view){spelling, length});
        symbols->bytes[byte] = id >= 0 && vocab->kinds[id] == SPRY_TOKEN_NORMAL ? id : -1;
    }
}

static void find_fallback_bytes(spry_symbols *symbols, const spry_vocab *vocab)
{
    for (size_t id = 0; id < vocab->size; id++) {
        unsigned char byte;
        if (vocab->kinds[id] == SPRY_TOKEN_BYTE && spry_vocab_byte(vocab->names[id], &byte) && symbols->bytes[byte] < 0)
            symbols->bytes[byte] = (int32_t)id;
    }
}

/* Length of the character at `at`; 1 for invalid UTF-8. */
static size_t character_length(spry_view text, size_t at)
{
    uint32_t character;
    size_t length = spry_utf8_decode(&character, text.data + at, text.size - at);
    return length ? length : 1;
}

/* Records the characters of a token that precede a space mark. */
static void record_joins(spry_symbols *symbols, spry_view name)
{
    static const spry_view mark = {SPRY_SPACE_MARK, 3};
    for (size_t i = 1; i + mark.size <= name.size; i++) {
        unsigned char before = (unsigned char)name.data[i - 1];
        if (memcmp(name.data + i, mark.data, mark.size) != 0 || spry_view_ends((spry_view){name.data, i}, mark))
            continue;
        if (before < 0x80)
            symbols->joins_space[before] = true;
        else
            symbols->joins_space_other = true;
    }
}

/* Adds every character that is a token. */
static bool enter_single_characters(spry_symbols *symbols, const spry_vocab *vocab)
{
    for (size_t id = 0; id < vocab->size; id++) {
        spry_view name = vocab->names[id];
        bool usable = vocab->kinds[id] == SPRY_TOKEN_NORMAL || vocab->kinds[id] == SPRY_TOKEN_ADDED;
        if (usable && name.size && character_length(name, 0) == name.size &&
            !spry_map_add(&symbols->characters, name, (uint32_t)id, NULL))
            return false;
    }
    return true;
}

/* Adds the characters that occur only inside tokens. */
static bool enter_inner_characters(spry_symbols *symbols, const spry_vocab *vocab)
{
    for (size_t id = 0; id < vocab->size; id++) {
        spry_view name = vocab->names[id];
        if (vocab->kinds[id] != SPRY_TOKEN_NORMAL)
            continue;
        for (size_t i = 0, length; i < name.size; i += length) {
            length = character_length(name, i);
            spry_view character = {name.data + i, length};
            bool added = false;
            uint32_t symbol = (uint32_t)(vocab->size + symbols->n_extra);
            if (!spry_map_add(&symbols->characters, character, symbol, &added))
                return false;
            symbols->n_extra += added;
        }
        record_joins(symbols, name);
    }
    return true;
}

/* Lists the spellings of the extra symbols. */
static bool list_extra(spry_symbols *symbols, spry_arena *arena, const spry_vocab *vocab)
{
    symbols->extra = spry_arena_alloc(arena, symbols->n_extra, sizeof *symbols->extra);
    if (!symbols->extra)
        return false;
    for (size_t id = 0; id < vocab->size && symbols->n_extra; id++) {
        spry_view name = vocab->names[id];
        for (size_t i = 0, length; i < name.size && vocab->kinds[id] == SPRY_TOKEN_NORMAL; i += length) {
            length = character_length(name, i);
            spry_view character = {name.data + i, length};
            int32_t symbol = spry_symbols_find(symbols, character);
            if (symbol >= symbols->first_extra)
                symbols->extra[symbol - symbols->first_extra] = character;
        }
    }
    return true;
}

spry_status spry_symbols_init(spry_symbols *symbols, spry_arena *arena, const spry_vocab *vocab, bool by_byte,
                              bool byte_fallback, spry_error *error)
{
    *symbols = (spry_symbols){.by_byte = by_byte, .unknown = -1, .first_extra = (int32_t)vocab->size};
    spry_map_init(&symbols->characters);
    memset(symbols->bytes, 0xFF, sizeof symbols->bytes);
    if (by_byte) {
        find_bytes(symbols, vocab);
        return SPRY_OK;
    }
    if (byte_fallback)
        find_fallback_bytes(symbols, vocab);
    if (!enter_single_characters(symbols, vocab) || !enter_inner_characters(symbols, vocab) ||
        !list_extra(symbols, arena, vocab))
        return spry_fail_memory(error, "a vocabulary's characters", vocab->size);
    return SPRY_OK;
}

void spry_symbols_deinit(spry_symbols *symbols)
{
    spry_map_deinit(&symbols->characters);
}

int32_t spry_symbols_find(const spry_symbols *symbols, spry_view character)
{
    uint32_t symbol;
    return spry_map_find(&symbols->characters, character, &symbol) ? (int32_t)symbol : -1;
}

/* The replacement for text without a symbol: its bytes if each has a token, else the unknown token, else nothing. Fills
 * `out` (room for 4); returns the count. */
static size_t fall_back(const spry_symbols *symbols, int32_t out[4], spry_view text)
{
    size_t count = 0;
    while (count < text.size && count < 4 && symbols->bytes[(unsigned char)text.data[count]] >= 0) {
        out[count] = symbols->bytes[(unsigned char)text.data[count]];
        count++;
    }
    if (count == text.size)
        return count;
    out[0] = symbols->unknown;
    return symbols->unknown >= 0;
}

static bool push_fallback(const spry_symbols *symbols, spry_merge_scratch *scratch, spry_view text)
{
    int32_t found[4];
    size_t count = fall_back(symbols, found, text);
    for (size_t i = 0; i < count; i++)
        if (!spry_merge_push(scratch, found[i]))
            return false;
    return true;
}

/* An invalid UTF-8 byte without a token is read as U+FFFD. */
static bool push_character(const spry_symbols *symbols, spry_merge_scratch *scratch, spry_view character)
{
    uint32_t decoded;
    bool valid = spry_utf8_decode(&decoded, character.data, character.size) != 0;
    if (!valid && symbols->bytes[(unsigned char)character.data[0]] < 0)
        character = SPRY_VIEW("\xEF\xBF\xBD");
    else if (!valid)
        return push_fallback(symbols, scratch, character);
    int32_t symbol = spry_symbols_find(symbols, character);
    return symbol >= 0 ? spry_merge_push(scratch, symbol) : push_fallback(symbols, scratch, character);
}

bool spry_symbols_push(const spry_symbols *symbols, spry_merge_scratch *scratch, spry_view word)
{
    size_t length;
    for (size_t i = 0; i < word.size; i += length) {
        length = symbols->by_byte ? 1 : character_length(word, i);
        spry_view part = {word.data + i, length};
        bool ok = symbols->by_byte ? push_fallback(symbols, scratch, part) : push_character(symbols, scratch, part);
        if (!ok)
            return false;
    }
    return true;
}

bool spry_symbols_emit(const spry_symbols *symbols, spry_tokens *out, const int32_t *merged, size_t count)
{
    size_t start = out->count;
    for (size_t i = 0; i < count; i++) {
        int32_t ids[4] = {merged[i]};
        size_t n = 1;
        if (merged[i] >= symbols->first_extra)
            n = fall_back(symbols, ids, symbols->extra[merged[i] - symbols->first_extra]);
        bool run = out->count > start && out->ids[out->count - 1] == symbols->unknown;
        for (size_t k = 0; k < n; k++) {
            if (symbols->fuse_unknown && run && ids[k] == symbols->unknown)
                continue;
            if (!spry_tokens_push(out, ids[k]))
                return false;
        }
    }
    return true;
}

size_t spry_symbols_word_end(const spry_symbols *symbols, spry_view text, size_t begin)
{
    static const char mark[] = SPRY_SPACE_MARK;
    if (symbols->by_byte)
        return text.size;
    bool after_mark = true; /* the beginning needs no separation */
    size_t i = begin;
    while (i < text.size) {
        if (text.data[i] == mark[0] && text.size - i >= 3 && memcmp(text.data + i, mark, 3) == 0) {
            unsigned char before = i > begin ? (unsigned char)text.data[i - 1] : 0;
            if (!after_mark && !(before < 0x80 ? symbols->joins_space[before] : symbols->joins_space_other))
                return i;
            after_mark = true;
            i += 3;
        } else {
            after_mark = false;
            i++;
        }
    }
    return i;
}
