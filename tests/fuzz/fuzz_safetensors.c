/* Any bytes as a safetensors file: opening them is fine or a clean refusal, and what was opened can be walked. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_safetensors *files;
    spry_error error;
    volatile unsigned char seen;
    if (spry_safetensors_open_memory(&files, data, size, "fuzz", &error) == SPRY_OK)
        for (size_t i = 0; i < spry_safetensors_count(files); i++) {
            const spry_tensor *tensor = spry_safetensors_tensor(files, i);
            if (spry_safetensors_find(files, tensor->name) != tensor)
                abort();
            seen = tensor->data[0];
            seen = tensor->data[tensor->bytes - 1];
        }
    (void)seen;
    spry_safetensors_close(files);
    return 0;
}
