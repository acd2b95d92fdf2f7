/* A safetensors file is a length (u64), that many bytes of JSON with each tensor's type, shape and byte range, then the
 * tensor bytes. The ranges must cover the bytes exactly, without overlaps or gaps. Integer and bool tensors are checked
 * like the others but not listed: checkpoints contain such buffers, and no weight is one. Bytes are listed: they may be
 * parts of weights, and so may 32-bit integers. */
#include "formats/safetensors.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/map.h"
#include "base/number.h"
#include "platform/file.h"

enum {
    LENGTH_BYTES = 8,
    HEADER_BYTES_MAX = 100 * 1000 * 1000, /* limit of the format */
    PATH_BYTES_MAX = 1 << 16,
    NAME_SHOWN = 100, /* bytes of a name in a message */
};

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME  "model.safetensors.index.json"
#define SUFFIX      ".safetensors"

struct spry_safetensors {
    spry_mapping *mappings;
    size_t n_mappings;
    spry_tensor *tensors;
    size_t n_tensors;
    spry_map names; /* tensor name -> index in the list */
    spry_arena arena;
};

/* State needed only while opening. */
typedef struct opening {
    spry_safetensors *files;
    spry_map seen;              /* every tensor name, including unlisted ones, to the index of its file */
    size_t file;                /* index of the file being read */
    const unsigned char *bytes; /* first byte of the mapping */
    spry_error *error;
} opening;

/* A tensor's byte range, relative to the end of the header. */
typedef struct span {
    size_t begin, end;
    const char *name;
} span;

static spry_status refuse(spry_error *error, spry_status status, const char *tensor, const char *format, ...)
    SPRY_PRINTF(4, 5);

static spry_status refuse(spry_error *error, spry_status status, const char *tensor, const char *format, ...)
{
    char detail[SPRY_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    return spry_fail(error, status, "tensor '%.*s': %s", NAME_SHOWN, tensor, detail);
}

/* ---- one tensor ------------------------------------------------------------------------------------------------- */

typedef struct element {
    const char *name;
    size_t bytes;
    bool listed;
    spry_dtype type;
} element;

static const element elements[] = {
    {"F32", 4, true, SPRY_F32},
    {"F16", 2, true, SPRY_F16},
    {"BF16", 2, true, SPRY_BF16},
    {"BOOL", 1, false, 0},
    {"U8", 1, false, SPRY_U8},
    {"I8", 1, false, SPRY_I8},
    {"U16", 2, false, 0},
    {"I16", 2, false, 0},
    {"U32", 4, false, 0},
    {"I32", 4, false, SPRY_I32},
    {"U64", 8, false, 0},
    {"I64", 8, false, SPRY_I64},
    {"F8_E4M3", 1, true, SPRY_F8_E4M3},
};

static const element *find_element(const char *name)
{
    for (size_t i = 0; i < SPRY_COUNT(elements); i++)
        if (strcmp(elements[i].name, name) == 0)
            return &elements[i];
    return NULL;
}

/* Reads a non-negative integer of the header; false for anything else. */
static bool natural(size_t *value, const json_t *json)
{
    json_int_t number = json_integer_value(json);
    if (!json_is_integer(json) || number < 0 || (unsigned long long)number > SIZE_MAX)
        return false;
    *value = (size_t)number;
    return true;
}

enum { FILE_DIMS = 5 }; /* weights of convolutions over video have this number of dimensions; the last two are joined */

/* Reads the shape and the number of values. A scalar is one value in one dimension. */
static spry_status read_shape(spry_tensor *tensor, size_t *count, const char *name, const json_t *shape, bool listed,
                              spry_error *error)
{
    size_t n_dims = json_array_size(shape);
    if (!json_is_array(shape))
        return refuse(error, SPRY_ERR_FORMAT, name, "its shape is not a list");
    if (listed && n_dims > FILE_DIMS)
        return refuse(error, SPRY_ERR_UNSUPPORTED, name, "has %zu dimensions; up to %d are possible", n_dims,
                      FILE_DIMS);
    *count = 1;
    for (size_t i = 0; i < SPRY_TENSOR_DIMS; i++)
        tensor->dims[i] = 1;
    for (size_t i = 0; i < n_dims; i++) {
        size_t dim;
        if (!natural(&dim, json_array_get(shape, i)))
            return refuse(error, SPRY_ERR_FORMAT, name, "dimension %zu is not a natural number", i);
        if (dim == 0 && listed)
            return refuse(error, SPRY_ERR_FORMAT, name, "dimension %zu is 0", i);
        if (!spry_checked_mul(count, *count, dim))
            return refuse(error, SPRY_ERR_FORMAT, name, "its shape multiplies to more than any memory holds");
        if (i < SPRY_TENSOR_DIMS)
            tensor->dims[i] = dim;
        else if (listed)
            tensor->dims[SPRY_TENSOR_DIMS - 1] *= dim;
    }
    tensor->n_dims = !n_dims ? 1 : listed && n_dims > SPRY_TENSOR_DIMS ? SPRY_TENSOR_DIMS : (uint32_t)n_dims;
    return SPRY_OK;
}

static spry_status read_span(span *where, const json_t *offsets, size_t data_bytes, spry_error *error)
{
    if (json_array_size(offsets) != 2 || !natural(&where->begin, json_array_get(offsets, 0)) ||
        !natural(&where->end, json_array_get(offsets, 1)))
        return refuse(error, SPRY_ERR_FORMAT, where->name, "its data_offsets are not two natural numbers");
    if (where->begin > where->end)
        return refuse(error, SPRY_ERR_FORMAT, where->name, "its data_offsets %zu and %zu are in the wrong order",
                      where->begin, where->end);
    if (where->end > data_bytes)
        return refuse(error, SPRY_ERR_FORMAT, where->name,
                      "its data_offsets %zu and %zu pass the end of the file (%zu bytes of data)", where->begin,
                      where->end, data_bytes);
    return SPRY_OK;
}

/* Reads and checks a tensor. *listed: whether its type is supported. */
static spry_status read_tensor(spry_tensor *tensor, bool *listed, span *where, const json_t *facts,
                               const unsigned char *data, size_t data_bytes, spry_error *error)
{
    const char *name = where->name;
    const char *type = json_string_value(json_object_get(facts, "dtype"));
    if (!type)
        return refuse(error, SPRY_ERR_FORMAT, name, "has no dtype");
    const element *kind = find_element(type);
    if (!kind)
        return refuse(error, SPRY_ERR_UNSUPPORTED, name, "has type %.40s; known are F32, F16, BF16, F8_E4M3", type);
    size_t count = 0, bytes = 0;
    spry_status status = read_shape(tensor, &count, name, json_object_get(facts, "shape"), kind->listed, error);
    if (status == SPRY_OK)
        status = read_span(where, json_object_get(facts, "data_offsets"), data_bytes, error);
    if (status != SPRY_OK)
        return status;
    if (!spry_checked_mul(&bytes, count, kind->bytes) || bytes != where->end - where->begin)
        return refuse(error, SPRY_ERR_FORMAT, name,
                      "%zu values of type %s do not take the %zu bytes of its data_offsets", count, kind->name,
                      where->end - where->begin);
    tensor->name = spry_view_of(name);
    tensor->type = kind->type;
    tensor->data = data + where->begin;
    tensor->bytes = bytes;
    bool table =
        kind->type == SPRY_I64 && tensor->n_dims == 2 && tensor->dims[0] > 1; /* others are positions and counts */
    bool part = kind->type == SPRY_U8 || kind->type == SPRY_I8 || kind->type == SPRY_I32;
    *listed = kind->listed || ((part || table) && count && tensor->n_dims <= SPRY_TENSOR_DIMS);
    return SPRY_OK;
}

/* ---- one file --------------------------------------------------------------------------------------------------- */

static int compare_spans(const void *left, const void *right)
{
    const span *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static spry_status check_spans(span *spans, size_t count, size_t data_bytes, spry_error *error)
{
    size_t covered = 0;
    qsort(spans, count, sizeof *spans, compare_spans);
    for (size_t i = 0; i < count; i++) {
        if (spans[i].begin < covered)
            return refuse(error, SPRY_ERR_FORMAT, spans[i].name, "its bytes overlap the bytes of tensor '%.*s'",
                          NAME_SHOWN, spans[i - 1].name);
        if (spans[i].begin > covered)
            return refuse(error, SPRY_ERR_FORMAT, spans[i].name,
                          "begins at byte %zu of the data, but the %zu bytes before belong to no tensor",
                          spans[i].begin, spans[i].begin - covered);
        covered = spans[i].end;
    }
    if (covered < data_bytes)
        return spry_fail(error, SPRY_ERR_FORMAT, "the last %zu bytes belong to no tensor", data_bytes - covered);
    return SPRY_OK;
}

/* Copies a name, which must be unique across all files, so that it outlives the JSON. */
static spry_status claim_name(opening *in, const char **copy, const char *name)
{
    bool fresh = false;
    *copy = spry_arena_copy(&in->files->arena, spry_view_of(name));
    if (!*copy || !spry_map_add(&in->seen, spry_view_of(*copy), (uint32_t)in->file, &fresh))
        return spry_fail_memory(in->error, "the names of the tensors", strlen(name));
    return fresh ? SPRY_OK : refuse(in->error, SPRY_ERR_FORMAT, name, "is in two files");
}

static spry_status check_metadata(json_t *metadata, spry_error *error)
{
    bool strings = json_is_object(metadata);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) strings = strings && json_is_string(value);
    return strings ? SPRY_OK : spry_fail(error, SPRY_ERR_FORMAT, "__metadata__ is not an object of strings");
}

static spry_status read_tensors(opening *in, span *spans, json_t *header, const unsigned char *data, size_t data_bytes)
{
    spry_safetensors *files = in->files;
    size_t n_spans = 0;
    const char *key;
    json_t *facts;
    json_object_foreach(header, key, facts)
    {
        spry_status status;
        if (strcmp(key, "__metadata__") == 0) {
            status = check_metadata(facts, in->error);
            if (status != SPRY_OK)
                return status;
            continue;
        }
        spry_tensor *tensor = &files->tensors[files->n_tensors];
        span *where = &spans[n_spans++];
        bool listed = false;
        status = claim_name(in, &where->name, key);
        if (status == SPRY_OK)
            status = read_tensor(tensor, &listed, where, facts, data, data_bytes, in->error);
        if (status != SPRY_OK)
            return status;
        if (!listed)
            continue;
        tensor->offset = (size_t)(tensor->data - in->bytes);
        if (!spry_map_add(&files->names, tensor->name, (uint32_t)files->n_tensors, NULL))
            return spry_fail_memory(in->error, "the names of the tensors", files->n_tensors);
        files->n_tensors++;
    }
    return check_spans(spans, n_spans, data_bytes, in->error);
}

static spry_status read_header(opening *in, json_t *header, const unsigned char *data, size_t data_bytes)
{
    spry_safetensors *files = in->files;
    if (!json_is_object(header))
        return spry_fail(in->error, SPRY_ERR_FORMAT, "the header is not a JSON object");
    size_t room = files->n_tensors + json_object_size(header) + 1;
    spry_tensor *tensors = realloc(files->tensors, room * sizeof *tensors);
    if (tensors)
        files->tensors = tensors;
    span *spans = calloc(json_object_size(header) + 1, sizeof *spans);
    spry_status status = tensors && spans ? read_tensors(in, spans, header, data, data_bytes)
                                          : spry_fail_memory(in->error, "the list of tensors", room * sizeof *tensors);
    free(spans);
    return status;
}

static spry_status parse_json(json_t **json, const void *text, size_t size, const char *what, spry_error *error)
{
    spry_status status = spry_json_read(json, (spry_view){text, size}, 0, 0, error);
    return status ? spry_fail_prefix(error, status, what) : SPRY_OK;
}

static spry_status read_bytes(opening *in, const unsigned char *bytes, size_t size)
{
    uint64_t header_bytes;
    in->bytes = bytes;
    if (size < LENGTH_BYTES)
        return spry_fail(in->error, SPRY_ERR_FORMAT, "the file ends at byte %zu, inside the header's length", size);
    memcpy(&header_bytes, bytes, LENGTH_BYTES);
    size_t rest = size - LENGTH_BYTES;
    if (header_bytes > HEADER_BYTES_MAX)
        return spry_fail(in->error, SPRY_ERR_FORMAT, "claims a header of %llu bytes; %d are possible",
                         (unsigned long long)header_bytes, HEADER_BYTES_MAX);
    if (header_bytes > rest)
        return spry_fail(in->error, SPRY_ERR_FORMAT, "claims a header of %llu bytes, but the file ends at byte %zu",
                         (unsigned long long)header_bytes, size);
    const unsigned char *header = bytes + LENGTH_BYTES;
    json_t *json;
    spry_status status = parse_json(&json, header, (size_t)header_bytes, "the header", in->error);
    if (status == SPRY_OK)
        status = read_header(in, json, header + header_bytes, rest - (size_t)header_bytes);
    json_decref(json);
    return status;
}

static spry_status load_file(opening *in, const char *path)
{
    spry_safetensors *files = in->files;
    spry_mapping *mappings = realloc(files->mappings, (files->n_mappings + 1) * sizeof *mappings);
    if (!mappings)
        return spry_fail_memory(in->error, path, (files->n_mappings + 1) * sizeof *mappings);
    files->mappings = mappings;
    spry_status status = spry_mapping_open(&mappings[files->n_mappings], path, in->error);
    if (status != SPRY_OK)
        return status;
    in->file = files->n_mappings++;
    status = read_bytes(in, mappings[in->file].data, mappings[in->file].size);
    return status == SPRY_OK ? SPRY_OK : spry_fail_prefix(in->error, status, path);
}

/* ---- shards ----------------------------------------------------------------------------------------------------- */

/* The index is untrusted: a file name in it must not leave the folder. */
static bool plain_file_name(const char *name)
{
    return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static spry_status load_shard(opening *in, const char *folder, const char *name)
{
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES_MAX);
    spry_status status = spry_path_join(&path, folder, name, in->error);
    if (status == SPRY_OK && !spry_path_exists(path.data))
        status = spry_fail(in->error, SPRY_ERR_FILE, "%s: " INDEX_NAME " names the shard '%.*s', which is not there",
                           folder, NAME_SHOWN, name);
    if (status == SPRY_OK)
        status = load_file(in, path.data);
    spry_buffer_deinit(&path);
    return status;
}

/* Loads each shard that the map names, once. */
static spry_status load_shards(opening *in, const char *folder, json_t *weights, spry_map *shards)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(weights, tensor, value)
    {
        const char *name = json_string_value(value);
        bool fresh = false;
        if (!spry_map_add(shards, spry_view_of(name), (uint32_t)in->files->n_mappings, &fresh))
            return spry_fail_memory(in->error, "the names of the shards", strlen(name));
        spry_status status = fresh ? load_shard(in, folder, name) : SPRY_OK;
        if (status != SPRY_OK)
            return status;
    }
    return SPRY_OK;
}

/* Every tensor of the map must be in the shard that the map names. */
static spry_status check_shards(const opening *in, json_t *weights, const spry_map *shards)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(weights, tensor, value)
    {
        const char *name = json_string_value(value);
        uint32_t said = 0, found = 0;
        spry_map_find(shards, spry_view_of(name), &said);
        if (!spry_map_find(&in->seen, spry_view_of(tensor), &found) || found != said)
            return refuse(in->error, SPRY_ERR_FORMAT, tensor, "is not in the shard '%.*s'", NAME_SHOWN, name);
    }
    return SPRY_OK;
}

static spry_status check_index(const json_t *index, spry_error *error)
{
    json_t *weights = json_object_get(index, "weight_map"), *value;
    const char *tensor;
    if (!json_object_size(weights))
        return spry_fail(error, SPRY_ERR_FORMAT, "has no weight_map, or an empty one");
    json_object_foreach(weights, tensor, value) if (!json_is_string(value) ||
                                                    !plain_file_name(json_string_value(
                                                        value))) return refuse(error, SPRY_ERR_FORMAT, tensor,
                                                                               "its shard is not a plain file name");
    return SPRY_OK;
}

/* Reads an index whose weight_map is an object of plain file names. The caller releases *index also on failure. */
static spry_status read_index(json_t **index, const char *path, spry_error *error)
{
    spry_mapping mapping;
    *index = NULL;
    spry_status status = spry_mapping_open(&mapping, path, error);
    if (status != SPRY_OK)
        return status;
    if (mapping.size > HEADER_BYTES_MAX)
        status = spry_fail(error, SPRY_ERR_FORMAT, "has %zu bytes; %d are possible", mapping.size, HEADER_BYTES_MAX);
    else
        status = parse_json(index, mapping.data, mapping.size, "the index", error);
    spry_mapping_close(&mapping);
    if (status == SPRY_OK)
        status = check_index(*index, error);
    return status == SPRY_OK ? SPRY_OK : spry_fail_prefix(error, status, path);
}

static spry_status load_index(opening *in, const char *folder, const char *path)
{
    spry_map shards;
    spry_map_init(&shards);
    json_t *index;
    spry_status status = read_index(&index, path, in->error);
    json_t *weights = json_object_get(index, "weight_map");
    if (status == SPRY_OK)
        status = load_shards(in, folder, weights, &shards);
    if (status == SPRY_OK) {
        status = check_shards(in, weights, &shards);
        if (status != SPRY_OK)
            spry_fail_prefix(in->error, status, path);
    }
    spry_map_deinit(&shards);
    json_decref(index);
    return status;
}

/* ---- the whole model -------------------------------------------------------------------------------------------- */

typedef struct lone_file {
    spry_buffer *name; /* the last one found */
    size_t count;
} lone_file;

static void note_file(void *context, const char *name)
{
    lone_file *found = context;
    if (!spry_view_ends(spry_view_of(name), SPRY_VIEW(SUFFIX)))
        return;
    found->count++;
    spry_buffer_clear(found->name);
    spry_buffer_text(found->name, name);
}

/* Opens the only .safetensors file of a folder that has neither of the two standard names. */
static spry_status load_lone_file(opening *in, const char *folder, spry_buffer *path)
{
    spry_buffer name;
    spry_buffer_init(&name, PATH_BYTES_MAX);
    lone_file found = {.name = &name};
    spry_status status = spry_folder_each(folder, note_file, &found, in->error);
    if (status == SPRY_OK && found.count != 1)
        status = spry_fail(in->error, SPRY_ERR_FILE,
                           "%s: holds no " SINGLE_NAME ", no " INDEX_NAME " and %zu other *" SUFFIX
                           " files, where exactly 1 would do",
                           folder, found.count);
    if (status == SPRY_OK && name.failed)
        status = spry_fail_memory(in->error, folder, PATH_BYTES_MAX);
    if (status == SPRY_OK)
        status = spry_path_join(path, folder, name.data, in->error);
    if (status == SPRY_OK)
        status = load_file(in, path->data);
    spry_buffer_deinit(&name);
    return status;
}

static spry_status load_folder(opening *in, const char *folder)
{
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES_MAX);
    spry_status status = spry_path_join(&path, folder, SINGLE_NAME, in->error);
    if (status == SPRY_OK && spry_path_exists(path.data)) {
        status = load_file(in, path.data);
    } else if (status == SPRY_OK) {
        status = spry_path_join(&path, folder, INDEX_NAME, in->error);
        if (status == SPRY_OK && spry_path_exists(path.data))
            status = load_index(in, folder, path.data);
        else if (status == SPRY_OK)
            status = load_lone_file(in, folder, &path);
    }
    spry_buffer_deinit(&path);
    return status;
}

static spry_status opening_init(opening *in, const char *name, spry_error *error)
{
    *in = (opening){.files = calloc(1, sizeof *in->files), .error = error};
    if (!in->files)
        return spry_fail_memory(error, name, sizeof *in->files);
    spry_map_init(&in->files->names);
    spry_arena_init(&in->files->arena);
    spry_map_init(&in->seen);
    return SPRY_OK;
}

static spry_status opening_end(opening *in, spry_safetensors **out, spry_status status)
{
    spry_map_deinit(&in->seen);
    if (status == SPRY_OK)
        *out = in->files;
    else
        spry_safetensors_close(in->files);
    return status;
}

spry_status spry_safetensors_open(spry_safetensors **out, const char *path, spry_error *error)
{
    opening in;
    *out = NULL;
    spry_status status = opening_init(&in, path, error);
    if (status == SPRY_OK)
        status = spry_path_is_folder(path) ? load_folder(&in, path) : load_file(&in, path);
    return opening_end(&in, out, status);
}

spry_status spry_safetensors_open_memory(spry_safetensors **out, const void *data, size_t size, const char *name,
                                         spry_error *error)
{
    opening in;
    *out = NULL;
    spry_status status = opening_init(&in, name, error);
    if (status == SPRY_OK) {
        status = read_bytes(&in, data, size);
        if (status != SPRY_OK)
            spry_fail_prefix(error, status, name);
    }
    return opening_end(&in, out, status);
}

void spry_safetensors_close(spry_safetensors *files)
{
    if (!files)
        return;
    for (size_t i = 0; i < files->n_mappings; i++)
        spry_mapping_close(&files->mappings[i]);
    free(files->mappings);
    free(files->tensors);
    spry_map_deinit(&files->names);
    spry_arena_deinit(&files->arena);
    free(files);
}

size_t spry_safetensors_files(const spry_safetensors *files)
{
    return files->n_mappings;
}

size_t spry_safetensors_count(const spry_safetensors *files)
{
    return files->n_tensors;
}

const spry_tensor *spry_safetensors_tensor(const spry_safetensors *files, size_t index)
{
    return index < files->n_tensors ? &files->tensors[index] : NULL;
}

const spry_tensor *spry_safetensors_find(const spry_safetensors *files, spry_view name)
{
    uint32_t index;
    return spry_map_find(&files->names, name, &index) ? &files->tensors[index] : NULL;
}
