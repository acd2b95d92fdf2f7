/* Any bytes as JSON: a value or a clean refusal. What was read and is written again is read as the same value. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json, *again;
    spry_error error;
    if (spry_json_read(&json, (spry_view){(const char *)data, size}, size % 4, 64 << 20, &error) != SPRY_OK)
        return 0;
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (!text || spry_json_read(&again, spry_view_of(text), 0, 0, &error) != SPRY_OK || !json_equal(json, again))
        abort();
    free(text);
    json_decref(again);
    json_decref(json);
    return 0;
}
