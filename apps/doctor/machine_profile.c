/* The profile as JSON. Unknown values are null. */
#include "doctor/machine_profile.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "cli/energy_figures.h"
#include "cli/settings_profile.h"

/* ---- speeds
 * ---------------------------------------------------------------------------------------------------------- */

/* One table lists the plain values. */
/* X(name, member) */
#define FIGURES(X)                                                                                                     \
    X("read_gb_s", read_gb_s)                                                                                          \
    X("sync_us", sync_us)                                                                                              \
    X("attend_g_s", attend_g_s)                                                                                        \
    X("attend_gb_s", attend_gb_s)                                                                                      \
    X("norm_g_s", small_g_s[SPRY_SMALL_NORM])                                                                          \
    X("rope_g_s", small_g_s[SPRY_SMALL_ROPE])                                                                          \
    X("gate_g_s", small_g_s[SPRY_SMALL_GATE])                                                                          \
    X("encode_g_s", small_g_s[SPRY_SMALL_ENCODE])

static void lower_name(char out[16], uint32_t type)
{
    snprintf(out, 16, "%s", spry_dtype_name((spry_dtype)type));
    for (; *out; out++)
        *out = (char)(*out >= 'A' && *out <= 'Z' ? *out + ('a' - 'A') : *out);
}

json_t *spry_machine_speed_to_json(const spry_machine_speed *speed)
{
    json_t *reads = json_array(), *types = json_object();
    for (size_t i = 0; i < SPRY_READ_SPEEDS; i++)
        json_array_append_new(reads,
                              json_pack("{s:f, s:f}", "bytes", speed->reads[i].bytes, "gb_s", speed->reads[i].gb_s));
    for (uint32_t i = 0; i < SPRY_DTYPE_COUNT; i++) {
        const spry_type_speed *t = &speed->types[i];
        char name[16];
        if (!(t->decode_gb_s > 0))
            continue;
        lower_name(name, i);
        json_object_set_new(types, name,
                            json_pack("{s:f, s:f, s:f}", "multiply_g_s", t->multiply_g_s, "decode_gb_s", t->decode_gb_s,
                                      "cached_gb_s", t->cached_gb_s));
    }
    json_t *json = json_pack("{s:i, s:s}", "threads", (int)speed->threads, "kernels", speed->kernels);
#define SET(name, member) json_object_set_new(json, name, json_real(speed->member));
    FIGURES(SET)
#undef SET
    json_object_set_new(json, "reads", reads);
    json_object_set_new(json, "types", types);
    return json;
}

/* ---- back -------------------------------------------------------------------------------------------------------- */

static spry_status read_figure(double *figure, const json_t *object, const char *where, const char *name,
                               spry_error *error)
{
    const json_t *value = json_object_get(object, name);
    *figure = json_number_value(value);
    if (!json_is_number(value) || !(*figure > 0) || *figure > 1e18)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s'%s' is missing, or not a number above 0", where, name);
    return SPRY_OK;
}

static spry_status read_reads(spry_machine_speed *speed, const json_t *list, spry_error *error)
{
    spry_status status = SPRY_OK;
    if (json_array_size(list) != SPRY_READ_SPEEDS)
        return spry_fail(error, SPRY_ERR_FORMAT, "'reads' is not a list of %d", SPRY_READ_SPEEDS);
    for (size_t i = 0; !status && i < SPRY_READ_SPEEDS; i++) {
        spry_read_speed *r = &speed->reads[i];
        status = read_figure(&r->bytes, json_array_get(list, i), "reads: ", "bytes", error);
        if (!status)
            status = read_figure(&r->gb_s, json_array_get(list, i), "reads: ", "gb_s", error);
        if (!status && i && r->bytes <= r[-1].bytes)
            status = spry_fail(error, SPRY_ERR_FORMAT, "'reads' do not ascend by bytes");
    }
    return status;
}

static spry_status read_types(spry_machine_speed *speed, const json_t *types, spry_error *error)
{
    spry_status status = SPRY_OK;
    if (!json_is_object(types))
        return spry_fail(error, SPRY_ERR_FORMAT, "'types' is missing, or not an object");
    for (uint32_t i = 0; !status && i < SPRY_DTYPE_COUNT; i++) {
        spry_type_speed *t = &speed->types[i];
        char name[16], where[32];
        if (!spry_dtype_known(i))
            continue;
        lower_name(name, i);
        snprintf(where, sizeof where, "types: %s: ", name);
        const json_t *type = json_object_get(types, name);
        if (!type)
            continue;
        status = read_figure(&t->multiply_g_s, type, where, "multiply_g_s", error);
        if (!status)
            status = read_figure(&t->decode_gb_s, type, where, "decode_gb_s", error);
        if (!status)
            status = read_figure(&t->cached_gb_s, type, where, "cached_gb_s", error);
    }
    return status;
}

spry_status spry_machine_speed_from_json(spry_machine_speed *speed, const json_t *json, spry_error *error)
{
    *speed = (spry_machine_speed){0};
    const char *kernels = json_string_value(json_object_get(json, "kernels"));
    json_int_t threads = json_integer_value(json_object_get(json, "threads"));
    if (!kernels)
        return spry_fail(error, SPRY_ERR_FORMAT, "'kernels' is missing, or not a string");
    if (threads < 1 || threads > 1024)
        return spry_fail(error, SPRY_ERR_FORMAT, "'threads' is missing, or outside 1 to 1024");
    snprintf(speed->kernels, sizeof speed->kernels, "%s", kernels);
    speed->threads = (uint32_t)threads;
    spry_status status = SPRY_OK;
#define GET(name, member)                                                                                              \
    if (!status)                                                                                                       \
        status = read_figure(&speed->member, json, "", name, error);
    FIGURES(GET)
#undef GET
    if (!status)
        status = read_reads(speed, json_object_get(json, "reads"), error);
    return status ? status : read_types(speed, json_object_get(json, "types"), error);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static json_t *size_json(size_t value)
{
    return json_integer(value <= INT64_MAX ? (json_int_t)value : INT64_MAX);
}

/* 0 and "" mean unknown. */
static json_t *known_size(size_t value)
{
    return value ? size_json(value) : json_null();
}

static json_t *known_text(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static json_t *known_speed(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static json_t *known_answer(spry_known known)
{
    return known == SPRY_UNKNOWN ? json_null() : json_boolean(known == SPRY_YES);
}

typedef struct member {
    const char *key;
    json_t *value;
} member;

/* An object of members, whose values it takes ownership of; NULL when memory is short. */
static json_t *object_of(const member *members, size_t count)
{
    json_t *object = json_object();
    bool whole = object;
    for (size_t i = 0; i < count; i++)
        whole = json_object_set_new(object, members[i].key, members[i].value) == 0 && whole;
    if (whole)
        return object;
    json_decref(object);
    return NULL;
}

#define OBJECT(...) object_of((const member[]){__VA_ARGS__}, SPRY_COUNT(((const member[]){__VA_ARGS__})))

/* Takes ownership of the value; when memory is short, false and a NULL list. */
static void append(json_t **list, json_t *value)
{
    if (*list && json_array_append_new(*list, value) == 0)
        return;
    json_decref(*list);
    *list = NULL;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static json_t *caches_json(const spry_hardware *h)
{
    json_t *list = json_array();
    for (size_t i = 0; i < h->n_caches; i++) {
        const spry_hardware_cache *cache = &h->caches[i];
        append(&list, OBJECT({"level", size_json(cache->level)}, {"kind", json_string(cache->kind)},
                             {"bytes", size_json(cache->bytes)}, {"shared_by", known_size(cache->shared_by)}));
    }
    return list;
}

static json_t *sets_json(const spry_hardware *h)
{
    json_t *list = json_array();
    for (size_t i = 0; i < h->n_sets; i++)
        append(&list, json_string(h->sets[i]));
    return list;
}

static json_t *cpu_json(const spry_machine_profile *p)
{
    const spry_hardware *h = &p->hardware;
    return OBJECT(
        {"name", json_string(h->cpu)}, {"cores", known_size(h->cores)}, {"processors", known_size(h->processors)},
        {"usable", known_size(h->usable)}, {"cgroup_cpus", known_size(h->cgroup_cpus)}, {"isa", sets_json(h)},
        {"kernels", json_string(p->speed.kernels)}, {"caches", caches_json(h)}, {"governor", known_text(h->governor)},
        {"numa_nodes", known_size(h->numa_nodes)}, {"virtual_machine", known_answer(h->virtual_machine)},
        {"load", h->load >= 0 ? json_real(h->load) : json_null()});
}

static json_t *memory_json(const spry_hardware *h)
{
    return OBJECT({"bytes", known_size(h->memory_bytes)}, {"usable_bytes", known_size(h->usable_bytes)},
                  {"available_bytes", known_size(h->available_bytes)}, {"huge_pages", known_text(h->huge_pages)},
                  {"swap_bytes", size_json(h->swap_bytes)}, {"swap_used_bytes", size_json(h->swap_used_bytes)});
}

static json_t *gpu_json(const spry_gpu *gpu, const char *driver)
{
    json_t *out = OBJECT({"name", json_string(gpu->name)}, {"bytes", known_size(gpu->bytes)},
                         {"read_gb_s", known_speed(gpu->read_gb_s)},
                         {"compute", json_sprintf("%u.%u", gpu->compute_major, gpu->compute_minor)},
                         {"multiprocessors", known_size(gpu->multiprocessors)}, {"driver", json_string(driver)});
    if (out && !(gpu->read_gb_s > 0))
        json_object_set_new(out, "why_no_read", json_string(gpu->why[0] ? gpu->why : "not measured"));
    return out;
}

static json_t *gpus_json(const spry_gpus *gpus)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gpus->count; i++)
        append(&list, gpu_json(&gpus->list[i], gpus->driver));
    return list;
}

/* The family of a chip, or null. */
static json_t *chip_json(const spry_chip *chip)
{
    if (!chip->family[0])
        return json_null();
    return OBJECT({"name", json_string(chip->family)}, {"source", json_string(chip->source)},
                  {"threads", known_size(chip->threads)}, {"read_gb_s", known_speed(chip->read_gb_s)},
                  {"multiply_g_s", known_speed(chip->multiply_g_s)}, {"read_share", known_speed(chip->read_share)},
                  {"multiply_share", known_speed(chip->multiply_share)});
}

static json_t *findings_json(const spry_machine_profile *p)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->n_findings; i++)
        append(&list, OBJECT({"level", json_string(p->findings[i].warns ? "warn" : "info")},
                             {"what", json_string(p->findings[i].what)}, {"fix", json_string(p->findings[i].fix)}));
    return list;
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* Adds a prediction to an object, which may be NULL. */
static json_t *with_prediction(json_t *out, const spry_prediction *p, bool fits)
{
    json_t *more = OBJECT({"parameters", json_integer((json_int_t)p->size.parameters)},
                          {"bytes", json_integer((json_int_t)p->size.file_bytes)},
                          {"memory_bytes", json_integer((json_int_t)p->memory_bytes)}, {"fits", json_boolean(fits)},
                          {"prefill_tps", json_real(p->prefill_tps)}, {"decode_tps", json_real(p->decode_tps)},
                          {"ttft_1k_ms", json_real(p->ttft_1k_ms)});
    bool whole = out && more && json_object_update(out, more) == 0;
    json_decref(more);
    if (whole)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *models_json(const spry_machine_profile *p, bool wanted)
{
    json_t *list = json_array();
    for (size_t i = 0; wanted && i < p->n_candidates; i++) {
        const spry_candidate *c = &p->candidates[i];
        json_t *names = OBJECT({"shape", json_string(c->shape)}, {"type", json_string(c->type)});
        const spry_gpu_prediction g = spry_predict_gpu(&p->gpus.list[0], &c->predicted);
        if (names && p->gpus.count && g.fits && g.decode_tps > 0) {
            json_object_set_new(names, "gpu_prefill_tps", json_real(g.prefill_tps));
            json_object_set_new(names, "gpu_decode_tps", json_real(g.decode_tps));
        }
        append(&list, with_prediction(names, &c->predicted, c->fits));
    }
    return list;
}

static json_t *choices_json(const spry_machine_profile *p, bool wanted)
{
    json_t *list = json_array();
    for (size_t i = 0; wanted && i < p->n_choices; i++) {
        const spry_model_choice *c = &p->choices[i];
        append(&list, OBJECT({"use", json_string(spry_use_name(c->use))},
                             {"shape", c->chosen ? json_string(c->chosen->shape) : json_null()},
                             {"type", c->chosen ? json_string(c->chosen->type) : json_null()},
                             {"model", c->model ? json_string(c->model) : json_null()}, {"why", json_string(c->why)},
                             {"pull", c->pull[0] ? json_string(c->pull) : json_null()}));
    }
    return list;
}

static json_t *asked_json(const spry_asked_model *asked, size_t memory)
{
    const spry_model_size *size = &asked->predicted.size;
    const spry_expert_prediction x = spry_predict_experts(&asked->predicted, memory);
    json_t *out = OBJECT({"name", json_string(asked->name)}, {"architecture", json_string(asked->architecture)},
                         {"context", size_json(asked->predicted.context)},
                         {"weight_bytes", json_integer((json_int_t)size->weight_bytes)},
                         {"kv_bytes", json_integer((json_int_t)size->kv_bytes)},
                         {"scratch_bytes", json_integer((json_int_t)size->scratch_bytes)},
                         {"expert_bytes", json_integer((json_int_t)size->expert_bytes)},
                         {"expert_kept_bytes", json_integer((json_int_t)x.kept_bytes)},
                         {"expert_read_bytes", json_integer((json_int_t)x.read_bytes)});
    return with_prediction(out, &asked->predicted, asked->fits);
}

/* The section of the profile with settings, or null. */
static json_t *settings_json(void)
{
    const spry_settings_profile *profile = spry_settings_profile_get();
    if (!profile->section)
        return json_null();
    const json_t *settings = json_object_get(profile->section, "settings"),
                 *why = json_object_get(profile->section, "why");
    return OBJECT({"file", json_string(profile->path)}, {"settings", settings ? json_deep_copy(settings) : json_null()},
                  {"why", why ? json_deep_copy(why) : json_null()});
}

/* The machine's present state, and the servers that run on it. */
static json_t *now_json(const spry_machine_profile *p)
{
    json_t *out = spry_machine_state_json(&p->before, &p->now), *list = json_array();
    for (size_t i = 0; i < p->n_servers; i++)
        append(&list, OBJECT({"process", json_integer((json_int_t)p->servers[i].process)},
                             {"resident_bytes", known_size(p->servers[i].resident_bytes)}));
    if (json_object_set_new(out, "servers", list) == 0)
        return out;
    json_decref(out);
    return NULL;
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

static json_t *document_json(const spry_machine_profile *p, bool models)
{
    json_t *out =
        OBJECT({"format", json_string(SPRY_PROFILE_FORMAT)}, {"spry", json_string(spry_version())},
               {"when", json_string(p->when)}, {"id", json_string(p->id)}, {"cpu", cpu_json(p)},
               {"memory", memory_json(&p->hardware)}, {"gpu", gpus_json(&p->gpus)},
               {"why_no_gpu", p->gpus.count ? json_null() : json_string(p->gpus.why)},
               {"energy", spry_energy_facts_json(&p->energy)}, {"speeds", spry_machine_speed_to_json(&p->speed)},
               {"family", chip_json(&p->chips.processor)}, {"gpu_family", chip_json(&p->chips.gpu)},
               {"now", now_json(p)}, {"findings", findings_json(p)}, {"models", models_json(p, models)},
               {"choices", choices_json(p, models)}, {"profile", settings_json()});
    if (!out || !p->asked.name[0] ||
        json_object_set_new(out, "model", asked_json(&p->asked, p->hardware.usable_bytes)) == 0)
        return out;
    json_decref(out);
    return NULL;
}

spry_status spry_profile_json(spry_buffer *out, const spry_machine_profile *p, bool models, spry_error *error)
{
    json_t *document = document_json(p, models);
    char *text = document ? spry_json_text(document, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    bool whole = text && spry_buffer_format(out, "%s\n", text);
    free(text);
    json_decref(document);
    return whole ? SPRY_OK : spry_fail_memory(error, "the machine's profile", sizeof *p);
}
