/* Which text is nearest? Embeddings have length 1, so the dot product of two is the cosine of the angle between them.
 * Usage: embed MODEL QUERY TEXT..., prints each text with its similarity to the query, the nearest first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spry.h>

typedef struct match {
    const char *text;
    float similarity;
} match;

/* Writes the embedding of a text: spry_engine_info.embedding floats. */
static spry_status embed(float *out, spry_engine *engine, spry_session *session, const char *text, spry_error *error)
{
    size_t count;
    spry_status status = spry_engine_tokenize(engine, NULL, 0, &count, text, strlen(text), false, error);
    int32_t *ids = status ? NULL : calloc(count + 1, sizeof *ids);
    if (!status)
        status =
            ids ? spry_engine_tokenize(engine, ids, count, &count, text, strlen(text), false, error) : SPRY_ERR_MEMORY;
    if (!status)
        status = spry_session_embed(session, out, ids, count, error);
    free(ids);
    return status;
}

static int nearest_first(const void *a, const void *b)
{
    float x = ((const match *)a)->similarity, y = ((const match *)b)->similarity;
    return (x < y) - (x > y);
}

int main(int argc, char **argv)
{
    spry_error error = {0};
    spry_engine *engine = NULL;
    spry_session *session = NULL;
    if (argc < 4) {
        fprintf(stderr, "usage: embed MODEL QUERY TEXT...\n");
        return 2;
    }
    size_t n = (size_t)argc - 3, size = 0;
    match *matches = calloc(n, sizeof *matches);
    float *query = NULL, *other = NULL;
    spry_status status = spry_engine_open(&engine, argv[1], NULL, &error);
    if (!status)
        status = spry_session_create(&session, engine, &error);
    if (!status) {
        spry_engine_info info;
        spry_engine_describe(engine, &info);
        size = info.embedding;
        query = calloc(size, sizeof *query);
        other = calloc(size, sizeof *other);
        status = matches && query && other ? embed(query, engine, session, argv[2], &error) : SPRY_ERR_MEMORY;
    }
    for (size_t i = 0; !status && i < n; i++) {
        matches[i].text = argv[i + 3];
        status = embed(other, engine, session, argv[i + 3], &error);
        for (size_t k = 0; k < size; k++)
            matches[i].similarity += query[k] * other[k];
    }
    if (status) {
        fprintf(stderr, "embed: %s: %s\n", spry_status_name(status), error.message);
    } else {
        qsort(matches, n, sizeof *matches, nearest_first);
        for (size_t i = 0; i < n; i++)
            printf("%.3f  %s\n", (double)matches[i].similarity, matches[i].text);
    }
    free(matches);
    free(query);
    free(other);
    spry_session_destroy(session);
    spry_engine_close(engine);
    return status ? 1 : 0;
}
