/* A machine's speeds as JSON; one table lists the plain values. */
#include <stdio.h>

#include "doctor/machine_speed.h"

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
