/* Reading the recorded results. */
#include "golden/golden_file.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static int32_t *read_ids(const json_t *list, size_t *count)
{
    *count = json_array_size(list);
    int32_t *ids = calloc(*count + 1, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

/* NULL: there is no such file. */
static float *read_rows(const char *folder, const char *name, size_t n_vocab, size_t *n_rows)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    float *rows = malloc(bytes);
    assert_non_null(rows);
    assert_int_equal(fread(rows, 1, bytes, file), bytes);
    fclose(file);
    *n_rows = bytes / sizeof(float) / n_vocab;
    return rows;
}

void golden_open(golden_file *golden, const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/golden.json", folder);
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_non_null(json);
    size_t total;
    golden->n_vocab = (size_t)json_integer_value(json_object_get(json, "vocab_size"));
    golden->rows = read_rows(folder, "golden.f32", golden->n_vocab, &total);
    assert_non_null(golden->rows);
    size_t head_total = total;
    golden->head_rows = read_rows(folder, "golden_mtp.f32", golden->n_vocab, &head_total);
    assert_int_equal(head_total, total);
    const json_t *cases = json_object_get(json, "cases");
    golden->n_cases = json_array_size(cases);
    assert_in_range(golden->n_cases, 1, GOLDEN_MAX_CASES);
    for (size_t i = 0; i < golden->n_cases; i++) {
        golden_case *c = &golden->cases[i];
        const json_t *item = json_array_get(cases, i), *rows = json_object_get(item, "logit_rows");
        const json_t *margins = json_object_get(item, "greedy_margin");
        c->ids = read_ids(json_object_get(item, "ids"), &c->n_ids);
        c->greedy = read_ids(json_object_get(item, "greedy"), &c->n_greedy);
        c->margins = calloc(c->n_greedy + 1, sizeof *c->margins);
        assert_non_null(c->margins);
        for (size_t m = 0; m < c->n_greedy; m++)
            c->margins[m] = json_number_value(json_array_get(margins, m));
        c->wobble = json_number_value(json_object_get(json, "wobble"));
        c->first_row = (size_t)json_integer_value(json_object_get(rows, "first_token"));
        c->n_rows = (size_t)json_integer_value(json_object_get(rows, "count"));
        size_t offset = (size_t)json_integer_value(json_object_get(rows, "row_offset"));
        assert_true(offset + c->n_rows <= total);
        c->logits = golden->rows + offset * golden->n_vocab;
        c->head_logits = golden->head_rows ? golden->head_rows + offset * golden->n_vocab : NULL;
        const json_t *chain = json_object_get(item, "mtp_chain");
        for (size_t d = 0; d < GOLDEN_CHAIN; d++) {
            c->chain[d] = (int32_t)json_integer_value(json_array_get(json_object_get(chain, "drafts"), d));
            c->chain_margins[d] = json_number_value(json_array_get(json_object_get(chain, "margin"), d));
        }
    }
    json_decref(json);
}

void golden_close(golden_file *golden)
{
    for (size_t i = 0; i < golden->n_cases; i++) {
        free(golden->cases[i].ids);
        free(golden->cases[i].greedy);
        free(golden->cases[i].margins);
    }
    free(golden->rows);
    free(golden->head_rows);
}
