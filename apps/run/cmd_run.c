/* spry run: one answer, or a chat when there is a terminal and no prompt. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat/chat.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_source.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "run/answer.h"

enum { PROMPT_BYTES_MAX = 64 << 20, WORDS_MAX = 4096 };

static const spry_usage usage = {
    .command = "run",
    .arguments = "[MODEL [PROMPT]] [options]",
    .about =
        "Answers one prompt, streamed to standard output. The prompt is PROMPT, the argument of -p, all of standard "
        "input when that is not a terminal, or standard input and then PROMPT. On a terminal without a prompt it "
        "starts "
        "a chat, which is stored after every "
        "answer; `spry chats` lists stored chats, --no-save disables storing.\n"
        "MODEL is a .gguf file, a Hugging Face folder, the name of either in the models folder, or a bundled "
        "model: " SPRY_BUNDLED_MODEL " (the default), " SPRY_BUNDLED_DRAFTER ".\n"
        "The answer is followed by one newline. Exit codes: 0 success, 1 failure, 2 wrong arguments, 130 interrupted "
        "by Ctrl-C, 141 standard output was closed by its reader.",
    .examples = "spry run\n"
                "spry run Spry-Tales-29M 'Tell me a tale about a small boat.'\n"
                "spry run -p 'What is this text about?' < letter.txt\n"
                "spry run tiny.gguf -p 'Once upon a time' --raw -n 50 --temperature 0\n"
                "echo 'Who lives in the forest?' | spry run --seed 7 --json\n"
                "spry run -p 'A tale, please.' --system 'You tell short tales.' --stats\n"
                "spry run -p 'A tale, please.' --trace tale.json --trace-ops\n"
                "spry run -p 'Name and age of a hero.' --json-schema hero.json\n"
                "spry run -p 'Who is the thief?' --span letter.txt --span diary.txt --cache-dir ~/.cache/spry",
};

typedef struct run_settings {
    const char *prompt; /* NULL: none given */
    bool raw, json;
    uint32_t logprobs;
    const char *span_files[SPRY_FRAGMENTS_MAX];
    spry_option_list spans;  /* storage is `span_files` */
    const char *span_repair; /* tokens, or "all" */
    const char *image_files[SPRY_IMAGES_MAX];
    spry_option_list images; /* storage is `image_files` */
    spry_chat_flags chat;
} run_settings;

#define OPTION(...) SPRY_OPTION(run_settings, __VA_ARGS__)

static const spry_option prompt_options[] = {
    OPTION("prompt", STRING, prompt, .letter = 'p', .common = true, .help = "The prompt", .group = "Prompt"),
    OPTION("raw", FLAG, raw, .help = "Continue the prompt without the chat template"),
    OPTION("image", LIST, images, .metavar = "FILE", .common = true,
           .help = "Show the model this picture (PNG, JPEG, WebP, GIF) with the prompt; may be given again"),
    OPTION("span", LIST, spans, .metavar = "FILE",
           .help = "Put this file before the prompt as a fragment: computed once, reused at any position and in any "
                   "order; up to 64"),
    OPTION("span-repair", STRING, span_repair, .metavar = "N",
           .help =
               "Tokens for each fragment that are recomputed in place, in whole pages of 32, where they count most; "
               "first:N, spread:N: at its beginning, spread over it; auto: as many as an expected divergence of 0.03 "
               "nats per token takes, auto:X: of X; 0: none; all: as if it were no fragment"),
};

static const spry_option output_options[] = {
    OPTION("json", FLAG, json, .common = true, .help = "Print one JSON object when the answer is done",
           .group = "Output"),
    OPTION("logprobs", U32, logprobs, .max = SPRY_TOP_LOGPROBS_MAX,
           .help = "With --json: the log probability of each token and of the N most probable ones; 0: off"),
    OPTION("stats", FLAG, chat.stats, .common = true,
           .help = "Print time and memory use of the answer to standard error; a terminal shows tokens/s meanwhile"),
};

/* ---- the prompt -------------------------------------------------------------------------------------------------- */

/* Says that it waits where nothing comes: the terminal may be expected to answer at once. */
static void wait_for_input(void)
{
    enum { WAIT_MS = 2000 };
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (isatty(STDERR_FILENO) && poll(&input, 1, WAIT_MS) == 0)
        spry_complain("reading standard input, which joins the prompt; < /dev/null leaves it out");
}

/* What the arguments give, after standard input where that is not a terminal. */
static spry_status prompt_text(spry_buffer *out, const run_settings *settings, spry_error *error)
{
    spry_buffer bytes;
    spry_buffer_init(&bytes, PROMPT_BYTES_MAX);
    spry_status status = SPRY_OK;
    if (!isatty(STDIN_FILENO)) {
        if (settings->prompt)
            wait_for_input();
        status = spry_input_read(&bytes, error);
    }
    /* The final newline of a text file is not part of a message; raw text is unchanged. */
    if (!settings->raw && spry_view_ends(spry_buffer_view(&bytes), SPRY_VIEW("\n")))
        bytes.size--;
    if (settings->prompt) {
        spry_buffer_text(&bytes, bytes.size && !settings->raw ? "\n\n" : "");
        spry_buffer_text(&bytes, settings->prompt);
    }
    if (status == SPRY_OK)
        status = bytes.failed ? spry_fail(error, SPRY_ERR_INPUT, "the prompt has more than %d bytes", PROMPT_BYTES_MAX)
                              : spry_input_clean(out, spry_buffer_view(&bytes), "the prompt", error);
    spry_buffer_deinit(&bytes);
    return status;
}

static spry_status prompt_ids(spry_answer *answer, spry_tokens *out, const spry_engine *engine,
                              const run_settings *settings, const char *system, spry_view text, spry_error *error)
{
    if (settings->raw)
        return spry_answer_text_ids(out, engine, text, settings->chat.answer.special, error);
    if (settings->spans.count || settings->images.count)
        return spry_fragments_prompt(answer, out, engine, &settings->chat.answer, &settings->spans, &settings->images,
                                     system, text, error);
    spry_message messages[] = {{"system", system}, {"user", text.data}};
    size_t skipped = system ? 0 : 1;
    return spry_answer_chat_ids(answer, out, engine, &settings->chat.answer, messages + skipped,
                                SPRY_COUNT(messages) - skipped, error);
}

/* ---- one answer -------------------------------------------------------------------------------------------------- */

static spry_status print_json(const spry_answer *answer, spry_engine *engine, const char *model,
                              const run_settings *settings, spry_error *error)
{
    json_t *json =
        spry_answer_to_json(answer, engine, model, settings->chat.answer.sampling.seed, settings->logprobs != 0);
    spry_status status = spry_out_json(json, JSON_REAL_PRECISION(9), "the answer", error);
    json_decref(json);
    return status;
}

static spry_status give_answer(spry_engine *engine, spry_session *session, spry_energy *meter, const char *model,
                               const char *system, spry_speculation speculation, const run_settings *settings,
                               spry_view prompt, spry_error *error)
{
    spry_tokens ids = {0};
    spry_answer answer;
    spry_buffer shape;
    spry_answer_init(&answer);
    spry_buffer_init(&shape, PROMPT_BYTES_MAX);
    spry_answer_job job = {.engine = engine,
                           .session = session,
                           .prompt = &ids,
                           .flags = &settings->chat.answer,
                           .seed = settings->chat.answer.sampling.seed,
                           .chat = !settings->raw,
                           .stream = !settings->json,
                           .rated = settings->chat.stats,
                           .keep_tokens = settings->json,
                           .logprobs = settings->logprobs};
    job.speculation = speculation;
    spry_answer_begin(&answer, engine, meter);
    spry_status status = spry_answer_shape(&job.constraint, &shape, &settings->chat.answer, error);
    if (status == SPRY_OK)
        status = spry_fragments_repair(&job.span_repair, settings->span_repair, error);
    if (status == SPRY_OK)
        status = prompt_ids(&answer, &ids, engine, settings, system, prompt, error);
    job.constraint_text = shape.data;
    if (status == SPRY_OK)
        status = spry_answer_generate(&answer, &job, error);
    if (status == SPRY_OK && settings->json)
        status = print_json(&answer, engine, model, settings, error);
    else if (status == SPRY_OK)
        spry_out_write("\n", 1);
    if (status == SPRY_OK && spry_out_flush()) {
        spry_answer_warn_context(&answer, engine, "a larger --context may help");
        if (settings->chat.stats)
            spry_answer_print_stats(&answer, engine, model, job.seed);
    }
    spry_answer_deinit(&answer);
    spry_tokens_deinit(&ids);
    spry_buffer_deinit(&shape);
    return status;
}

/* Users may give the prompt in place of the model's name. */
static void hint_at_prompt(spry_error *error, spry_status status, const char *model)
{
    size_t used = strlen(error->message);
    if (status == SPRY_ERR_FILE && model && strchr(model, ' '))
        snprintf(error->message + used, sizeof error->message - used,
                 "; if that is the prompt, give it with -p, or after the name of a model");
}

static int answer_prompt(run_settings *settings, const char *model, spry_view prompt, spry_error *error)
{
    spry_engine *engine = NULL;
    spry_session *session = NULL;
    spry_energy *meter = NULL;
    spry_model_source source = {0};
    spry_drafter_model drafter = {0};
    spry_chat_flags *flags = &settings->chat;
    spry_buffer system;
    spry_buffer_init(&system, PROMPT_BYTES_MAX);
    int code = SPRY_EXIT_OK;
    spry_status status = SPRY_OK;
    if (flags->system)
        status = spry_input_clean(&system, spry_view_of(flags->system), "the system message", error);
    flags->engine.options.draft_head = spry_draft_head_of(flags->answer.draft);
    if (status == SPRY_OK)
        status = spry_open_model(&engine, &source, model, &flags->model, &flags->engine, error);
    if (status == SPRY_OK)
        status =
            spry_drafter_open(&drafter, engine, &source, flags->answer.draft, &flags->model, &flags->engine, error);
    if (status == SPRY_OK)
        status = spry_session_create(&session, engine, error);
    if (status == SPRY_OK && (settings->json || flags->stats))
        status = spry_energy_open(&meter, "", error);
    if (status == SPRY_OK) {
        spry_interrupt_install(session, true);
        status = give_answer(engine, session, meter, source.name, system.size ? system.data : NULL, drafter.how,
                             settings, prompt, error);
        if (spry_interrupt_seen())
            code = SPRY_EXIT_INTERRUPTED;
        spry_interrupt_remove();
    }
    spry_energy_close(meter);
    spry_session_destroy(session);
    spry_engine_close(engine);
    spry_drafter_close(&drafter);
    spry_model_source_deinit(&source);
    spry_buffer_deinit(&system);
    if (status != SPRY_OK) {
        hint_at_prompt(error, status, model);
        code = spry_complain_error(error);
    }
    return spry_out_finish(code);
}

static int chat(run_settings *settings, const char *model)
{
    spry_error error;
    spry_chat_past past;
    int code = SPRY_EXIT_OK;
    spry_status status = spry_chat_past_init(&past, &error);
    if (status == SPRY_OK)
        status = spry_chat_start(&code, &past, model, &settings->chat, &error);
    spry_chat_past_deinit(&past);
    if (status != SPRY_OK) {
        hint_at_prompt(&error, status, model);
        code = spry_complain_error(&error);
    }
    return spry_out_finish(code);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int check(const run_settings *settings, bool to_chat)
{
    if (settings->logprobs && !settings->json)
        return spry_usage_wrong(&usage, "--logprobs needs --json");
    if (settings->raw && settings->chat.system)
        return spry_usage_wrong(&usage, "--system cannot be used with --raw");
    if (settings->spans.count && (settings->raw || to_chat))
        return spry_usage_wrong(&usage, "--span needs a prompt that is not --raw");
    if (settings->images.count && (settings->raw || to_chat))
        return spry_usage_wrong(&usage, "--image needs a prompt that is not --raw");
    if (!to_chat && settings->chat.mcp)
        return spry_usage_wrong(&usage, "--mcp is for a chat: leave the prompt out, on a terminal");
    if (to_chat && (settings->raw || settings->json))
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
        code = answer_prompt(settings, model, spry_buffer_view(&prompt), &error);
    }
    spry_buffer_deinit(&prompt);
    return code;
}

/* `prompt`: what is given after the model; NULL: nothing. */
static int run_settled(run_settings *settings, const char *model, const char *prompt)
{
    spry_error error;
    if (spry_trace_flags_check(&settings->chat.engine.trace, &error) != SPRY_OK ||
        spry_answer_flags_settle(&settings->chat.answer, &error) != SPRY_OK)
        return spry_usage_wrong(&usage, "%s", error.message);
    if (prompt)
        settings->prompt = prompt;
    settings->chat.engine.quiet = settings->raw;
    bool to_chat = !settings->prompt && isatty(STDIN_FILENO);
    int code = check(settings, to_chat);
    if (code != SPRY_EXIT_OK)
        return code;
    return to_chat ? chat(settings, model) : run_prompt(settings, model);
}

int spry_cmd_run(int argc, char **argv)
{
    run_settings settings = {0};
    spry_chat_flags_default(&settings.chat);
    settings.spans = (spry_option_list){settings.span_files, SPRY_FRAGMENTS_MAX, 0};
    settings.span_repair = "32";
    settings.images = (spry_option_list){settings.image_files, SPRY_IMAGES_MAX, 0};
    spry_option_table tables[6 + SPRY_CHAT_SETTINGS_TABLES] = {
        {prompt_options, SPRY_COUNT(prompt_options), &settings}, spry_chat_flags_table(&settings.chat),
        {output_options, SPRY_COUNT(output_options), &settings}, spry_trace_flags_table(&settings.chat.engine.trace),
        spry_reuse_flags_table(&settings.chat.engine),           spry_chat_flags_mcp_table(&settings.chat),
    };
    spry_chat_settings_tables(&tables[6], &settings.chat);
    const char *words[WORDS_MAX] = {NULL};
    spry_option_list positionals = {words, WORDS_MAX, 0};
    spry_buffer given;
    spry_buffer_init(&given, PROMPT_BYTES_MAX);
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    for (size_t i = 1; i < positionals.count; i++)
        spry_buffer_format(&given, "%s%s", i > 1 ? " " : "", words[i]);
    if (given.size && settings.prompt)
        code = spry_usage_wrong(&usage, "the prompt is given twice: after the model and with -p");
    else
        code = run_settled(&settings, words[0], given.size ? given.data : NULL);
    spry_buffer_deinit(&given);
    return code;
}
