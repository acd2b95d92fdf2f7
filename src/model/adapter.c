/* The list of adapters, and what requests choose of it. */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>

#include "base/number.h"

/* "PATH=SCALE" where a number stands behind the last "=". */
static spry_view split_scale(spry_view text, float *scale)
{
    double value;
    *scale = 1;
    for (size_t at = text.size; at-- > 0;)
        if (text.data[at] == '=') {
            const spry_view number = {text.data + at + 1, text.size - at - 1};
            if (!spry_number_double(&value, number) || !isfinite((float)value))
                break;
            *scale = (float)value;
            return (spry_view){text.data, at};
        }
    return text;
}

/* The last part of a path. */
static spry_view name_of(spry_view path)
{
    const spry_view suffix = SPRY_VIEW(".gguf");
    while (path.size && path.data[path.size - 1] == '/')
        path.size--;
    for (size_t at = path.size; at-- > 0;)
        if (path.data[at] == '/') {
            path = (spry_view){path.data + at + 1, path.size - at - 1};
            break;
        }
    if (spry_view_ends(path, suffix))
        path.size -= suffix.size;
    return path;
}

static uint32_t find(const spry_adapters *adapters, spry_view name)
{
    uint32_t i = 0;
    while (i < adapters->count && !spry_view_equal(spry_view_of(adapters->list[i].name), name))
        i++;
    return i;
}

static spry_status add(spry_adapters *adapters, spry_weights *weights, const spry_config *config, spry_view spec,
                       size_t n_specs, spry_error *error)
{
    spry_adapter *a = &adapters->list[adapters->count];
    const spry_view path = split_scale(spec, &a->scale), name = name_of(path);
    if (!name.size || memchr(name.data, '=', name.size))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "adapter '%.*s': its name, the last part of the path, is empty or has '=' in it",
                         SPRY_VIEW_ARG(spec));
    if (find(adapters, name) < adapters->count)
        return spry_fail(error, SPRY_ERR_INPUT, "two adapters have the name '%.*s'", SPRY_VIEW_ARG(name));
    a->name = spry_arena_copy(&adapters->arena, name);
    a->path = spry_arena_copy(&adapters->arena, path);
    if (!a->name || !a->path)
        return spry_fail_memory(error, "an adapter's name", path.size);
    spry_status status = spry_adapter_attach(a, weights, config, adapters->count, n_specs, &adapters->arena, error);
    if (!status) {
        adapters->count++;
        adapters->ranks += a->rank;
    }
    return status;
}

spry_status spry_adapters_load(spry_adapters *adapters, spry_weights *weights, const spry_config *config,
                               const char *paths, spry_error *error)
{
    size_t n = 1, length;
    *adapters = (spry_adapters){0};
    spry_arena_init(&adapters->arena);
    for (const char *c = paths; *c; c++)
        n += *c == ',';
    if (n > SPRY_ADAPTERS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "%zu adapters are more than %d", n, SPRY_ADAPTERS_MAX);
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < n; i++, paths += length + 1) {
        length = strcspn(paths, ",");
        status = add(adapters, weights, config, (spry_view){paths, length}, n, error);
    }
    return status;
}

void spry_adapters_deinit(spry_adapters *adapters)
{
    spry_arena_deinit(&adapters->arena);
    *adapters = (spry_adapters){0};
}

spry_adapter_scales spry_adapters_default(const spry_adapters *adapters)
{
    spry_adapter_scales scales = {0};
    for (uint32_t i = 0; i < adapters->count; i++)
        scales.of[i] = adapters->list[i].scale;
    return scales;
}

static spry_status unknown(const spry_adapters *adapters, spry_view name, spry_error *error)
{
    char known[SPRY_ERROR_MAX / 2] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < adapters->count; i++) {
        int n = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", adapters->list[i].name);
        used += n > 0 && used + (size_t)n < sizeof known ? (size_t)n : 0;
    }
    return spry_fail(error, SPRY_ERR_INPUT, "there is no adapter '%.*s'; %s%s", name.size < 80 ? (int)name.size : 80,
                     name.data, adapters->count ? "known are " : "none is loaded", known);
}

spry_status spry_adapters_choose(spry_adapter_scales *scales, const spry_adapters *adapters, const char *text,
                                 spry_error *error)
{
    *scales = (spry_adapter_scales){0};
    bool taken[SPRY_ADAPTERS_MAX] = {0};
    for (size_t n; *text; text += n + (text[n] == ',')) {
        float scale;
        uint64_t number;
        n = strcspn(text, ",");
        const spry_view name = split_scale((spry_view){text, n}, &scale);
        uint32_t at = find(adapters, name);
        if (at == adapters->count && spry_number_u64(&number, name) && number < adapters->count)
            at = (uint32_t)number;
        if (at == adapters->count)
            return unknown(adapters, name, error);
        if (taken[at])
            return spry_fail(error, SPRY_ERR_INPUT, "adapter '%s' is chosen twice", adapters->list[at].name);
        taken[at] = true;
        scales->of[at] = scale;
    }
    return SPRY_OK;
}

bool spry_adapter_scales_any(const spry_adapter_scales *scales)
{
    for (size_t i = 0; i < SPRY_ADAPTERS_MAX; i++)
        if (scales->of[i] < 0 || scales->of[i] > 0)
            return true;
    return false;
}

spry_kv_key spry_adapters_root(spry_kv_key root, const spry_adapters *adapters, const spry_adapter_scales *scales)
{
    for (uint32_t i = 0; i < adapters->count; i++)
        if (scales->of[i] < 0 || scales->of[i] > 0) {
            unsigned char part[sizeof(spry_kv_key) + sizeof(float)];
            memcpy(part, &adapters->list[i].key, sizeof(spry_kv_key));
            memcpy(part + sizeof(spry_kv_key), &scales->of[i], sizeof(float));
            root = spry_kv_key_root(root, part, sizeof part);
        }
    return root;
}

void spry_adapters_add_row(float *row, const spry_weight *w, size_t index, const spry_adapters *adapters,
                           const spry_adapter_scales *scales)
{
    for (uint32_t i = 0; i < adapters->count; i++) {
        const spry_adapter_pair *pair = &w->adapters[i];
        for (uint32_t j = 0; j < pair->rank; j++) {
            float factor = scales->of[i] * pair->scale * pair->b[j * w->n_out + index];
            for (size_t k = 0; k < w->n_in; k++)
                row[k] += factor * pair->a[j * w->n_in + k];
        }
    }
}
