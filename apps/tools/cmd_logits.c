/* spry logits: writes raw logits for given ids, for comparing engines. */
#include <string.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/input.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/file.h"

enum { IDS_BYTES_MAX = 64 << 20, FLOATS_AT_ONCE = 1024 };

static const spry_usage usage = {
    .command = "logits",
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

#define FIELD(name) offsetof(logits_settings, name)

static const spry_option logits_options[] = {
    {.name = "ids",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(ids),
     .metavar = "LIST",
     .help = "Token ids, separated by commas or spaces",
     .group = "Logits"},
    {.name = "ids-file",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(ids_file),
     .metavar = "FILE",
     .help = "A file with the ids, or a JSON array of them, instead of --ids"},
    {.name = "rows",
     .kind = SPRY_OPTION_CHOICE,
     .offset = FIELD(rows),
     .choices = row_choices,
     .metavar = "WHICH",
     .help = "Logits after the last id or after all"},
    {.name = "output",
     .letter = 'o',
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(output),
     .metavar = "FILE",
     .help = "Output file; - is standard output"},
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
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (!settings.ids == !settings.ids_file)
        return spry_usage_wrong(&usage, "give the ids with one of --ids and --ids-file");
    if (!settings.output)
        return spry_usage_wrong(&usage, "give the output file with -o; - is standard output");
    settings.engine.quiet = true;
    spry_error error;
    if (logits(&settings, model, &error) != SPRY_OK)
        code = spry_complain_error(&error);
    return spry_out_finish(code);
}
