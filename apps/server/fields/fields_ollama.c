/* Fields of Ollama's interface. */
#include "server/fields/field_row.h"

static const spry_field options[] = {
    HONOURED("num_predict", INTEGER, "8", "limit for the answer; negative: none"),
    HONOURED("temperature", NUMBER, "0.7", "as above"),
    HONOURED("top_p", NUMBER, "0.9", "as above"),
    HONOURED("top_k", INTEGER, "40", "as above"),
    HONOURED("min_p", NUMBER, "0.05", "as above"),
    HONOURED("typical_p", NUMBER, "0.9", "as above"),
    HONOURED("repeat_penalty", NUMBER, "1.1", "as above; 1.1 unless it says otherwise"),
    HONOURED("repeat_last_n", INTEGER, "64", "as above; 64 unless it says otherwise, 0: off, -1: all"),
    HONOURED("penalty_scope", STRING, "\"all\"", "as above"),
    HONOURED("presence_penalty", NUMBER, "0.5", "as above"),
    HONOURED("frequency_penalty", NUMBER, "0.5", "as above"),
    HONOURED("seed", INTEGER, "7", "as above"),
    HONOURED("stop", STRING | LIST, "[\"x\"]", "texts that end the answer"),
    HONOURED("num_keep", INTEGER, "8", "tokens that are kept when the context slides"),
    NO_EFFECT("num_ctx", INTEGER, "2048", "--context decides; the whole context of the model is there"),
    NO_EFFECT("num_batch", INTEGER, "512", "--chunk decides"),
    NO_EFFECT("num_gpu", INTEGER, "0", "--device decides"),
    NO_EFFECT("main_gpu", INTEGER, "0", "--device decides"),
    NO_EFFECT("num_thread", INTEGER, "2", "--threads decides"),
    NO_EFFECT("num_gqa", INTEGER, "1", "the model decides"),
    NO_EFFECT("use_mmap", BOOL, "true", "files are always mapped"),
    NO_EFFECT("use_mlock", BOOL, "false", "memory is never locked"),
    NO_EFFECT("low_vram", BOOL, "false", "--kv-bytes decides"),
    NO_EFFECT("f16_kv", BOOL, "true", "--kv-type decides"),
    NO_EFFECT("vocab_only", BOOL, "false", "weights are needed"),
    NO_EFFECT("numa", BOOL, "false", "threads are placed by the system"),
    NO_EFFECT("penalize_newline", BOOL, "true", "newlines are tokens like others"),
    REFUSED("mirostat", INTEGER, "2", "use top_p or min_p", "[0]"),
    NO_EFFECT("mirostat_tau", NUMBER, "5.0", "mirostat is off"),
    NO_EFFECT("mirostat_eta", NUMBER, "0.1", "mirostat is off"),
    REFUSED("tfs_z", NUMBER, "0.5", "use min_p", "[1, 1.0]"),
};

static const spry_field_table options_table = {.within = "options.", .groups = {SPRY_FIELD_GROUP(options)}};
static const spry_field_table *const inside[] = {&options_table, NULL};

static const spry_field both[] = {
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "with or without `:latest`; case does not matter"),
    HONOURED("stream", BOOL, "false", "lines of JSON; true unless it says otherwise"),
    HONOURED("format", STRING | OBJECT, "\"json\"", "`json`, or a schema"),
    HONOURED("options", OBJECT, "{\"num_predict\": 8}", "below"),
    HONOURED("keep_alive", NUMBER | STRING, "\"5m\"", "time until an unused model is unloaded"),
    HONOURED("think", BOOL | STRING, "false",
             "`enable_thinking` of the template; a level is its `reasoning_effort`; other than `false`: 400 for models "
             "without thoughts"),
    HONOURED("chat_template_kwargs", OBJECT, "{\"enable_thinking\": false}", "variables of the template"),
    HONOURED("logprobs", BOOL, "true", "of generated tokens"),
    HONOURED("top_logprobs", INTEGER, "2", "needs `logprobs`"),
    HONOURED("truncate", BOOL, "true", "`false`: a prompt that does not fit is an error"),
    HONOURED("shift", BOOL, "true", "`false`: a full context ends the answer; raw prompts must fit"),
};

static const spry_field chat[] = {
    HONOURED("messages", LIST, "[{\"role\": \"user\", \"content\": \"Hi\"}]", "`images` inside are refused"),
    HONOURED("tools", LIST, "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]", "functions"),
};

static const spry_field generate[] = {
    HONOURED("prompt", STRING, "\"Hi\"", "empty: the model is loaded"),
    HONOURED("suffix", STRING, "\"\"", "the text behind the answer; needs a model with fill-in tokens"),
    HONOURED("system", STRING, "\"Be brief.\"", "the system message"),
    HONOURED("raw", BOOL, "true", "no template"),
    HONOURED("context", LIST, "[5, 6]", "tokens of the conversation so far"),
    REFUSED("template", STRING, "\"{{ .Prompt }}\"", "--chat-template, or a model made with /api/create", "[\"\"]"),
    REFUSED("images", LIST, "[\"aGk=\"]", "only text", "[[]]"),
};

const spry_field_table spry_fields_ollama_chat = {
    .title = "POST /api/chat",
    .within = "",
    .groups = {SPRY_FIELD_GROUP(chat), SPRY_FIELD_GROUP(both), SPRY_FIELD_GROUP(spry_own_fields)},
    .inside = inside};

const spry_field_table spry_fields_ollama_generate = {
    .title = "POST /api/generate",
    .within = "",
    .groups = {SPRY_FIELD_GROUP(generate), SPRY_FIELD_GROUP(both), SPRY_FIELD_GROUP(spry_own_fields)},
    .inside = inside};

/* ---- derived models ---------------------------------------------------------------------------------------------- */

static const spry_field create[] = {
    HONOURED("model", STRING, "\"derived\"", "the name of the derived model"),
    HONOURED("name", STRING, "\"derived\"", "the older name of `model`"),
    HONOURED("from", STRING, "\"Spry-Tales-29M\"", "a model, derived or not"),
    HONOURED("system", STRING, "\"Be brief.\"", "the system message of requests that have none"),
    HONOURED("template", STRING, "\"{{ messages[0].content }}\"", "a Jinja template"),
    HONOURED("parameters", OBJECT, "{\"temperature\": 0.1}", "as `options` of `/api/chat`"),
    HONOURED("modelfile", STRING, "\"FROM Spry-Tales-29M\"", "the same as text: FROM, PARAMETER, SYSTEM, TEMPLATE"),
    NO_EFFECT("stream", BOOL, "false", "the reply has one line"),
    NO_EFFECT("license", STRING | LIST, "\"MIT\"", NO_STORE),
    REFUSED("quantize", STRING, "\"q4_K_M\"", "use `spry convert`", NULL),
    REFUSED("quantization", STRING, "\"q4_K_M\"", "use `spry convert`", NULL),
    REFUSED("files", OBJECT, "{\"a.gguf\": \"sha256:1\"}", "use /api/pull", "[{}]"),
    REFUSED("adapters", OBJECT, "{\"a.gguf\": \"sha256:1\"}", "there are no adapters", "[{}]"),
    REFUSED("messages", LIST, "[{\"role\": \"user\", \"content\": \"Hi\"}]", "send them with requests", "[[]]"),
};

const spry_field_table spry_fields_ollama_create = {
    .title = "POST /api/create", .within = "", .groups = {SPRY_FIELD_GROUP(create)}};

/* ---- embeddings -------------------------------------------------------------------------------------------------- */

static const spry_field embed[] = {
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "with or without `:latest`"),
    HONOURED("input", STRING | LIST, "\"A text.\"", "a text or texts"),
    HONOURED("prompt", STRING, "\"A text.\"", "of `/api/embeddings`: one text"),
    HONOURED("truncate", BOOL, "true", "cut texts beyond the context; else they are errors"),
    HONOURED("keep_alive", NUMBER | STRING, "\"5m\"", "time until an unused model is unloaded"),
    HONOURED("dimensions", INTEGER, "512", "only the model's own size; others are refused"),
    HONOURED("prompt_name", STRING, "\"\"", "which of the model's prompts stands before the texts; empty: none"),
    NO_EFFECT("options", OBJECT, "{\"num_ctx\": 2048}", "nothing is sampled"),
    NO_EFFECT("stream", BOOL, "false", "the reply is one object"),
};

const spry_field_table spry_fields_ollama_embed = {
    .title = "POST /api/embed, /api/embeddings", .within = "", .groups = {SPRY_FIELD_GROUP(embed)}};
