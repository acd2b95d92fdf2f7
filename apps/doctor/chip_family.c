#include "doctor/findings.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/json.h"

static const char *text_of(const json_t *family, const char *key)
{
    const char *text = json_string_value(json_object_get(family, key));
    return text ? text : "";
}

static double number_of(const json_t *family, const char *key)
{
    return json_number_value(json_object_get(family, key));
}

static bool has_all(const spry_hardware *hardware, const json_t *sets)
{
    for (size_t i = 0; i < json_array_size(sets); i++) {
        const char *set = json_string_value(json_array_get(sets, i));
        if (!set || !spry_hardware_has(hardware, set))
            return false;
    }
    return true;
}

/* The first family of a list to which a chip belongs; `hardware` NULL: instructions do not matter. */
static const json_t *find(const json_t *families, const char *name, const spry_hardware *hardware)
{
    for (size_t i = 0; i < json_array_size(families); i++) {
        const json_t *family = json_array_get(families, i);
        if (strstr(name, text_of(family, "name")) && (!hardware || has_all(hardware, json_object_get(family, "has"))))
            return family;
    }
    return NULL;
}

static spry_status read_family(spry_chip *chip, const json_t *family, spry_error *error)
{
    if (!family)
        return SPRY_OK;
    snprintf(chip->family, sizeof chip->family, "%s", text_of(family, "family"));
    snprintf(chip->source, sizeof chip->source, "%s", text_of(family, "source"));
    chip->threads = (uint32_t)number_of(family, "threads");
    chip->read_gb_s = number_of(family, "read_gb_s");
    chip->multiply_g_s = number_of(family, "multiply_g_s");
    if (chip->family[0] && chip->source[0] && chip->read_gb_s > 0)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "chips.json: a family lacks its name, its source or read_gb_s");
}

/* A speed of `threads` threads relative to their part of `speed`, which `measured` threads reached; 0: unknown. */
static double share_of(double now, double speed, double threads, double measured)
{
    return now > 0 && speed > 0 && threads > 0 && measured > 0 ? now * measured / (speed * threads) : 0;
}

static void compare_processor(spry_chip *chip, const spry_machine_speed *speed)
{
    const double threads = speed->threads, measured = chip->threads;
    const double reading = threads < measured ? threads : measured;
    chip->read_share = share_of(speed->read_gb_s, chip->read_gb_s, reading, measured);
    chip->multiply_share = share_of(speed->types[SPRY_Q4_0].multiply_g_s, chip->multiply_g_s, threads, measured);
}

spry_status spry_chips_compare(spry_chips *chips, spry_view families, const spry_hardware *hardware,
                               const spry_machine_speed *speed, const spry_gpus *gpus, spry_error *error)
{
    json_t *root;
    *chips = (spry_chips){0};
    spry_status status = spry_json_read(&root, families, 0, 0, error);
    if (status)
        return spry_fail_prefix(error, status, "chips.json");
    status = read_family(&chips->processor, find(json_object_get(root, "processors"), hardware->cpu, hardware), error);
    if (!status && gpus->count)
        status = read_family(&chips->gpu, find(json_object_get(root, "gpus"), gpus->list[0].name, NULL), error);
    json_decref(root);
    if (!status)
        compare_processor(&chips->processor, speed);
    if (!status && gpus->count)
        chips->gpu.read_share = share_of(gpus->list[0].read_gb_s, chips->gpu.read_gb_s, 1, 1);
    return status;
}
