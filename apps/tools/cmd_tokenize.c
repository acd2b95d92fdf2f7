/* spry tokenize: text to ids and back, byte for byte. Needs only a model's tokenizer. */
#include <inttypes.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/input.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/clock.h"

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
                "spry tokenize model.gguf --bench 20 < book.txt\n"
                "echo '[1, 2, 3]' | spry tokenize tokenizer.json --decode --special",
};

typedef struct tokenize_settings {
    bool decode, special, bos, json;
    uint32_t bench;
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
    {.name = "bench",
     .kind = SPRY_OPTION_U32,
     .metavar = "N",
     .offset = FIELD(bench),
     .max = 1000000,
     .help = "Encode the text N times on one thread and print the speed of the fastest instead of the ids; 0: no"},
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

static spry_status bench(const spry_tokenizer *tokenizer, spry_view text, const tokenize_settings *settings,
                         spry_error *error)
{
    spry_status status = SPRY_OK;
    uint64_t best = UINT64_MAX;
    size_t count = 0;
    for (uint32_t i = 0; status == SPRY_OK && i < settings->bench; i++) {
        int32_t *ids = NULL;
        uint64_t began = spry_clock_ns();
        status =
            spry_tokenizer_ids(tokenizer, &ids, &count, text.data, text.size, settings->special, settings->bos, error);
        uint64_t took = spry_clock_ns() - began;
        best = took < best ? took : best;
        spry_free(ids);
    }
    if (status != SPRY_OK)
        return status;
    double seconds = (double)(best ? best : 1) / 1e9, speed = (double)text.size / 1048576 / seconds;
    if (settings->json)
        spry_out_format("{\"bytes\": %zu, \"tokens\": %zu, \"ms\": %.6g, \"mib_s\": %.6g}\n", text.size, count,
                        1000 * seconds, speed);
    else
        spry_out_format("%zu bytes, %zu tokens, %.4g ms, %.4g MiB/s\n", text.size, count, 1000 * seconds, speed);
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
        status = (settings->bench ? bench : encode)(tokenizer, spry_buffer_view(&input), settings, error);
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
    if (settings.decode && (settings.json || settings.bos || settings.bench))
        return spry_usage_wrong(&usage, "--%s cannot be used with --decode",
                                settings.json  ? "json"
                                : settings.bos ? "bos"
                                               : "bench");
    spry_error error;
    if (tokenize(&settings, model, &error) != SPRY_OK)
        code = spry_complain_error(&error);
    return spry_out_finish(code);
}
