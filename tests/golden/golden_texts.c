/* Reading them. */
#include "golden/golden_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

const char *const text_encoders[TEXT_ENCODERS] = {"bert", "xlm-roberta", "nomic-bert", "modernbert"};

void texts_open(golden_texts *g, const char *folder)
{
    char path[600];
    snprintf(path, sizeof path, "%s/golden.json", folder);
    *g = (golden_texts){.json = json_load_file(path, JSON_ALLOW_NUL, NULL)};
    assert_non_null(g->json);
    g->width = (size_t)json_integer_value(json_object_get(g->json, "hidden_size"));
    const json_t *cases = json_object_get(g->json, "cases");
    g->n = json_array_size(cases);
    assert_in_range(g->n, 1, MAX_TEXTS);
    size_t rows = 0;
    for (size_t i = 0; i < g->n; i++) {
        text_case *c = &g->cases[i];
        const json_t *item = json_array_get(cases, i), *ids = json_object_get(item, "ids");
        c->prompt = json_string_value(json_object_get(item, "prompt"));
        c->n_ids = json_array_size(ids);
        assert_in_range(c->n_ids, 1, MAX_IDS);
        for (size_t k = 0; k < c->n_ids; k++)
            c->ids[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        const json_t *kept = json_object_get(item, "rows"); /* of a long text only the first are kept */
        c->n_rows = kept ? (size_t)json_integer_value(kept) : c->n_ids;
        assert_in_range(c->n_rows, 1, c->n_ids);
        rows += c->n_rows;
    }
    snprintf(path, sizeof path, "%s/golden.f32", folder);
    FILE *file = fopen(path, "rb");
    g->values = malloc(rows * g->width * sizeof *g->values);
    assert_true(file && g->values);
    assert_int_equal(fread(g->values, g->width * sizeof *g->values, rows, file), rows);
    fclose(file);
    for (size_t i = 0, at = 0; i < g->n; at += g->cases[i++].n_rows)
        g->cases[i].rows = g->values + at * g->width;
}

void texts_close(golden_texts *g)
{
    free(g->values);
    json_decref(g->json);
}
