/* One table names every setting in both formats; ranges are those of the sampling options. */
#include "model/sampling_hints.h"

#include <math.h>
#include <stddef.h>

#include "base/compiler.h"

static const struct {
    const char *json, *gguf;
    size_t offset;
    double min, max;
    bool whole;
} known[] = {
    {"temperature", "general.sampling.temp", offsetof(spry_sampling_hints, temperature), 0, 100, false},
    {"top_k", "general.sampling.top_k", offsetof(spry_sampling_hints, top_k), 0, 1 << 24, true},
    {"top_p", "general.sampling.top_p", offsetof(spry_sampling_hints, top_p), 0, 1, false},
    {"min_p", "general.sampling.min_p", offsetof(spry_sampling_hints, min_p), 0, 1, false},
    {"repetition_penalty", "general.sampling.penalty_repeat", offsetof(spry_sampling_hints, repeat_penalty), 0.01, 100,
     false},
};

static float *field_of(spry_sampling_hints *hints, size_t index)
{
    return (float *)((char *)hints + known[index].offset);
}

static float judged(size_t index, double value)
{
    bool fits = value >= known[index].min && value <= known[index].max;
    return fits && (!known[index].whole || value == floor(value)) ? (float)value : NAN;
}

void spry_sampling_hints_from_json(spry_sampling_hints *hints, const json_t *json)
{
    bool greedy = json_is_false(json_object_get(json, "do_sample"));
    for (size_t i = 0; i < SPRY_COUNT(known); i++) {
        const json_t *value = json_object_get(json, known[i].json);
        *field_of(hints, i) = judged(i, json_is_number(value) && !greedy ? json_number_value(value) : NAN);
    }
}

void spry_sampling_hints_from_gguf(spry_sampling_hints *hints, const spry_gguf *gguf)
{
    for (size_t i = 0; i < SPRY_COUNT(known); i++) {
        double value = NAN;
        uint64_t number;
        if (!spry_gguf_get_f64(gguf, known[i].gguf, &value) && spry_gguf_get_u64(gguf, known[i].gguf, &number))
            value = (double)number;
        *field_of(hints, i) = judged(i, value);
    }
}

void spry_sampling_hints_to_gguf(const spry_sampling_hints *hints, spry_gguf_writer *writer)
{
    spry_sampling_hints copy = *hints;
    for (size_t i = 0; i < SPRY_COUNT(known); i++) {
        float value = *field_of(&copy, i);
        if (isnan(value))
            continue;
        if (known[i].whole)
            spry_gguf_writer_u32(writer, known[i].gguf, (uint32_t)value);
        else
            spry_gguf_writer_f32(writer, known[i].gguf, value);
    }
}

void spry_sampling_hints_apply(const spry_sampling_hints *hints, spry_sampling *settings)
{
    if (!isnan(hints->temperature))
        settings->temperature = hints->temperature;
    if (!isnan(hints->top_k))
        settings->top_k = (uint32_t)hints->top_k;
    if (!isnan(hints->top_p))
        settings->top_p = hints->top_p;
    if (!isnan(hints->min_p))
        settings->min_p = hints->min_p;
    if (!isnan(hints->repeat_penalty))
        settings->repeat_penalty = hints->repeat_penalty;
}
