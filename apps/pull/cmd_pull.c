/* `spry pull`: adds a model to the models folder. */
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/file.h"
#include "pull/hub.h"
#include "pull/model_pull.h"
#include "pull/pull_bar.h"
#include "pull/pull_command.h"

enum { PATH_BYTES = 4096 };

static const spry_usage usage = {
    .command = "pull",
    .arguments = "SOURCE [NAME] [options]",
    .about =
        "Adds a model to the models folder, where every command finds it by name. SOURCE is a local .gguf file or "
        "Hugging Face folder, an http:// or https:// URL of a .gguf file, or a model of a hub: hf:OWNER/REPO[:TYPE] is "
        "the "
        "GGUF file of that type (default: Q4_K_M, or the next one that is usual), or, where a repository has none, its "
        "safetensors; ollama:NAME[:TAG] is a model of Ollama's registry. Without NAME the model has the name of "
        "SOURCE; commands also know it by its name on the hub.\n"
        "HF_TOKEN is sent for private and gated models, HF_ENDPOINT names another address of the hub. Files of hubs "
        "are "
        "loaded in several parts at once and checked against the hub's checksum. A model that lies in Hugging Face's "
        "cache or in Ollama's folder is used there, without a copy.\n"
        "The model appears under its name only when it is complete. An interrupted download is resumed by the next "
        "pull. An existing model is never replaced.",
    .examples = "spry pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0\n"
                "spry pull ollama:llama3.2:1b\n"
                "spry pull https://example.org/models/tales-q8.gguf\n"
                "spry pull ./Qwen3-0.6B qwen",
};

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    spry_pull_bar_update(user, done, total);
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

/* Pulls and says where the model is; `name` may be NULL. SPRY_ERR_CANCELLED after Ctrl-C. */
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
    spry_pull_bar_begin(&bar, spry_model_pull_name(pull));
    status = spry_model_pull_run(pull, error);
    spry_pull_bar_end(&bar);
    spry_interrupt_remove();
    if (status == SPRY_OK)
        spry_out_format("%s is in %s\n", spry_model_pull_name(pull), folder);
    spry_model_pull_close(pull);
    return status;
}

spry_status spry_pull_offer(const char *source, const char *folder, spry_error *error)
{
    char size[SPRY_AMOUNT_MAX], answer[16] = "";
    spry_hub_model model;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return spry_fail(error, SPRY_ERR_FILE, "%.200s is not on this machine; `spry pull %.200s` downloads it", source,
                         source);
    spry_status status = spry_hub_find(&model, source, error);
    if (status != SPRY_OK)
        return status;
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
                             ? pull_shown(items[0], given.count > 1 ? items[1] : NULL, folder.data, &error)
                             : spry_fail(&error, SPRY_ERR_INPUT, "there is no models folder; --models-dir names one");
    spry_buffer_deinit(&folder);
    if (status == SPRY_ERR_CANCELLED && spry_interrupt_seen())
        return SPRY_EXIT_INTERRUPTED;
    return status == SPRY_OK ? spry_out_finish(SPRY_EXIT_OK) : spry_complain_error(&error);
}
