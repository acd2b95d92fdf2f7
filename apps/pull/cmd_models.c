/* `spry models`: what is in the models folder, and removing it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/file.h"
#include "platform/model_names.h"

enum { PATH_BYTES = 4096, MODELS_MAX = 10000, ARGUMENTS_MAX = 64 };

static const spry_usage usage = {
    .command = "models",
    .arguments = "[list] | remove NAME... [options]",
    .about =
        "Lists the models in the models folder with their size and the time of their last use, the latest first, or "
        "removes some of them. Models in the folders of other programs, which `hf:` and `ollama:` names find, are "
        "not listed and never removed.",
    .examples = "spry models\n"
                "spry models --json\n"
                "spry models remove tales-q8",
};

typedef struct models_flags {
    bool json;
} models_flags;

static const spry_option options[] = {
    {.name = "json", .kind = SPRY_OPTION_FLAG, .offset = offsetof(models_flags, json), .help = "Print one JSON object"},
};

typedef struct model_row {
    char name[SPRY_MODEL_NAME_MAX + 1];
    size_t bytes;
    int64_t modified, used;
} model_row;

typedef struct model_list {
    model_row *rows;
    size_t count;
} model_list;

/* ---- listing -------------------------------------------------------------------------------------------------------
 */

static void add_row(void *context, const char *called, const char *path)
{
    model_list *list = context;
    model_row *rows = list->count < MODELS_MAX ? realloc(list->rows, (list->count + 1) * sizeof *rows) : NULL;
    if (!rows)
        return;
    list->rows = rows;
    model_row *row = &rows[list->count++];
    *row = (model_row){.used = 0};
    snprintf(row->name, sizeof row->name, "%s", called);
    spry_model_file_facts(path, &row->bytes, &row->modified);
    row->used = spry_path_last_used(path);
    row->used = row->used > row->modified ? row->used : row->modified;
}

static int later_first(const void *a, const void *b)
{
    const model_row *one = a, *two = b;
    return one->used != two->used ? (one->used < two->used) - (one->used > two->used) : strcmp(one->name, two->name);
}

static void print_json(const model_list *list, const char *folder)
{
    char used[SPRY_TIME_TEXT];
    json_t *models = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(models, json_pack("{s:s, s:I, s:s}", "name", list->rows[i].name, "bytes",
                                                (json_int_t)list->rows[i].bytes, "last_used",
                                                spry_time_text(used, list->rows[i].used)));
    json_t *object = json_pack("{s:s, s:o}", "folder", folder, "models", models);
    char *text = object ? json_dumps(object, 0) : NULL;
    spry_out_format("%s\n", text ? text : "{}");
    free(text);
    json_decref(object);
}

static void print_table(const model_list *list, const char *folder)
{
    char size[SPRY_AMOUNT_MAX], used[SPRY_TIME_TEXT];
    size_t total = 0;
    if (!list->count)
        spry_out_quote("the models folder %s is empty; `spry pull` adds models\n", folder);
    for (size_t i = 0; i < list->count; i++) {
        const model_row *row = &list->rows[i];
        spry_out_quote("%-40s %10s   last used %.10s\n", row->name, spry_amount_bytes(size, row->bytes),
                       spry_time_text(used, row->used));
        total += row->bytes;
    }
    if (list->count > 1)
        spry_out_format("%-40s %10s\n", "together", spry_amount_bytes(size, total));
}

static int list_models(const char *folder, bool json)
{
    model_list list = {0};
    spry_model_names_each(folder, add_row, &list);
    if (list.count)
        qsort(list.rows, list.count, sizeof *list.rows, later_first);
    if (json)
        print_json(&list, folder);
    else
        print_table(&list, folder);
    free(list.rows);
    return spry_out_finish(SPRY_EXIT_OK);
}

/* ---- removing ------------------------------------------------------------------------------------------------------
 */

static void remove_entry(void *context, const char *name)
{
    unlinkat(*(const int *)context, name, 0);
}

/* Links are removed, not what they point to. */
static spry_status remove_path(const char *path, spry_error *error)
{
    struct stat facts;
    int gone = lstat(path, &facts);
    if (gone == 0 && S_ISDIR(facts.st_mode)) {
        int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder >= 0) {
            spry_folder_each(path, remove_entry, &folder, NULL);
            close(folder);
        }
        gone = rmdir(path);
    } else if (gone == 0) {
        gone = unlink(path);
    }
    return gone == 0 ? SPRY_OK : spry_fail(error, SPRY_ERR_FILE, "cannot remove %s: %s", path, strerror(errno));
}

static spry_status remove_model(const char *folder, const char *name, spry_error *error)
{
    char called[SPRY_MODEL_NAME_MAX + 1], real[SPRY_MODEL_PATH_MAX + 1];
    spry_buffer path;
    spry_status status = spry_model_name_find(called, real, folder, name, error);
    if (status != SPRY_OK)
        return status;
    spry_buffer_init(&path, PATH_BYTES);
    status = spry_path_join(&path, folder, called, error);
    if (status == SPRY_OK && !spry_path_exists(path.data) && !spry_buffer_text(&path, ".gguf"))
        status = spry_fail_memory(error, "a path", path.size);
    if (status == SPRY_OK)
        status = remove_path(path.data, error);
    if (status == SPRY_OK)
        spry_out_quote("removed %s\n", called);
    spry_buffer_deinit(&path);
    return status;
}

static int remove_models(const char *folder, const char *const *names, size_t count)
{
    spry_error error = {0};
    if (!count)
        return spry_usage_wrong(&usage, "models remove needs the NAME of a model");
    for (size_t i = 0; i < count; i++)
        if (remove_model(folder, names[i], &error) != SPRY_OK)
            return spry_complain_error(&error);
    return spry_out_finish(SPRY_EXIT_OK);
}

int spry_cmd_models(int argc, char **argv)
{
    models_flags flags = {0};
    spry_model_flags model_flags = {0};
    const char *items[ARGUMENTS_MAX];
    spry_option_list given = {items, ARGUMENTS_MAX, 0};
    spry_option_table tables[] = {{options, SPRY_COUNT(options), &flags}, spry_model_flags_table(&model_flags)};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &given, argc, argv))
        return code;
    spry_buffer folder;
    spry_buffer_init(&folder, PATH_BYTES);
    if (model_flags.models_folder)
        spry_buffer_text(&folder, model_flags.models_folder);
    else
        spry_path_user_data(&folder, "models");
    const char *place = spry_buffer_view(&folder).data, *what = given.count ? items[0] : "list";
    if (!folder.size)
        code = spry_usage_wrong(&usage, "there is no models folder; --models-dir names one");
    else if (strcmp(what, "list") == 0 && given.count < 2)
        code = list_models(place, flags.json);
    else if (strcmp(what, "remove") == 0 || strcmp(what, "rm") == 0)
        code = remove_models(place, items + 1, given.count - 1);
    else
        code = spry_usage_wrong(&usage, "models takes list or remove, not '%.100s'", given.count > 1 ? items[1] : what);
    spry_buffer_deinit(&folder);
    return code;
}
