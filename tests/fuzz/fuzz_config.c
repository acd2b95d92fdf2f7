/* Any JSON as a model's config.json: a configuration whose values were checked, or a clean refusal. */
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json = NULL;
    spry_error error;
    if (spry_json_read(&json, (spry_view){(const char *)data, size}, SPRY_JSON_LAST_KEY, 0, &error) != SPRY_OK)
        return 0;
    spry_config config;
    spry_arena arena;
    spry_arena_init(&arena);
    if (spry_config_from_json(&config, json, "fuzz", &arena, &error) == SPRY_OK) {
        char features[256];
        spry_features_describe(features, sizeof features, spry_config_features(&config));
        for (uint32_t layer = 0; layer < config.n_layers; layer++)
            (void)spry_config_heads(&config, layer);
    }
    spry_arena_deinit(&arena);
    json_decref(json);
    return 0;
}
