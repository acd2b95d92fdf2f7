/* Any bytes as a Whisper model in a ggml file: its weights are open, or it is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "kernels/ops.h"
#include "model/whisper_weights.h"
#include "support/best_ops.h"
#include "support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static scratch place;

static void leave(void)
{
    scratch_deinit(&place);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const spry_ops *ops;
    spry_whisper_weights weights;
    spry_error error;
    if (!place.folder[0]) {
        scratch_init(&place);
        ops = best_ops();
        atexit(leave);
    }
    const char *path = scratch_write(&place, "model.bin", data, size);
    if (spry_whisper_weights_open(&weights, path, ops, SPRY_DTYPE_COUNT, &error) == SPRY_OK)
        spry_whisper_weights_close(&weights);
    return 0;
}
