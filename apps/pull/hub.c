/* Names of models on hubs, and the choice among GGUF files. */
#include "pull/hub.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char hf[] = "hf:", ollama[] = "ollama:";

static bool is_hf(const char *source)
{
    return strncmp(source, hf, sizeof hf - 1) == 0;
}

bool spry_hub_is(const char *source)
{
    return is_hf(source) || strncmp(source, ollama, sizeof ollama - 1) == 0;
}

/* Copies letters, digits, '.', '_' and '-' up to `end`; false when it is empty, too long or has other characters. */
static bool take_part(char out[128], const char *from, const char *end)
{
    size_t size = (size_t)(end - from);
    if (!size || size > 127 || from[0] == '.')
        return false;
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)from[i]) && !strchr("._-", from[i]))
            return false;
    memcpy(out, from, size);
    out[size] = '\0';
    return true;
}

static spry_status parse(spry_hub_name *name, const char *source, spry_error *error)
{
    *name = (spry_hub_name){.owner = "library", .last = ""};
    const char *at = strchr(source, ':') + 1, *end = at + strlen(at), *slash = strchr(at, '/'),
               *colon = strchr(at, ':');
    const char *repo = slash ? slash + 1 : at;
    bool good = slash || !is_hf(source);
    if (colon && colon < repo)
        good = false;
    if (good && slash)
        good = take_part(name->owner, at, slash);
    if (good)
        good = take_part(name->repo, repo, colon ? colon : end);
    if (good && colon)
        good = take_part(name->last, colon + 1, end);
    if (good)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT, "%.200s: a model of a hub is hf:OWNER/REPO[:TYPE] or ollama:NAME[:TAG]",
                     source);
}

spry_status spry_hub_check(const char *source, spry_error *error)
{
    spry_hub_name name;
    return parse(&name, source, error);
}

spry_status spry_hub_find(spry_hub_model *model, const char *source, spry_error *error)
{
    spry_hub_name name;
    *model = (spry_hub_model){0};
    spry_arena_init(&model->arena);
    spry_status status = parse(&name, source, error);
    if (status == SPRY_OK)
        status = is_hf(source) ? spry_hub_find_hf(model, &name, source, error)
                               : spry_hub_find_ollama(model, &name, source, error);
    for (size_t i = 0; status == SPRY_OK && i < model->count; i++)
        model->bytes += model->files[i].size;
    if (status != SPRY_OK)
        spry_hub_deinit(model);
    return status;
}

void spry_hub_deinit(spry_hub_model *model)
{
    spry_arena_deinit(&model->arena);
    *model = (spry_hub_model){0};
}

bool spry_hub_local(spry_buffer *path, const char *source)
{
    spry_hub_name name;
    if (!spry_hub_is(source) || parse(&name, source, NULL) != SPRY_OK)
        return false;
    return is_hf(source) ? spry_hub_local_hf(path, &name) : spry_hub_local_ollama(path, &name);
}

/* ---- GGUF files ----------------------------------------------------------------------------------------------------
 */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The number N of "-0000N-of-0000M.gguf", or 0; *stem: bytes before it. */
static unsigned part_number(const char *name, size_t *stem)
{
    static const char digits[] = "-00000-of-00000.gguf";
    size_t size = strlen(name), tail = sizeof digits - 1;
    unsigned number = 0;
    *stem = size;
    if (size <= tail)
        return 0;
    const char *at = name + size - tail;
    for (size_t i = 0; i < tail; i++)
        if (digits[i] == '0' ? !isdigit((unsigned char)at[i]) : at[i] != digits[i])
            return 0;
    for (size_t i = 1; i < 6; i++)
        number = number * 10 + (unsigned)(at[i] - '0');
    *stem = size - tail;
    return number;
}

bool spry_hub_same_split(const char *first, const char *name)
{
    size_t a, b;
    if (!part_number(first, &a))
        return strcmp(first, name) == 0;
    return part_number(name, &b) && a == b && strncmp(first, name, a) == 0 &&
           strcmp(first + a + 6, name + b + 6) == 0; /* the same "-of-0000M" */
}

static bool is_usable_gguf(const char *path)
{
    size_t stem;
    const char *name = base_name(path);
    unsigned part = part_number(name, &stem);
    size_t size = strlen(name);
    return size > 5 && strcasecmp(name + size - 5, ".gguf") == 0 && part <= 1 && strncasecmp(name, "mmproj", 6) != 0;
}

/* Whether the name has the type as a word of its own: Q4_K is not in Q4_K_M. */
static bool has_type(const char *path, const char *type)
{
    const char *name = base_name(path);
    size_t size = strlen(type);
    for (const char *at = name; *at; at++) {
        bool begins = at == name || !isalnum((unsigned char)at[-1]);
        if (begins && strncasecmp(at, type, size) == 0 && !isalnum((unsigned char)at[size]) && at[size] != '_')
            return true;
    }
    return false;
}

static void list_names(spry_buffer *out, const char *const *names, size_t count)
{
    size_t listed = 0;
    for (size_t i = 0; i < count; i++)
        if (is_usable_gguf(names[i]) && listed++ < 24)
            spry_buffer_format(out, "%s%.80s", listed > 1 ? ", " : "", base_name(names[i]));
}

spry_status spry_hub_choose(size_t *index, const char *const *names, size_t count, const char *type, const char *source,
                            spry_error *error)
{
    static const char *const usual[] = {"Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0", "MXFP4", "F16", "BF16"};
    size_t n_gguf = 0, last = SIZE_MAX;
    *index = SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        if (is_usable_gguf(names[i])) {
            n_gguf++;
            last = i;
            if (type[0] && *index == SIZE_MAX && has_type(names[i], type))
                *index = i;
        }
    for (size_t t = 0; !type[0] && *index == SIZE_MAX && t < SPRY_COUNT(usual); t++)
        for (size_t i = 0; *index == SIZE_MAX && i < count; i++)
            if (is_usable_gguf(names[i]) && has_type(names[i], usual[t]))
                *index = i;
    if (*index == SIZE_MAX && n_gguf == 1 && !type[0])
        *index = last;
    if (*index != SIZE_MAX || (!n_gguf && !type[0]))
        return SPRY_OK;
    spry_buffer there;
    spry_buffer_init(&there, 4096);
    list_names(&there, names, count);
    spry_status status =
        n_gguf ? spry_fail(error, SPRY_ERR_FILE, "%.100s: %s; it has %.300s", source,
                           type[0] ? "no GGUF file of that type" : "say which type", spry_buffer_view(&there).data)
               : spry_fail(error, SPRY_ERR_FILE, "%.200s: it has no GGUF files, so a type cannot be chosen", source);
    spry_buffer_deinit(&there);
    return status;
}
