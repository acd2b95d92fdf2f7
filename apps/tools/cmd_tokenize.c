/* spry tokenize: text to ids and back, byte for byte. Needs only a model's tokenizer. */
#include <inttypes.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/input.h"
#include "cli/terminal.h"
#include "cli/usage.h"

enum { INPUT_BYTES_MAX = 1 << 30 };

static const spry_usage usage = {
    .command = "tokenize",
    .arguments = "[MODEL] [options]",
    .about =
        "Reads all of standard input, byte for byte, and prints its token ids on one line. With --decode it reads "
        "ids (separated by spaces, newlines or commas, or a JSON array) and writes exactly their text.\n"
        "MODEL is as for `spry run`, or a tokenizer.json or tokenizer.model, or a GGUF file with only a vocabulary. "
        "Without it the bundled model's tokenizer is used.",
    .examples = "echo -n 'Once upon a time' | spry tokenize\n"
                "spry tokenize model.gguf --json < book.txt\n"
                "echo '[1, 2, 3]' | spry tokenize tokenizer.json --decode --special",
};

typedef struct tokenize_settings {
    bool decode, special, bos, json;
    spry_model_flags model;
} tokenize_settings;

#define FIELD(name) offsetof(tokenize_settings, name)

static const spry_option tokenize_options[] = {
    {.name = "decode",
     .letter = 'd',
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(decode),
     .help = "Convert ids to text",
     .group = "Tokens"},
    {.name = "special",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(special),
     .help = "Spellings of control tokens become those tokens; with --decode, control tokens are shown"},
    {.name = "bos",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(bos),
     .help = "Add the tokens that the model's tokenizer adds before and after a text"},
    {.name = "json", .kind = SPRY_OPTION_FLAG, .offset = FIELD(json), .help = "Print the ids as a JSON array"},
};

static void print_ids(const spry_tokens *ids, bool json)
{
    const char *between = json ? ", " : " ";
    if (json)
        spry_out_write("[", 1);
    for (size_t i = 0; i < ids->count && spry_out_format("%s%" PRId32, i ? between : "", ids->ids[i]); i++)
        continue;
    spry_out_format("%s\n", json ? "]" : "");
}

static spry_status encode(const spry_tokenizer *tokenizer, spry_view text, const tokenize_settings *settings,
                          spry_error *error)
{
    spry_tokens ids = {0};
    spry_status status = spry_tokenizer_ids(tokenizer, &ids.ids, &ids.count, text.data, text.size, settings->special,
                                            settings->bos, error);
    if (status == SPRY_OK)
        print_ids(&ids, settings->json);
    spry_free(ids.ids);
    return status;
}

static spry_status decode(const spry_tokenizer *tokenizer, spry_view list, bool special, spry_error *error)
{
    spry_tokens ids = {0};
    char *text = NULL;
    size_t size;
    spry_status status = spry_input_ids(&ids, list, error);
    if (status == SPRY_OK)
        status = spry_tokenizer_text(tokenizer, &text, &size, ids.ids, ids.count, special, error);
    if (status == SPRY_OK)
        spry_out_write(text ? text : "", size);
    spry_free(text);
    spry_tokens_deinit(&ids);
    return status;
}

static spry_status tokenize(const tokenize_settings *settings, const char *model, spry_error *error)
{
    spry_model_source source = {0};
    spry_tokenizer *tokenizer = NULL;
    spry_buffer input;
    spry_buffer_init(&input, INPUT_BYTES_MAX);
    spry_status status = spry_model_source_find(&source, model, settings->model.models_folder, error);
    const spry_model_file file = spry_model_source_file(&source);
    if (status == SPRY_OK)
        status = spry_tokenizer_load(&tokenizer, &file, error);
    if (status == SPRY_OK)
        status = spry_input_read(&input, error);
    if (status == SPRY_OK && settings->decode)
        status = decode(tokenizer, spry_buffer_view(&input), settings->special, error);
    else if (status == SPRY_OK)
        status = encode(tokenizer, spry_buffer_view(&input), settings, error);
    spry_tokenizer_free(tokenizer);
    spry_model_source_deinit(&source);
    spry_buffer_deinit(&input);
    return status;
}

int spry_cmd_tokenize(int argc, char **argv)
{
    tokenize_settings settings = {0};
    const spry_option_table tables[] = {{tokenize_options, SPRY_COUNT(tokenize_options), &settings},
                                        spry_model_flags_table(&settings.model)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    int code = SPRY_EXIT_OK;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (settings.decode && (settings.json || settings.bos))
        return spry_usage_wrong(&usage, "--%s cannot be used with --decode", settings.json ? "json" : "bos");
    spry_error error;
    if (tokenize(&settings, model, &error) != SPRY_OK)
        code = spry_complain_error(&error);
    return spry_out_finish(code);
}
