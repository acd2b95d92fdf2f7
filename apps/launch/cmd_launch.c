/* spry launch: a coding agent with a local model. The agent gets the address of a server by variables, arguments or a
 * file of settings in a folder of spry's own; the user's own settings are not changed. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/clock.h"
#include "platform/directory.h"
#include "platform/file.h"
#include "platform/os.h"
#include "pull/pull_http.h"

enum { LIST_MAX = 12, ARGUMENTS_MAX = 256, TEXT_BYTES_MAX = 1 << 20, POLL_NS = 50000000 };

/* ---- agents ------------------------------------------------------------------------------------------------------ */

/* In texts, {URL} is the server's address, {MODEL} the model's name, {FOLDER} the folder for settings, {CONTEXT} the
 * tokens of a conversation and {OUTPUT} a quarter of them. A text between {EYES: and :EYES} is there if the model sees
 * pictures, one between {KNOWN: and :KNOWN} if the context is known. Lists end with NULL. */
typedef struct agent {
    const char *name, *about, *program, *install;
    const char *variables[LIST_MAX]; /* NAME=VALUE */
    const char *arguments[LIST_MAX]; /* arguments before those of the user */
    const char
        *before[LIST_MAX];       /* arguments of a first call, which stores the settings; none: there is no such call */
    const char *file, *settings; /* a file in the folder, and its text; NULL: none */
} agent;

#define OPENCODE_SETTINGS                                                                                              \
    "{\"provider\": {\"spry\": {\"npm\": \"@ai-sdk/openai-compatible\", \"name\": \"spry\", \"options\": "             \
    "{\"baseURL\": \"{URL}/v1\"}, \"models\": {\"{MODEL}\": {\"name\": \"{MODEL}\"{KNOWN:, \"limit\": {\"context\": "  \
    "{CONTEXT}, \"output\": {OUTPUT}}:KNOWN}{EYES:, \"attachment\": "                                                  \
    "true, "                                                                                                           \
    "\"modalities\": {\"input\": [\"text\", \"image\"], \"output\": [\"text\"]}:EYES}}}}}}\n"

static const agent agents[] = {
    {.name = "claude",
     .about = "Claude Code",
     .program = "claude",
     .install = "@anthropic-ai/claude-code",
     .variables = {"ANTHROPIC_BASE_URL={URL}", "ANTHROPIC_AUTH_TOKEN=spry",
                   "ANTHROPIC_API_KEY=", "ANTHROPIC_SMALL_FAST_MODEL={MODEL}", "ANTHROPIC_DEFAULT_HAIKU_MODEL={MODEL}",
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
                   "{KNOWN:CLAUDE_CODE_MAX_CONTEXT_TOKENS={CONTEXT}:KNOWN}",
                   "{KNOWN:CLAUDE_CODE_AUTO_COMPACT_WINDOW={CONTEXT}:KNOWN}"},
     .arguments = {"--model", "{MODEL}"}},
    {.name = "codex",
     .about = "Codex",
     .program = "codex",
     .install = "@openai/codex",
     .arguments = {"-c", "model_provider=\"spry\"", "-c",
                   "model_providers.spry={name=\"spry\",base_url=\"{URL}/v1\",wire_api=\"responses\"}", "-c",
                   "model=\"{MODEL}\"", "{KNOWN:-c:KNOWN}", "{KNOWN:model_context_window={CONTEXT}:KNOWN}"}},
    {.name = "opencode",
     .about = "opencode",
     .program = "opencode",
     .install = "opencode-ai",
     .variables = {"OPENCODE_CONFIG={FOLDER}/opencode.json", "OPENCODE_CONFIG_CONTENT={\"model\": \"spry/{MODEL}\"}"},
     .file = "opencode.json",
     .settings = OPENCODE_SETTINGS},
    {.name = "kilo",
     .about = "Kilo Code",
     .program = "kilo",
     .install = "@kilocode/cli",
     .variables = {"KILO_CONFIG={FOLDER}/kilo.json", "KILO_CONFIG_CONTENT={\"model\": \"spry/{MODEL}\"}"},
     .file = "kilo.json",
     .settings = OPENCODE_SETTINGS},
    {.name = "qwen",
     .about = "Qwen Code",
     .program = "qwen",
     .install = "@qwen-code/qwen-code",
     .variables = {"OPENAI_BASE_URL={URL}/v1", "OPENAI_API_KEY=spry", "OPENAI_MODEL={MODEL}",
                   "QWEN_CODE_SYSTEM_DEFAULTS_PATH={FOLDER}/defaults.json"},
     .arguments = {"--auth-type", "openai"},
     .file = "defaults.json",
     .settings = "{\"model\": {\"generationConfig\": {\"modalities\": {{EYES:\"image\": true:EYES}}"
                 "{KNOWN:, \"contextWindowSize\": {CONTEXT}:KNOWN}}}}\n"},
    {.name = "copilot",
     .about = "GitHub Copilot CLI",
     .program = "copilot",
     .install = "@github/copilot",
     .variables = {"COPILOT_PROVIDER_TYPE=openai", "COPILOT_PROVIDER_BASE_URL={URL}/v1",
                   "COPILOT_PROVIDER_API_KEY=spry", "COPILOT_MODEL={MODEL}", "COPILOT_OFFLINE=true",
                   "{KNOWN:COPILOT_PROVIDER_MAX_PROMPT_TOKENS={CONTEXT}:KNOWN}",
                   "{KNOWN:COPILOT_PROVIDER_MAX_OUTPUT_TOKENS={OUTPUT}:KNOWN}"}},
    {.name = "cline",
     .about = "Cline",
     .program = "cline",
     .install = "cline",
     .before = {"auth", "-p", "openai", "-k", "spry", "-m", "{MODEL}", "-b", "{URL}/v1", "--data-dir", "{FOLDER}/data"},
     .arguments = {"--data-dir", "{FOLDER}/data"}},
    {.name = "pi",
     .about = "pi",
     .program = "pi",
     .install = "@mariozechner/pi-coding-agent",
     .variables = {"PI_CODING_AGENT_DIR={FOLDER}"},
     .arguments = {"--provider", "spry", "--model", "{MODEL}"},
     .file = "models.json",
     .settings = "{\"providers\": {\"spry\": {\"baseUrl\": \"{URL}/v1\", \"api\": \"openai-completions\", \"apiKey\": "
                 "\"spry\", \"models\": [{\"id\": \"{MODEL}\"{KNOWN:, \"contextWindow\": {CONTEXT}, \"maxTokens\": "
                 "{OUTPUT}:KNOWN}{EYES:, \"input\": [\"text\", \"image\"]:EYES}}]}}}\n"},
    {.name = "continue",
     .about = "Continue",
     .program = "cn",
     .install = "@continuedev/cli",
     .arguments = {"--config", "{FOLDER}/config.yaml"},
     .file = "config.yaml",
     .settings = "name: spry\nversion: 0.0.1\nschema: v1\nmodels:\n  - name: {MODEL}\n    provider: openai\n    model: "
                 "{MODEL}\n    apiBase: {URL}/v1\n    apiKey: spry\n    roles: [chat]\n    capabilities: "
                 "[tool_use{EYES:, image_input:EYES}]\n"
                 "{KNOWN:    defaultCompletionOptions:\n      contextLength: {CONTEXT}\n:KNOWN}"},
};

/* ---- options ----------------------------------------------------------------------------------------------------- */

typedef struct launch_flags {
    const char *model, *url;
    uint32_t context;
    bool print;
} launch_flags;

#define OPTION(...) SPRY_OPTION(launch_flags, __VA_ARGS__)

static const spry_option options[] = {
    OPTION("model", STRING, model, .letter = 'm', .common = true, .metavar = "MODEL",
           .help = "Model to serve, as `spry serve` takes it; with --url, the name by which that server knows it"),
    OPTION("context", U32, context, .letter = 'c', .common = true, .metavar = "N",
           .help = "Tokens that a conversation can have; 0: the model's own, or what fits the memory"),
    OPTION("url", STRING, url, .common = true, .metavar = "URL",
           .help = "Use the server at this address instead of starting one, such as http://127.0.0.1:8080"),
    OPTION("print", FLAG, print, .common = true, .flag_only = true,
           .help = "Print the settings and the command, and start nothing"),
};

static const spry_usage usage = {
    .command = "launch",
    .arguments = "AGENT [options] [-- the agent's own arguments]",
    .about =
        "Starts a coding agent with a local model, and a server for it that ends with the agent.\n"
        "AGENT is claude, codex, opencode, kilo, qwen, copilot, cline, pi or continue. The agent must be installed. "
        "Its "
        "settings for spry are variables, arguments, or a file in a folder of spry's own; the user's settings stay as "
        "they are. docs/AGENTS.md says which agents were tested with which version.",
    .examples = "spry launch claude --model qwen3:8b\n"
                "spry launch codex --model model.gguf -- exec 'Explain this folder.'\n"
                "spry launch opencode --url http://127.0.0.1:8080 --model Qwen3-8B",
};

/* ---- texts ------------------------------------------------------------------------------------------------------- */

typedef struct launch {
    const agent *agent;
    const launch_flags *flags;
    spry_buffer folder, url;
    const char *model;            /* name of the model on the server */
    char context[16], output[16]; /* tokens; empty: not known */
    bool sees;
} launch;

/* A text with its marks replaced; the caller frees it. NULL: memory is short. */
static char *filled(const launch *l, const char *text)
{
    const struct {
        const char *mark, *value;
    } marks[] = {{"{URL}", spry_buffer_view(&l->url).data},
                 {"{MODEL}", l->model},
                 {"{FOLDER}", spry_buffer_view(&l->folder).data},
                 {"{CONTEXT}", l->context},
                 {"{OUTPUT}", l->output}};
    const struct {
        const char *begin, *end;
        bool there;
    } parts[] = {{"{EYES:", ":EYES}", l->sees}, {"{KNOWN:", ":KNOWN}", l->context[0] != '\0'}};
    spry_buffer out;
    spry_buffer_init(&out, TEXT_BYTES_MAX);
    while (*text) {
        size_t i = 0;
        bool part = false;
        for (size_t k = 0; k < SPRY_COUNT(parts) && !part; k++) {
            const char *begin = parts[k].begin, *end = parts[k].end;
            bool opens = strncmp(text, begin, strlen(begin)) == 0;
            part = opens || strncmp(text, end, strlen(end)) == 0;
            if (part)
                text = opens && !parts[k].there && strstr(text, end) ? strstr(text, end) + strlen(end)
                                                                     : text + strlen(begin);
        }
        if (part)
            continue;
        while (i < SPRY_COUNT(marks) && strncmp(text, marks[i].mark, strlen(marks[i].mark)) != 0)
            i++;
        if (i < SPRY_COUNT(marks)) {
            spry_buffer_text(&out, marks[i].value);
            text += strlen(marks[i].mark);
        } else {
            spry_buffer_append(&out, text++, 1);
        }
    }
    char *whole = out.failed ? NULL : strdup(spry_buffer_view(&out).data);
    spry_buffer_deinit(&out);
    return whole;
}

/* Fills `list` with the program, the agent's arguments and the user's; NULL at the end. False: they are too many. */
static bool fill_command(char *list[ARGUMENTS_MAX], const launch *l, const char *const *own, const char *const *more,
                         size_t n_more)
{
    size_t n = 0;
    list[n++] = strdup(l->agent->program);
    for (; *own; own++) {
        list[n] = filled(l, *own);
        if (list[n] && !*list[n])
            free(list[n]);
        else
            n++;
    }
    bool fits = n + n_more < ARGUMENTS_MAX;
    for (size_t i = 0; fits && i < n_more; i++)
        list[n++] = strdup(more[i]);
    list[n] = NULL;
    return fits;
}

static void free_command(char *list[ARGUMENTS_MAX])
{
    for (size_t i = 0; list[i]; i++)
        free(list[i]);
}

static void set_variables(const launch *l)
{
    for (size_t i = 0; l->agent->variables[i]; i++) {
        char *pair = filled(l, l->agent->variables[i]), *equal = pair ? strchr(pair, '=') : NULL;
        if (equal) {
            *equal = '\0';
            setenv(pair, equal + 1, 1);
        }
        free(pair);
    }
}

/* In quotes for a shell, unless it has only harmless characters. */
static void print_word(const char *word)
{
    static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@=";
    if (*word && strspn(word, harmless) == strlen(word)) {
        printf("%s", word);
        return;
    }
    putchar('\'');
    for (; *word; word++)
        printf(*word == '\'' ? "'\\''" : "%c", *word);
    putchar('\'');
}

static void print_command(char *const *list)
{
    for (size_t i = 0; list[i]; i++) {
        printf("%s", i ? " " : "");
        print_word(list[i]);
    }
    putchar('\n');
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

/* The process that this one waits for: it is ended with this one, which then ends the server. */
static volatile sig_atomic_t current;

static void on_end(int number)
{
    (void)number;
    if (current > 0)
        kill((pid_t)current, SIGTERM);
}

/* Starts a program and returns its process; -1: it cannot. `log` NULL: it uses the terminal. */
static pid_t start(char *const *command, const char *log)
{
    fflush(NULL);
    pid_t process = fork();
    if (process != 0) {
        current = process;
        return process;
    }
    if (log) {
        int file = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600), none = open("/dev/null", O_RDONLY);
        if (file < 0 || none < 0 || dup2(none, STDIN_FILENO) < 0 || dup2(file, STDOUT_FILENO) < 0 ||
            dup2(file, STDERR_FILENO) < 0)
            _exit(SPRY_EXIT_FAILURE);
        setsid(); /* Ctrl-C is for the agent */
    } else {
        signal(SIGINT, SIG_DFL);
    }
    execvp(command[0], command);
    _exit(errno == ENOENT ? 127 : 126);
}

/* The exit code of a process, or 128 and the signal that ended it. */
static int wait_for(pid_t process)
{
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    current = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void end(pid_t server)
{
    if (server > 0) {
        kill(server, SIGTERM);
        wait_for(server);
    }
}

/* Waits until the server's log says where it listens. */
static bool find_address(launch *l, pid_t server, const char *log)
{
    static const char mark[] = "listening on ";
    for (;;) {
        spry_buffer text;
        int status;
        bool ended = waitpid(server, &status, WNOHANG) == server;
        spry_buffer_init(&text, TEXT_BYTES_MAX);
        const char *at =
            spry_file_read(&text, log, NULL) == SPRY_OK ? strstr(spry_buffer_view(&text).data, mark) : NULL;
        const char *line_end = at ? strchr(at, '\n') : NULL;
        if (line_end)
            spry_buffer_append(&l->url, at + strlen(mark), (size_t)(line_end - at) - strlen(mark));
        else if (ended)
            spry_complain("the server could not be started:\n%s", spry_buffer_view(&text).data);
        spry_buffer_deinit(&text);
        if (line_end || ended)
            return line_end != NULL;
        spry_clock_sleep_ns(POLL_NS);
    }
}

/* Serves the model on a free port; its log is in the folder. -1: it cannot, and a message was printed. */
static pid_t start_server(launch *l)
{
    char program[4096], context[16], served[4096];
    spry_buffer log;
    if (!spry_os_program(program, sizeof program)) {
        spry_complain("the server cannot be started: this system does not tell where the program is");
        return -1;
    }
    spry_buffer_init(&log, TEXT_BYTES_MAX);
    spry_buffer_format(&log, "%s/server.log", spry_buffer_view(&l->folder).data);
    snprintf(context, sizeof context, "%u", l->flags->context);
    snprintf(served, sizeof served, "%s=%s", l->model, l->flags->model);
    char *const command[] = {program,  "serve", served,      "--only-named", "--any-model",
                             "--port", "0",     "--context", context,        NULL};
    (void)unlink(spry_buffer_view(&log).data);
    pid_t server = start(command, spry_buffer_view(&log).data);
    if (server < 0)
        spry_complain("the server cannot be started: %s", strerror(errno));
    else if (!find_address(l, server, spry_buffer_view(&log).data))
        server = -1;
    spry_buffer_deinit(&log);
    return server;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static size_t on_text(char *data, size_t size, size_t count, void *user)
{
    return spry_buffer_append(user, data, size * count) ? size * count : 0;
}

static void set_context(launch *l, uint64_t tokens)
{
    snprintf(l->context, sizeof l->context, "%u", (unsigned)(tokens < UINT32_MAX ? tokens : UINT32_MAX));
    snprintf(l->output, sizeof l->output, "%u", (unsigned)(tokens < UINT32_MAX ? tokens : UINT32_MAX) / 4);
}

/* Asks the server how long conversations can be, and whether the model sees pictures. */
static void ask_model(launch *l)
{
    enum { ADDRESS_BYTES = 2048, PATIENCE_S = 20 };
    char address[ADDRESS_BYTES];
    spry_buffer text;
    struct curl_slist *headers = NULL;
    json_t *model = NULL, *input;
    CURL *curl = curl_easy_init();
    size_t i;
    spry_buffer_init(&text, TEXT_BYTES_MAX);
    snprintf(address, sizeof address, "%s/v1/models/%s", spry_buffer_view(&l->url).data, l->model);
    if (curl) {
        spry_http_prepare(curl, &headers, address, NULL);
        curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)PATIENCE_S);
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_text);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, &text);
        if (curl_easy_perform(curl) == CURLE_OK)
            model = spry_json_value(spry_buffer_view(&text));
    }
    json_array_foreach(json_object_get(json_object_get(model, "architecture"), "input_modalities"), i, input)
    {
        l->sees = l->sees || (json_is_string(input) && strcmp(json_string_value(input), "image") == 0);
    }
    if (!l->context[0] && json_integer_value(json_object_get(model, "context_length")) > 0)
        set_context(l, (uint64_t)json_integer_value(json_object_get(model, "context_length")));
    json_decref(model);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    spry_buffer_deinit(&text);
}

static spry_status write_settings(const launch *l, spry_error *error)
{
    spry_buffer path;
    char *text = l->agent->settings ? filled(l, l->agent->settings) : NULL;
    if (!text)
        return SPRY_OK;
    spry_buffer_init(&path, TEXT_BYTES_MAX);
    spry_buffer_format(&path, "%s/%s", spry_buffer_view(&l->folder).data, l->agent->file);
    spry_status status = spry_file_write(spry_buffer_view(&path).data, spry_view_of(text), error);
    spry_buffer_deinit(&path);
    free(text);
    return status;
}

static int run_command(char *const *command, const char *install)
{
    pid_t process = start(command, NULL);
    int code = process < 0 ? SPRY_EXIT_FAILURE : wait_for(process);
    if (code == 127)
        spry_complain("%s is not installed; npm install -g %s installs it", command[0], install);
    return code;
}

static int run_agent(const launch *l, const char *const *more, size_t n_more)
{
    char *command[ARGUMENTS_MAX], *before[ARGUMENTS_MAX];
    int code = SPRY_EXIT_FAILURE;
    if (!fill_command(command, l, l->agent->arguments, more, n_more))
        spry_complain("more than %d arguments", ARGUMENTS_MAX);
    else
        code = SPRY_EXIT_OK;
    fill_command(before, l, l->agent->before, NULL, 0);
    set_variables(l);
    signal(SIGINT, SIG_IGN); /* Ctrl-C reaches the agent, which decides whether to end */
    if (code == SPRY_EXIT_OK && l->agent->before[0])
        code = run_command(before, l->agent->install);
    if (code == SPRY_EXIT_OK)
        code = run_command(command, l->agent->install);
    free_command(before);
    free_command(command);
    return code;
}

static int print_launch(const launch *l, const char *const *more, size_t n_more)
{
    char *command[ARGUMENTS_MAX];
    for (size_t i = 0; l->agent->variables[i]; i++) {
        char *pair = filled(l, l->agent->variables[i]), *equal = pair ? strchr(pair, '=') : NULL;
        if (equal) {
            printf("export %.*s=", (int)(equal - pair), pair);
            print_word(equal + 1);
            putchar('\n');
        }
        free(pair);
    }
    if (l->agent->settings) {
        char *text = filled(l, l->agent->settings);
        printf("# %s/%s:\n%s", spry_buffer_view(&l->folder).data, l->agent->file, text ? text : "");
        free(text);
    }
    if (l->agent->before[0]) {
        fill_command(command, l, l->agent->before, NULL, 0);
        print_command(command);
        free_command(command);
    }
    fill_command(command, l, l->agent->arguments, more, n_more);
    print_command(command);
    free_command(command);
    return SPRY_EXIT_OK;
}

static int launch_agent(launch *l, const char *const *more, size_t n_more)
{
    spry_error error;
    spry_directory made;
    pid_t server = 0;
    if (l->flags->url)
        spry_buffer_text(&l->url, l->flags->url);
    else if (l->flags->print)
        spry_buffer_text(&l->url, "http://127.0.0.1:8080");
    if (l->flags->print)
        return print_launch(l, more, n_more);
    spry_status status = spry_directory_open(&made, spry_buffer_view(&l->folder).data, &error);
    if (status != SPRY_OK)
        return spry_complain_error(&error);
    spry_directory_close(&made);
    signal(SIGTERM, on_end);
    signal(SIGHUP, on_end);
    if (!l->flags->url && (server = start_server(l)) < 0)
        return SPRY_EXIT_FAILURE;
    ask_model(l);
    status = write_settings(l, &error);
    int code = status == SPRY_OK ? run_agent(l, more, n_more) : spry_complain_error(&error);
    end(server);
    return code;
}

static const agent *find_agent(const char *name)
{
    for (size_t i = 0; i < SPRY_COUNT(agents); i++)
        if (strcmp(agents[i].name, name) == 0)
            return &agents[i];
    return NULL;
}

int spry_cmd_launch(int argc, char **argv)
{
    launch_flags flags = {0};
    const spry_option_table table = {options, SPRY_COUNT(options), &flags};
    const char *words[ARGUMENTS_MAX];
    spry_option_list given = {words, ARGUMENTS_MAX, 0};
    int code;
    if (!spry_usage_parse(&code, &usage, &table, 1, &given, argc, argv))
        return code;
    launch l = {.agent = given.count ? find_agent(words[0]) : NULL, .flags = &flags};
    if (!l.agent)
        return spry_usage_wrong(&usage, given.count ? "%s is not an agent that spry knows" : "which agent? %s",
                                given.count ? words[0] : "spry launch --help lists them");
    if (!flags.model)
        return spry_usage_wrong(&usage, "--model is missing: which model is the agent to use?");
    l.model = flags.url ? flags.model : "spry";
    if (flags.context)
        set_context(&l, flags.context);
    spry_buffer_init(&l.folder, TEXT_BYTES_MAX);
    spry_buffer_init(&l.url, TEXT_BYTES_MAX);
    spry_path_user_data(&l.folder, "agents");
    spry_buffer_format(&l.folder, "/%s", l.agent->name);
    code = launch_agent(&l, words + 1, given.count - 1);
    spry_buffer_deinit(&l.folder);
    spry_buffer_deinit(&l.url);
    return code;
}
