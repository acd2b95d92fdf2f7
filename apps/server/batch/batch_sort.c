/* The output of a finished batch in the order of its input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/batch/batch_output.h"

typedef struct answer {
    uint32_t place; /* in the input, or after all of it */
    spry_view text; /* with its newline */
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
    return x->text.data < y->text.data ? -1 : x->text.data > y->text.data; /* as they were */
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
