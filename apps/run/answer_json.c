/* An answer as JSON. Token texts that are not valid UTF-8 are given as bytes. */
#include <math.h>

#include "base/utf8.h"
#include "cli/energy_figures.h"
#include "run/answer.h"

enum { TOKEN_TEXT_MAX = 1024 };

/* The bytes of a token in the middle of a text. (At the beginning of a text some tokenizers remove a space.) */
static spry_view token_bytes(char *room, size_t capacity, const spry_engine *engine, int32_t id)
{
    const int32_t twice[] = {id, id};
    size_t once_size = 0, size = 0;
    if (spry_engine_detokenize(engine, NULL, 0, &once_size, twice, 1, true, NULL) != SPRY_OK ||
        spry_engine_detokenize(engine, room, capacity, &size, twice, 2, true, NULL) != SPRY_OK || size >= capacity ||
        once_size > size)
        return (spry_view){"", 0};
    return (spry_view){room + once_size, size - once_size};
}

static json_t *bytes_to_json(spry_view bytes)
{
    json_t *array = json_array();
    for (size_t i = 0; i < bytes.size; i++)
        json_array_append_new(array, json_integer((unsigned char)bytes.data[i]));
    return array;
}

static json_t *entry_to_json(const spry_engine *engine, spry_logprob_entry entry)
{
    char room[TOKEN_TEXT_MAX];
    spry_view bytes = token_bytes(room, sizeof room, engine, entry.id);
    json_t *object = json_object();
    json_object_set_new(object, "id", json_integer(entry.id));
    if (spry_utf8_valid(bytes))
        json_object_set_new(object, "text", json_stringn(bytes.data, bytes.size));
    else
        json_object_set_new(object, "bytes", bytes_to_json(bytes));
    json_object_set_new(object, "logprob", isfinite(entry.logprob) ? json_real(entry.logprob) : json_null());
    return object;
}

static json_t *logprobs_to_json(const spry_answer *answer, const spry_engine *engine)
{
    json_t *array = json_array();
    for (size_t i = 0; i < answer->n_tokens; i++) {
        const spry_answer_token *token = &answer->tokens[i];
        json_t *object = entry_to_json(engine, token->token), *top = json_array();
        for (size_t k = 0; k < token->n_top; k++)
            json_array_append_new(top, entry_to_json(engine, token->top[k]));
        json_object_set_new(object, "top", top);
        json_array_append_new(array, object);
    }
    return array;
}

/* JSON integers reach 2^63 here; larger seeds are written as strings, which spry also reads. */
static json_t *seed_to_json(uint64_t seed)
{
    if (seed <= INT64_MAX)
        return json_integer((json_int_t)seed);
    return json_sprintf("%llu", (unsigned long long)seed);
}

/* Reuse by this answer, and since the model was opened. */
static void add_cache(json_t *object, spry_engine *engine, const spry_result *r)
{
    spry_kv_figures f;
    spry_engine_kv_figures(engine, &f);
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {{"page_bytes", f.page_bytes},
                   {"page_tokens", f.page_tokens},
                   {"pages", f.pages},
                   {"free_pages", f.free_pages},
                   {"cached_pages", f.cached_pages},
                   {"idle_pages", f.idle_pages},
                   {"lookups", f.lookups},
                   {"hit_tokens", f.hit_tokens},
                   {"miss_tokens", f.miss_tokens},
                   {"restored_tokens", f.restored_tokens},
                   {"span_tokens", f.span_tokens},
                   {"repaired_tokens", f.repaired_tokens},
                   {"evicted_pages", f.evicted_pages},
                   {"expired_pages", f.expired_pages},
                   {"host_bytes", f.host_bytes},
                   {"host_pages", f.host_pages},
                   {"host_saved_pages", f.host_saved_pages},
                   {"host_loaded_pages", f.host_loaded_pages},
                   {"disk_bytes", f.disk_bytes},
                   {"disk_files", f.disk_files},
                   {"disk_stored_pages", f.disk_stored_pages},
                   {"disk_loaded_pages", f.disk_loaded_pages},
                   {"disk_bad_pages", f.disk_bad_pages}};
    json_t *kv = json_object();
    for (size_t i = 0; i < SPRY_COUNT(figures); i++)
        json_object_set_new(kv, figures[i].name, json_integer((json_int_t)figures[i].value));
    json_object_set_new(object, "kv", kv);
    json_object_set_new(object, "restored_tokens", json_integer((json_int_t)r->restored_tokens));
    json_object_set_new(object, "span_tokens", json_integer((json_int_t)r->span_tokens));
    json_object_set_new(object, "repaired_tokens", json_integer((json_int_t)r->repaired_tokens));
    json_object_set_new(object, "span_divergence", json_real(r->span_divergence));
    json_object_set_new(object, "lookup_ms", json_real(r->lookup_ms));
    json_object_set_new(object, "restore_ms", json_real(r->restore_ms));
}

static json_t *counts_to_json(const size_t *counts, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_integer((json_int_t)counts[i]));
    return array;
}

static json_t *drafts_to_json(const spry_draft_report *d)
{
    return json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:i, s:i, s:f, s:f}", "steps", (json_int_t)d->steps, "drafted",
                     (json_int_t)d->drafted, "accepted", (json_int_t)d->accepted, "tried_at",
                     counts_to_json(d->tried_at, SPRY_DRAFT_MOST), "accepted_at",
                     counts_to_json(d->accepted_at, SPRY_DRAFT_MOST), "lengths",
                     counts_to_json(d->lengths, SPRY_DRAFT_MOST + 1), "refused_p50", (int)d->refused_p50, "refused_p95",
                     (int)d->refused_p95, "tokens_per_step", d->tokens_per_step, "speedup", d->speedup);
}

/* Time and energy by part. */
static void add_parts(json_t *object, const spry_answer *answer)
{
    char why[SPRY_ENERGY_TEXT];
    const spry_result *r = &answer->result;
    json_object_set_new(object, "parts_ms", spry_parts_json(r->parts_ms));
    json_object_set_new(object, "first_parts_ms", spry_parts_json(r->first_parts_ms));
    json_t *energy = spry_energy_json(&answer->energy, spry_answer_ms(answer), r->generated_tokens);
    if (json_is_null(energy)) {
        spry_energy_why(why, answer->meter);
        json_object_set_new(object, "why_no_energy", json_string(why));
    }
    json_object_set_new(object, "energy", energy);
}

json_t *spry_answer_to_json(const spry_answer *answer, spry_engine *engine, const char *model, uint64_t seed,
                            bool with_logprobs)
{
    const spry_result *r = &answer->result;
    json_t *ids = json_array();
    for (size_t i = 0; i < answer->n_tokens; i++)
        json_array_append_new(ids, json_integer(answer->tokens[i].token.id));
    spry_view text = spry_buffer_view(&answer->text);
    json_t *object =
        json_pack("{s:s, s:o, s:s, s:o, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "model", model, "text",
                  json_stringn(text.data, text.size), "finish", spry_finish_name(r->finish), "seed", seed_to_json(seed),
                  "prompt_tokens", (json_int_t)r->prompt_tokens, "reused_tokens", (json_int_t)r->reused_tokens,
                  "generated_tokens", (json_int_t)r->generated_tokens, "prefill_ms", r->prefill_ms, "first_step_ms",
                  r->first_step_ms, "decode_ms", r->decode_ms, "total_ms", r->total_ms, "tokens", ids);
    if (object && r->forced_tokens)
        json_object_set_new(object, "forced_tokens", json_integer((json_int_t)r->forced_tokens));
    if (object)
        add_cache(object, engine, r);
    if (object && r->drafts.steps)
        json_object_set_new(object, "drafts", drafts_to_json(&r->drafts));
    if (object)
        add_parts(object, answer);
    if (object && with_logprobs)
        json_object_set_new(object, "logprobs", logprobs_to_json(answer, engine));
    return object;
}
