/* The table of what can be chosen, and the choice. */
#include "device/cuda/cuda_tune.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

const size_t spry_cuda_step_sizes[SPRY_CUDA_STEP_SIZES] = {1, 8, 64};

static const double clearly = 0.98; /* of the time so far */

/* Values besides 0, up to the first 0; steps of which rows they concern, and which value only those of one row. */
static const struct tunable {
    const char *name;
    size_t first_rows, last_rows;
    uint8_t values[5];
    uint8_t alone;
} tunables[SPRY_TUNABLES] = {
    [SPRY_TUNE_LAUNCHES] = {"launches", 1, 64, {1, 2}, 2}, [SPRY_TUNE_WGMMA] = {"cores", 9, 64, {1}},
    [SPRY_TUNE_CLUSTER] = {"share", 1, 64, {8, 4, 2, 1}},  [SPRY_TUNE_NORM_TILES] = {"norm_tiles", 1, 8, {2, 4}},
    [SPRY_TUNE_GATE_TILES] = {"gate_tiles", 1, 8, {4, 8}},
};

size_t spry_cuda_step_size_of(size_t rows)
{
    size_t index = 0;
    while (index < SPRY_CUDA_STEP_SIZES && rows > spry_cuda_step_sizes[index])
        index++;
    return index;
}

const char *spry_cuda_tunable_name(spry_cuda_tunable tunable)
{
    return tunables[tunable].name;
}

bool spry_cuda_decode_config_set(spry_cuda_decode_config *config, const char *name, uint64_t value)
{
    for (size_t c = 0; c < SPRY_TUNABLES; c++)
        for (const uint8_t *known = tunables[c].values; *known; known++)
            if (*known == value && strcmp(tunables[c].name, name) == 0) {
                config->of[c] = *known;
                return true;
            }
    return false;
}

/* What was faster must be so, too, when everything has run for a while: clocks rise with work. */
static void confirm(spry_cuda_measured *best, size_t rows, spry_cuda_timer timer, void *context)
{
    const spry_cuda_decode_config by_rule = {{0}};
    double us = memcmp(&best->config, &by_rule, sizeof by_rule) ? timer(context, rows, &by_rule) : 0;
    if (us > 0 && us < best->rule_us)
        best->rule_us = us;
    if (us > 0 && best->us >= clearly * best->rule_us) {
        best->config = by_rule;
        best->us = best->rule_us;
    }
}

void spry_cuda_choose(spry_cuda_measured *best, size_t rows, spry_cuda_timer timer, void *context)
{
    *best = (spry_cuda_measured){0};
    best->us = best->rule_us = timer(context, rows, &best->config);
    double us = best->us;
    for (size_t c = 0; c < SPRY_TUNABLES; c++) {
        if (rows < tunables[c].first_rows || rows > tunables[c].last_rows)
            continue;
        for (const uint8_t *value = tunables[c].values; us > 0 && *value; value++) {
            if (*value == tunables[c].alone && rows > 1)
                continue;
            spry_cuda_decode_config config = best->config;
            config.of[c] = *value;
            us = timer(context, rows, &config);
            if (us > 0 && us < clearly * best->us) {
                best->config = config;
                best->us = us;
            }
        }
    }
    confirm(best, rows, timer, context);
}

void spry_cuda_profile_describe(char *text, size_t size, const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < SPRY_CUDA_STEP_SIZES && used < size; i++) {
        const spry_cuda_measured *m = &measured[i];
        if (!(m->us > 0))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%zu row%s %.1f us", used ? "; " : "",
                                 spry_cuda_step_sizes[i], i ? "s" : "", m->us);
        for (size_t c = 0; c < SPRY_TUNABLES && used < size; c++)
            if (m->config.of[c])
                used += (size_t)snprintf(text + used, size - used, ", %s %u", tunables[c].name, m->config.of[c]);
        if (m->us < m->rule_us && used < size)
            used += (size_t)snprintf(text + used, size - used, " (by rule %.1f us)", m->rule_us);
    }
}
