/* Lists of numbers, statistics of repeats, values with units, and paths into JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/number.h"
#include "bench/bench_gate.h"
#include "cli/terminal.h"

/* ---- lists ------------------------------------------------------------------------------------------------------- */

spry_status spry_bench_list_parse(spry_bench_list *list, const char *text, uint32_t least, uint32_t most,
                                  const char *name, spry_error *error)
{
    list->count = 0;
    if (!text[0] || strcmp(text, "none") == 0)
        return SPRY_OK;
    for (;; text++) {
        spry_view part = {text, strcspn(text, ",")};
        uint64_t value;
        if (!spry_number_u64(&value, part) || value < least || value > most)
            return spry_fail(error, SPRY_ERR_INPUT,
                             "--%s: '%.*s' is not a number from %u to %u (separate several with commas, or say none)",
                             name, SPRY_VIEW_ARG(part), least, most);
        if (list->count == SPRY_BENCH_LIST_MAX)
            return spry_fail(error, SPRY_ERR_INPUT, "--%s has more than %d numbers", name, SPRY_BENCH_LIST_MAX);
        list->values[list->count++] = (uint32_t)value;
        text += part.size;
        if (!*text)
            return SPRY_OK;
    }
}

bool spry_bench_list_add(spry_bench_list *list, uint32_t value)
{
    for (size_t i = 0; list && i < list->count; i++)
        if (list->values[i] == value)
            return true;
    if (list && list->count == SPRY_BENCH_LIST_MAX)
        return false;
    if (list)
        list->values[list->count++] = value;
    return true;
}

spry_status spry_bench_percent_parse(double *share, const char *text, const char *name, spry_error *error)
{
    spry_view number = spry_view_of(text);
    if (spry_view_ends(number, SPRY_VIEW("%")))
        number.size--;
    if (!spry_number_double(share, number) || *share < 0 || *share > 100)
        return spry_fail(error, SPRY_ERR_INPUT, "--%s: '%.40s' is not a percentage from 0 to 100, such as 10%%", name,
                         text);
    *share = fabs(*share) / 100; /* fabs: -0 becomes 0 */
    return SPRY_OK;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

spry_bench_stat spry_bench_stat_of(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return (spry_bench_stat){(values[(count - 1) / 2] + values[count / 2]) / 2, values[0], values[count - 1]};
}

double spry_bench_spread(const spry_bench_stat *stat)
{
    return spry_bench_ratio(stat->most - stat->least, stat->median);
}

double spry_bench_ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

double spry_bench_percentile(const double *sorted, size_t count, double percent)
{
    size_t rank = (size_t)ceil((double)count * percent / 100);
    return sorted[rank ? rank - 1 : 0];
}

json_t *spry_bench_percentiles_json(double *values, size_t count, const char *suffix)
{
    static const double percents[] = {50, 95, 99};
    char key[16];
    json_t *out = json_object();
    qsort(values, count, sizeof *values, by_size);
    for (size_t i = 0; i < SPRY_COUNT(percents); i++) {
        snprintf(key, sizeof key, "p%.0f%s", percents[i], suffix);
        json_object_set_new(out, key, json_real(spry_bench_percentile(values, count, percents[i])));
    }
    return out;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name; /* the unit's name in reports */
    const char *format;
    double scale;
} units[] = {
    [SPRY_BENCH_TPS] = {"tok/s", "%.1f tok/s", 1},   [SPRY_BENCH_MS] = {"ms", "%.4g ms", 1},
    [SPRY_BENCH_BYTES] = {"bytes", "%.1f MB", 1e-6}, [SPRY_BENCH_SHARE] = {"share", "%.1f %%", 100},
    [SPRY_BENCH_GB_S] = {"GB/s", "%.3g GB/s", 1},    [SPRY_BENCH_G_S] = {"G/s", "%.3g G/s", 1},
    [SPRY_BENCH_JOULES] = {"J", "%.3g J", 1},        [SPRY_BENCH_TOKENS] = {"tokens", "%.0f tokens", 1},
    [SPRY_BENCH_TIMES] = {"x", "%.2fx", 1},          [SPRY_BENCH_US] = {"us", "%.3g us", 1},
    [SPRY_BENCH_COUNT] = {NULL, "%.0f", 1},          [SPRY_BENCH_TENTHS] = {NULL, "%.1f", 1},
    [SPRY_BENCH_HUNDREDTHS] = {NULL, "%.2f", 1},     [SPRY_BENCH_PERCENT] = {NULL, "%.0f %%", 100},
    [SPRY_BENCH_CHANGE] = {NULL, "%+.1f %%", 100},
};

const char *spry_bench_value(char out[SPRY_BENCH_VALUE], spry_bench_unit unit, double value)
{
    char time[SPRY_AMOUNT_MAX];
    if (unit == SPRY_BENCH_TIME && value < 100)
        snprintf(out, SPRY_BENCH_VALUE, "%.3g ms", value);
    else if (unit == SPRY_BENCH_TIME)
        snprintf(out, SPRY_BENCH_VALUE, "%.*s", SPRY_BENCH_VALUE - 1, spry_amount_time(time, value));
    else
        snprintf(out, SPRY_BENCH_VALUE, units[unit].format, value * units[unit].scale);
    return out;
}

const char *spry_bench_unit_name(spry_bench_unit unit)
{
    return units[unit].name;
}

spry_bench_unit spry_bench_unit_of(const char *name)
{
    spry_bench_unit unit = SPRY_BENCH_TPS;
    while (unit < SPRY_BENCH_FIGURE_UNITS && strcmp(units[unit].name, name) != 0)
        unit++;
    return unit;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

const json_t *spry_bench_at(const json_t *json, const char *path)
{
    char key[32];
    while (*path) {
        size_t size = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)size, path);
        json = json_object_get(json, key);
        path += size + (path[size] == '.');
    }
    return json;
}

double spry_bench_number(const json_t *json, const char *path)
{
    return json_number_value(spry_bench_at(json, path));
}

const char *spry_bench_text(const json_t *json, const char *path)
{
    const char *text = json_string_value(spry_bench_at(json, path));
    return text ? text : "";
}

json_t *spry_bench_text_json(const char *text)
{
    spry_buffer clean;
    spry_buffer_init(&clean, 1 << 16);
    spry_terminal_defuse(&clean, spry_view_of(text), "");
    json_t *out = json_string(spry_buffer_view(&clean).data);
    spry_buffer_deinit(&clean);
    return out;
}
