/* The input file of a batch line by line, and its output file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "platform/file.h"
#include "platform/threads.h"
#include "server/batch/batch.h"

spry_status spry_batch_lines_open(spry_batch_lines *lines, const char *path, spry_error *error)
{
    *lines = (spry_batch_lines){.at = 0};
    pthread_mutex_init(&lines->lock, NULL);
    spry_background_condition(&lines->changed);
    return spry_mapping_open(&lines->input, path, error);
}

void spry_batch_lines_close(spry_batch_lines *lines)
{
    spry_mapping_close(&lines->input);
    free(lines->taken);
    pthread_cond_destroy(&lines->changed);
    pthread_mutex_destroy(&lines->lock);
}

static bool read_line(spry_batch_lines *l, spry_batch_line *line)
{
    while (l->at < l->input.size) {
        const char *begin = (const char *)l->input.data + l->at;
        const char *end = memchr(begin, '\n', l->input.size - l->at);
        line->text = (spry_view){begin, end ? (size_t)(end - begin) : l->input.size - l->at};
        l->at += line->text.size + (end != NULL);
        line->number = ++l->line;
        for (size_t i = 0; i < line->text.size; i++)
            if (!memchr(" \t\r", begin[i], 3))
                return true;
    }
    return false;
}

static bool remember(spry_batch_lines *l, const spry_batch_line *line)
{
    if (l->n_taken == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 64;
        spry_batch_line *grown = realloc(l->taken, capacity * sizeof *grown);
        if (!grown)
            return false;
        l->taken = grown;
        l->capacity = capacity;
    }
    l->taken[l->n_taken++] = *line;
    return true;
}

static spry_batch_take take(spry_batch_lines *l, spry_batch_line *line, uint32_t rank)
{
    if (l->stopped)
        return SPRY_BATCH_END;
    for (size_t i = 0; i < l->n_taken; i++)
        if (l->taken[i].free) {
            l->taken[i].free = false;
            l->taken[i].rank = rank;
            *line = l->taken[i];
            return SPRY_BATCH_LINE;
        }
    *line = (spry_batch_line){.rank = rank};
    bool found = read_line(l, line);
    while (found && l->skip && l->skip(l->user, line))
        found = read_line(l, line);
    if (found)
        return remember(l, line) ? SPRY_BATCH_LINE : SPRY_BATCH_END;
    return l->n_taken ? SPRY_BATCH_LATER : SPRY_BATCH_END;
}

spry_batch_take spry_batch_lines_take(spry_batch_lines *l, spry_batch_line *line, uint32_t rank)
{
    pthread_mutex_lock(&l->lock);
    spry_batch_take result = take(l, line, rank);
    pthread_mutex_unlock(&l->lock);
    return result;
}

bool spry_batch_lines_next(spry_batch_lines *l, spry_batch_line *line, uint32_t rank)
{
    const uint64_t look_ns = 200000000; /* an interrupt wakes no condition */
    spry_batch_take result;
    pthread_mutex_lock(&l->lock);
    while ((result = take(l, line, rank)) == SPRY_BATCH_LATER)
        spry_background_wait(&l->changed, &l->lock, look_ns);
    pthread_mutex_unlock(&l->lock);
    return result == SPRY_BATCH_LINE;
}

bool spry_batch_lines_done(spry_batch_lines *l, size_t number, uint32_t rank)
{
    bool found = false;
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->n_taken && !found; i++)
        if (l->taken[i].number == number && l->taken[i].rank == rank && !l->taken[i].free) {
            l->taken[i] = l->taken[--l->n_taken];
            found = true;
        }
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return found;
}

void spry_batch_lines_lose(spry_batch_lines *l, uint32_t rank)
{
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->n_taken; i++)
        l->taken[i].free = l->taken[i].free || l->taken[i].rank == rank;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void spry_batch_lines_stop(spry_batch_lines *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopped = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* ---- the output file --------------------------------------------------------------------------------------------- */

/* Each line is appended by one call of write. */

static spry_status output_read_line(spry_batch_output *o, spry_view text, spry_error *error)
{
    json_t *line = NULL;
    bool added;
    if (spry_json_object(&line, text, NULL) != SPRY_OK)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: the file exists and is not the output of a batch", o->path);
    const char *id = json_string_value(json_object_get(line, "custom_id"));
    char *kept = id ? spry_arena_copy(&o->arena, spry_view_of(id)) : NULL;
    bool fits = !id || (kept && spry_map_add(&o->done, spry_view_of(kept), 1, &added));
    json_decref(line);
    return fits ? SPRY_OK : spry_fail_memory(error, "earlier answers", text.size);
}

/* Whether the only line, without its end, is one that was being written: then it is dropped. */
static bool is_begun(spry_view line)
{
    const spry_view begin = SPRY_VIEW("{\"id\":\"batch_req_");
    size_t size = line.size < begin.size ? line.size : begin.size;
    return memcmp(line.data, begin.data, size) == 0;
}

/* *whole: bytes of complete lines. */
static spry_status read_earlier(spry_batch_output *o, size_t *whole, spry_error *error)
{
    spry_mapping mapping;
    *whole = 0;
    if (!spry_path_exists(o->path))
        return SPRY_OK;
    spry_status status = spry_mapping_open(&mapping, o->path, error);
    while (status == SPRY_OK && *whole < mapping.size) {
        const char *begin = (const char *)mapping.data + *whole;
        const char *end = memchr(begin, '\n', mapping.size - *whole);
        if (!end && !*whole && !is_begun((spry_view){begin, mapping.size - *whole}))
            status = spry_fail(error, SPRY_ERR_FORMAT, "%s: the file exists and is not the output of a batch", o->path);
        if (!end)
            break;
        status = output_read_line(o, (spry_view){begin, (size_t)(end - begin)}, error);
        *whole += (size_t)(end - begin) + 1;
    }
    spry_mapping_close(&mapping);
    return status;
}

spry_status spry_batch_output_open(spry_batch_output *o, const char *path, spry_error *error)
{
    size_t whole;
    *o = (spry_batch_output){.path = path, .file = -1};
    spry_arena_init(&o->arena);
    spry_map_init(&o->done);
    spry_status status = read_earlier(o, &whole, error);
    if (status == SPRY_OK) {
        o->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (o->file < 0 || ftruncate(o->file, (off_t)whole) != 0)
            status = spry_fail(error, SPRY_ERR_FILE, "%s: %s", path, strerror(errno));
    }
    if (status != SPRY_OK)
        spry_batch_output_close(o);
    return status;
}

void spry_batch_output_close(spry_batch_output *o)
{
    if (o->file >= 0)
        close(o->file);
    o->file = -1;
    spry_map_deinit(&o->done);
    spry_arena_deinit(&o->arena);
}

bool spry_batch_output_has(const spry_batch_output *o, const char *custom_id)
{
    uint32_t value;
    return spry_map_find(&o->done, spry_view_of(custom_id), &value);
}

spry_status spry_batch_output_add(spry_batch_output *o, spry_view json, spry_error *error)
{
    char *text = json.size ? malloc(json.size + 1) : NULL;
    if (!text)
        return spry_fail_memory(error, "an answer", json.size);
    memcpy(text, json.data, json.size);
    text[json.size] = '\n';
    ssize_t written = write(o->file, text, json.size + 1);
    free(text);
    if (written == (ssize_t)(json.size + 1))
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FILE, "%s: %s", o->path, written < 0 ? strerror(errno) : "the disk is full");
}

/* ---- output in the order of the input ---------------------------------------------------------------------------- */

typedef struct answer {
    uint32_t place; /* position of its line in the input, or after the last line */
    spry_view text; /* the line, including its newline */
} answer;

const char *spry_batch_line_id(char room[SPRY_BATCH_ID_BYTES], const json_t *request, size_t number)
{
    const char *given = json_string_value(json_object_get(request, "custom_id"));
    snprintf(room, SPRY_BATCH_ID_BYTES, "line-%zu", number);
    return given ? given : room;
}

/* The next line, with its newline. */
static bool next_line(spry_view *line, const spry_mapping *file, size_t *at)
{
    if (*at >= file->size)
        return false;
    const char *begin = (const char *)file->data + *at, *end = memchr(begin, '\n', file->size - *at);
    *line = (spry_view){begin, end ? (size_t)(end - begin) + 1 : file->size - *at};
    *at += line->size;
    return true;
}

static bool read_places(spry_map *places, spry_arena *arena, const spry_mapping *input)
{
    spry_view line;
    bool fits = true, added;
    uint32_t number = 0;
    for (size_t at = 0; fits && next_line(&line, input, &at);) {
        char room[SPRY_BATCH_ID_BYTES];
        json_t *request = NULL;
        (void)spry_json_object(&request, line, NULL);
        char *id = spry_arena_copy(arena, spry_view_of(spry_batch_line_id(room, request, ++number)));
        fits = id && spry_map_add(places, spry_view_of(id), number, &added);
        json_decref(request);
    }
    return fits;
}

static int by_place(const void *a, const void *b)
{
    const answer *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->text.data < y->text.data ? -1 : x->text.data > y->text.data; /* in the order of the file */
}

/* NULL: memory is short. */
static answer *read_answers(size_t *count, const spry_map *places, const spry_mapping *file)
{
    spry_view line;
    size_t lines = 0;
    for (size_t at = 0; next_line(&line, file, &at);)
        lines++;
    answer *answers = calloc(lines + 1, sizeof *answers);
    *count = 0;
    for (size_t at = 0; answers && next_line(&line, file, &at);) {
        answer *a = &answers[(*count)++];
        json_t *json = NULL;
        (void)spry_json_object(&json, line, NULL);
        const char *id = json_string_value(json_object_get(json, "custom_id"));
        *a = (answer){UINT32_MAX, line};
        if (id)
            (void)spry_map_find(places, spry_view_of(id), &a->place);
        json_decref(json);
    }
    return answers;
}

static spry_status write_sorted(const char *path, answer *answers, size_t count, spry_error *error)
{
    spry_file_writer writer;
    spry_status status = spry_file_writer_open(&writer, path, error);
    if (status != SPRY_OK)
        return status;
    qsort(answers, count, sizeof *answers, by_place);
    for (size_t i = 0; status == SPRY_OK && i < count; i++)
        status = spry_file_writer_write(&writer, answers[i].text.data, answers[i].text.size, error);
    if (status == SPRY_OK)
        return spry_file_writer_commit(&writer, error);
    spry_file_writer_abandon(&writer);
    return status;
}

spry_status spry_batch_output_sort(spry_batch_output *o, const spry_mapping *input, spry_error *error)
{
    spry_mapping file;
    spry_arena arena;
    spry_map places;
    size_t count;
    spry_status status = spry_mapping_open(&file, o->path, error);
    if (status != SPRY_OK)
        return status;
    spry_arena_init(&arena);
    spry_map_init(&places);
    answer *answers = read_places(&places, &arena, input) ? read_answers(&count, &places, &file) : NULL;
    status = answers ? write_sorted(o->path, answers, count, error)
                     : spry_fail_memory(error, "sorting the answers", file.size);
    free(answers);
    spry_map_deinit(&places);
    spry_arena_deinit(&arena);
    spry_mapping_close(&file);
    return status;
}
