/* Documents from a folder, questions from a file. Both must be valid text, because results for other data would be
 * meaningless. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "base/utf8.h"
#include "eval/eval_span.h"
#include "platform/file.h"

enum {
    DOCUMENT_BYTES_MAX = 64 << 20,
    QUESTIONS_BYTES_MAX = 64 << 20,
    QUESTION_BYTES_MAX = 1 << 20,
    PATH_BYTES = 1 << 13
};

/* ---- lists of texts ---------------------------------------------------------------------------------------------- */

/* Appends an entry with an empty text; NULL when memory is short. */
static spry_eval_text *add_text(spry_eval_texts *texts, size_t max_bytes)
{
    size_t bytes;
    if (!spry_checked_mul(&bytes, texts->count + 1, sizeof *texts->items))
        return NULL;
    spry_eval_text *items = realloc(texts->items, bytes);
    if (!items)
        return NULL;
    texts->items = items;
    spry_eval_text *text = &items[texts->count++];
    *text = (spry_eval_text){0};
    spry_buffer_init(&text->text, max_bytes);
    return text;
}

static void text_deinit(spry_eval_text *text)
{
    free(text->name);
    free(text->ids);
    spry_buffer_deinit(&text->text);
}

static void texts_deinit(spry_eval_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        text_deinit(&texts->items[i]);
    free(texts->items);
}

void spry_eval_corpus_deinit(spry_eval_corpus *corpus)
{
    texts_deinit(&corpus->documents);
    texts_deinit(&corpus->questions);
    text_deinit(&corpus->start);
    *corpus = (spry_eval_corpus){0};
}

static bool is_text(const spry_buffer *bytes)
{
    spry_view view = spry_buffer_view(bytes);
    return spry_utf8_valid(view) && !memchr(view.data, '\0', view.size);
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

typedef struct listing {
    spry_eval_texts *documents;
    bool failed;
} listing;

static void note_name(void *context, const char *name)
{
    listing *l = context;
    spry_eval_text *text = l->failed ? NULL : add_text(l->documents, DOCUMENT_BYTES_MAX);
    if (text)
        text->name = strdup(name);
    l->failed = !text || !text->name;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const spry_eval_text *)a)->name, ((const spry_eval_text *)b)->name);
}

/* Subfolders are not documents and are skipped. */
static spry_status read_document(spry_eval_text *text, bool *is_document, const char *folder, spry_error *error)
{
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES);
    spry_status status = spry_path_join(&path, folder, text->name, error);
    *is_document = status || !spry_path_is_folder(path.data);
    if (!status && *is_document)
        status = spry_file_read(&text->text, path.data, error);
    if (!status && *is_document && !is_text(&text->text))
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s is not UTF-8 text; remove it from the folder", path.data);
    if (!status && *is_document && !text->text.size)
        status = spry_fail(error, SPRY_ERR_INPUT, "%s is empty; remove it from the folder", path.data);
    spry_buffer_deinit(&path);
    return status;
}

static spry_status read_documents(spry_eval_texts *documents, const char *folder, spry_error *error)
{
    listing list = {documents, false};
    spry_status status = spry_folder_each(folder, note_name, &list, error);
    if (!status && list.failed)
        status = spry_fail_memory(error, "the list of documents", documents->count * sizeof *documents->items);
    if (status)
        return status;
    if (documents->count)
        qsort(documents->items, documents->count, sizeof *documents->items, by_name);
    size_t kept = 0;
    for (size_t i = 0; !status && i < documents->count; i++) {
        bool is_document;
        status = read_document(&documents->items[i], &is_document, folder, error);
        const spry_eval_text text = documents->items[i];
        documents->items[i] = documents->items[kept];
        documents->items[kept] = text;
        kept += is_document;
    }
    if (status)
        return status;
    for (; documents->count > kept; documents->count--)
        text_deinit(&documents->items[documents->count - 1]);
    if (!documents->count)
        return spry_fail(error, SPRY_ERR_INPUT, "%s contains no files; put one document in each file", folder);
    return SPRY_OK;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

static spry_status question_of_json(spry_buffer *out, spry_view line, spry_error *error)
{
    json_t *object;
    spry_status status = spry_json_object(&object, line, error);
    if (status)
        return status;
    json_t *question = json_object_get(object, "question");
    if (json_is_string(question))
        spry_buffer_append(out, json_string_value(question), json_string_length(question));
    else
        status = spry_fail(error, SPRY_ERR_FORMAT, "there is no text under \"question\"");
    json_decref(object);
    return status;
}

static spry_status add_question(spry_eval_texts *questions, spry_view line, spry_error *error)
{
    spry_eval_text *text = add_text(questions, QUESTION_BYTES_MAX);
    spry_status status = SPRY_OK;
    if (!text)
        return spry_fail_memory(error, "a question", sizeof *text);
    if (line.data[0] == '{')
        status = question_of_json(&text->text, line, error);
    else
        spry_buffer_append(&text->text, line.data, line.size);
    if (!status && text->text.failed)
        status = spry_fail(error, SPRY_ERR_INPUT, "the question is longer than %d bytes", QUESTION_BYTES_MAX);
    if (!status && (!text->text.size || !is_text(&text->text)))
        status = spry_fail(error, SPRY_ERR_FORMAT, "the question is empty or not UTF-8 text");
    return status;
}

static spry_status split_questions(spry_eval_texts *questions, spry_view all, const char *file, spry_error *error)
{
    char prefix[SPRY_ERROR_MAX];
    spry_status status = SPRY_OK;
    for (size_t begin = 0, number = 1; !status && begin < all.size; number++) {
        const char *end = memchr(all.data + begin, '\n', all.size - begin);
        size_t size = end ? (size_t)(end - all.data) - begin : all.size - begin;
        spry_view line = spry_view_trim((spry_view){all.data + begin, size}, " \t\r");
        begin += size + 1;
        if (line.size)
            status = add_question(questions, line, error);
        if (status) {
            snprintf(prefix, sizeof prefix, "%.300s, line %zu", file, number);
            return spry_fail_prefix(error, status, prefix);
        }
    }
    if (!questions->count)
        return spry_fail(error, SPRY_ERR_INPUT, "%s contains no questions; write one on each line", file);
    return SPRY_OK;
}

static spry_status read_questions(spry_eval_texts *questions, const char *file, spry_error *error)
{
    spry_buffer bytes;
    spry_buffer_init(&bytes, QUESTIONS_BYTES_MAX);
    spry_status status = spry_file_read(&bytes, file, error);
    if (!status && !is_text(&bytes))
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s is not UTF-8 text; it must have one question per line", file);
    if (!status)
        status = split_questions(questions, spry_buffer_view(&bytes), file, error);
    spry_buffer_deinit(&bytes);
    return status;
}

spry_status spry_eval_corpus_read(spry_eval_corpus *corpus, const char *folder, const char *questions,
                                  spry_error *error)
{
    *corpus = (spry_eval_corpus){0};
    spry_buffer_init(&corpus->start.text, 0);
    spry_status status = read_documents(&corpus->documents, folder, error);
    return status ? status : read_questions(&corpus->questions, questions, error);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static spry_status tokenize_whole(spry_eval_text *text, const spry_engine *engine, spry_error *error)
{
    spry_view view = spry_buffer_view(&text->text);
    size_t capacity = view.size + 16; /* an estimate that is nearly always enough */
    for (;;) {
        free(text->ids);
        text->ids = calloc(capacity, sizeof *text->ids);
        if (!text->ids)
            return spry_fail_memory(error, "a document's tokens", capacity * sizeof *text->ids);
        spry_status status =
            spry_engine_tokenize(engine, text->ids, capacity, &text->n_ids, view.data, view.size, false, error);
        if (status || text->n_ids <= capacity)
            return status;
        capacity = text->n_ids;
    }
}

/* Without the tokens that the tokenizer adds before every text: those occur once, before the prompt. */
static spry_status tokenize(spry_eval_text *text, const spry_eval_text *start, const spry_engine *engine,
                            spry_error *error)
{
    spry_status status = tokenize_whole(text, engine, error);
    if (status)
        return status;
    size_t same = 0;
    while (same < start->n_ids && same < text->n_ids && text->ids[same] == start->ids[same])
        same++;
    text->n_ids -= same;
    memmove(text->ids, text->ids + same, text->n_ids * sizeof *text->ids);
    if (!text->n_ids)
        return spry_fail(error, SPRY_ERR_INPUT, "%s has no tokens in this model's vocabulary",
                         text->name ? text->name : "a question");
    return SPRY_OK;
}

spry_status spry_eval_corpus_tokenize(spry_eval_corpus *corpus, const spry_engine *engine, spry_error *error)
{
    spry_status status = tokenize_whole(&corpus->start, engine, error);
    corpus->shortest_document = SIZE_MAX;
    for (size_t i = 0; !status && i < corpus->documents.count; i++) {
        spry_eval_text *document = &corpus->documents.items[i];
        status = tokenize(document, &corpus->start, engine, error);
        size_t n = document->n_ids;
        corpus->document_tokens += n;
        corpus->shortest_document = n < corpus->shortest_document ? n : corpus->shortest_document;
        corpus->longest_document = n > corpus->longest_document ? n : corpus->longest_document;
    }
    for (size_t i = 0; !status && i < corpus->questions.count; i++) {
        spry_eval_text *question = &corpus->questions.items[i];
        status = tokenize(question, &corpus->start, engine, error);
        corpus->longest_question =
            question->n_ids > corpus->longest_question ? question->n_ids : corpus->longest_question;
    }
    return status;
}
