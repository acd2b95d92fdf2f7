/* Ways in a file, which other processes may write, too:
 *
 *   {"format": "spry-gpu-1",
 *    "models": {"NVIDIA H200, driver 13000, ...": [{"rows": 1, "us": 740, "rule_us": 760, "share": 4}]}}
 *
 * Choices by rule are left out. Keys that were written last are the last ones; of too many the first are dropped. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "device/cuda/cuda_tune.h"
#include "platform/directory.h"
#include "platform/file.h"

#define FORMAT "spry-gpu-1"

enum { FILE_BYTES_MAX = 1 << 20, KEYS_MAX = 64 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The document; NULL where there is no file. */
static spry_status read_document(json_t **out, const char *path, spry_error *error)
{
    spry_buffer text;
    *out = NULL;
    if (!spry_path_exists(path))
        return SPRY_OK;
    spry_buffer_init(&text, FILE_BYTES_MAX);
    spry_status status = spry_file_read(&text, path, error);
    if (!status) {
        status = spry_json_object(out, spry_buffer_view(&text), error);
        const char *format = json_string_value(json_object_get(*out, "format"));
        if (!status && (!format || strcmp(format, FORMAT) || !json_is_object(json_object_get(*out, "models"))))
            status = spry_fail(error, SPRY_ERR_FORMAT, "\"format\" is not \"" FORMAT "\", or \"models\" no object");
        if (status)
            status = spry_fail_prefix(error, status, path);
    }
    spry_buffer_deinit(&text);
    if (status) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

static bool read_config(spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], const json_t *from)
{
    spry_cuda_measured m = {.us = json_number_value(json_object_get(from, "us")),
                            .rule_us = json_number_value(json_object_get(from, "rule_us"))};
    json_int_t rows = json_integer_value(json_object_get(from, "rows"));
    size_t index = rows > 0 ? spry_cuda_step_size_of((size_t)rows) : SPRY_CUDA_STEP_SIZES;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value)
    {
        bool figure = !strcmp(key, "rows") || !strcmp(key, "us") || !strcmp(key, "rule_us");
        json_int_t number = json_integer_value(value);
        if (!figure && (number <= 0 || !spry_cuda_decode_config_set(&m.config, key, (uint64_t)number)))
            return false;
    }
    if (index == SPRY_CUDA_STEP_SIZES || (size_t)rows != spry_cuda_step_sizes[index] || !(m.us > 0) ||
        !(m.rule_us >= m.us))
        return false;
    measured[index] = m;
    return true;
}

spry_status spry_cuda_profile_read(spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], const char *path, const char *key,
                                   spry_error *error)
{
    json_t *document;
    memset(measured, 0, SPRY_CUDA_STEP_SIZES * sizeof *measured);
    spry_status status = read_document(&document, path, error);
    const json_t *list = json_object_get(json_object_get(document, "models"), key);
    bool fine = !list || json_is_array(list);
    for (size_t i = 0; fine && i < json_array_size(list); i++)
        fine = read_config(measured, json_array_get(list, i));
    if (!fine) {
        memset(measured, 0, SPRY_CUDA_STEP_SIZES * sizeof *measured);
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s: the ways of \"%.200s\" are not understood", path, key);
    }
    json_decref(document);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static json_t *list_of(const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES])
{
    json_t *list = json_array();
    for (size_t i = 0; i < SPRY_CUDA_STEP_SIZES; i++) {
        const spry_cuda_measured *m = &measured[i];
        if (!(m->us > 0))
            continue;
        json_t *entry = json_pack("{s:I, s:f, s:f}", "rows", (json_int_t)spry_cuda_step_sizes[i], "us", m->us,
                                  "rule_us", m->rule_us);
        for (size_t c = 0; c < SPRY_TUNABLES; c++)
            if (m->config.of[c])
                json_object_set_new(entry, spry_cuda_tunable_name((spry_cuda_tunable)c), json_integer(m->config.of[c]));
        json_array_append_new(list, entry);
    }
    return list;
}

static spry_status write_text(const char *path, const char *text, spry_error *error)
{
    spry_file_writer writer;
    spry_directory folder;
    const char *end = strrchr(path, '/');
    char *name = end ? strndup(path, (size_t)(end - path)) : NULL;
    spry_status status = name && name[0] ? spry_directory_open(&folder, name, error) : SPRY_OK;
    if (!status && name && name[0])
        spry_directory_close(&folder);
    free(name);
    if (status)
        return status;
    status = spry_file_writer_open(&writer, path, error);
    if (!status)
        status = spry_file_writer_write(&writer, text, strlen(text), error);
    if (!status)
        return spry_file_writer_commit(&writer, error);
    spry_file_writer_abandon(&writer);
    return status;
}

spry_status spry_cuda_profile_write(const char *path, const char *key,
                                    const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], spry_error *error)
{
    json_t *document;
    read_document(&document, path, NULL);
    if (!document)
        document = json_pack("{s:s, s:{}}", "format", FORMAT, "models");
    json_t *models = json_object_get(document, "models");
    json_object_del(models, key);
    while (json_object_size(models) >= KEYS_MAX)
        json_object_del(models, json_object_iter_key(json_object_iter(models)));
    json_object_set_new(models, key, list_of(measured));
    char *text = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    spry_status status = text ? write_text(path, text, error) : spry_fail_memory(error, "a profile", FILE_BYTES_MAX);
    free(text);
    json_decref(document);
    return status;
}
