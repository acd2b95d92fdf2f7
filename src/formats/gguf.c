/* Reads GGUF files: the directory, and the values of metadata. */
#include "formats/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/map.h"
#include "base/number.h"
#include "platform/file.h"

/* ---- the directory ----------------------------------------------------------------------------------------------- */

/* The directory of a GGUF file: header, metadata entries, tensors. It is read once, front to back, by a reader that
 * never passes the end. A count is compared with the number of bytes left before anything is allocated for it, so
 * memory use is a small multiple of the file size. After a successful open, lookups need no further checks. */

enum {
    VERSION_MIN = 2,
    VERSION_MAX = 3,
    ARRAY_DEPTH = 4,
    STRING_BYTES_MIN = 8, /* a length */
    ARRAY_BYTES_MIN = 12, /* a kind and a count */
    ENTRY_BYTES_MIN = STRING_BYTES_MIN + 1 + 4 + 1,
    TENSOR_BYTES_MIN = STRING_BYTES_MIN + 1 + 4 + 8 + 4 + 8,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MIN = 8, /* required by the format */
    ALIGNMENT_MAX = 1 << 20,
    PARTS_MAX = 99999,
    NAME_SHOWN = 100, /* bytes of a name in a message */
};

struct spry_gguf {
    spry_mapping mapping; /* closed when the caller owns the memory */
    const unsigned char *data;
    size_t size;
    char *name;
    uint32_t version;
    size_t alignment;
    spry_gguf_entry *entries;
    spry_tensor *tensors;
    size_t n_entries, n_tensors;
    spry_map keys, names; /* key or name to index */
    spry_gguf **parts;    /* the other files of a split one; the tensors are listed here */
    size_t n_parts;
};

/* The position in the file and the item being read, for error messages. The first error is kept; after it, every read
 * returns zero. */
typedef struct reader {
    const unsigned char *data;
    size_t size, at;
    const char *thing; /* "tensor"; NULL in the header */
    size_t index;      /* index of the item, from 0 */
    spry_view name;    /* name of the item, once it is read */
    spry_status status;
    spry_error *error;
} reader;

static int shown(spry_view name)
{
    return name.size < NAME_SHOWN ? (int)name.size : NAME_SHOWN;
}

static void refuse(reader *in, spry_status status, const char *format, ...) SPRY_PRINTF(3, 4);

static void refuse(reader *in, spry_status status, const char *format, ...)
{
    if (in->status != SPRY_OK)
        return;
    in->status = status;
    char detail[SPRY_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    if (!in->thing)
        spry_fail(in->error, status, "%s", detail);
    else if (!in->name.size)
        spry_fail(in->error, status, "%s %zu: %s", in->thing, in->index, detail);
    else
        spry_fail(in->error, status, "%s '%.*s': %s", in->thing, shown(in->name), in->name.data, detail);
}

static void refuse_memory(reader *in)
{
    in->thing = NULL;
    refuse(in, SPRY_ERR_MEMORY, "not enough memory for the directory of a file of %zu bytes", in->size);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* The next `count` bytes; NULL when the file ends before them. */
static const unsigned char *take(reader *in, uint64_t count, const char *part)
{
    if (in->status != SPRY_OK)
        return NULL;
    if (count > in->size - in->at) {
        refuse(in, SPRY_ERR_FORMAT, "the file ends at byte %zu, inside the %s (%llu bytes from byte %zu)", in->size,
               part, (unsigned long long)count, in->at);
        return NULL;
    }
    in->at += (size_t)count;
    return in->data + in->at - count;
}

static uint32_t take_u32(reader *in, const char *part)
{
    uint32_t value = 0;
    const unsigned char *bytes = take(in, sizeof value, part);
    if (bytes)
        memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t take_u64(reader *in, const char *part)
{
    uint64_t value = 0;
    const unsigned char *bytes = take(in, sizeof value, part);
    if (bytes)
        memcpy(&value, bytes, sizeof value);
    return value;
}

static spry_view take_string(reader *in, const char *part)
{
    uint64_t length = take_u64(in, part);
    const unsigned char *bytes = take(in, length, part);
    return bytes ? (spry_view){(const char *)bytes, (size_t)length} : (spry_view){"", 0};
}

/* Checks a count of items that follow, each of at least `bytes_each` bytes. */
static size_t check_count(reader *in, uint64_t count, size_t bytes_each, const char *things)
{
    if (count > (in->size - in->at) / bytes_each) {
        refuse(in, SPRY_ERR_FORMAT, "claims %llu %s, more than the %zu bytes left from byte %zu can hold",
               (unsigned long long)count, things, in->size - in->at, in->at);
        return 0;
    }
    return (size_t)count;
}

/* Reads the name of the current item; it must be new in `map`. */
static spry_view take_name(reader *in, const char *part, spry_map *map)
{
    bool fresh = true;
    spry_view name = take_string(in, part);
    if (in->status != SPRY_OK)
        return name;
    if (!name.size)
        refuse(in, SPRY_ERR_FORMAT, "the %s is empty", part);
    else if (!spry_map_add(map, name, (uint32_t)in->index, &fresh))
        refuse_memory(in);
    in->name = name;
    if (!fresh)
        refuse(in, SPRY_ERR_FORMAT, "the %s occurs twice", part);
    return name;
}

/* ---- metadata --------------------------------------------------------------------------------------------------- */

static void skip_value(reader *in, uint32_t kind, int depth);

static void skip_bools(reader *in, size_t count)
{
    const unsigned char *bytes = take(in, count, "value");
    for (size_t i = 0; bytes && i < count; i++)
        if (bytes[i] > 1)
            refuse(in, SPRY_ERR_FORMAT, "a bool is 0 or 1, not %u", bytes[i]);
}

static void skip_array(reader *in, int depth)
{
    uint32_t kind = take_u32(in, "array's kind");
    uint64_t claimed = take_u64(in, "array's count");
    size_t each = spry_gguf_kind_bytes((spry_gguf_kind)kind);
    bool varied = kind == SPRY_GGUF_STRING || kind == SPRY_GGUF_ARRAY;
    if (varied)
        each = kind == SPRY_GGUF_STRING ? STRING_BYTES_MIN : ARRAY_BYTES_MIN;
    if (!each)
        refuse(in, SPRY_ERR_FORMAT, "the array's elements are of unknown kind %u", kind);
    if (kind == SPRY_GGUF_ARRAY && depth == ARRAY_DEPTH)
        refuse(in, SPRY_ERR_FORMAT, "arrays nest deeper than %d", ARRAY_DEPTH);
    if (in->status != SPRY_OK)
        return;
    size_t count = check_count(in, claimed, each, "array elements");
    if (kind == SPRY_GGUF_BOOL)
        skip_bools(in, count);
    else if (!varied)
        take(in, count * each, "array");
    else
        for (size_t i = 0; i < count && in->status == SPRY_OK; i++)
            skip_value(in, kind, depth + 1);
}

/* Checks a value and skips it; `depth` counts the enclosing arrays, the value included. */
static void skip_value(reader *in, uint32_t kind, int depth)
{
    size_t size = spry_gguf_kind_bytes((spry_gguf_kind)kind);
    if (kind == SPRY_GGUF_ARRAY)
        skip_array(in, depth);
    else if (kind == SPRY_GGUF_STRING)
        take_string(in, "string");
    else if (kind == SPRY_GGUF_BOOL)
        skip_bools(in, 1);
    else if (size)
        take(in, size, "value");
    else
        refuse(in, SPRY_ERR_FORMAT, "its value is of unknown kind %u", kind);
}

static void read_entries(spry_gguf *gguf, reader *in)
{
    in->thing = "metadata entry";
    for (in->index = 0; in->index < gguf->n_entries && in->status == SPRY_OK; in->index++) {
        spry_gguf_entry *entry = &gguf->entries[in->index];
        in->name = (spry_view){0};
        entry->key = take_name(in, "key", &gguf->keys);
        uint32_t kind = take_u32(in, "kind");
        size_t start = in->at;
        skip_value(in, kind, 1);
        entry->kind = (spry_gguf_kind)kind;
        entry->data = in->data + start;
        entry->bytes = in->at - start;
    }
}

static void read_alignment(spry_gguf *gguf, reader *in)
{
    static const char key[] = "general.alignment";
    uint64_t alignment = ALIGNMENT_DEFAULT;
    const spry_gguf_entry *entry = spry_gguf_find_entry(gguf, spry_view_of(key));
    in->name = spry_view_of(key);
    if (entry && !spry_gguf_entry_u64(entry, &alignment))
        refuse(in, SPRY_ERR_FORMAT, "must be a positive integer");
    if (alignment < ALIGNMENT_MIN || alignment > ALIGNMENT_MAX || (alignment & (alignment - 1)))
        refuse(in, SPRY_ERR_FORMAT, "%llu is not a power of two between %d and %d", (unsigned long long)alignment,
               ALIGNMENT_MIN, ALIGNMENT_MAX);
    gguf->alignment = (size_t)alignment;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* The file stores the fastest dimension first. Returns the number of values. */
static size_t read_dims(reader *in, spry_tensor *tensor)
{
    size_t count = 1;
    for (size_t i = 0; i < SPRY_TENSOR_DIMS; i++)
        tensor->dims[i] = 1;
    tensor->n_dims = take_u32(in, "number of dimensions");
    if (tensor->n_dims < 1 || tensor->n_dims > SPRY_TENSOR_DIMS)
        refuse(in, SPRY_ERR_FORMAT, "has %u dimensions; 1 to %d are possible", tensor->n_dims, SPRY_TENSOR_DIMS);
    for (size_t i = 0; in->status == SPRY_OK && i < tensor->n_dims; i++) {
        uint64_t dim = take_u64(in, "dimensions");
        if (dim == 0)
            refuse(in, SPRY_ERR_FORMAT, "dimension %zu is 0", i);
        if (dim > SIZE_MAX || !spry_checked_mul(&count, count, (size_t)dim))
            refuse(in, SPRY_ERR_FORMAT, "its dimensions multiply to more than any memory holds");
        tensor->dims[tensor->n_dims - 1 - i] = (size_t)dim;
    }
    return count;
}

static void read_type(reader *in, spry_tensor *tensor, size_t count)
{
    uint32_t type = take_u32(in, "type");
    if (!spry_dtype_in_gguf(type))
        refuse(in, SPRY_ERR_UNSUPPORTED, "type id %u is unknown; known are %s", type, spry_dtype_names());
    if (in->status != SPRY_OK)
        return;
    tensor->type = (spry_dtype)type;
    size_t row = tensor->dims[tensor->n_dims - 1], block = spry_dtype_block(tensor->type);
    if (row % block != 0)
        refuse(in, SPRY_ERR_FORMAT, "a row of %zu values is not a whole number of %s blocks of %zu", row,
               spry_dtype_name(tensor->type), block);
    else if (!spry_dtype_size(&tensor->bytes, tensor->type, count))
        refuse(in, SPRY_ERR_FORMAT, "%zu values of type %s are more than any memory holds", count,
               spry_dtype_name(tensor->type));
}

/* A tensor's byte range: first an offset from the end of the directory, later, when the whole directory is read, from
 * the start of the file. */
typedef struct place {
    uint64_t begin;
    size_t index;
} place;

static void read_tensor(spry_gguf *gguf, reader *in, place *where)
{
    spry_tensor *tensor = &gguf->tensors[in->index];
    in->name = (spry_view){0};
    tensor->name = take_name(in, "name", &gguf->names);
    size_t count = read_dims(in, tensor);
    read_type(in, tensor, count);
    *where = (place){take_u64(in, "offset"), in->index};
    if (where->begin % gguf->alignment != 0)
        refuse(in, SPRY_ERR_FORMAT, "offset %llu is not a multiple of the alignment %zu",
               (unsigned long long)where->begin, gguf->alignment);
}

/* Converts an offset to one from the start of the file and checks that the tensor ends inside the file. */
static void place_tensor(spry_gguf *gguf, reader *in, place *where, size_t data_start)
{
    spry_tensor *tensor = &gguf->tensors[where->index];
    size_t begin, end;
    in->name = tensor->name;
    if (where->begin > SIZE_MAX || !spry_checked_add(&begin, data_start, (size_t)where->begin) ||
        !spry_checked_add(&end, begin, tensor->bytes) || end > gguf->size) {
        refuse(in, SPRY_ERR_FORMAT,
               "offset %llu + size %zu passes the end of the file (%zu bytes, tensor data from byte %zu)",
               (unsigned long long)where->begin, tensor->bytes, gguf->size, data_start);
        return;
    }
    tensor->data = gguf->data + begin;
    tensor->offset = begin;
    where->begin = begin;
}

static int compare_places(const void *left, const void *right)
{
    const place *a = left, *b = right;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static void check_overlaps(const spry_gguf *gguf, reader *in, place *places)
{
    qsort(places, gguf->n_tensors, sizeof *places, compare_places);
    for (size_t i = 1; i < gguf->n_tensors; i++) {
        const spry_tensor *before = &gguf->tensors[places[i - 1].index];
        in->name = gguf->tensors[places[i].index].name;
        if (places[i].begin - places[i - 1].begin < before->bytes)
            refuse(in, SPRY_ERR_FORMAT, "its bytes overlap the bytes of tensor '%.*s'", shown(before->name),
                   before->name.data);
    }
}

static void read_tensors(spry_gguf *gguf, reader *in)
{
    place *places = calloc(gguf->n_tensors + 1, sizeof *places);
    if (!places) {
        refuse_memory(in);
        return;
    }
    in->thing = "tensor";
    for (in->index = 0; in->index < gguf->n_tensors && in->status == SPRY_OK; in->index++)
        read_tensor(gguf, in, &places[in->index]);
    size_t data_start;
    if (!spry_checked_align(&data_start, in->at, gguf->alignment))
        data_start = gguf->size;
    for (size_t i = 0; i < gguf->n_tensors && in->status == SPRY_OK; i++)
        place_tensor(gguf, in, &places[i], data_start);
    if (in->status == SPRY_OK)
        check_overlaps(gguf, in, places);
    free(places);
}

/* ---- the whole file --------------------------------------------------------------------------------------------- */

static void read_version(spry_gguf *gguf, reader *in)
{
    const unsigned char *magic = take(in, 4, "magic number");
    if (magic && memcmp(magic, "GGUF", 4) != 0)
        refuse(in, SPRY_ERR_FORMAT, "is not a GGUF file: it starts with the bytes %02x %02x %02x %02x", magic[0],
               magic[1], magic[2], magic[3]);
    gguf->version = take_u32(in, "version");
    if (gguf->version && (gguf->version & 0xffff) == 0)
        refuse(in, SPRY_ERR_UNSUPPORTED, "is a big-endian GGUF file; only little-endian ones are read");
    if (gguf->version < VERSION_MIN || gguf->version > VERSION_MAX)
        refuse(in, SPRY_ERR_UNSUPPORTED, "is of GGUF version %u; known are %d and %d", gguf->version, VERSION_MIN,
               VERSION_MAX);
}

static void read_counts(spry_gguf *gguf, reader *in)
{
    uint64_t n_tensors = take_u64(in, "number of tensors");
    uint64_t n_entries = take_u64(in, "number of metadata entries");
    gguf->n_tensors = check_count(in, n_tensors, TENSOR_BYTES_MIN, "tensors");
    gguf->n_entries = check_count(in, n_entries, ENTRY_BYTES_MIN, "metadata entries");
    if (gguf->n_tensors > UINT32_MAX || gguf->n_entries > UINT32_MAX)
        refuse(in, SPRY_ERR_UNSUPPORTED, "has %zu tensors and %zu metadata entries; 2^32 - 1 are possible",
               gguf->n_tensors, gguf->n_entries);
    if (in->status != SPRY_OK)
        return;
    gguf->tensors = calloc(gguf->n_tensors + 1, sizeof *gguf->tensors);
    gguf->entries = calloc(gguf->n_entries + 1, sizeof *gguf->entries);
    if (!gguf->tensors || !gguf->entries)
        refuse_memory(in);
}

static spry_status read_directory(spry_gguf *gguf, spry_error *error)
{
    reader in = {.data = gguf->data, .size = gguf->size, .error = error};
    read_version(gguf, &in);
    read_counts(gguf, &in);
    if (in.status == SPRY_OK)
        read_entries(gguf, &in);
    if (in.status == SPRY_OK)
        read_alignment(gguf, &in);
    if (in.status == SPRY_OK)
        read_tensors(gguf, &in);
    return in.status;
}

/* Takes ownership of the mapping, also on failure; `mapping` is NULL when the caller owns the memory. */
static spry_status open_bytes(spry_gguf **out, spry_mapping *mapping, const void *data, size_t size, const char *name,
                              spry_error *error)
{
    *out = NULL;
    spry_gguf *gguf = calloc(1, sizeof *gguf);
    char *copy = strdup(name);
    if (!gguf || !copy) {
        free(gguf);
        free(copy);
        if (mapping)
            spry_mapping_close(mapping);
        return spry_fail_memory(error, name, sizeof *gguf);
    }
    if (mapping)
        gguf->mapping = *mapping;
    gguf->data = data;
    gguf->size = size;
    gguf->name = copy;
    spry_map_init(&gguf->keys);
    spry_map_init(&gguf->names);
    spry_status status = read_directory(gguf, error);
    if (status != SPRY_OK) {
        spry_gguf_close(gguf);
        return spry_fail_prefix(error, status, name);
    }
    *out = gguf;
    return SPRY_OK;
}

static spry_status open_file(spry_gguf **out, const char *path, spry_error *error)
{
    spry_mapping mapping;
    *out = NULL;
    spry_status status = spry_mapping_open(&mapping, path, error);
    return status == SPRY_OK ? open_bytes(out, &mapping, mapping.data, mapping.size, path, error) : status;
}

/* ---- split files: NAME-00001-of-0000N.gguf has the metadata, the others have tensors only ------------------------ */

/* Adds the tensors of a part to the list of the first file. */
static spry_status add_part(spry_gguf *gguf, spry_gguf *part, uint64_t number, spry_error *error)
{
    uint64_t no = 0;
    gguf->parts[gguf->n_parts++] = part;
    if (!spry_gguf_get_u64(part, "split.no", &no) || no != number)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: split.no must be %llu", part->name, (unsigned long long)number);
    spry_tensor *tensors = realloc(gguf->tensors, (gguf->n_tensors + part->n_tensors + 1) * sizeof *tensors);
    if (!tensors)
        return spry_fail_memory(error, "a list of tensors", part->n_tensors * sizeof *tensors);
    gguf->tensors = tensors;
    for (size_t i = 0; i < part->n_tensors; i++) {
        bool fresh;
        tensors[gguf->n_tensors] = part->tensors[i];
        if (!spry_map_add(&gguf->names, part->tensors[i].name, (uint32_t)gguf->n_tensors, &fresh))
            return spry_fail_memory(error, "a list of tensors", part->n_tensors * sizeof *tensors);
        if (!fresh)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: tensor '%.*s' is in another part, too", part->name,
                             shown(part->tensors[i].name), part->tensors[i].name.data);
        gguf->n_tensors++;
    }
    gguf->size += part->size;
    return SPRY_OK;
}

/* Writes `path` with the number of another part; false when it is not the name of the first of `count` parts. */
static bool part_path(char *out, const char *path, uint64_t number, uint64_t count)
{
    char first[64], wanted[64];
    size_t size = strlen(path), tail = strlen("-00001-of-00001.gguf");
    snprintf(first, sizeof first, "-00001-of-%05llu.gguf", (unsigned long long)count);
    snprintf(wanted, sizeof wanted, "-%05llu-of-%05llu.gguf", (unsigned long long)number, (unsigned long long)count);
    if (size <= tail || strcmp(path + size - tail, first) != 0)
        return false;
    memcpy(out, path, size + 1);
    memcpy(out + size - tail, wanted, tail);
    return true;
}

static spry_status open_parts(spry_gguf *gguf, const char *path, uint64_t count, spry_error *error)
{
    uint64_t no = 0, listed = 0;
    char *other = malloc(strlen(path) + 1);
    gguf->parts = calloc((size_t)count, sizeof *gguf->parts);
    spry_status status = other && gguf->parts ? SPRY_OK : spry_fail_memory(error, "a split file", (size_t)count);
    spry_gguf_get_u64(gguf, "split.no", &no);
    for (uint64_t i = 1; status == SPRY_OK && i < count; i++) {
        spry_gguf *part;
        if (no || !part_path(other, path, i + 1, count))
            status = spry_fail(error, SPRY_ERR_FORMAT,
                               "%s: is one of %llu parts of a model; open the first, whose name ends in "
                               "-00001-of-%05llu.gguf",
                               path, (unsigned long long)count, (unsigned long long)count);
        if (status == SPRY_OK)
            status = open_file(&part, other, error);
        if (status == SPRY_OK)
            status = add_part(gguf, part, i, error);
    }
    free(other);
    if (status == SPRY_OK && spry_gguf_get_u64(gguf, "split.tensors.count", &listed) && listed != gguf->n_tensors)
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s: its parts have %zu tensors, split.tensors.count says %llu",
                           path, gguf->n_tensors, (unsigned long long)listed);
    return status;
}

spry_status spry_gguf_open(spry_gguf **out, const char *path, spry_error *error)
{
    uint64_t count = 0;
    spry_status status = open_file(out, path, error);
    if (status != SPRY_OK || !spry_gguf_get_u64(*out, "split.count", &count) || count < 2)
        return status;
    status = count <= PARTS_MAX ? open_parts(*out, path, count, error)
                                : spry_fail(error, SPRY_ERR_FORMAT, "%s: split.count is %llu; %d parts are possible",
                                            path, (unsigned long long)count, PARTS_MAX);
    if (status != SPRY_OK) {
        spry_gguf_close(*out);
        *out = NULL;
    }
    return status;
}

spry_status spry_gguf_open_memory(spry_gguf **out, const void *data, size_t size, const char *name, spry_error *error)
{
    return open_bytes(out, NULL, data, size, name, error);
}

void spry_gguf_close(spry_gguf *gguf)
{
    if (!gguf)
        return;
    spry_map_deinit(&gguf->keys);
    spry_map_deinit(&gguf->names);
    for (size_t i = 0; i < gguf->n_parts; i++)
        spry_gguf_close(gguf->parts[i]);
    free(gguf->parts);
    spry_mapping_close(&gguf->mapping);
    free(gguf->entries);
    free(gguf->tensors);
    free(gguf->name);
    free(gguf);
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

const char *spry_gguf_name(const spry_gguf *gguf)
{
    return gguf->name;
}

uint32_t spry_gguf_version(const spry_gguf *gguf)
{
    return gguf->version;
}

size_t spry_gguf_size(const spry_gguf *gguf)
{
    return gguf->size;
}

bool spry_gguf_is_split(const spry_gguf *gguf)
{
    return gguf->n_parts > 0;
}

size_t spry_gguf_tensor_count(const spry_gguf *gguf)
{
    return gguf->n_tensors;
}

const spry_tensor *spry_gguf_tensor(const spry_gguf *gguf, size_t index)
{
    return index < gguf->n_tensors ? &gguf->tensors[index] : NULL;
}

const spry_tensor *spry_gguf_find_tensor(const spry_gguf *gguf, spry_view name)
{
    uint32_t index;
    return spry_map_find(&gguf->names, name, &index) ? &gguf->tensors[index] : NULL;
}

size_t spry_gguf_entry_count(const spry_gguf *gguf)
{
    return gguf->n_entries;
}

const spry_gguf_entry *spry_gguf_entry_at(const spry_gguf *gguf, size_t index)
{
    return index < gguf->n_entries ? &gguf->entries[index] : NULL;
}

const spry_gguf_entry *spry_gguf_find_entry(const spry_gguf *gguf, spry_view key)
{
    uint32_t index;
    return spry_map_find(&gguf->keys, key, &index) ? &gguf->entries[index] : NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Decodes GGUF metadata values that gguf.c has already checked. Bytes in the file are unaligned and little-endian, so
 * every number is read with memcpy. */

/* An array's value starts with the kind of its elements (u32) and their number (u64). */
enum { ARRAY_HEAD_BYTES = 12, STRING_HEAD_BYTES = 8 };

static const struct {
    const char *name;
    size_t bytes;
} kinds[] = {
    [SPRY_GGUF_U8] = {"u8", 1},       [SPRY_GGUF_I8] = {"i8", 1},     [SPRY_GGUF_U16] = {"u16", 2},
    [SPRY_GGUF_I16] = {"i16", 2},     [SPRY_GGUF_U32] = {"u32", 4},   [SPRY_GGUF_I32] = {"i32", 4},
    [SPRY_GGUF_F32] = {"f32", 4},     [SPRY_GGUF_BOOL] = {"bool", 1}, [SPRY_GGUF_STRING] = {"string", 0},
    [SPRY_GGUF_ARRAY] = {"array", 0}, [SPRY_GGUF_U64] = {"u64", 8},   [SPRY_GGUF_I64] = {"i64", 8},
    [SPRY_GGUF_F64] = {"f64", 8},
};

const char *spry_gguf_kind_name(spry_gguf_kind kind)
{
    return (size_t)kind < SPRY_COUNT(kinds) ? kinds[kind].name : "unknown";
}

size_t spry_gguf_kind_bytes(spry_gguf_kind kind)
{
    return (size_t)kind < SPRY_COUNT(kinds) ? kinds[kind].bytes : 0;
}

static uint64_t load_unsigned(const unsigned char *data, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)data[i] << (8 * i);
    return value;
}

/* Sign-extends a two's complement number of `bytes` bytes. */
static int64_t load_signed(const unsigned char *data, size_t bytes)
{
    uint64_t value = load_unsigned(data, bytes), sign = (uint64_t)1 << (8 * bytes - 1);
    return value & sign ? -(int64_t)(sign - 1 - (value & (sign - 1))) - 1 : (int64_t)value;
}

static bool decode_u64(uint64_t *value, spry_gguf_kind kind, const unsigned char *data)
{
    size_t bytes = spry_gguf_kind_bytes(kind);
    switch (kind) {
    case SPRY_GGUF_U8:
    case SPRY_GGUF_U16:
    case SPRY_GGUF_U32:
    case SPRY_GGUF_U64: *value = load_unsigned(data, bytes); return true;
    case SPRY_GGUF_I8:
    case SPRY_GGUF_I16:
    case SPRY_GGUF_I32:
    case SPRY_GGUF_I64: {
        int64_t number = load_signed(data, bytes);
        if (number < 0)
            return false;
        *value = (uint64_t)number;
        return true;
    }
    default: return false;
    }
}

static bool decode_f64(double *value, spry_gguf_kind kind, const unsigned char *data)
{
    uint64_t natural;
    float single;
    switch (kind) {
    case SPRY_GGUF_F32:
        memcpy(&single, data, sizeof single);
        *value = single;
        return true;
    case SPRY_GGUF_F64: memcpy(value, data, sizeof *value); return true;
    case SPRY_GGUF_I8:
    case SPRY_GGUF_I16:
    case SPRY_GGUF_I32:
    case SPRY_GGUF_I64: *value = (double)load_signed(data, spry_gguf_kind_bytes(kind)); return true;
    default:
        if (!decode_u64(&natural, kind, data))
            return false;
        *value = (double)natural;
        return true;
    }
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

bool spry_gguf_entry_u64(const spry_gguf_entry *entry, uint64_t *value)
{
    return entry && decode_u64(value, entry->kind, entry->data);
}

bool spry_gguf_entry_f64(const spry_gguf_entry *entry, double *value)
{
    return entry && decode_f64(value, entry->kind, entry->data);
}

bool spry_gguf_entry_bool(const spry_gguf_entry *entry, bool *value)
{
    if (!entry || entry->kind != SPRY_GGUF_BOOL)
        return false;
    *value = entry->data[0] != 0;
    return true;
}

bool spry_gguf_entry_string(const spry_gguf_entry *entry, spry_view *value)
{
    if (!entry || entry->kind != SPRY_GGUF_STRING)
        return false;
    *value = (spry_view){(const char *)entry->data + STRING_HEAD_BYTES, entry->bytes - STRING_HEAD_BYTES};
    return true;
}

bool spry_gguf_entry_array(const spry_gguf_entry *entry, spry_gguf_array *value)
{
    if (!entry || entry->kind != SPRY_GGUF_ARRAY)
        return false;
    *value = (spry_gguf_array){
        .kind = (spry_gguf_kind)load_unsigned(entry->data, 4),
        .count = (size_t)load_unsigned(entry->data + 4, 8),
        .data = entry->data + ARRAY_HEAD_BYTES,
        .bytes = entry->bytes - ARRAY_HEAD_BYTES,
    };
    return true;
}

static const spry_gguf_entry *find(const spry_gguf *gguf, const char *key)
{
    return spry_gguf_find_entry(gguf, spry_view_of(key));
}

bool spry_gguf_get_u64(const spry_gguf *gguf, const char *key, uint64_t *value)
{
    return spry_gguf_entry_u64(find(gguf, key), value);
}

bool spry_gguf_get_f64(const spry_gguf *gguf, const char *key, double *value)
{
    return spry_gguf_entry_f64(find(gguf, key), value);
}

bool spry_gguf_get_bool(const spry_gguf *gguf, const char *key, bool *value)
{
    return spry_gguf_entry_bool(find(gguf, key), value);
}

bool spry_gguf_get_string(const spry_gguf *gguf, const char *key, spry_view *value)
{
    return spry_gguf_entry_string(find(gguf, key), value);
}

bool spry_gguf_get_array(const spry_gguf *gguf, const char *key, spry_gguf_array *value)
{
    return spry_gguf_entry_array(find(gguf, key), value);
}

/* ---- arrays ----------------------------------------------------------------------------------------------------- */

static const unsigned char *element(const spry_gguf_array *array, size_t index)
{
    size_t bytes = spry_gguf_kind_bytes(array->kind);
    return bytes && index < array->count ? array->data + index * bytes : NULL;
}

bool spry_gguf_array_f64(const spry_gguf_array *array, size_t index, double *value)
{
    const unsigned char *data = element(array, index);
    return data && decode_f64(value, array->kind, data);
}

bool spry_gguf_array_u64(const spry_gguf_array *array, size_t index, uint64_t *value)
{
    const unsigned char *data = element(array, index);
    return data && decode_u64(value, array->kind == SPRY_GGUF_BOOL ? SPRY_GGUF_U8 : array->kind, data);
}

bool spry_gguf_array_string(const spry_gguf_array *array, size_t *cursor, spry_view *value)
{
    if (array->kind != SPRY_GGUF_STRING || *cursor >= array->bytes)
        return false;
    const unsigned char *data = array->data + *cursor;
    *value = (spry_view){(const char *)data + STRING_HEAD_BYTES, (size_t)load_unsigned(data, STRING_HEAD_BYTES)};
    *cursor += STRING_HEAD_BYTES + value->size;
    return true;
}
