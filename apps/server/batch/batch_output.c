/* Each line is appended by one call of write. */
#include "server/batch/batch_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/json.h"
#include "platform/file.h"

static spry_status read_line(spry_batch_output *o, spry_view text, spry_error *error)
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
        if (!end)
            break;
        status = read_line(o, (spry_view){begin, (size_t)(end - begin)}, error);
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
