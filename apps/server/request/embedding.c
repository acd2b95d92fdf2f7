/* The scheduler's spare session is used for a part and given back; the next part finds what was computed. */
#include "server/request/embedding.h"

#include <stdlib.h>

#include "engine/embed.h"
#include "server/http/http_server.h"

enum { PART_TOKENS = 32 };

spry_status spry_embedder_init(spry_embedder *e, spry_costs *costs, const spry_pooled *model, spry_error *error)
{
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    *e = (spry_embedder){.costs = costs, .model = model, .width = info.embedding};
    e->vector = calloc(e->width, sizeof *e->vector);
    e->sum = calloc(e->width, sizeof *e->sum);
    if (e->vector && e->sum)
        return SPRY_OK;
    spry_embedder_deinit(e);
    return spry_fail_memory(error, "an embedding", e->width * (sizeof *e->vector + sizeof *e->sum));
}

void spry_embedder_deinit(spry_embedder *e)
{
    free(e->vector);
    free(e->sum);
    e->vector = NULL;
    e->sum = NULL;
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

typedef struct embedding_part {
    spry_embedder *embedder;
    const spry_tokens *ids;
    size_t begin, end;
    spry_status status;
    spry_error *error;
} embedding_part;

static void compute_part(void *context, spry_engine *engine)
{
    embedding_part *part = context;
    spry_embedder *e = part->embedder;
    const spry_exchange *x = e->costs->exchange;
    spry_session *session;
    spry_lap(&e->costs->laps, SPRY_PART_OTHERS);
    part->status = spry_session_create(&session, engine, part->error);
    if (part->status != SPRY_OK)
        return;
    spry_session_set_salt(session, x->key.data, x->key.size);
    part->status = spry_embed_add(session, e->sum, part->ids->ids, part->end, part->begin, part->error);
    spry_session_destroy(session);
    spry_lap(&e->costs->laps, SPRY_PART_PREFILL);
    spry_registry_sample(&x->server->registry, e->model->name, engine, 0, false);
}

spry_status spry_embedder_run(spry_embedder *e, const spry_tokens *ids, spry_error *error)
{
    spry_status status = spry_embed_check(e->model->engine, ids->ids, ids->count, error);
    spry_costs_begin_share(e->costs);
    for (size_t i = 0; i < e->width; i++)
        e->sum[i] = 0;
    for (size_t done = 0; status == SPRY_OK && done < ids->count;) {
        size_t left = ids->count - done, size = left < PART_TOKENS ? left : PART_TOKENS;
        embedding_part part = {.embedder = e, .ids = ids, .begin = done, .end = done + size, .error = error};
        status = spry_http_check_reader(e->costs->exchange, error);
        if (status == SPRY_OK) {
            spry_scheduler_call(e->model->scheduler, compute_part, &part);
            status = part.status;
        }
        done += size;
    }
    if (status == SPRY_OK)
        status = spry_embed_scale(e->vector, e->sum, e->width, error);
    e->n_tokens += status == SPRY_OK ? ids->count : 0;
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

json_t *spry_embedder_list(const spry_embedder *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->width; i++)
        json_array_append_new(list, json_real((double)e->vector[i]));
    return list;
}

/* Byte `at` of the vector, little end first; 0 behind its end. */
static uint32_t byte_of(const spry_embedder *e, size_t at)
{
    uint32_t bits = 0;
    if (at / 4 < e->width)
        memcpy(&bits, &e->vector[at / 4], sizeof bits);
    return bits >> 8 * (at % 4) & 0xFF;
}

json_t *spry_embedder_base64(const spry_embedder *e)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_bytes = e->width * 4, size = (n_bytes + 2) / 3 * 4, missing = size / 4 * 3 - n_bytes;
    char *text = malloc(size);
    for (size_t i = 0; text && i < size / 4; i++) {
        uint32_t group = byte_of(e, 3 * i) << 16 | byte_of(e, 3 * i + 1) << 8 | byte_of(e, 3 * i + 2);
        for (size_t k = 0; k < 4; k++)
            text[4 * i + k] = digits[group >> (18 - 6 * k) & 63];
    }
    for (size_t i = 0; text && i < missing; i++)
        text[size - 1 - i] = '=';
    json_t *string = text ? json_stringn(text, size) : NULL;
    free(text);
    return string;
}
