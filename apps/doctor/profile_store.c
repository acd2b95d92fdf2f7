/* The stored profile: validated when read, since other programs may have written it, and replaced atomically. */
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "cli/json_shape.h"
#include "doctor/machine_profile.h"
#include "platform/directory.h"
#include "platform/file.h"

enum { DOCUMENT_BYTES_MAX = 1 << 22, DAY = 86400 };

/* ---- checking ---------------------------------------------------------------------------------------------------- */

// clang-format off
static const char profile_shape[] = SPRY_JSON_SHAPE({
    "format!": "", "spry": "", "when": "", "id": "",
    "cpu!": {"name!": "", "cores": 0, "processors": 0, "usable": 0, "cgroup_cpus": 0, "isa": [""], "kernels": "",
             "caches": [{"level": 0, "kind": "", "bytes": 0, "shared_by": 0}], "governor": "", "numa_nodes": 0},
    "memory": {"bytes": 0, "usable_bytes": 0, "huge_pages": "", "swap_bytes": 0},
    "gpu": [{"name!": "", "bytes": 0, "read_gb_s": 0, "compute": "", "driver": ""}], "why_no_gpu": "",
    "energy": {"cpu": "", "why_no_cpu": "", "gpu": "", "why_no_gpu": ""},
    "speeds": {"read_gb_s": 0, "threads": 0, "sync_us": 0, "attend_g_s": 0,
               "types": {"*": {"multiply_g_s": 0, "decode_gb_s": 0}}},
    "findings": [{"level!": "", "what!": "", "fix": ""}],
    "models": [{"shape!": "", "type!": "", "parameters": 0, "bytes": 0, "memory_bytes": 0, "fits": true, "prefill_tps": 0,
                "decode_tps": 0, "ttft_1k_ms": 0, "gpu_prefill_tps": 0, "gpu_decode_tps": 0}],
    "choices": [{"use!": "", "shape": "", "type": "", "why": "", "pull": "", "model": ""}]
});
// clang-format on

spry_status spry_profile_check(const json_t *document, spry_error *error)
{
    return spry_json_check(document, profile_shape, error);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Copies a text of the document, which must exist and fit. */
static spry_status take_text(char *out, size_t size, const json_t *object, const char *key, spry_error *error)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" is missing", key);
    size_t length = json_string_length(value);
    if (length >= size || strlen(json_string_value(value)) != length)
        return spry_fail(error, SPRY_ERR_FORMAT, "\"%s\" is not a text of at most %zu characters", key, size - 1);
    memcpy(out, json_string_value(value), length + 1);
    return SPRY_OK;
}

static spry_status take_gpus(spry_stored_profile *stored, const json_t *list, spry_error *error)
{
    stored->n_gpus = json_array_size(list);
    if (stored->n_gpus > SPRY_GPUS_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "\"gpu\" names %zu, at most %d", stored->n_gpus, SPRY_GPUS_MAX);
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < stored->n_gpus; i++) {
        const json_t *gpu = json_array_get(list, i);
        spry_gpu *out = &stored->gpus[i];
        out->read_gb_s = json_number_value(json_object_get(gpu, "read_gb_s"));
        status = take_text(out->name, sizeof out->name, gpu, "name", error);
        if (!status && !(out->read_gb_s > 0))
            status = take_text(out->why, sizeof out->why, gpu, "why_no_read", error);
    }
    return status;
}

static spry_status take_document(spry_stored_profile *stored, const json_t *document, spry_error *error)
{
    char format[sizeof SPRY_PROFILE_FORMAT];
    if (take_text(format, sizeof format, document, "format", error) || strcmp(format, SPRY_PROFILE_FORMAT) != 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "not a machine profile of the format %s", SPRY_PROFILE_FORMAT);
    spry_status status = spry_profile_check(document, error);
    if (!status)
        status = take_text(stored->id, sizeof stored->id, document, "id", error);
    if (!status)
        status = take_text(stored->spry, sizeof stored->spry, document, "spry", error);
    if (!status)
        status = take_text(stored->when, sizeof stored->when, document, "when", error);
    if (!status && !spry_profile_time_read(&stored->seconds, stored->when))
        status = spry_fail(error, SPRY_ERR_FORMAT, "\"when\" is not a time such as 2026-11-15T12:00:00Z");
    const json_t *load = json_object_get(json_object_get(document, "cpu"), "load");
    stored->load = json_is_number(load) ? json_number_value(load) : -1;
    if (!status)
        status = take_gpus(stored, json_object_get(document, "gpu"), error);
    if (!status)
        status = spry_machine_speed_from_json(&stored->speed, json_object_get(document, "speeds"), error);
    return status;
}

spry_status spry_profile_parse(spry_stored_profile *stored, spry_view text, spry_error *error)
{
    json_t *document = NULL;
    *stored = (spry_stored_profile){0};
    spry_status status = spry_json_object(&document, text, error);
    if (!status)
        status = take_document(stored, document, error);
    json_decref(document);
    return status;
}

spry_status spry_profile_load(spry_stored_profile *stored, bool *found, const char *path, spry_error *error)
{
    *found = spry_path_exists(path);
    if (!*found)
        return SPRY_OK;
    spry_mapping mapping; /* refuses files that are not regular: a pipe would never end */
    spry_status status = spry_mapping_open(&mapping, path, error);
    if (!status && mapping.size > DOCUMENT_BYTES_MAX)
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s: has %zu bytes, more than any profile", path, mapping.size);
    else if (!status && spry_profile_parse(stored, (spry_view){(const char *)mapping.data, mapping.size}, error))
        status = spry_fail_prefix(error, SPRY_ERR_FORMAT, path);
    spry_mapping_close(&mapping);
    return status;
}

/* ---- whether it holds -------------------------------------------------------------------------------------------- */

static bool same_gpus(const spry_stored_profile *stored, const spry_gpus *gpus)
{
    bool same = stored->n_gpus == gpus->count;
    for (size_t i = 0; same && i < gpus->count; i++)
        same = strcmp(stored->gpus[i].name, gpus->list[i].name) == 0;
    return same;
}

static bool same_kernels(const spry_machine_speed *a, const spry_machine_speed *b)
{
    return a->threads == b->threads && strcmp(a->kernels, b->kernels) == 0;
}

const char *spry_profile_stale(const spry_stored_profile *stored, const spry_machine_profile *profile, int64_t now)
{
    if (strcmp(stored->id, profile->id) != 0 || !same_kernels(&stored->speed, &profile->speed) ||
        !same_gpus(stored, &profile->gpus))
        return "of another machine";
    if (strcmp(stored->spry, spry_version()) != 0)
        return "of another version of spry";
    if (now - stored->seconds > (int64_t)SPRY_PROFILE_DAYS * DAY)
        return "too old";
    if (stored->seconds - now > DAY)
        return "from the future";
    uint32_t usable = profile->hardware.usable;
    bool was_busy = spry_findings_busy(stored->load, usable),
         is_busy = spry_findings_busy(profile->hardware.load, usable);
    return was_busy && !is_busy ? "measured under load" : NULL;
}

void spry_profile_adopt(spry_machine_profile *profile, const spry_stored_profile *stored)
{
    memcpy(profile->when, stored->when, sizeof profile->when);
    profile->speed = stored->speed;
    for (size_t i = 0; i < profile->gpus.count; i++) {
        profile->gpus.list[i].read_gb_s = stored->gpus[i].read_gb_s;
        memcpy(profile->gpus.list[i].why, stored->gpus[i].why, SPRY_GPU_TEXT);
    }
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

spry_status spry_profile_path(spry_buffer *path, spry_error *error)
{
    spry_directory folder;
    spry_path_user_data(path, "");
    if (!path->size)
        return spry_fail(error, SPRY_ERR_FILE, "neither XDG_DATA_HOME nor HOME is set");
    spry_status status = spry_directory_open(&folder, path->data, error);
    if (status)
        return status;
    spry_directory_close(&folder);
    spry_path_user_data(path, "machine.json");
    return path->failed ? spry_fail(error, SPRY_ERR_FILE, "the path of the user's folder is too long") : SPRY_OK;
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

/* Printing the parsed time must give the same text: this refuses invalid dates and other spellings. */
bool spry_profile_time_read(int64_t *seconds, const char *text)
{
    struct tm utc = {0};
    char again[SPRY_TIME_TEXT];
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    if (!end || *end)
        return false;
    *seconds = (int64_t)timegm(&utc);
    return strcmp(spry_time_text(again, *seconds), text) == 0;
}
