/* Progress and Ctrl-C around spry_convert_random and spry_convert_widened. */
#include "bench/bench_shape.h"

#include <stdio.h>

#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "spry_tools.h"

static bool show_progress(void *user, size_t done, size_t total)
{
    spry_progress_update(user, done, total);
    return !spry_interrupt_seen();
}

spry_status spry_bench_shape_write(const spry_bench_shape *shape, const char *path, spry_error *error)
{
    char name[160];
    spry_progress_line progress;
    if (shape->widened)
        snprintf(name, sizeof name, "%.100s widened to %s", shape->widened->name, shape->shape);
    else
        snprintf(name, sizeof name, "%s %s random", shape->shape, shape->type);
    spry_convert_options options;
    spry_convert_options_default(&options);
    options.type = shape->widened ? options.type : shape->type;
    options.name = name;
    options.threads = shape->threads;
    options.progress = show_progress;
    options.user = &progress;
    spry_progress_begin(&progress, shape->widened ? "widening:" : "writing random weights:");
    spry_status status;
    if (shape->widened) {
        const spry_model_file file = spry_model_source_file(shape->widened);
        status = spry_convert_widened(path, &file, shape->shape, &options, error);
    } else {
        status = spry_convert_random(path, shape->shape, &options, error);
    }
    spry_progress_end(&progress);
    return status;
}

spry_status spry_bench_shape_make(spry_temporary *file, const spry_bench_shape *shape, spry_error *error)
{
    spry_status status = spry_temporary_init(file, shape->widened ? "widened.gguf" : "random.gguf", error);
    if (!status)
        status = spry_bench_shape_write(shape, file->path, error);
    if (!status)
        status = spry_temporary_hide(file, error);
    return status;
}
