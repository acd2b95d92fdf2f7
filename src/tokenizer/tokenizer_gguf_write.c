/* Writes a tokenizer to GGUF metadata, for other programs and for spry_tokenizer_from_gguf, which creates an equal
 * tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_writer.h"
#include "tokenizer/gguf_keys.h"
#include "tokenizer/tokenizer_impl.h"

/* Owned texts, and views of them. */
typedef struct text_list {
    spry_buffer text;
    size_t *ends;
    spry_view *views;
    size_t count;
} text_list;

static bool text_list_init(text_list *list, size_t count)
{
    *list = (text_list){0};
    spry_buffer_init(&list->text, SIZE_MAX / 2);
    list->ends = malloc((count ? count : 1) * sizeof *list->ends);
    list->views = malloc((count ? count : 1) * sizeof *list->views);
    return list->ends && list->views;
}

static void text_list_deinit(text_list *list)
{
    spry_buffer_deinit(&list->text);
    free(list->ends);
    free(list->views);
}

/* Ends the text appended since the last call. */
static void text_list_next(text_list *list)
{
    list->ends[list->count++] = list->text.size;
}

static bool text_list_write(text_list *list, spry_gguf_writer *writer, const char *key)
{
    if (list->text.failed)
        return false;
    size_t begin = 0;
    spry_view text = spry_buffer_view(&list->text);
    for (size_t i = 0; i < list->count; i++) {
        list->views[i] = (spry_view){text.data + begin, list->ends[i] - begin};
        begin = list->ends[i];
    }
    spry_gguf_writer_strings(writer, key, list->views, list->count);
    return true;
}

/* GGUF marks beginnings of words, WordPiece the rest of them. */
static void append_name(spry_buffer *out, const spry_tokenizer *tokenizer, size_t id)
{
    spry_view name = tokenizer->vocab.names[id], prefix = tokenizer->wordpiece.prefix;
    unsigned char kind = tokenizer->vocab.kinds[id];
    if (tokenizer->model == SPRY_WORDS_WORDPIECE && kind != SPRY_TOKEN_CONTROL && kind != SPRY_TOKEN_UNKNOWN) {
        bool inside = prefix.size && spry_view_starts(name, prefix);
        spry_buffer_text(out, inside ? "" : SPRY_SPACE_MARK);
        name = inside ? (spry_view){name.data + prefix.size, name.size - prefix.size} : name;
    }
    spry_buffer_append(out, name.data, name.size);
}

/* Ids without a spelling get a unique one, because llama.cpp requires it. */
static bool write_tokens(const spry_tokenizer *tokenizer, spry_gguf_writer *writer, size_t count)
{
    const spry_vocab *vocab = &tokenizer->vocab;
    text_list list;
    bool ok = text_list_init(&list, count);
    for (size_t id = 0; ok && id < count; id++) {
        if (id < vocab->size && vocab->names[id].size)
            append_name(&list.text, tokenizer, id);
        else
            spry_buffer_format(&list.text, "[PAD%zu]", id);
        text_list_next(&list);
    }
    ok = ok && text_list_write(&list, writer, SPRY_KEY_TOKENS);
    text_list_deinit(&list);
    return ok;
}

static bool write_types(const spry_vocab *vocab, spry_gguf_writer *writer, size_t count)
{
    static const int32_t types[] = {
        [SPRY_TOKEN_NORMAL] = SPRY_GGUF_NORMAL,   [SPRY_TOKEN_UNKNOWN] = SPRY_GGUF_UNKNOWN,
        [SPRY_TOKEN_CONTROL] = SPRY_GGUF_CONTROL, [SPRY_TOKEN_ADDED] = SPRY_GGUF_USER,
        [SPRY_TOKEN_UNUSED] = SPRY_GGUF_UNUSED,   [SPRY_TOKEN_BYTE] = SPRY_GGUF_BYTE,
    };
    int32_t *list = malloc(count * sizeof *list);
    if (!list)
        return false;
    for (size_t id = 0; id < count; id++)
        list[id] = id < vocab->size ? types[vocab->kinds[id]] : SPRY_GGUF_UNUSED;
    spry_gguf_writer_i32s(writer, SPRY_KEY_TYPES, list, count);
    free(list);
    return true;
}

static int by_rank(const void *a, const void *b)
{
    uint32_t x = ((const spry_merge *)a)->rank, y = ((const spry_merge *)b)->rank;
    return (x > y) - (x < y);
}

/* The merges sorted by rank; the caller frees them. NULL when memory is short. */
static spry_merge *sorted_merges(const spry_merges *merges)
{
    spry_merge *list = malloc((merges->count ? merges->count : 1) * sizeof *list);
    size_t count = 0;
    for (size_t i = 0; list && i < merges->capacity; i++)
        if (merges->slots[i].left >= 0)
            list[count++] = merges->slots[i];
    if (list)
        qsort(list, count, sizeof *list, by_rank);
    return list;
}

static bool write_merges(const spry_tokenizer *tokenizer, spry_gguf_writer *writer, const spry_merge *merges)
{
    text_list list;
    bool ok = text_list_init(&list, tokenizer->merges.count);
    for (size_t i = 0; ok && i < tokenizer->merges.count; i++) {
        spry_view left = tokenizer->vocab.names[merges[i].left], right = tokenizer->vocab.names[merges[i].right];
        spry_buffer_append(&list.text, left.data, left.size);
        spry_buffer_append(&list.text, " ", 1);
        spry_buffer_append(&list.text, right.data, right.size);
        text_list_next(&list);
    }
    ok = ok && text_list_write(&list, writer, SPRY_KEY_MERGES);
    text_list_deinit(&list);
    return ok;
}

/* The tokenizer's scores; or with `merges`, scores that make readers without merges prefer the same tokens: the earlier
 * a token is merged, the higher. */
static bool write_scores(const spry_tokenizer *tokenizer, spry_gguf_writer *writer, const spry_merge *merges,
                         size_t count)
{
    float *scores = calloc(count, sizeof *scores);
    if (!scores)
        return false;
    if (!merges)
        memcpy(scores, tokenizer->vocab.scores, tokenizer->vocab.size * sizeof *scores);
    for (size_t i = tokenizer->merges.count; merges && i-- > 0;)
        scores[merges[i].merged] = -(float)i - 1;
    spry_gguf_writer_f32s(writer, SPRY_KEY_SCORES, scores, count);
    free(scores);
    return true;
}

static bool write_listed_merges(const spry_tokenizer *tokenizer, spry_gguf_writer *writer, size_t count)
{
    spry_merge *merges = sorted_merges(&tokenizer->merges);
    bool ok = merges && write_merges(tokenizer, writer, merges) &&
              (tokenizer->by_byte || write_scores(tokenizer, writer, merges, count));
    free(merges);
    return ok;
}

static bool has_change(const spry_changes *changes, spry_change change)
{
    for (size_t i = 0; i < changes->count; i++)
        if (changes->steps[i].change == change)
            return true;
    return false;
}

static void write_charsmap(const spry_tokenizer *tokenizer, spry_gguf_writer *writer)
{
    for (size_t i = 0; i < tokenizer->normalizer.count; i++) {
        const spry_change_step *step = &tokenizer->normalizer.steps[i];
        if (step->change == SPRY_CHANGE_CHARS) /* its size stands before the units */
            spry_gguf_writer_u8s(writer, SPRY_KEY_CHARSMAP, step->chars.units - 4,
                                 4 + 4 * step->chars.n_units + step->chars.texts.size);
    }
}

static void write_id(spry_gguf_writer *writer, const char *key, int32_t id)
{
    if (id >= 0)
        spry_gguf_writer_u32(writer, key, (uint32_t)id);
}

/* Writes whether `id` is added at an end, unless more tokens are. */
static void write_frame(spry_gguf_writer *writer, const char *key, const spry_frame *frame, int32_t id)
{
    if (frame->count == 0 || (frame->count == 1 && frame->ids[0] == id))
        spry_gguf_writer_bool(writer, key, frame->count == 1);
}

static void write_rules(const spry_tokenizer *tokenizer, spry_gguf_writer *writer)
{
    const spry_changes *normalizer = &tokenizer->normalizer;
    bool prefix = has_change(normalizer, SPRY_CHANGE_PREPEND) || has_change(&tokenizer->prepare, SPRY_CHANGE_PREFIX);
    spry_gguf_writer_bool(writer, SPRY_KEY_ADD_SPACE, prefix);
    if (tokenizer->settings.size) {
        spry_gguf_writer_string(writer, SPRY_KEY_SETTINGS, tokenizer->settings);
    } else if (!tokenizer->by_byte) {
        spry_gguf_writer_bool(writer, SPRY_KEY_SQUEEZE, has_change(normalizer, SPRY_CHANGE_SQUEEZE));
        spry_gguf_writer_bool(writer, SPRY_KEY_ESCAPE, has_change(normalizer, SPRY_CHANGE_REPLACE));
    }
}

bool spry_tokenizer_to_gguf(const spry_tokenizer *tokenizer, struct spry_gguf_writer *writer, size_t n_rows)
{
    const spry_vocab *vocab = &tokenizer->vocab;
    size_t count = vocab->size > n_rows ? vocab->size : n_rows;
    static const char *const models[] = {
        [SPRY_WORDS_MERGED] = "llama", [SPRY_WORDS_WORDPIECE] = "bert", [SPRY_WORDS_UNIGRAM] = "t5"};
    const char *model = tokenizer->by_byte ? "gpt2" : models[tokenizer->model];
    spry_gguf_writer_string(writer, SPRY_KEY_MODEL, spry_view_of(model));
    spry_gguf_writer_string(writer, SPRY_KEY_PATTERN,
                            tokenizer->pattern_name.size ? tokenizer->pattern_name : SPRY_VIEW("default"));
    if (!write_tokens(tokenizer, writer, count) || !write_types(vocab, writer, count))
        return false;
    if (tokenizer->by_score || tokenizer->model ? !write_scores(tokenizer, writer, NULL, count)
                                                : !write_listed_merges(tokenizer, writer, count))
        return false;
    write_id(writer, SPRY_KEY_BOS, tokenizer->bos);
    write_id(writer, SPRY_KEY_EOS, tokenizer->eos);
    write_id(writer, SPRY_KEY_EOT, tokenizer->end_of_turn);
    write_id(writer, SPRY_KEY_UNKNOWN, tokenizer->unknown);
    write_id(writer, SPRY_KEY_PADDING, tokenizer->padding);
    if (tokenizer->model) {
        write_id(writer, SPRY_KEY_CLS, tokenizer->bos);
        write_id(writer, SPRY_KEY_SEPARATOR, tokenizer->eos);
        write_charsmap(tokenizer, writer);
    }
    write_frame(writer, SPRY_KEY_ADD_BOS, &tokenizer->before, tokenizer->bos);
    write_frame(writer, SPRY_KEY_ADD_EOS, &tokenizer->behind, tokenizer->eos);
    write_rules(tokenizer, writer);
    return true;
}
