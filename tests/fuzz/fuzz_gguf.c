/* Any bytes as a GGUF file: opening them is fine or a clean refusal, and what was opened can be walked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "support/gguf_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_gguf *gguf;
    spry_error error;
    if (spry_gguf_open_memory(&gguf, data, size, "fuzz", &error) == SPRY_OK)
        gguf_walk(gguf);
    spry_gguf_close(gguf);
    return 0;
}
