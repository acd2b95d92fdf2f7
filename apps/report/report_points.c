/* Access to loaded data: values by path, inputs of a kind, compared points, and names. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "report/report.h"

/* ---- looking ----------------------------------------------------------------------------------------------------- */

const json_t *spry_report_at(const json_t *json, const char *path)
{
    while (json && *path) {
        char key[64];
        const size_t size = strcspn(path, ".");
        if (size >= sizeof key)
            return NULL;
        memcpy(key, path, size);
        key[size] = '\0';
        json = json_object_get(json, key);
        path += size + (path[size] == '.');
    }
    return json_is_null(json) ? NULL : json;
}

const char *spry_report_text(const json_t *json, const char *path)
{
    return json_string_value(spry_report_at(json, path));
}

double spry_report_number(const json_t *json, const char *path)
{
    const json_t *value = spry_report_at(json, path);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const spry_report_input *spry_report_next(const spry_report *report, spry_report_kind kind, size_t *at)
{
    for (; *at < report->count; (*at)++)
        if (report->inputs[*at].kind == kind)
            return &report->inputs[(*at)++];
    return NULL;
}

size_t spry_report_count(const spry_report *report, spry_report_kind kind)
{
    size_t count = 0, at = 0;
    while (spry_report_next(report, kind, &at))
        count++;
    return count;
}

/* ---- points ------------------------------------------------------------------------------------------------------ */

static const json_t *find_point(const json_t *list, const char *first, double first_value, const char *second,
                                double second_value)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *point = json_array_get(list, i);
        if (spry_report_number(point, first) == first_value &&
            (!second || spry_report_number(point, second) == second_value))
            return point;
    }
    return NULL;
}

const json_t *spry_report_prefill(const json_t *bench, double tokens)
{
    return find_point(spry_report_at(bench, "prefill"), "tokens", tokens, NULL, 0);
}

const json_t *spry_report_decode(const json_t *bench, double depth, double batch)
{
    return find_point(spry_report_at(bench, "decode"), "depth", depth, "batch", batch);
}

const json_t *spry_report_point(const json_t *bench, const spry_report_key *key)
{
    return isnan(key->tokens) ? spry_report_decode(bench, key->depth, key->batch)
                              : spry_report_prefill(bench, key->tokens);
}

spry_report_key spry_report_key_of(const json_t *point)
{
    const double depth = spry_report_number(point, "depth");
    return (spry_report_key){isnan(depth) ? spry_report_number(point, "tokens") : NAN, depth,
                             spry_report_number(point, "batch")};
}

static bool is_same(const spry_report_key *a, const spry_report_key *b)
{
    return isnan(a->tokens) ? isnan(b->tokens) && a->depth == b->depth && a->batch == b->batch : a->tokens == b->tokens;
}

static size_t find_key(const spry_report_key *keys, size_t count, const spry_report_key *key)
{
    size_t at = 0;
    while (at < count && !is_same(&keys[at], key))
        at++;
    return at;
}

static const char *const lists[] = {"prefill", "decode"};

size_t spry_report_keys(spry_report_key keys[SPRY_REPORT_KEYS], const spry_report *report)
{
    size_t count = 0;
    for (size_t list = 0; list < SPRY_COUNT(lists); list++) {
        const spry_report_input *input;
        for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));) {
            const json_t *points = spry_report_at(input->json, lists[list]);
            for (size_t i = 0; i < json_array_size(points) && count < SPRY_REPORT_KEYS; i++) {
                const spry_report_key key = spry_report_key_of(json_array_get(points, i));
                if (find_key(keys, count, &key) == count)
                    keys[count++] = key;
            }
        }
    }
    return count;
}

size_t spry_report_keys_left_out(const spry_report *report)
{
    spry_report_key keys[SPRY_REPORT_KEYS];
    const size_t count = spry_report_keys(keys, report);
    const spry_report_input *input;
    size_t left_out = 0;
    for (size_t at = 0; count == SPRY_REPORT_KEYS && (input = spry_report_next(report, SPRY_REPORT_BENCH, &at));)
        for (size_t list = 0; list < SPRY_COUNT(lists); list++) {
            const json_t *points = spry_report_at(input->json, lists[list]);
            for (size_t i = 0; i < json_array_size(points); i++) {
                const spry_report_key key = spry_report_key_of(json_array_get(points, i));
                left_out += find_key(keys, count, &key) == count;
            }
        }
    return left_out;
}

double spry_report_main_prefill(const json_t *bench)
{
    const json_t *list = spry_report_at(bench, "prefill");
    double most = NAN;
    for (size_t i = 0; i < json_array_size(list); i++)
        most = fmax(most, spry_report_number(json_array_get(list, i), "tokens"));
    return most;
}

double spry_report_main_depth(const json_t *bench)
{
    const json_t *list = spry_report_at(bench, "decode");
    double least = NAN;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (spry_report_number(json_array_get(list, i), "batch") == 1)
            least = fmin(least, spry_report_number(json_array_get(list, i), "depth"));
    return least;
}

double spry_report_main_batch(const json_t *bench)
{
    const json_t *list = spry_report_at(bench, "decode");
    const double depth = spry_report_main_depth(bench);
    double most = NAN;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (spry_report_number(json_array_get(list, i), "depth") == depth)
            most = fmax(most, spry_report_number(json_array_get(list, i), "batch"));
    return most > 1 ? most : NAN;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

const char *spry_report_cut(char *out, size_t size, const char *text)
{
    size_t length = strlen(text);
    if (length >= size)
        length = size - 1 - spry_utf8_incomplete_tail(text, size - 1);
    memcpy(out, text, length);
    out[length] = '\0';
    return out;
}

const char *spry_report_point_name(char out[SPRY_REPORT_ROW], const json_t *point)
{
    const spry_report_key key = spry_report_key_of(point);
    if (!isnan(key.tokens))
        snprintf(out, SPRY_REPORT_ROW, "prefill of %.0f tokens", key.tokens);
    else if (key.batch == 1)
        snprintf(out, SPRY_REPORT_ROW, "decode at depth %.0f", key.depth);
    else
        snprintf(out, SPRY_REPORT_ROW, "decode at depth %.0f, %.0f at once", key.depth, key.batch);
    return out;
}

const char *spry_report_row_name(char out[SPRY_REPORT_ROW], const spry_report *report, const spry_report_input *input,
                                 const char *what)
{
    const bool alone = spry_report_count(report, input->kind) == 1;
    snprintf(out, SPRY_REPORT_ROW, "%.80s%s%s", what, alone ? "" : ": ", alone ? "" : input->name);
    return out;
}
