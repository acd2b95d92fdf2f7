/* One profile for the process: options borrow texts from it. */
#include "cli/settings_profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "base/options.h"
#include "platform/file.h"
#include "platform/memory.h"
#include "platform/threads.h"
#include "spry_tools.h"

enum { FILE_BYTES_MAX = 1 << 20, PATH_BYTES = 1 << 12, VALUE_BYTES = 256 };

static spry_settings_profile loaded;

/* ---- keys of a profile ------------------------------------------------------------------------------------------- */

static const spry_option known_settings[] = {
    {.name = "threads"},          {.name = "chunk"},      {.name = "kv-type"},
    {.name = "quantize"},         {.name = "draft"},      {.name = "draft-most"},
    {.name = "policy"},           {.name = "parallel"},   {.name = "max-stall"},
    {.name = "context"},          {.name = "device"},     {.name = "cpu"},
    {.name = "kv-bytes"},         {.name = "kv-idle"},    {.name = "kv-idle-share"},
    {.name = "cache-bytes"},      {.name = "cache-ttl"},  {.name = "cache-dir"},
    {.name = "cache-disk-bytes"}, {.name = "pool-bytes"}, {.name = "keep-alive"},
    {.name = "cache-host-bytes"},
};
static const char *const known_commands[] = {"run", "chats", "voice", "serve", "batch", "logits", "eval", "bench"};

static bool is_setting(const char *key)
{
    const spry_option_table table = {known_settings, SPRY_COUNT(known_settings), NULL};
    return spry_options_find(&table, key) != NULL;
}

static bool is_command(const char *key)
{
    for (size_t i = 0; i < SPRY_COUNT(known_commands); i++)
        if (strcmp(key, known_commands[i]) == 0)
            return true;
    return false;
}

static spry_status check_keys(const json_t *object, const char *where, const char *const *known, spry_error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s is not an object", where);
    json_object_foreach((json_t *)object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            return spry_fail(error, SPRY_ERR_FORMAT, "%s has the unknown key \"%.60s\"", where, key);
    }
    return SPRY_OK;
}

static spry_status check_settings(const json_t *settings, const char *machine, spry_error *error)
{
    const spry_option_table table = {known_settings, SPRY_COUNT(known_settings), NULL};
    const char *key;
    json_t *value;
    if (settings && !json_is_object(settings))
        return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.40s.settings is not an object", machine);
    json_object_foreach((json_t *)settings, key, value)
    {
        if (json_is_object(value) ? is_command(key) : is_setting(key))
            continue;
        spry_error unknown;
        spry_options_unknown(&table, key, &unknown);
        return spry_fail(error, SPRY_ERR_FORMAT, "machines.%.40s.settings: %.300s", machine, unknown.message);
    }
    return SPRY_OK;
}

/* Policy throughput chooses the step time that gives the most tokens a second, so it cannot keep a target for step
 * times.
 */
static spry_status check_harmony(const json_t *section, const char *machine, spry_error *error)
{
    const json_t *settings = json_object_get(section, "settings"), *targets = json_object_get(section, "targets");
    const char *everywhere = json_string_value(json_object_get(settings, "policy"));
    const char *serve = json_string_value(json_object_get(json_object_get(settings, "serve"), "policy"));
    const char *policy = serve ? serve : everywhere;
    if (policy && strcmp(policy, "throughput") == 0 && json_object_get(targets, "p95_ms"))
        return spry_fail(
            error, SPRY_ERR_FORMAT,
            "machines.%.40s contradicts itself: the policy throughput does not bound the time of steps, and "
            "targets.p95_ms does",
            machine);
    return SPRY_OK;
}

/* A whole document: keys, types, and targets that contradict settings. */
static spry_status check(const json_t *document, spry_error *error)
{
    static const char *const top[] = {"format", "machines", NULL};
    static const char *const inside[] = {"cpu", "written", "settings", "why", "targets", NULL};
    const char *format = json_string_value(json_object_get(document, "format")), *machine;
    json_t *section, *machines = json_object_get(document, "machines");
    if (!format || strcmp(format, SPRY_SETTINGS_FORMAT) != 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "\"format\" is not \"%s\"", SPRY_SETTINGS_FORMAT);
    spry_status status = check_keys(document, "the profile", top, error);
    if (!status && !json_is_object(machines))
        status = spry_fail(error, SPRY_ERR_FORMAT, "\"machines\" is not an object");
    json_object_foreach(machines, machine, section)
    {
        char where[64];
        snprintf(where, sizeof where, "machines.%.40s", machine);
        if (!status)
            status = check_keys(section, where, inside, error);
        if (!status)
            status = check_settings(json_object_get(section, "settings"), machine, error);
        if (!status)
            status = check_harmony(section, machine, error);
    }
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static spry_status identify(char id[SPRY_MACHINE_ID], spry_error *error)
{
    char cpu[SPRY_PROCESSOR_NAME_MAX], kernels[SPRY_KERNELS_NAME];
    spry_status status = spry_kernels_name(kernels, "auto", error);
    if (status)
        return status;
    spry_processor_name(cpu);
    spry_machine_id(id, cpu, (uint32_t)spry_threads_usable(), kernels, spry_memory_total());
    return SPRY_OK;
}

static spry_status read_document(spry_settings_profile *p, spry_error *error)
{
    spry_buffer text;
    spry_buffer_init(&text, FILE_BYTES_MAX);
    spry_status status = spry_file_read(&text, p->path, error);
    if (!status) {
        status = spry_json_object(&p->document, spry_buffer_view(&text), error);
        if (!status)
            status = check(p->document, error);
        if (status)
            status = spry_fail_prefix(error, status, p->path);
    }
    spry_buffer_deinit(&text);
    return status;
}

static spry_status find_path(spry_settings_profile *p, const char *given, spry_error *error)
{
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES);
    if (given)
        spry_buffer_text(&path, given);
    else
        spry_path_user_data(&path, "profile.json");
    bool failed = path.failed;
    if (path.size && !failed)
        p->path = strdup(path.data);
    failed = failed || (path.size && !p->path);
    spry_buffer_deinit(&path);
    return failed ? spry_fail_memory(error, "the profile's path", PATH_BYTES) : SPRY_OK;
}

spry_status spry_settings_profile_load(const char *given, bool to_write, spry_error *error)
{
    spry_settings_profile *p = &loaded;
    json_decref(p->document);
    free(p->path);
    *p = (spry_settings_profile){0};
    spry_status status = identify(p->id, error);
    if (status || (given && strcmp(given, "none") == 0))
        return status;
    status = find_path(p, given, error);
    if (status || !p->path || ((!given || to_write) && !spry_path_exists(p->path)))
        return status;
    status = read_document(p, error);
    if (status)
        return status;
    p->section = json_object_get(json_object_get(p->document, "machines"), p->id);
    if (given && !to_write && !p->section)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%s: is the profile of other machines: it has no section for this one, %s; spry doctor "
                         "--write-profile adds it",
                         p->path, p->id);
    return SPRY_OK;
}

const spry_settings_profile *spry_settings_profile_get(void)
{
    return &loaded;
}

/* ---- applying ---------------------------------------------------------------------------------------------------- */

bool spry_settings_profile_concerns(const spry_option_table *tables, size_t n_tables)
{
    for (size_t t = 0; t < n_tables; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            char key[64];
            spry_options_key(key, sizeof key, tables[t].options[i].name);
            if (is_setting(key))
                return true;
        }
    return false;
}

/* *found: some table has the option. */
static spry_status set(bool *found, const spry_option_table *tables, size_t n_tables, const char *key,
                       const json_t *value, spry_error *error)
{
    *found = false;
    for (size_t t = 0; t < n_tables; t++) {
        const spry_option *option = spry_options_find(&tables[t], key);
        *found = *found || option;
        if (option && !option->flag_only)
            return spry_options_set_json(&tables[t], key, value, error);
    }
    return SPRY_OK;
}

/* Settings that make a model faster or smaller at the cost of its accuracy. */
static bool is_lossy(const char *key)
{
    return strcmp(key, "quantize") == 0 || strcmp(key, "kv_type") == 0;
}

static spry_status apply_object(const spry_option_table *tables, size_t n_tables, const json_t *settings,
                                const char *command, bool exact, spry_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)settings, key, value)
    {
        bool found = false;
        if (exact && is_lossy(key))
            continue;
        spry_status status = SPRY_OK;
        if (!json_is_object(value))
            status = set(&found, tables, n_tables, key, value, error);
        if (!status && command && !found)
            status = spry_fail(error, SPRY_ERR_FORMAT, "spry %s has no setting \"%.60s\"", command, key);
        if (status)
            return status;
    }
    return SPRY_OK;
}

/* "chats resume" has the settings of "chats". */
static const json_t *settings_of(const char *command)
{
    char family[32];
    snprintf(family, sizeof family, "%.*s", (int)strcspn(command, " "), command);
    const json_t *own = json_object_get(json_object_get(loaded.section, "settings"), family);
    return json_is_object(own) ? own : NULL;
}

static void put_in_force(spry_buffer *out, const spry_option_table *tables, size_t n_tables, const char *key,
                         const json_t *value)
{
    char wanted[VALUE_BYTES], text[VALUE_BYTES];
    if (json_is_string(value))
        snprintf(wanted, sizeof wanted, "%s", json_string_value(value));
    else if (json_is_boolean(value))
        snprintf(wanted, sizeof wanted, "%s", json_is_true(value) ? "true" : "false");
    else
        spry_number_print(wanted, json_number_value(value));
    for (size_t t = 0; t < n_tables; t++) {
        const spry_option *option = spry_options_find(&tables[t], key);
        if (!option || option->flag_only)
            continue;
        spry_options_print(text, sizeof text, &tables[t], option);
        if (strcmp(text, wanted) == 0)
            spry_buffer_format(out, "%s%s %s", out->size ? ", " : "", option->name, text);
        return;
    }
}

void spry_settings_profile_in_force(spry_buffer *out, const spry_option_table *tables, size_t n_tables,
                                    const char *command)
{
    const json_t *settings = json_object_get(loaded.section, "settings"), *own = settings_of(command);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)settings, key, value)
    {
        if (!json_is_object(value) && !json_object_get(own, key))
            put_in_force(out, tables, n_tables, key, value);
    }
    json_object_foreach((json_t *)own, key, value)
    {
        put_in_force(out, tables, n_tables, key, value);
    }
}

spry_status spry_settings_profile_apply(const spry_option_table *tables, size_t n_tables, const char *command,
                                        bool exact, spry_error *error)
{
    const json_t *settings = json_object_get(loaded.section, "settings"), *own = settings_of(command);
    spry_status status = apply_object(tables, n_tables, settings, NULL, exact, error);
    if (!status && own)
        status = apply_object(tables, n_tables, own, command, false, error);
    return status ? spry_fail_prefix(error, status, loaded.path) : SPRY_OK;
}
