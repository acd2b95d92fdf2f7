/* spry run: one answer, or the chat when there is a terminal and no prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "chat.h"
#include "commands.h"
#include "input.h"
#include "interrupt.h"
#include "terminal.h"
#include "usage.h"

enum { PROMPT_BYTES_MAX = 64 << 20 };

static const spry_usage usage = {
    .command = "run",
    .arguments = "[MODEL] [options]",
    .about =
        "Answers one prompt, streamed to standard output. The prompt is what -p says, or all of standard input when "
        "that "
        "is not a terminal. On a terminal without a prompt a chat begins.\n"
        "MODEL is a .gguf file, a Hugging Face folder, the name of either in the models folder, or a bundled model: "
        "Llama-Tales-29M (the default), Llama-Tales-Draft-4M.\n"
        "The answer is followed by one newline. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted by Ctrl-C, "
        "141 the reader of standard output left.",
    .examples = "spry run\n"
                "spry run -p 'Tell me a tale about a small boat.'\n"
                "spry run tiny.gguf -p 'Once upon a time' --raw -n 50 --temperature 0\n"
                "echo 'Who lives in the forest?' | spry run --seed 7 --json\n"
                "spry run -p 'A tale, please.' --system 'You tell short tales.' --stats",
};

typedef struct run_settings {
    const char *prompt; /* NULL: none given */
    const char *system;
    bool raw, stats, json, history;
    uint32_t logprobs;
    spry_answer_flags answer;
    spry_engine_flags engine;
    spry_model_flags model;
} run_settings;

#define FIELD(name) offsetof(run_settings, name)

static const spry_option run_options[] = {
    {.name = "prompt",
     .letter = 'p',
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(prompt),
     .help = "What to answer",
     .group = "Prompt"},
    {.name = "system",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(system),
     .help = "The system message: who the model should be",
     .group = "Prompt"},
    {.name = "raw",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(raw),
     .help = "Continue the prompt as it is, without the chat template",
     .group = "Prompt"},
    {.name = "json",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(json),
     .help = "Print one JSON object when the answer is done",
     .group = "Output"},
    {.name = "logprobs",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(logprobs),
     .max = SPRY_TOP_LOGPROBS_MAX,
     .help = "With --json: the log probability of each token and of the N most probable ones; 0 is off",
     .group = "Output"},
    {.name = "stats",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(stats),
     .help = "Tell on standard error what the answer took",
     .group = "Output"},
    {.name = "history",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(history),
     .help = "Keep what is typed in the chat for the next one",
     .group = "Output"},
};

/* ---- the prompt -------------------------------------------------------------------------------------------------- */

static spry_status prompt_text(spry_buffer *out, const run_settings *settings, spry_error *error)
{
    if (settings->prompt)
        return spry_input_clean(out, spry_view_of(settings->prompt), "the prompt", error);
    spry_buffer bytes;
    spry_buffer_init(&bytes, PROMPT_BYTES_MAX);
    spry_status status = spry_input_read(&bytes, error);
    spry_view text = spry_buffer_view(&bytes);
    /* The newline that ends every text file is no part of a message; raw text is left alone. */
    if (!settings->raw && spry_view_ends(text, SPRY_VIEW("\n")))
        text.size--;
    if (status == SPRY_OK)
        status = spry_input_clean(out, text, "the prompt", error);
    spry_buffer_deinit(&bytes);
    return status;
}

static spry_status prompt_ids(spry_tokens *out, const spry_engine *engine, const run_settings *settings,
                              const char *system, spry_view text, spry_error *error)
{
    if (settings->raw)
        return spry_answer_text_ids(out, engine, text, settings->answer.special, error);
    spry_message messages[] = {{"system", system}, {"user", text.data}};
    size_t skipped = system ? 0 : 1;
    return spry_answer_chat_ids(out, engine, messages + skipped, SPRY_COUNT(messages) - skipped, error);
}

/* ---- one answer -------------------------------------------------------------------------------------------------- */

static spry_status print_json(const spry_answer *answer, const spry_engine *engine, const char *model,
                              const run_settings *settings, spry_error *error)
{
    json_t *json = spry_answer_to_json(answer, engine, model, settings->answer.sampling.seed, settings->logprobs != 0);
    char *text = json ? json_dumps(json, JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (!text)
        return spry_fail_memory(error, "the answer as JSON", answer->text.size);
    spry_out_format("%s\n", text);
    free(text);
    return SPRY_OK;
}

static spry_status give_answer(spry_engine *engine, spry_session *session, const char *model, const char *system,
                               const run_settings *settings, spry_view prompt, spry_error *error)
{
    spry_tokens ids = {0};
    spry_answer answer;
    spry_answer_init(&answer);
    spry_answer_job job = {.session = session,
                           .prompt = &ids,
                           .flags = &settings->answer,
                           .seed = settings->answer.sampling.seed,
                           .stream = !settings->json,
                           .keep_tokens = settings->json,
                           .logprobs = settings->logprobs};
    spry_status status = prompt_ids(&ids, engine, settings, system, prompt, error);
    if (status == SPRY_OK)
        status = spry_answer_generate(&answer, &job, error);
    if (status == SPRY_OK && settings->json)
        status = print_json(&answer, engine, model, settings, error);
    else if (status == SPRY_OK)
        spry_out_write("\n", 1);
    if (status == SPRY_OK && spry_out_flush()) {
        spry_answer_note_context(&answer, engine, "a larger --context may help");
        if (settings->stats)
            spry_answer_print_stats(&answer, engine, model, job.seed);
    }
    spry_answer_deinit(&answer);
    spry_tokens_deinit(&ids);
    return status;
}

/* People give the prompt where the model's name is expected. */
static void hint_at_prompt(spry_error *error, spry_status status, const char *model)
{
    size_t used = strlen(error->message);
    if (status == SPRY_ERR_FILE && model && strchr(model, ' '))
        snprintf(error->message + used, sizeof error->message - used, "; if that is the prompt, give it with -p");
}

/* The prompt is NULL for the chat. */
static int answer_or_chat(run_settings *settings, const char *model, const spry_view *prompt, spry_error *error)
{
    spry_engine *engine = NULL;
    spry_session *session = NULL;
    spry_model_source source = {0};
    spry_buffer system;
    spry_buffer_init(&system, PROMPT_BYTES_MAX);
    int code = SPRY_EXIT_OK;
    spry_status status = SPRY_OK;
    if (settings->system)
        status = spry_input_clean(&system, spry_view_of(settings->system), "the system message", error);
    if (status == SPRY_OK)
        status = spry_open_model(&engine, &source, model, &settings->model, &settings->engine, error);
    if (status == SPRY_OK)
        status = spry_session_create(&session, engine, error);
    if (status != SPRY_OK)
        goto done;
    spry_interrupt_install(session, prompt != NULL);
    const char *system_text = system.size ? system.data : NULL;
    if (prompt) {
        status = give_answer(engine, session, source.name, system_text, settings, *prompt, error);
    } else {
        spry_chat_job job = {engine,         session, source.name, system_text, &settings->answer, settings->history,
                             settings->stats};
        code = spry_chat_run(&job);
    }
    if (prompt && spry_interrupt_seen())
        code = SPRY_EXIT_INTERRUPTED;
    spry_interrupt_remove();
done:
    spry_session_destroy(session);
    spry_engine_close(engine);
    spry_model_source_deinit(&source);
    spry_buffer_deinit(&system);
    if (status != SPRY_OK) {
        hint_at_prompt(error, status, model);
        code = spry_complain_error(error);
    }
    return spry_out_finish(code);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int check(const run_settings *settings, bool chat)
{
    if (settings->logprobs && !settings->json)
        return spry_usage_wrong(&usage, "--logprobs needs --json");
    if (settings->raw && settings->system)
        return spry_usage_wrong(&usage, "--system has no place in a --raw prompt");
    if (chat && (settings->raw || settings->json))
        return spry_usage_wrong(&usage, "--%s needs a prompt: give one with -p or on standard input",
                                settings->raw ? "raw" : "json");
    return SPRY_EXIT_OK;
}

static int run_prompt(run_settings *settings, const char *model)
{
    spry_error error;
    spry_buffer prompt;
    spry_buffer_init(&prompt, 4 * (size_t)PROMPT_BYTES_MAX);
    spry_status status = prompt_text(&prompt, settings, &error);
    int code;
    if (status != SPRY_OK) {
        code = spry_complain_error(&error);
    } else if (prompt.size == 0 && !settings->raw) {
        code = spry_usage_wrong(&usage, "the prompt is empty: give one with -p or on standard input");
    } else {
        spry_view view = spry_buffer_view(&prompt);
        code = answer_or_chat(settings, model, &view, &error);
    }
    spry_buffer_deinit(&prompt);
    return code;
}

int spry_cmd_run(int argc, char **argv)
{
    run_settings settings = {.history = true};
    spry_answer_flags_default(&settings.answer);
    spry_engine_flags_default(&settings.engine);
    spry_option_table tables[5] = {{run_options, SPRY_COUNT(run_options), &settings}};
    spry_answer_flags_tables(&tables[1], &settings.answer);
    tables[3] = spry_engine_flags_table(&settings.engine);
    tables[4] = spry_model_flags_table(&settings.model);
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    spry_error error;
    if (spry_answer_flags_settle(&settings.answer, &error) != SPRY_OK)
        return spry_usage_wrong(&usage, "%s", error.message);
    settings.engine.quiet = settings.raw;
    bool chat = !settings.prompt && isatty(STDIN_FILENO);
    code = check(&settings, chat);
    if (code != SPRY_EXIT_OK)
        return code;
    return chat ? answer_or_chat(&settings, model, NULL, &error) : run_prompt(&settings, model);
}
