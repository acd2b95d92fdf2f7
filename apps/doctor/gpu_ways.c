#include "doctor/gpu_ways.h"

#include "base/json.h"
#include "cli/settings_profile.h"
#include "platform/file.h"

enum { FILE_BYTES_MAX = 1 << 20 };

json_t *spry_gpu_ways_load(void)
{
    const char *path = spry_device_profile();
    json_t *document = NULL;
    spry_buffer text;
    spry_buffer_init(&text, FILE_BYTES_MAX);
    if (path && spry_path_exists(path) && !spry_file_read(&text, path, NULL))
        spry_json_object(&document, spry_buffer_view(&text), NULL);
    spry_buffer_deinit(&text);
    json_t *models = json_object_get(document, "models");
    models = json_is_object(models) ? json_incref(models) : NULL;
    json_decref(document);
    return models;
}

void spry_gpu_ways_print(spry_buffer *out, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *way = json_array_get(list, i);
        json_int_t rows = json_integer_value(json_object_get(way, "rows"));
        spry_buffer_format(out, "%s%lld row%s %.0f us", i ? ", " : "", (long long)rows, rows == 1 ? "" : "s",
                           json_number_value(json_object_get(way, "us")));
    }
}
