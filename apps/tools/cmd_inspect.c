/* spry inspect: prints a model's description, as JSON or as text. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "tools/inspect_text.h"

static const spry_usage usage = {
    .command = "inspect",
    .arguments = "[MODEL] [options]",
    .about =
        "Shows the contents of a model's files: metadata, tensors, tokenizer, sizes, and the memory it needs to run. "
        "Files of an unknown architecture are shown as far as they can be read.\n"
        "MODEL is as for `spry run`; without it the bundled model is shown.",
    .examples = "spry inspect\n"
                "spry inspect model.gguf --tensors\n"
                "spry inspect model-folder --context 4096 --json",
};

typedef struct inspect_settings {
    bool json, tensors;
    uint32_t context;
    spry_model_flags model;
} inspect_settings;

#define FIELD(name) offsetof(inspect_settings, name)

static const spry_option inspect_options[] = {
    {.name = "tensors",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(tensors),
     .help = "List every tensor: name, type, shape, bytes, offset in its file and its alignment, layout in memory",
     .group = "Inspect"},
    {.name = "context",
     .letter = 'c',
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(context),
     .help = "Context size for the memory estimate; 0: the model's limit, at most 8192"},
    {.name = "json", .kind = SPRY_OPTION_FLAG, .offset = FIELD(json), .help = "Print one JSON object"},
};

static spry_status print_json(const json_t *description, spry_error *error)
{
    char *text = json_dumps(description, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    if (!text)
        return spry_fail_memory(error, "the description as JSON", 0);
    spry_out_format("%s\n", text);
    free(text);
    return SPRY_OK;
}

static spry_status inspect(const inspect_settings *settings, const char *model, spry_error *error)
{
    spry_model_source source = {0};
    json_t *description = NULL;
    char *text = NULL;
    spry_status status = spry_model_source_find(&source, model, settings->model.models_folder, error);
    const spry_model_file file = spry_model_source_file(&source);
    if (status == SPRY_OK)
        status = spry_inspect_json(&text, &file, settings->context, settings->tensors, error);
    if (status == SPRY_OK && !(description = json_loads(text, JSON_ALLOW_NUL, NULL)))
        status = spry_fail_memory(error, "the description", strlen(text));
    if (status == SPRY_OK && settings->json)
        status = print_json(description, error);
    else if (status == SPRY_OK)
        spry_inspect_print(description);
    json_decref(description);
    spry_free(text);
    spry_model_source_deinit(&source);
    return status;
}

int spry_cmd_inspect(int argc, char **argv)
{
    inspect_settings settings = {0};
    const spry_option_table tables[] = {{inspect_options, SPRY_COUNT(inspect_options), &settings},
                                        spry_model_flags_table(&settings.model)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    int code = SPRY_EXIT_OK;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    spry_error error;
    if (inspect(&settings, model, &error) != SPRY_OK)
        code = spry_complain_error(&error);
    return spry_out_finish(code);
}
