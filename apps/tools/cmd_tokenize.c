/* `spry tokenize` and `spry logits`: the ids of a text, and the model's logits after them. */
#include <inttypes.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/clock.h"
#include "platform/file.h"

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

#define OPTION(...) SPRY_OPTION(tokenize_settings, __VA_ARGS__)

static const spry_option tokenize_options[] = {
    OPTION("decode", FLAG, decode, .letter = 'd', .help = "Convert ids to text", .group = "Tokens"),
    OPTION("special", FLAG, special,
           .help = "Spellings of control tokens become those tokens; with --decode, control tokens are shown"),
    OPTION("bos", FLAG, bos, .help = "Add the tokens that the model's tokenizer adds before and after a text"),
    OPTION("json", FLAG, json, .help = "Print the ids as a JSON array"),
    OPTION("bench", U32, bench, .metavar = "N", .max = 1000000,
           .help =
               "Encode the text N times on one thread and print the speed of the fastest instead of the ids; 0: no"),
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

/* ---- spry logits ------------------------------------------------------------------------------------------------- */

enum { IDS_BYTES_MAX = 64 << 20, FLOATS_AT_ONCE = 1024 };

static const spry_usage logits_usage = {
    .command = "logits",
    .exact = true,
    .arguments = "[MODEL] --ids LIST -o FILE [options]",
    .about = "Runs the model over token ids and writes the logits after the last id, or after each id, as rows of "
             "little-endian 32-bit floats, one float per vocabulary entry. No ids are added.\n"
             "MODEL is as for `spry run`; without it the bundled model is used.",
    .examples = "spry logits --ids 1,2,3 -o last.f32\n"
                "spry logits model.gguf --ids-file ids.json --rows all --kv-type f32 -o all.f32\n"
                "echo -n 'Once upon' | spry tokenize | spry logits --ids-file /dev/stdin -o - | xxd | head",
};

static const char *const row_choices[] = {"last", "all", NULL};

typedef struct logits_settings {
    const char *ids, *ids_file, *rows, *output;
    spry_engine_flags engine;
    spry_model_flags model;
} logits_settings;

#define LOGITS_OPTION(...) SPRY_OPTION(logits_settings, __VA_ARGS__)

static const spry_option logits_options[] = {
    LOGITS_OPTION("ids", STRING, ids, .common = true, .metavar = "LIST",
                  .help = "Token ids, separated by commas or spaces", .group = "Logits"),
    LOGITS_OPTION("ids-file", STRING, ids_file, .common = true, .metavar = "FILE",
                  .help = "A file with the ids, or a JSON array of them, instead of --ids"),
    LOGITS_OPTION("rows", CHOICE, rows, .choices = row_choices, .metavar = "WHICH",
                  .help = "Logits after the last id or after all"),
    LOGITS_OPTION("output", STRING, output, .letter = 'o', .common = true, .metavar = "FILE",
                  .help = "Output file; - is standard output"),
};

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct row_sink {
    spry_file_writer writer; /* unused for standard output */
    bool to_stdout;
    size_t n_floats; /* per row */
    size_t n_rows;   /* expected */
    spry_progress_line progress;
    spry_status status;
    spry_error *error;
} row_sink;

static bool write_bytes(row_sink *sink, const unsigned char *bytes, size_t size)
{
    if (sink->to_stdout)
        return spry_out_write(bytes, size);
    sink->status = spry_file_writer_write(&sink->writer, bytes, size, sink->error);
    return sink->status == SPRY_OK;
}

static bool write_row(void *user, size_t index, const float *logits)
{
    row_sink *sink = user;
    unsigned char bytes[4 * FLOATS_AT_ONCE];
    spry_progress_update(&sink->progress, index, sink->n_rows);
    for (size_t done = 0; done < sink->n_floats;) {
        size_t part = sink->n_floats - done < FLOATS_AT_ONCE ? sink->n_floats - done : FLOATS_AT_ONCE;
        for (size_t i = 0; i < part; i++) {
            uint32_t bits;
            memcpy(&bits, &logits[done + i], sizeof bits);
            for (size_t k = 0; k < 4; k++)
                bytes[4 * i + k] = (unsigned char)(bits >> (8 * k));
        }
        if (!write_bytes(sink, bytes, 4 * part))
            return false;
        done += part;
    }
    return true;
}

static spry_status evaluate(spry_session *session, row_sink *sink, const spry_tokens *ids, bool all)
{
    if (all)
        return spry_session_eval_rows(session, ids->ids, ids->count, write_row, sink, sink->error);
    const float *logits;
    spry_status status = spry_session_eval(session, &logits, ids->ids, ids->count, sink->error);
    if (status == SPRY_OK)
        write_row(sink, 0, logits);
    return status;
}

/* Everything except opening the model. When a row cannot be written, the evaluation reports that it was cancelled. */
static spry_status write_logits(spry_engine *engine, const logits_settings *settings, const spry_tokens *ids,
                                spry_error *error)
{
    spry_engine_info info;
    spry_session *session = NULL;
    spry_engine_describe(engine, &info);
    row_sink sink = {.to_stdout = strcmp(settings->output, "-") == 0,
                     .n_floats = info.vocabulary,
                     .n_rows = ids->count,
                     .error = error};
    spry_status status = spry_session_create(&session, engine, error);
    if (status == SPRY_OK && !sink.to_stdout)
        status = spry_file_writer_open(&sink.writer, settings->output, error);
    if (status != SPRY_OK)
        goto done;
    spry_progress_begin(&sink.progress, "computing logits");
    status = evaluate(session, &sink, ids, strcmp(settings->rows, "all") == 0);
    spry_progress_end(&sink.progress);
    if (sink.status != SPRY_OK)
        status = sink.status;
    else if (status == SPRY_ERR_CANCELLED)
        status = SPRY_OK; /* standard output failed; its message is printed at the end */
    if (sink.to_stdout)
        goto done;
    if (status == SPRY_OK)
        status = spry_file_writer_commit(&sink.writer, error);
    else
        spry_file_writer_abandon(&sink.writer);
done:
    spry_session_destroy(session);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static spry_status read_ids(spry_tokens *ids, const logits_settings *settings, spry_error *error)
{
    if (settings->ids)
        return spry_input_ids(ids, spry_view_of(settings->ids), error);
    spry_buffer text;
    spry_buffer_init(&text, IDS_BYTES_MAX);
    spry_status status = spry_file_read(&text, settings->ids_file, error);
    if (status == SPRY_OK)
        status = spry_input_ids(ids, spry_buffer_view(&text), error);
    spry_buffer_deinit(&text);
    return status;
}

static spry_status logits(logits_settings *settings, const char *model, spry_error *error)
{
    spry_engine *engine = NULL;
    spry_model_source source = {0};
    spry_tokens ids = {0};
    spry_status status = read_ids(&ids, settings, error);
    if (status == SPRY_OK && ids.count == 0)
        status = spry_fail(error, SPRY_ERR_INPUT, "the list of ids is empty");
    if (status == SPRY_OK)
        status = spry_open_model(&engine, &source, model, &settings->model, &settings->engine, error);
    if (status == SPRY_OK)
        status = write_logits(engine, settings, &ids, error);
    spry_engine_close(engine);
    spry_model_source_deinit(&source);
    spry_tokens_deinit(&ids);
    return status;
}

int spry_cmd_logits(int argc, char **argv)
{
    logits_settings settings = {.rows = row_choices[0]};
    spry_engine_flags_default(&settings.engine);
    const spry_option_table tables[] = {{logits_options, SPRY_COUNT(logits_options), &settings},
                                        spry_engine_flags_table(&settings.engine),
                                        spry_model_flags_table(&settings.model)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    int code = SPRY_EXIT_OK;
    if (!spry_usage_parse(&code, &logits_usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (!settings.ids == !settings.ids_file)
        return spry_usage_wrong(&logits_usage, "give the ids with one of --ids and --ids-file");
    if (!settings.output)
        return spry_usage_wrong(&logits_usage, "give the output file with -o; - is standard output");
    settings.engine.quiet = true;
    spry_error error;
    if (logits(&settings, model, &error) != SPRY_OK)
        code = spry_complain_error(&error);
    return spry_out_finish(code);
}
