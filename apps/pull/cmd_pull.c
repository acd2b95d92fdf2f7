/* `spry pull` and `spry models`. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/model_names.h"
#include "pull/catalogue.h"
#include "pull/hub.h"
#include "pull/model_pull.h"

typedef struct spry_pull_bar {
    const char *name;
    uint64_t began_ns, drawn_ns;
    uint64_t first; /* bytes present at the first update */
    bool begun, shown;
} spry_pull_bar;

/* ---- progress ---------------------------------------------------------------------------------------------------- */

/* The speed is that of this pull, without bytes that an earlier one had downloaded. */

enum { STEP_NS = 100000000, MARKS = 24, LINE_BYTES = 256 };

/* Pads with spaces instead of an escape sequence, so that it works on every terminal. */
static void draw(const char *line)
{
    int width = (int)spry_terminal_width(stderr) - 1;
    fprintf(stderr, "\r%-*.*s%s", width, width, line, line[0] ? "" : "\r");
    fflush(stderr);
}

static void pull_bar_begin(spry_pull_bar *bar, const char *name)
{
    *bar = (spry_pull_bar){.name = name, .began_ns = spry_clock_ns()};
}

static void pull_bar_update(spry_pull_bar *bar, uint64_t done, uint64_t total)
{
    uint64_t now = spry_clock_ns();
    if (!total || now - bar->drawn_ns < STEP_NS || !isatty(STDERR_FILENO))
        return;
    if (!bar->begun || done < bar->first)
        bar->first = done;
    bar->begun = bar->shown = true;
    bar->drawn_ns = now;
    double seconds = (double)(now - bar->began_ns + 1) / 1e9, speed = (double)(done - bar->first) / seconds;
    char marks[MARKS + 1], have[SPRY_AMOUNT_MAX], all[SPRY_AMOUNT_MAX], rate[SPRY_AMOUNT_MAX], line[LINE_BYTES];
    size_t full = done < total ? (size_t)((double)done / (double)total * MARKS) : MARKS;
    memset(marks, '.', MARKS);
    memset(marks, '#', full);
    marks[MARKS] = '\0';
    double left = speed > 0 ? (double)(total - done) / speed : 0;
    char rest[32] = "";
    if (speed > 0 && done < total && left < 360000)
        snprintf(rest, sizeof rest, left < 60 ? "  %.0f s left" : "  %.0f min left", left < 60 ? left : left / 60);
    snprintf(line, sizeof line, "%.24s [%s] %.0f %%  %s of %s  %s/s%s", bar->name, marks,
             (double)done * 100 / (double)total, spry_amount_bytes(have, done), spry_amount_bytes(all, total),
             spry_amount_bytes(rate, (size_t)speed), rest);
    draw(line);
}

static void pull_bar_end(spry_pull_bar *bar)
{
    if (bar->shown)
        draw("");
    bar->shown = false;
}

/* ---- spry pull --------------------------------------------------------------------------------------------------- */

enum { PATH_BYTES = 4096 };

static const spry_usage usage = {
    .command = "pull",
    .arguments = "SOURCE [NAME] [options]",
    .about =
        "Adds a model to the models folder, where every command finds it by name. SOURCE is a short name of the "
        "catalogue "
        "(spry models --available), a local .gguf file or Hugging Face folder, an http:// or https:// URL of a .gguf "
        "file, or a model of a hub: hf:OWNER/REPO[:TYPE] is "
        "the "
        "GGUF file of that type (default: Q4_K_M, or the next one that is usual), or, where a repository has none, its "
        "safetensors; ollama:NAME[:TAG] is a model of Ollama's registry. Without NAME the model has the name of "
        "SOURCE; commands also know it by its name on the hub.\n"
        "HF_TOKEN is sent for private and gated models, HF_ENDPOINT names another address of the hub. Files of hubs "
        "are "
        "loaded in several parts at once and checked against the hub's checksum. A model that is in Hugging Face's "
        "cache or in Ollama's folder is used there, without a copy.\n"
        "The model appears under its name only when it is complete. An interrupted download is resumed by the next "
        "pull. An existing model is never replaced.",
    .examples = "spry pull qwen3:0.6b\n"
                "spry pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0\n"
                "spry pull ollama:llama3.2:1b\n"
                "spry pull https://example.org/models/tales-q8.gguf\n"
                "spry pull ./Qwen3-0.6B qwen",
};

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    pull_bar_update(user, done, total);
    return !spry_interrupt_seen();
}

/* Says where a model of a hub already is. */
static bool is_here(const char *source, const char *folder)
{
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES);
    bool here = spry_hub_is(source) && (spry_hub_pulled(&path, folder, source) || spry_hub_local(&path, source));
    if (here)
        spry_out_quote("%s is in %s; commands find it by this name\n", source, path.data);
    spry_buffer_deinit(&path);
    return here;
}

/* Pulls a model and prints its path; `name` may be NULL. SPRY_ERR_CANCELLED after Ctrl-C. */
static spry_status pull_shown(const char *source, const char *name, const char *folder, spry_error *error)
{
    if (!name && is_here(source, folder))
        return SPRY_OK;
    spry_pull_bar bar;
    spry_model_pull *pull;
    spry_pull_request request = {
        .source = source, .name = name, .folder = folder, .progress = on_progress, .user = &bar};
    spry_status status = spry_model_pull_open(&pull, &request, error);
    if (status != SPRY_OK)
        return status;
    spry_interrupt_install(NULL, true);
    pull_bar_begin(&bar, spry_model_pull_name(pull));
    status = spry_model_pull_run(pull, error);
    pull_bar_end(&bar);
    spry_interrupt_remove();
    if (status == SPRY_OK)
        spry_out_format("%s is in %s\n", spry_model_pull_name(pull), folder);
    spry_model_pull_close(pull);
    return status;
}

/* The same, where `source` may be a short name of the catalogue. */
static spry_status pull_named(const char *source, const char *name, const char *folder, spry_error *error)
{
    spry_buffer hub;
    spry_status status = SPRY_OK;
    spry_buffer_init(&hub, PATH_BYTES);
    if (!spry_hub_is(source) && !strchr(source, '/') && !spry_path_exists(source))
        status = spry_catalogue_find(&hub, source, error);
    if (status == SPRY_OK)
        status = pull_shown(hub.size ? hub.data : source, name, folder, error);
    spry_buffer_deinit(&hub);
    return status;
}

spry_status spry_pull_offer(const char *source, const char *folder, spry_error *error)
{
    char size[SPRY_AMOUNT_MAX], answer[16] = "";
    spry_hub_model model;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return spry_fail(error, SPRY_ERR_FILE, "%.200s is not on this machine; `spry pull %.200s` downloads it", source,
                         source);
    char absent[256];
    snprintf(absent, sizeof absent, "%.200s is not on this machine, and cannot be downloaded", source);
    spry_status status = spry_hub_find(&model, source, error);
    if (status != SPRY_OK)
        return spry_fail_prefix(error, status, absent);
    fprintf(stderr, "%s is not on this machine. Download %s (%s)? [Y/n] ", source, model.name,
            spry_amount_bytes(size, (size_t)model.bytes));
    spry_hub_deinit(&model);
    bool yes = fgets(answer, sizeof answer, stdin) && (answer[0] == '\n' || answer[0] == 'y' || answer[0] == 'Y');
    return yes ? pull_shown(source, NULL, folder, error)
               : spry_fail(error, SPRY_ERR_FILE, "%.200s is not on this machine", source);
}

int spry_cmd_pull(int argc, char **argv)
{
    spry_model_flags flags = {0};
    const char *items[2];
    spry_option_list given = {items, 2, 0};
    spry_option_table tables[] = {spry_model_flags_table(&flags)};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &given, argc, argv))
        return code;
    if (!given.count)
        return spry_usage_wrong(&usage, "pull needs the SOURCE of a model");
    spry_buffer folder;
    spry_error error = {0};
    spry_buffer_init(&folder, PATH_BYTES);
    if (flags.models_folder)
        spry_buffer_text(&folder, flags.models_folder);
    else
        spry_path_user_data(&folder, "models");
    spry_status status = folder.size
                             ? pull_named(items[0], given.count > 1 ? items[1] : NULL, folder.data, &error)
                             : spry_fail(&error, SPRY_ERR_INPUT, "there is no models folder; --models-dir names one");
    spry_buffer_deinit(&folder);
    if (status == SPRY_ERR_CANCELLED && spry_interrupt_seen())
        return SPRY_EXIT_INTERRUPTED;
    return status == SPRY_OK ? spry_out_finish(SPRY_EXIT_OK) : spry_complain_error(&error);
}

/* ---- spry models ------------------------------------------------------------------------------------------------- */

enum { MODELS_PATH_BYTES = 4096, MODELS_MAX = 10000, ARGUMENTS_MAX = 64 };

static const spry_usage models_usage = {
    .command = "models",
    .arguments = "[list] | remove NAME... | --available [options]",
    .about =
        "Lists the models in the models folder with their size and the time of their last use, the latest first, or "
        "removes some of them. With --available it lists models that `spry pull NAME` or `spry run NAME` downloads; a "
        "file "
        "catalogue.json in the user's data folder replaces that list. Models in the folders of other programs, which "
        "`hf:` and `ollama:` names find, are "
        "not listed and never removed.",
    .examples = "spry models\n"
                "spry models --available\n"
                "spry models --json\n"
                "spry models remove tales-q8",
};

typedef struct models_flags {
    bool json, available;
} models_flags;

static const spry_option options[] = {
    SPRY_OPTION(models_flags, "json", FLAG, json, .help = "Print one JSON object"),
    SPRY_OPTION(models_flags, "available", FLAG, available,
                .help = "List models to download, by short name, and which of them fit this machine's memory"),
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

/* ---- listing ----------------------------------------------------------------------------------------------------- */

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

static spry_status print_json(const model_list *list, const char *folder, spry_error *error)
{
    char used[SPRY_TIME_TEXT];
    json_t *models = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(models, json_pack("{s:s, s:I, s:s}", "name", list->rows[i].name, "bytes",
                                                (json_int_t)list->rows[i].bytes, "last_used",
                                                spry_time_text(used, list->rows[i].used)));
    json_t *object = json_pack("{s:s, s:o}", "folder", folder, "models", models);
    spry_status status = spry_out_json(object, 0, "the list", error);
    json_decref(object);
    return status;
}

static void print_none(const char *folder)
{
    spry_buffer text;
    spry_buffer_init(&text, 1 << 14);
    spry_buffer_format(
        &text,
        "the models folder %.4096s is empty: `spry pull` adds models, `spry models --available` lists some to "
        "begin with; %s is in the program\n",
        folder, SPRY_BUNDLED_MODEL);
    spry_print_lines(stdout, spry_buffer_view(&text), 0);
    spry_buffer_deinit(&text);
}

static void print_table(const model_list *list, const char *folder)
{
    char size[SPRY_AMOUNT_MAX], used[SPRY_TIME_TEXT];
    size_t total = 0;
    if (!list->count)
        print_none(folder);
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
    spry_error error;
    spry_status status = SPRY_OK;
    spry_model_names_each(folder, add_row, &list);
    if (list.count)
        qsort(list.rows, list.count, sizeof *list.rows, later_first);
    if (json)
        status = print_json(&list, folder, &error);
    else
        print_table(&list, folder);
    free(list.rows);
    return status ? spry_complain_error(&error) : spry_out_finish(SPRY_EXIT_OK);
}

static void print_available(const json_t *models)
{
    enum { USE_COLUMN = 62 };
    size_t i;
    const json_t *model;
    spry_buffer rows;
    spry_buffer_init(&rows, SIZE_MAX / 2);
    spry_buffer_format(&rows, "%-22s %9s  %-6s %-7s %-13s %s\n", "NAME", "DOWNLOAD", "FITS", "SCHEMAS", "LICENCE",
                       "USE");
    json_array_foreach(models, i, model)
    {
        char size[SPRY_AMOUNT_MAX], schema[8] = "-";
        if (json_object_get(model, "schema"))
            snprintf(schema, sizeof schema, "%.0f %%", 100 * json_number_value(json_object_get(model, "schema")));
        const char *licence = json_string_value(json_object_get(model, "licence"));
        const char *use = json_string_value(json_object_get(model, "use"));
        spry_buffer_format(&rows, "%-22s %9s  %-6s %-7s %-13s %s\n", json_string_value(json_object_get(model, "name")),
                           spry_amount_bytes(size, (size_t)json_number_value(json_object_get(model, "bytes"))),
                           spry_catalogue_fits(model) ? "yes" : "no", schema, licence ? licence : "", use ? use : "");
    }
    spry_print_lines(stdout, spry_buffer_view(&rows), USE_COLUMN);
    spry_print_lines(stdout,
                     SPRY_VIEW("\nspry run NAME downloads and starts one; FITS: into this machine's memory. "
                               "SCHEMAS: how well it does what a schema asks; --json names the source of each "
                               "figure, - is not judged.\n"),
                     0);
    spry_buffer_deinit(&rows);
}

static int list_available(bool json)
{
    spry_error error = {0};
    size_t i;
    json_t *models, *model;
    if (spry_catalogue_load(&models, &error) != SPRY_OK)
        return spry_complain_error(&error);
    json_array_foreach(models, i, model) json_object_set_new(model, "fits", json_boolean(spry_catalogue_fits(model)));
    json_t *object = json ? json_pack("{s:O}", "models", models) : NULL;
    spry_status status = json ? spry_out_json(object, 0, "the list", &error) : SPRY_OK;
    if (!json)
        print_available(models);
    json_decref(object);
    json_decref(models);
    return status ? spry_complain_error(&error) : spry_out_finish(SPRY_EXIT_OK);
}

/* ---- removing ---------------------------------------------------------------------------------------------------- */

static void remove_entry(void *context, const char *name)
{
    unlinkat(*(const int *)context, name, 0);
}

/* Removes links, never their targets. */
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
    spry_buffer_init(&path, MODELS_PATH_BYTES);
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
        return spry_usage_wrong(&models_usage, "models remove needs the NAME of a model");
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
    if (!spry_usage_parse(&code, &models_usage, tables, SPRY_COUNT(tables), &given, argc, argv))
        return code;
    if (flags.available)
        return given.count ? spry_usage_wrong(&models_usage, "models --available takes no arguments")
                           : list_available(flags.json);
    spry_buffer folder;
    spry_buffer_init(&folder, MODELS_PATH_BYTES);
    if (model_flags.models_folder)
        spry_buffer_text(&folder, model_flags.models_folder);
    else
        spry_path_user_data(&folder, "models");
    const char *place = spry_buffer_view(&folder).data, *what = given.count ? items[0] : "list";
    if (!folder.size)
        code = spry_usage_wrong(&models_usage, "there is no models folder; --models-dir names one");
    else if (strcmp(what, "list") == 0 && given.count < 2)
        code = list_models(place, flags.json);
    else if (strcmp(what, "remove") == 0 || strcmp(what, "rm") == 0)
        code = remove_models(place, items + 1, given.count - 1);
    else
        code = spry_usage_wrong(&models_usage, "models takes list or remove, not '%.100s'",
                                given.count > 1 ? items[1] : what);
    spry_buffer_deinit(&folder);
    return code;
}
