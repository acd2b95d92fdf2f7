/* The head of the file is built in memory; tensor bytes are streamed. Offsets follow from the listed sizes alone, so
 * nothing is patched afterwards. */
#include "formats/gguf_writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/map.h"
#include "base/number.h"
#include "platform/file.h"

enum { VERSION = 3, ALIGNMENT = 32, HEAD_BYTES_MAX = 1 << 30 };

static const char alignment_key[] = "general.alignment";

typedef struct listed {
    const char *name;
    size_t bytes;
} listed;

struct spry_gguf_writer {
    spry_buffer entries, infos; /* the two parts of the head */
    uint64_t n_entries;
    listed *tensors;
    size_t n_tensors, capacity;
    size_t data_bytes; /* total of all tensors, each padded */
    spry_arena arena;  /* names, for the maps and for messages */
    spry_map keys, names;
    spry_error failure; /* the first failure, until _begin reports it */

    spry_file_writer file; /* open between _begin and _finish */
    size_t current;        /* index of the tensor being written */
    size_t written;        /* bytes of it written so far */
};

spry_status spry_gguf_writer_create(spry_gguf_writer **out, spry_error *error)
{
    spry_gguf_writer *writer = calloc(1, sizeof *writer);
    *out = writer;
    if (!writer)
        return spry_fail_memory(error, "a GGUF writer", sizeof *writer);
    spry_buffer_init(&writer->entries, HEAD_BYTES_MAX);
    spry_buffer_init(&writer->infos, HEAD_BYTES_MAX);
    spry_arena_init(&writer->arena);
    spry_map_init(&writer->keys);
    spry_map_init(&writer->names);
    return SPRY_OK;
}

void spry_gguf_writer_destroy(spry_gguf_writer *writer)
{
    if (!writer)
        return;
    spry_file_writer_abandon(&writer->file);
    spry_buffer_deinit(&writer->entries);
    spry_buffer_deinit(&writer->infos);
    spry_map_deinit(&writer->keys);
    spry_map_deinit(&writer->names);
    spry_arena_deinit(&writer->arena);
    free(writer->tensors);
    free(writer);
}

static bool healthy(const spry_gguf_writer *writer)
{
    return writer->failure.status == SPRY_OK;
}

/* Whether the head may still change. */
static bool listing(spry_gguf_writer *writer)
{
    if (writer->file.file && healthy(writer))
        spry_fail(&writer->failure, SPRY_ERR_INPUT, "metadata or a tensor was added after the file was begun");
    return healthy(writer);
}

/* Copies a name, which must be new; on failure records the error and returns NULL. */
static const char *claim(spry_gguf_writer *writer, spry_map *map, spry_view name, const char *what)
{
    bool fresh = false;
    char *copy = spry_arena_copy(&writer->arena, name);
    if (!copy || !spry_map_add(map, (spry_view){copy, name.size}, 0, &fresh))
        spry_fail_memory(&writer->failure, what, name.size);
    else if (!name.size)
        spry_fail(&writer->failure, SPRY_ERR_INPUT, "a %s is empty", what);
    else if (!fresh)
        spry_fail(&writer->failure, SPRY_ERR_INPUT, "%s '%.*s' is given twice", what, SPRY_VIEW_ARG(name));
    return healthy(writer) ? copy : NULL;
}

/* ---- metadata --------------------------------------------------------------------------------------------------- */

static void put_u32(spry_buffer *out, uint32_t value)
{
    spry_buffer_append(out, &value, sizeof value);
}

static void put_u64(spry_buffer *out, uint64_t value)
{
    spry_buffer_append(out, &value, sizeof value);
}

static void put_string(spry_buffer *out, spry_view text)
{
    put_u64(out, text.size);
    spry_buffer_append(out, text.data, text.size);
}

/* Appends the start of an entry; false when the writer has failed: then nothing more may be appended. */
static bool put_key(spry_gguf_writer *writer, spry_view key, spry_gguf_kind kind)
{
    if (!listing(writer))
        return false;
    if (spry_view_is(key, alignment_key)) {
        spry_fail(&writer->failure, SPRY_ERR_INPUT, "%s cannot be set: the writer always aligns to %d bytes",
                  alignment_key, ALIGNMENT);
        return false;
    }
    if (!claim(writer, &writer->keys, key, "metadata key"))
        return false;
    put_string(&writer->entries, key);
    put_u32(&writer->entries, (uint32_t)kind);
    writer->n_entries++;
    return true;
}

static void put_scalar(spry_gguf_writer *writer, const char *key, spry_gguf_kind kind, const void *value)
{
    if (put_key(writer, spry_view_of(key), kind))
        spry_buffer_append(&writer->entries, value, spry_gguf_kind_bytes(kind));
}

void spry_gguf_writer_u32(spry_gguf_writer *writer, const char *key, uint32_t value)
{
    put_scalar(writer, key, SPRY_GGUF_U32, &value);
}

void spry_gguf_writer_f32(spry_gguf_writer *writer, const char *key, float value)
{
    put_scalar(writer, key, SPRY_GGUF_F32, &value);
}

void spry_gguf_writer_bool(spry_gguf_writer *writer, const char *key, bool value)
{
    unsigned char byte = value;
    put_scalar(writer, key, SPRY_GGUF_BOOL, &byte);
}

void spry_gguf_writer_string(spry_gguf_writer *writer, const char *key, spry_view value)
{
    if (put_key(writer, spry_view_of(key), SPRY_GGUF_STRING))
        put_string(&writer->entries, value);
}

static bool put_array(spry_gguf_writer *writer, const char *key, spry_gguf_kind kind, size_t count)
{
    if (!put_key(writer, spry_view_of(key), SPRY_GGUF_ARRAY))
        return false;
    put_u32(&writer->entries, (uint32_t)kind);
    put_u64(&writer->entries, count);
    return true;
}

static void put_numbers(spry_gguf_writer *writer, const char *key, spry_gguf_kind kind, const void *values,
                        size_t count)
{
    size_t bytes;
    if (!put_array(writer, key, kind, count))
        return;
    if (spry_checked_mul(&bytes, count, spry_gguf_kind_bytes(kind)))
        spry_buffer_append(&writer->entries, values, bytes);
    else
        writer->entries.failed = true;
}

void spry_gguf_writer_f32s(spry_gguf_writer *writer, const char *key, const float *values, size_t count)
{
    put_numbers(writer, key, SPRY_GGUF_F32, values, count);
}

void spry_gguf_writer_u8s(spry_gguf_writer *writer, const char *key, const unsigned char *values, size_t count)
{
    if (put_array(writer, key, SPRY_GGUF_U8, count))
        spry_buffer_append(&writer->entries, values, count);
}

void spry_gguf_writer_i32s(spry_gguf_writer *writer, const char *key, const int32_t *values, size_t count)
{
    put_numbers(writer, key, SPRY_GGUF_I32, values, count);
}

void spry_gguf_writer_strings(spry_gguf_writer *writer, const char *key, const spry_view *values, size_t count)
{
    if (!put_array(writer, key, SPRY_GGUF_STRING, count))
        return;
    for (size_t i = 0; i < count; i++)
        put_string(&writer->entries, values[i]);
}

void spry_gguf_writer_entry(spry_gguf_writer *writer, const spry_gguf_entry *entry)
{
    if (spry_view_is(entry->key, alignment_key)) /* describes the other file, not the model */
        return;
    if (put_key(writer, entry->key, entry->kind))
        spry_buffer_append(&writer->entries, entry->data, entry->bytes);
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* The size implied by name, type and dims; on failure records the error and returns 0. */
static size_t tensor_bytes(spry_gguf_writer *writer, const spry_tensor *tensor)
{
    size_t count = 1, bytes = 0;
    bool possible = tensor->n_dims >= 1 && tensor->n_dims <= SPRY_TENSOR_DIMS && spry_dtype_in_gguf(tensor->type);
    for (size_t i = 0; possible && i < tensor->n_dims; i++)
        possible = tensor->dims[i] > 0 && spry_checked_mul(&count, count, tensor->dims[i]);
    if (!possible || tensor->dims[tensor->n_dims - 1] % spry_dtype_block(tensor->type) != 0 ||
        !spry_dtype_size(&bytes, tensor->type, count)) {
        spry_fail(&writer->failure, SPRY_ERR_INPUT, "tensor '%.*s' has a type and a shape that do not go together",
                  SPRY_VIEW_ARG(tensor->name));
        return 0;
    }
    return bytes;
}

static bool grow_list(spry_gguf_writer *writer)
{
    if (writer->n_tensors < writer->capacity)
        return true;
    size_t capacity = writer->capacity ? writer->capacity * 2 : 64;
    listed *tensors = realloc(writer->tensors, capacity * sizeof *tensors);
    if (!tensors) {
        spry_fail_memory(&writer->failure, "the list of tensors", capacity * sizeof *tensors);
        return false;
    }
    writer->tensors = tensors;
    writer->capacity = capacity;
    return true;
}

void spry_gguf_writer_tensor(spry_gguf_writer *writer, const spry_tensor *tensor)
{
    if (!listing(writer) || !grow_list(writer))
        return;
    size_t bytes = tensor_bytes(writer, tensor), next, padded;
    const char *name = bytes ? claim(writer, &writer->names, tensor->name, "tensor") : NULL;
    if (!name)
        return;
    if (!spry_checked_align(&padded, bytes, ALIGNMENT) || !spry_checked_add(&next, writer->data_bytes, padded)) {
        spry_fail(&writer->failure, SPRY_ERR_INPUT, "with tensor '%s' the file passes the largest possible size", name);
        return;
    }
    put_string(&writer->infos, tensor->name);
    put_u32(&writer->infos, tensor->n_dims);
    for (size_t i = tensor->n_dims; i-- > 0;) /* the file stores the fastest dimension first */
        put_u64(&writer->infos, tensor->dims[i]);
    put_u32(&writer->infos, (uint32_t)tensor->type);
    put_u64(&writer->infos, writer->data_bytes);
    writer->tensors[writer->n_tensors++] = (listed){name, bytes};
    writer->data_bytes = next;
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

/* Removes a file that cannot be completed, to free its disk space at once. */
static spry_status abandon(spry_gguf_writer *writer, spry_status status)
{
    spry_file_writer_abandon(&writer->file);
    return status;
}

static spry_status write_padding(spry_gguf_writer *writer, size_t position, spry_error *error)
{
    static const unsigned char zeros[ALIGNMENT];
    return spry_file_writer_write(&writer->file, zeros, (ALIGNMENT - position % ALIGNMENT) % ALIGNMENT, error);
}

static spry_status write_head(spry_gguf_writer *writer, spry_error *error)
{
    uint32_t version = VERSION;
    uint64_t counts[2] = {writer->n_tensors, writer->n_entries};
    const struct {
        const void *data;
        size_t size;
    } parts[] = {
        {"GGUF", 4},
        {&version, sizeof version},
        {counts, sizeof counts},
        {writer->entries.data, writer->entries.size},
        {writer->infos.data, writer->infos.size},
    };
    size_t position = 0;
    for (size_t i = 0; i < SPRY_COUNT(parts); i++) {
        spry_status status = spry_file_writer_write(&writer->file, parts[i].data, parts[i].size, error);
        if (status != SPRY_OK)
            return status;
        position += parts[i].size;
    }
    return write_padding(writer, position, error);
}

spry_status spry_gguf_writer_begin(spry_gguf_writer *writer, const char *path, spry_error *error)
{
    if (writer->file.file)
        return spry_fail(error, SPRY_ERR_INPUT, "%s: this writer is already writing %s", path, writer->file.path);
    if (!healthy(writer))
        return spry_fail(error, writer->failure.status, "%s: %s", path, writer->failure.message);
    if (writer->entries.failed || writer->infos.failed)
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: metadata and tensor list do not fit memory or %d bytes", path,
                         HEAD_BYTES_MAX);
    spry_status status = spry_file_writer_open(&writer->file, path, error);
    if (status != SPRY_OK)
        return status;
    writer->current = writer->written = 0;
    status = write_head(writer, error);
    return status == SPRY_OK ? SPRY_OK : abandon(writer, status);
}

spry_status spry_gguf_writer_data(spry_gguf_writer *writer, const void *data, size_t size, spry_error *error)
{
    if (!writer->file.file)
        return spry_fail(error, SPRY_ERR_INPUT, "tensor data was given, but no GGUF file is being written");
    if (writer->current == writer->n_tensors)
        return abandon(writer, spry_fail(error, SPRY_ERR_INPUT, "%s: more data was given than the %zu tensors have",
                                         writer->file.path, writer->n_tensors));
    const listed *tensor = &writer->tensors[writer->current];
    if (size > tensor->bytes - writer->written)
        return abandon(writer, spry_fail(error, SPRY_ERR_INPUT, "%s: tensor '%s' has %zu bytes, but %zu were given",
                                         writer->file.path, tensor->name, tensor->bytes, writer->written + size));
    spry_status status = spry_file_writer_write(&writer->file, data, size, error);
    writer->written += size;
    if (status == SPRY_OK && writer->written == tensor->bytes) {
        status = write_padding(writer, tensor->bytes, error);
        writer->current++;
        writer->written = 0;
    }
    return status == SPRY_OK ? SPRY_OK : abandon(writer, status);
}

spry_status spry_gguf_writer_finish(spry_gguf_writer *writer, spry_error *error)
{
    if (!writer->file.file)
        return spry_fail(error, SPRY_ERR_INPUT, "no GGUF file is being written");
    if (!healthy(writer))
        return abandon(writer,
                       spry_fail(error, writer->failure.status, "%s: %s", writer->file.path, writer->failure.message));
    if (writer->current < writer->n_tensors) {
        const listed *tensor = &writer->tensors[writer->current];
        return abandon(writer,
                       spry_fail(error, SPRY_ERR_INPUT, "%s: only %zu of the %zu bytes of tensor '%s' were given",
                                 writer->file.path, writer->written, tensor->bytes, tensor->name));
    }
    return spry_file_writer_commit(&writer->file, error);
}
