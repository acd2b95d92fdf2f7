/* Memory, limits and failure of one rendering. */
#include "template/jinja_run.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/checked.h"

enum { BYTES_PER_STEP = 256, SMALLEST_BYTES = 64 };

void spry_jinja_run_init(spry_jinja_run *run, size_t max_text, size_t input_bytes, spry_error *error)
{
    size_t memory;
    *run = (spry_jinja_run){.max_text = max_text, .steps_left = SPRY_JINJA_MAX_STEPS, .error = error, .line = 1};
    if (!spry_checked_mul(&memory, input_bytes, SPRY_JINJA_MEMORY_FACTOR) ||
        !spry_checked_add(&run->memory_left, memory, SPRY_JINJA_BASE_MEMORY))
        run->memory_left = SIZE_MAX;
    spry_arena_init(&run->arena);
}

void spry_jinja_run_deinit(spry_jinja_run *run)
{
    spry_arena_deinit(&run->arena);
}

void *spry_jinja_alloc(spry_jinja_run *run, size_t count, size_t size)
{
    size_t bytes;
    if (run->status)
        return NULL;
    if (!spry_checked_mul(&bytes, count, size) || !spry_checked_align(&bytes, bytes ? bytes : 1, SMALLEST_BYTES) ||
        bytes > run->memory_left) {
        spry_jinja_fail(run, "the chat template needs more memory than the conversation warrants");
        return NULL;
    }
    void *memory = spry_arena_alloc(&run->arena, count, size);
    if (!memory) {
        run->status = spry_fail_memory(run->error, "a chat template", bytes);
        return NULL;
    }
    run->memory_left -= bytes;
    return memory;
}

bool spry_jinja_spend(spry_jinja_run *run, size_t bytes)
{
    uint64_t steps = 1 + bytes / BYTES_PER_STEP;
    if (run->status)
        return false;
    if (steps > run->steps_left) {
        spry_jinja_fail(run, "the chat template takes more than %d steps", SPRY_JINJA_MAX_STEPS);
        return false;
    }
    run->steps_left -= steps;
    return true;
}

bool spry_jinja_enter(spry_jinja_run *run)
{
    if (!spry_jinja_spend(run, 0))
        return false;
    if (run->depth >= SPRY_JINJA_MAX_DEPTH) {
        spry_jinja_fail(run, "the chat template nests deeper than %d levels", SPRY_JINJA_MAX_DEPTH);
        return false;
    }
    run->depth++;
    return true;
}

void spry_jinja_fail(spry_jinja_run *run, const char *format, ...)
{
    char sentence[SPRY_ERROR_MAX];
    va_list arguments;
    if (run->status)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    run->status = spry_fail(run->error, SPRY_ERR_INPUT, "chat template, line %u: %s", run->line, sentence);
}
