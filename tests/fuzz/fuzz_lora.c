/* Any bytes as a LoRA adapter of a small model: a GGUF file, or after a byte of value 1 the tensors of a folder whose
 * settings end with a zero byte. It is loaded, or refused with a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/model.h"
#include "support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static scratch place;

static void leave(void)
{
    remove(scratch_path(&place, "one/adapter_config.json"));
    remove(scratch_path(&place, "one/adapter_model.safetensors"));
    scratch_deinit(&place);
}

/* What the file says becomes "one.gguf" or the folder "one". */
static const char *write_adapter(const uint8_t *data, size_t size)
{
    const uint8_t *end = size && data[0] == 1 ? memchr(data + 1, 0, size - 1) : NULL;
    if (!end)
        return scratch_write(&place, "one.gguf", data, size);
    scratch_write(&place, "one/adapter_config.json", data + 1, (size_t)(end - data) - 1);
    scratch_write(&place, "one/adapter_model.safetensors", end + 1, (size_t)(data + size - end) - 1);
    return scratch_path(&place, "one");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_model *model;
    spry_error error;
    if (!place.folder[0]) {
        scratch_init(&place);
        mkdir(scratch_path(&place, "one"), 0700);
        atexit(leave);
    }
    if (spry_model_open_sizes(&model, TEST_DATA "/models/llama", NULL, 0, &error) != SPRY_OK)
        abort();
    (void)spry_model_add_adapters(model, write_adapter(data, size), &error);
    spry_model_close(model);
    return 0;
}
