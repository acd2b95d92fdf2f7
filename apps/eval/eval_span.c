/* The options of spry eval span, and its steps: read, open, measure, print. */
#include "eval/eval_span.h"

#include "cli/terminal.h"
#include "platform/file.h"

enum { PLOT_BYTES_MAX = 1 << 20, TOKENS_MAX = 256, SHUFFLES_MAX = 1000 };

#define FIELD(name) offsetof(spry_eval_span_flags, name)

static const spry_option span_options[] = {
    {.name = "docs",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(docs),
     .metavar = "DIR",
     .help = "A folder of text files, each a document, by name",
     .group = "Spans"},
    {.name = "questions",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(questions),
     .metavar = "FILE",
     .help = "A question on each line, plain or as {\"question\": \"...\"}"},
    {.name = "shuffles",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(shuffles),
     .max = SHUFFLES_MAX,
     .help = "Number of additional random orders of the documents"},
    {.name = "seed", .kind = SPRY_OPTION_U32, .offset = FIELD(seed), .help = "Seed of the random orders"},
    {.name = "tokens",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(tokens),
     .min = 1,
     .max = TOKENS_MAX,
     .help = "Tokens per answer whose predictions are compared"},
    {.name = "plot",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(plot),
     .metavar = "FILE",
     .help = "Also write the result as an HTML page with plots"},
};

void spry_eval_span_flags_default(spry_eval_span_flags *flags)
{
    *flags = (spry_eval_span_flags){.shuffles = 2, .seed = 1, .tokens = 16};
}

spry_option_table spry_eval_span_flags_table(spry_eval_span_flags *flags)
{
    return (spry_option_table){span_options, SPRY_COUNT(span_options), flags};
}

/* Checked first, so that the work is not lost when the folder does not exist. */
static spry_status check_plot(const char *path, spry_error *error)
{
    spry_file_writer writer;
    spry_status status = spry_file_writer_open(&writer, path, error);
    spry_file_writer_abandon(&writer);
    return status;
}

static spry_status write_plot(const char *path, const spry_eval_span_report *report, spry_error *error)
{
    spry_file_writer writer = {0};
    spry_buffer page;
    spry_buffer_init(&page, PLOT_BYTES_MAX);
    spry_eval_span_plot(&page, report);
    spry_view view = spry_buffer_view(&page);
    spry_status status = page.failed ? spry_fail(error, SPRY_ERR_MEMORY, "there is not enough memory for the plots")
                                     : spry_file_writer_open(&writer, path, error);
    if (!status)
        status = spry_file_writer_write(&writer, view.data, view.size, error);
    if (!status)
        status = spry_file_writer_commit(&writer, error);
    spry_file_writer_abandon(&writer);
    spry_buffer_deinit(&page);
    return status;
}

spry_status spry_eval_span(const spry_eval_span_flags *flags, bool json, const char *model,
                           const spry_model_flags *model_flags, spry_engine_flags *engine_flags, spry_error *error)
{
    spry_engine *engine = NULL;
    spry_model_source source = {0};
    spry_eval_corpus corpus;
    spry_eval_span_report report = {0};
    spry_status status = spry_eval_corpus_read(&corpus, flags->docs, flags->questions, error);
    if (!status && flags->plot)
        status = check_plot(flags->plot, error);
    if (!status)
        status = spry_open_model(&engine, &source, model, model_flags, engine_flags, error);
    if (!status)
        status = spry_eval_corpus_tokenize(&corpus, engine, error);
    report.model = source.name;
    if (!status)
        status = spry_eval_span_run(&report, engine, &corpus, flags, error);
    if (!status && flags->plot)
        status = write_plot(flags->plot, &report, error);
    if (!status && json)
        status = spry_eval_span_print_json(&report, error);
    else if (!status)
        spry_eval_span_print(&report);
    spry_engine_close(engine);
    spry_model_source_deinit(&source);
    spry_eval_corpus_deinit(&corpus);
    return status;
}
