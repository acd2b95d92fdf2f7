/* `spry convert`: converts a Hugging Face folder, a GGUF file or a checkpoint of llama2.c to a GGUF file of another
 * type. */
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "cli/usage.h"

static const spry_usage usage = {
    .command = "convert",
    .arguments = "MODEL FILE.gguf [options]",
    .about =
        "Writes MODEL as a GGUF file, its matrices in the given type. MODEL may also be a checkpoint of llama2.c, with "
        "its "
        "vocabulary behind its weights or as tokenizer.bin beside it. Embedding and output of a 4- or 5-bit model "
        "have 8 bits.\n"
        "q4_k_m and q5_k_m use 6 bits (Q6_K) for the value and down projections of about half of the layers, the "
        "embedding and the output; at the same size they lose less than q4_0 and q5_0. Rows that are not a multiple "
        "of 256 use the next larger type with blocks of 32, others f16. Norms, biases and routers stay f32.\n"
        "The file appears under its name only when it is complete. llama.cpp can read it.",
    .examples = "spry convert ./Qwen3-0.6B qwen3.gguf --type q4_k_m\n"
                "spry convert model-f16.gguf model-q8.gguf --type q8_0",
};

typedef struct convert_flags {
    const char *type, *title, *lora;
    uint32_t threads;
} convert_flags;

static const spry_option options[] = {
    {.name = "type",
     .letter = 't',
     .kind = SPRY_OPTION_CHOICE,
     .offset = offsetof(convert_flags, type),
     .choices = spry_recipe_names,
     .help = "Type of the matrices"},
    {.name = "title",
     .kind = SPRY_OPTION_STRING,
     .offset = offsetof(convert_flags, title),
     .metavar = "NAME",
     .help = "Name of the model in the file; default: its current name"},
    {.name = "lora",
     .kind = SPRY_OPTION_STRING,
     .offset = offsetof(convert_flags, lora),
     .metavar = "PATH[=SCALE],...",
     .help = "LoRA adapters that become part of the matrices, times SCALE: Hugging Face folders or GGUF files"},
    {.name = "threads",
     .kind = SPRY_OPTION_U32,
     .offset = offsetof(convert_flags, threads),
     .max = 1024,
     .help = "Number of threads; 0: every processor available to this process"},
};

static bool show_progress(void *user, size_t done, size_t total)
{
    spry_progress_update(user, done, total);
    return true;
}

static spry_status convert(const spry_model_source *source, const char *path, const convert_flags *flags,
                           spry_error *error)
{
    spry_progress_line progress;
    spry_convert_options how;
    const spry_model_file file = spry_model_source_file(source);
    spry_convert_options_default(&how);
    how.type = flags->type;
    how.name = flags->title;
    how.lora = flags->lora;
    how.threads = flags->threads;
    how.progress = show_progress;
    how.user = &progress;
    spry_progress_begin(&progress, "writing");
    spry_status status = spry_convert(path, &file, &how, error);
    spry_progress_end(&progress);
    return status;
}

int spry_cmd_convert(int argc, char **argv)
{
    convert_flags flags = {.type = "q4_0"};
    spry_model_flags model_flags = {0};
    const char *items[2];
    spry_option_list names = {items, 2, 0};
    spry_option_table tables[] = {{options, SPRY_COUNT(options), &flags}, spry_model_flags_table(&model_flags)};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &names, argc, argv))
        return code;
    if (names.count != 2)
        return spry_usage_wrong(&usage, "convert needs a MODEL and the FILE to write");
    spry_error error = {0};
    spry_model_source source = {0};
    spry_status status = spry_model_source_find(&source, items[0], model_flags.models_folder, &error);
    if (!status)
        status = convert(&source, items[1], &flags, &error);
    spry_model_source_deinit(&source);
    return status ? spry_complain_error(&error) : SPRY_EXIT_OK;
}
