/* Any bytes as a Modelfile: a description, which can be written, or a clean refusal. */
#include <stddef.h>
#include <stdint.h>

#include "server/models/derived_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_error error;
    json_t *description = spry_modelfile_parse((spry_view){(const char *)data, size}, &error);
    if (description) {
        json_decref(spry_modelfile_text(description));
        json_decref(spry_modelfile_parameters(description));
    }
    json_decref(description);
    return 0;
}
