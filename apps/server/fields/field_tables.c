/* The fields of every path, as data. */
#include "server/fields/field_row.h"
#include "server/request/completion.h"

#define TARGET spry_completion_options

static const char *const priorities[] = {"interactive", "batch", NULL};
static const char *const overflows[] = {"error", "slide", "truncate_middle", NULL};
static const char *const reasoning_formats[] = {"none", "auto", "deepseek", "deepseek-legacy", NULL};

static const spry_field own[] = {
    BOUND("priority", STRING, "\"batch\"", "`interactive` (default), or `batch`: it gives way to interactive requests",
          TO_WORD(batch, priorities), .chat = "priority"),
    BOUND("context_overflow", STRING, "\"slide\"",
          "a full context: `error`; `slide`: the oldest messages or tokens are dropped; `truncate_middle`: the prompt "
          "loses its middle. `timings.dropped_tokens` counts the dropped tokens",
          TO_WORD(overflow, overflows), .chat = "context_overflow"),
    BOUND("answer_span", BOOL, "true",
          "the answer is computed as a fragment, too, for prompts that contain it as a part with `cache: span`",
          TO_BOOL(answer_span), .chat = "answer_span"),
    BOUND("lora", LIST | STRING | OBJECT, "[]",
          "adapters of this answer: a name, `{\"name\": \"a\", \"scale\": 0.5}` or llama-server's `{\"id\": 0, "
          "\"scale\": 0.5}`, or a list of these; an empty list: none; absent: the adapters of `--lora` by their scales",
          .read = spry_read_lora, .chat = "lora"),
    BOUND("stream_id", STRING, "\"8f1c2d3e4a5b6c7d\"",
          "with `stream`: 16 to 64 letters and digits of the client's choice. The answer goes on without its "
          "connection; `GET /v1/streams/ID` reads on",
          .read = spry_read_stream_id, .chat = "stream_id"),
};

static const spry_field chats[] = {
    HONOURED("title", STRING, "\"A tale\"",
             "at most 60 characters; default for a new chat: the first words of its first message"),
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "one of `GET /v1/models`; a new chat needs it"),
    HONOURED("system", STRING, "\"Be brief.\"", "the system message; empty: none"),
    HONOURED("messages", LIST, "[{\"role\": \"user\", \"content\": \"Hi\"}]",
             "all of them, in place of those stored; texts of user and assistant"),
    HONOURED("revision", INTEGER, "0", "of the chat as it was read: 409 when it was changed since"),
};

const spry_field_table spry_fields_chats = {
    .title = "POST /api/chats, /api/chats/ID", .within = "", .groups = {SPRY_FIELD_GROUP(chats)}};

#define STATED HONOURED("model", STRING, "\"Spry-Tales-29M\"", "one of `GET /v1/models`")

static const spry_field state[] = {STATED};
static const spry_field pin[] = {STATED, HONOURED("pin", BOOL, "true", "`false`: no longer")};

const spry_field_table spry_fields_model_state = {
    .title = "POST /models/load, /models/unload", .within = "", .groups = {SPRY_FIELD_GROUP(state)}};
const spry_field_table spry_fields_model_pin = {
    .title = "POST /models/pin", .within = "", .groups = {SPRY_FIELD_GROUP(pin)}};

static const spry_field tool_call[] = {
    HONOURED("url", STRING, "\"http://127.0.0.1:9000/weather\"", "one of `GET /v1/tools`"),
    HONOURED("name", STRING, "\"files__read_file\"", "a tool of an MCP server, in place of `url`"),
    HONOURED("arguments", OBJECT, "{\"city\": \"Oslo\"}", "the body of the call, as JSON; absent: `{}`"),
};

const spry_field_table spry_fields_tool_call = {
    .title = "POST /v1/tools/call", .within = "", .groups = {SPRY_FIELD_GROUP(tool_call)}};

/* ---- OpenAI ------------------------------------------------------------------------------------------------------ */

static const spry_field sampling[] = {
    BOUND("logit_bias", OBJECT | LIST, "{\"5\": -1}",
          "from token ids or texts to numbers, or a list of pairs; `false` bans a token", .read = spry_read_bias),
    REFUSED("mirostat", INTEGER, "2", "use top_p or min_p", "[0]"),
    NO_EFFECT("mirostat_tau", NUMBER, "5.0", "mirostat is off"),
    NO_EFFECT("mirostat_eta", NUMBER, "0.1", "mirostat is off"),
    REFUSED("dynatemp_range", NUMBER, "0.5", "temperature is fixed", "[0, 0.0]"),
    NO_EFFECT("dynatemp_exponent", NUMBER, "1.0", "the range is 0"),
    REFUSED("xtc_probability", NUMBER, "0.5", "the most probable tokens are never removed", "[0, 0.0]"),
    NO_EFFECT("xtc_threshold", NUMBER, "0.1", "the probability is 0"),
    REFUSED("dry_multiplier", NUMBER, "0.8", "use the penalties", "[0, 0.0]"),
    NO_EFFECT("dry_base", NUMBER, "1.75", "the multiplier is 0"),
    NO_EFFECT("dry_allowed_length", INTEGER, "2", "the multiplier is 0"),
    NO_EFFECT("dry_penalty_last_n", INTEGER, "-1", "the multiplier is 0"),
    NO_EFFECT("dry_sequence_breakers", LIST, "[\"\\n\"]", "the multiplier is 0"),
    REFUSED("top_n_sigma", NUMBER, "1.5", "use min_p", "[-1, -1.0, 0, 0.0]"),
    REFUSED("samplers", LIST | STRING, "[\"top_k\"]", "the order is fixed; docs/SAMPLING.md has it", NULL),
    REFUSED("min_keep", INTEGER, "3", "cuts keep at least one token", "[0, 1]"),
};

#define CONSTRAINT(kind) .read = spry_read_constraint, .min = (kind)
#define LIMIT(least)     .read = spry_read_limit, .min = (least)

static const spry_field answers[] = {
    BOUND("stop", STRING | LIST, "[\"\\n\\n\"]", "texts that end the answer", .read = spry_read_stop),
    BOUND("stream", BOOL, "false", "server-sent events", TO_BOOL(stream)),
    BOUND("ignore_eos", BOOL, "true", "continue after the end token", TO_BOOL(request.ignore_end)),
    BOUND("draft", BOOL, "false", "`false`: no drafts; the answer is the same", TO_NOT(no_draft)),
    BOUND("response_format", OBJECT, "{\"type\": \"json_object\"}",
          "`text`, `json_object` (with `schema`: that schema) or `json_schema`", .read = spry_read_response_format),
    BOUND("grammar", STRING, "\"root ::= [a-z ]+\"", "llama.cpp's notation", CONSTRAINT(SPRY_GBNF)),
    BOUND("json_schema", OBJECT | STRING, "{\"type\": \"boolean\"}", "llama-server's", CONSTRAINT(SPRY_JSON_SCHEMA)),
    BOUND("json_style", STRING, "\"pretty\"",
          "blanks in JSON under a schema: `compact` (default), `pretty`, `free`; `any`: also any order of members",
          TO_WORD(request.json_style, spry_json_styles)),
    BOUND("json_lenient", BOOL, "true", "ignore parts of a schema that cannot be enforced, with a warning in `timings`",
          TO_BOOL(json_lenient)),
    BOUND("guided_json", OBJECT | STRING, "{\"type\": \"boolean\"}", "vLLM's name of `json_schema`",
          CONSTRAINT(SPRY_JSON_SCHEMA)),
    BOUND("guided_regex", STRING, "\"[a-z]{3}\"", "vLLM's: a regular expression", CONSTRAINT(SPRY_REGEX)),
    BOUND("guided_choice", LIST, "[\"yes\", \"no\"]", "vLLM's: one of these texts", CONSTRAINT(SPRY_CHOICE)),
    BOUND("guided_grammar", STRING, "\"root ::= [a-z ]+\"", "vLLM's name of `grammar`", CONSTRAINT(SPRY_GBNF)),
    NO_EFFECT("cache_prompt", BOOL, "true", "answers are the same with and without cached pages"),
    NO_EFFECT("id_slot", INTEGER, "0", "cached pages serve every slot"),
    BOUND("return_progress", BOOL, "true", "with `stream`: events while the prompt is computed",
          TO_BOOL(want_progress)),
    BOUND("timings_per_token", BOOL, "true", "with `stream`: timings in every event", TO_BOOL(want_timings)),
    BOUND("verbose", BOOL, "true", "`__verbose` in the reply: the prompt and the settings", TO_BOOL(verbose)),
    NO_EFFECT("speculative.n_max", INTEGER, "8", "drafts have the length that pays"),
    NO_EFFECT("speculative.n_min", INTEGER, "1", "drafts have the length that pays"),
    NO_EFFECT("speculative.p_min", NUMBER, "0.5", "drafts have the length that pays"),
    REFUSED("min_tokens", INTEGER, "4", "use ignore_eos with a limit", "[0]"),
    REFUSED("t_max_predict_ms", INTEGER, "100", "--answer-timeout limits the time", "[0, -1]"),
    BOUND("n_keep", INTEGER, "8", "tokens that are kept when the context slides; -1: the prompt",
          .read = spry_read_keep),
    REFUSED("n_discard", INTEGER, "8", "an eighth of the context is dropped at a time", "[0]"),
};

static const spry_field openai[] = {
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model; case does not matter"),
    BOUND("n", INTEGER, "2", "number of answers", TO_U32(n_each, 1, SPRY_CHOICES_MAX)),
    HONOURED("stream_options", OBJECT, "{\"include_usage\": true}", "below"),
    NO_EFFECT("user", STRING, "\"u1\"", NO_CLIENTS),
    NO_EFFECT("safety_identifier", STRING, "\"u1\"", NO_CLIENTS),
    NO_EFFECT("prompt_cache_key", STRING, "\"k\"", "pages are found by their content"),
    NO_EFFECT("prompt_cache_retention", STRING, "\"24h\"", "--cache-ttl decides"),
    NO_EFFECT("service_tier", STRING, "\"auto\"", NO_CHOICE),
    NO_EFFECT("store", BOOL, "false", NO_STORE),
    NO_EFFECT("metadata", OBJECT, "{\"a\": \"b\"}", NO_STORE),
};

static const spry_field stream_options[] = {
    BOUND("include_usage", BOOL, "true", "counts at the end of the stream", TO_BOOL(include_usage)),
    NO_EFFECT("include_obfuscation", BOOL, "false", "events are never padded"),
    NO_EFFECT("continuous_usage_stats", BOOL, "true", "counts come at the end of the stream"),
};

static const spry_field_table stream_options_table = {.within = "stream_options.",
                                                      .groups = {SPRY_FIELD_GROUP(stream_options)}};
static const spry_field_table *const openai_inside[] = {&stream_options_table, NULL};

static const spry_field chat[] = {
    HONOURED("messages", LIST, "[{\"role\": \"user\", \"content\": \"Hi\"}]",
             "parts are text and, for models with eyes, `image_url` with a data: URL; others are refused"),
    HONOURED(
        "tools", LIST, "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]",
        "functions, `custom` tools, and `{\"type\": \"mcp\", \"server_label\": ...}` for those of a server of `--mcp`"),
    HONOURED("tool_choice", STRING | OBJECT, "\"auto\"", "`auto`, `none`, `required`, or a function"),
    BOUND("parallel_tool_calls", BOOL, "false", "`false`: the answer has at most one call", TO_NOT(one_call)),
    BOUND("max_tokens", INTEGER, "8", "limit for the answer; -1: none", LIMIT(1)),
    BOUND("max_completion_tokens", INTEGER, "8", "the same as `max_tokens`", LIMIT(1)),
    BOUND("n_predict", INTEGER, "8", "llama-server's name of `max_tokens`", LIMIT(1)),
    BOUND("logprobs", BOOL, "true", "log probabilities of generated tokens", TO_BOOL(want_logprobs)),
    BOUND("top_logprobs", INTEGER, "2", "needs `logprobs`", TO_U32(request.logprobs, 0, SPRY_TOP_LOGPROBS_MAX)),
    HONOURED(
        "reasoning_effort", STRING, "\"low\"",
        "a variable of the template; where the template has none, `minimal`, `low` and `medium` limit a thought to "
        "128, 512 and 2048 tokens; `none` sets `enable_thinking` to false"),
    BOUND("max_thinking_tokens", INTEGER, "256",
          "most tokens of a thought; then it is closed, and the answer follows; 0: no thought, -1: no limit",
          .read = spry_read_thoughts),
    BOUND("thinking_budget", INTEGER, "256", "the same as `max_thinking_tokens`", .read = spry_read_thoughts),
    BOUND("reasoning_budget", INTEGER, "256", "llama-server's name of `max_thinking_tokens`",
          .read = spry_read_thoughts),
    BOUND("reasoning_format", STRING, "\"none\"", "`none`: thoughts stay in the content",
          TO_WORD(parse_reasoning, reasoning_formats)),
    HONOURED("chat_template_kwargs", OBJECT, "{\"enable_thinking\": false}", "variables of the template"),
    HONOURED("add_generation_prompt", BOOL, "true", "end the prompt with the beginning of the answer"),
    HONOURED("continue_final_message", BOOL, "false",
             "the answer continues the last message, which is the assistant's"),
    NO_EFFECT("parse_tool_calls", BOOL, "true", "calls are found where tools are declared"),
    NO_EFFECT("verbosity", STRING, "\"low\"", "models have no such setting"),
    HONOURED("functions", LIST, "[{\"name\": \"f\"}]", "the older form of `tools`; the reply has `function_call`"),
    HONOURED("function_call", STRING | OBJECT, "\"auto\"", "the older form of `tool_choice`: `auto`, `none` or a name"),
    REFUSED("modalities", LIST, "[\"audio\"]", "only text", "[[\"text\"]]"),
    REFUSED("audio", OBJECT, "{\"voice\": \"x\"}", "only text", NULL),
    NO_EFFECT("prediction", OBJECT, "{\"type\": \"content\", \"content\": \"x\"}", "drafts need no hints"),
    BOUND("thinking", OBJECT, "{\"type\": \"disabled\"}",
          "`type` `enabled` or `disabled`: as `enable_thinking`; `budget_tokens`: as `max_thinking_tokens`",
          .read = spry_read_thinking),
    HONOURED("enable_thinking", BOOL, "false", "a variable of the template"),
    BOUND("reasoning", OBJECT, "{\"effort\": \"low\"}",
          "`effort`: as `reasoning_effort`; `max_tokens`: as `max_thinking_tokens`; `enabled`: as `enable_thinking`",
          .read = spry_read_thinking),
};

static const spry_field completion[] = {
    HONOURED("prompt", STRING | LIST, "\"Once\"",
             "a text, token ids, a list of those, or parts: `{\"text\": \"...\", \"cache\": \"span\"}` is a fragment"),
    HONOURED("suffix", STRING, "\"\"", "the text after the answer; needs a model with fill-in tokens"),
    BOUND("max_tokens", INTEGER, "8", "limit for the answer; 0: no answer, -1: no limit", LIMIT(0)),
    BOUND("n_predict", INTEGER, "8", "llama-server's name of `max_tokens`", LIMIT(0)),
    BOUND("echo", BOOL, "true", "the prompt is part of the reply", TO_BOOL(echo)),
    BOUND("logprobs", INTEGER | BOOL, "2", "log probabilities of generated and echoed tokens",
          .read = spry_read_logprobs),
    REFUSED("best_of", INTEGER, "4", "ask for n answers", "[1]"),
};

const spry_field_table spry_fields_openai_chat = {.title = "POST /v1/chat/completions",
                                                  .within = "",
                                                  .groups = {SPRY_FIELD_GROUP(openai), SPRY_FIELD_GROUP(chat),
                                                             SPRY_FIELD_GROUP(answers), SPRY_FIELD_GROUP(sampling),
                                                             SPRY_FIELD_GROUP(own)},
                                                  .options = spry_completion_sampling,
                                                  .inside = openai_inside,
                                                  .places = spry_places_chat};

const spry_field_table spry_fields_openai_completion = {
    .title = "POST /v1/completions",
    .within = "",
    .groups = {SPRY_FIELD_GROUP(openai), SPRY_FIELD_GROUP(completion), SPRY_FIELD_GROUP(answers),
               SPRY_FIELD_GROUP(sampling), SPRY_FIELD_GROUP(own)},
    .options = spry_completion_sampling,
    .inside = openai_inside};

/* ---- llama-server ------------------------------------------------------------------------------------------------ */

static const spry_field llama[] = {
    HONOURED("prompt", STRING | LIST | OBJECT, "\"Once\"",
             "a text, also as `prompt_string` of an object; token ids, texts and parts (`{\"text\": \"...\", "
             "\"cache\": \"span\"}` is a fragment); or a list of prompts"),
    HONOURED("image_data", LIST, "[]",
             "pictures `{\"data\": BASE64, \"id\": 12}` in place of `[img-12]` in `prompt`, for models with eyes; or "
             "`multimodal_data`, a list of base64, beside `prompt_string`, in place of each `<__media__>`"),
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model"),
    BOUND("max_tokens", INTEGER, "8", "the same as `n_predict`", LIMIT(0)),
    BOUND("n_predict", INTEGER, "8", "limit for the answer; 0: no answer, -1: no limit", LIMIT(0)),
    BOUND("n", INTEGER, "1", "number of answers", TO_U32(n_each, 1, SPRY_CHOICES_MAX)),
    BOUND("n_probs", INTEGER, "2", "alternatives of every token", TO_U32(request.logprobs, 0, SPRY_TOP_LOGPROBS_MAX)),
    REFUSED("post_sampling_probs", BOOL, "true", "log probabilities are computed from the raw logits", "[false]"),
    BOUND("return_tokens", BOOL, "true", "ids of the answer in `tokens`", TO_BOOL(return_tokens)),
    HONOURED("response_fields", LIST, "[\"content\"]", "members of the reply, `/` for members inside"),
    NO_EFFECT("n_indent", INTEGER, "0", "lines are never cut"),
};

static const spry_field infill[] = {
    HONOURED("input_prefix", STRING, "\"int main() {\"", "the text before `prompt`"),
    HONOURED("input_suffix", STRING, "\"}\"", "the text after the answer"),
    HONOURED("input_extra", LIST, "[{\"filename\": \"a.h\", \"text\": \"int a;\"}]", "files before the text"),
};

const spry_field_table spry_fields_llama_infill = {.title = "POST /infill",
                                                   .within = "",
                                                   .groups = {SPRY_FIELD_GROUP(infill), SPRY_FIELD_GROUP(llama),
                                                              SPRY_FIELD_GROUP(answers), SPRY_FIELD_GROUP(sampling),
                                                              SPRY_FIELD_GROUP(own)},
                                                   .options = spry_completion_sampling};

const spry_field_table spry_fields_llama_completion = {
    .title = "POST /completion",
    .within = "",
    .groups = {SPRY_FIELD_GROUP(llama), SPRY_FIELD_GROUP(answers), SPRY_FIELD_GROUP(sampling), SPRY_FIELD_GROUP(own)},
    .options = spry_completion_sampling};

/* ---- Anthropic's Messages ---------------------------------------------------------------------------------------- */

static const spry_field prompt[] = {
    SHARED("model", STRING, "\"Spry-Tales-29M\"", "one of `GET /v1/models`; case does not matter", "model"),
    HONOURED("messages", LIST, "[{\"role\": \"user\", \"content\": \"Hi\"}]",
             "roles `user`, `assistant` and `system`; `text`, `tool_use`, `tool_result`, `tool_reference`, `thinking`, "
             "`search_result` and `document` blocks; pictures and files as below *Pictures* in docs/api/anthropic.md"),
    HONOURED("system", STRING | LIST, "\"Be brief.\"", "a text, or text blocks"),
    HONOURED(
        "tools", LIST, "[{\"name\": \"f\", \"input_schema\": {\"type\": \"object\"}}]",
        "the client's tools, also `bash_*`, `text_editor_*`, `memory_*` and `computer_*`; `defer_loading`: the tool "
        "is not listed until a `tool_reference` names it; tools that a server runs are left out"),
    HONOURED("tool_choice", OBJECT, "{\"type\": \"auto\"}",
             "`auto`, `any`, `tool` or `none`; with `disable_parallel_tool_use` the answer has at most one call"),
    HONOURED("thinking", OBJECT, "{\"type\": \"disabled\"}",
             "`enable_thinking` of the template; `budget_tokens`: most tokens of a thought"),
    NO_EFFECT("cache_control", OBJECT, "{\"type\": \"ephemeral\"}", "every prompt is cached"),
    HONOURED("context_management", OBJECT, "{\"edits\": [{\"type\": \"clear_thinking_20251015\"}]}",
             "`clear_thinking_20251015` and `clear_tool_uses_20250919` shorten the prompt; their limits in tokens are "
             "compared with a quarter of the bytes of the messages"),
    NO_EFFECT("safeguards", OBJECT, "{}", "the server filters nothing"),
    NO_EFFECT("speed", STRING, "\"fast\"", NO_CHOICE),
    HONOURED("thread", OBJECT, "{\"type\": \"create\"}",
             "`create` changes nothing; `continue`: 404 `thread_not_found`, because conversations are not kept"),
    HONOURED("output_config", OBJECT, "{\"effort\": \"low\"}",
             "`effort`: `reasoning_effort` of the template; `format`: a JSON schema"),
    HONOURED("output_format", OBJECT, "{\"type\": \"json_schema\", \"schema\": {\"type\": \"boolean\"}}",
             "a JSON schema, in the older place"),
};

static const spry_field anthropic[] = {
    SHARED("max_tokens", INTEGER, "8", "limit for the answer; required", "max_tokens"),
    SHARED("stop_sequences", LIST, "[\"x\"]", "texts that end the answer; `stop_sequence` names the one that did",
           "stop"),
    SHARED("stream", BOOL, "false", "server-sent events", "stream"),
    NO_EFFECT("metadata", OBJECT, "{\"user_id\": \"u1\"}", NO_CLIENTS),
    NO_EFFECT("service_tier", STRING, "\"auto\"", NO_CHOICE),
    NO_EFFECT("inference_geo", STRING, "\"eu\"", "the answer is made here"),
};

static const char *const anthropic_sampling[] = {"temperature", "top_p", "top_k", NULL};

const spry_field_table spry_fields_anthropic = {
    .title = "POST /v1/messages",
    .within = "",
    .groups = {SPRY_FIELD_GROUP(prompt), SPRY_FIELD_GROUP(anthropic), SPRY_FIELD_GROUP(own)},
    .options = spry_completion_sampling,
    .only = anthropic_sampling,
    .places = spry_places_anthropic};

const spry_field_table spry_fields_anthropic_count = {.title = "POST /v1/messages/count_tokens",
                                                      .within = "",
                                                      .groups = {SPRY_FIELD_GROUP(prompt)},
                                                      .places = spry_places_anthropic};

/* ---- OpenAI's Responses ------------------------------------------------------------------------------------------ */

static const spry_field responses[] = {
    SHARED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model; case does not matter", "model"),
    HONOURED(
        "input", STRING | LIST, "\"Hi\"",
        "a text, or items: `message`, `function_call`, `custom_tool_call`, `local_shell_call`, `tool_search_call`, "
        "their outputs, `additional_tools`, `reasoning`, `compaction`, `item_reference`"),
    HONOURED("instructions", STRING, "\"Be brief.\"", "the system message of this response only"),
    HONOURED("previous_response_id", STRING, "\"resp_0\"",
             "a stored response: its input and output come first; 404 when it is not stored"),
    HONOURED("store", BOOL, "false", "keep the response for `previous_response_id` (default)"),
    SHARED("max_output_tokens", INTEGER, "16", "limit for the answer", "max_tokens"),
    SHARED("top_logprobs", INTEGER, "2", "with `include` of `message.output_text.logprobs`", "top_logprobs"),
    HONOURED("include", LIST, "[\"message.output_text.logprobs\"]",
             "`message.output_text.logprobs`; `reasoning.encrypted_content`: thoughts can be sent back"),
    SHARED("stream", BOOL, "false", "server-sent events", "stream"),
    SHARED("return_progress", BOOL, "true", "with `stream`: `response.in_progress` while the prompt is computed",
           "return_progress"),
    SHARED("timings_per_token", BOOL, "true", "with `stream`: timings in every delta and in the last event",
           "timings_per_token"),
    NO_EFFECT("stream_options", OBJECT, "{\"include_obfuscation\": false}", "events are never padded"),
    HONOURED("text", OBJECT, "{\"format\": {\"type\": \"text\"}}",
             "`format`: `text`, `json_object` or `json_schema`; `verbosity` has no effect"),
    HONOURED(
        "tools", LIST, "[{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"type\": \"object\"}}]",
        "`function`, `custom`, `namespace`, `local_shell`, `mcp` for a server of `--mcp`, and `tool_search` that the "
        "client executes; other tools that a "
        "server runs are left out"),
    HONOURED("tool_choice", STRING | OBJECT, "\"auto\"", "`auto`, `none`, `required`, or a tool"),
    SHARED("parallel_tool_calls", BOOL, "true", "`false`: the answer has at most one call", "parallel_tool_calls"),
    HONOURED("reasoning", OBJECT, "{\"effort\": \"low\"}", "`effort`: `reasoning_effort` of the template"),
    HONOURED("truncation", STRING, "\"disabled\"", "`auto`: a full context slides"),
    HONOURED("metadata", OBJECT, "{\"a\": \"b\"}", "returned with the response"),
    NO_EFFECT("user", STRING, "\"u1\"", NO_CLIENTS),
    NO_EFFECT("safety_identifier", STRING, "\"u1\"", NO_CLIENTS),
    NO_EFFECT("prompt_cache_key", STRING, "\"k\"", "pages are found by their content"),
    NO_EFFECT("prompt_cache_retention", STRING, "\"24h\"", "--cache-ttl decides"),
    NO_EFFECT("service_tier", STRING, "\"auto\"", NO_CHOICE),
    NO_EFFECT("max_tool_calls", INTEGER, "4", "it limits tools that a server runs, and there are none"),
    REFUSED("background", BOOL, "true", "send it and wait", "[false]"),
    REFUSED("conversation", STRING | OBJECT, "\"conv_1\"", "use previous_response_id", NULL),
    REFUSED("prompt", OBJECT, "{\"id\": \"p\"}", "there are no stored prompts", NULL),
    NO_EFFECT("context_management", LIST, "[{\"type\": \"compaction\"}]", "`POST /v1/responses/compact` compacts"),
    NO_EFFECT("client_metadata", OBJECT, "{\"a\": \"b\"}", NO_STORE),
};

static const char *const responses_sampling[] = {"temperature", "top_p", NULL};

const spry_field_table spry_fields_responses = {.title = "POST /v1/responses",
                                                .within = "",
                                                .groups = {SPRY_FIELD_GROUP(responses), SPRY_FIELD_GROUP(own)},
                                                .options = spry_completion_sampling,
                                                .only = responses_sampling,
                                                .places = spry_places_responses};

/* ---- Ollama ------------------------------------------------------------------------------------------------------ */

static const spry_field options[] = {
    BOUND("num_predict", INTEGER, "8", "limit for the answer; 0: no answer, negative: no limit", LIMIT(-2),
          .chat = "max_tokens"),
    BOUND("stop", STRING | LIST, "[\"x\"]", "texts that end the answer", .read = spry_read_stop, .chat = "stop"),
    BOUND("num_keep", INTEGER, "8", "tokens that are kept when the context slides; -1: the prompt",
          .read = spry_read_keep),
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

const spry_field_table spry_fields_ollama_options = {
    .within = "options.", .groups = {SPRY_FIELD_GROUP(options)}, .options = spry_completion_sampling};
static const spry_field_table *const inside[] = {&spry_fields_ollama_options, NULL};

static const spry_field both[] = {
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "with or without `:latest`; case does not matter"),
    BOUND("stream", BOOL, "false", "lines of JSON (default)", TO_BOOL(stream)),
    HONOURED("format", STRING | OBJECT, "\"json\"", "`json`, or a schema"),
    HONOURED("options", OBJECT, "{\"num_predict\": 8}",
             "below; defaults here: `repeat_penalty` 1.1 and `repeat_last_n` 64, whose value 0 turns penalties off and "
             "-1 counts all tokens"),
    HONOURED("keep_alive", NUMBER | STRING, "\"5m\"", "time until an unused model is unloaded"),
    HONOURED("think", BOOL | STRING, "false",
             "`enable_thinking` of the template; a level is its `reasoning_effort`; other than `false`: 400 for models "
             "without thoughts"),
    HONOURED("chat_template_kwargs", OBJECT, "{\"enable_thinking\": false}", "variables of the template"),
    BOUND("logprobs", BOOL, "true", "log probabilities of generated tokens", TO_BOOL(want_logprobs)),
    BOUND("top_logprobs", INTEGER, "2", "needs `logprobs`", TO_U32(request.logprobs, 0, SPRY_TOP_LOGPROBS_MAX)),
    BOUND("truncate", BOOL, "true", "`false`: a prompt that does not fit is an error", TO_NOT(must_fit)),
    BOUND("shift", BOOL, "true", "`false`: a full context ends the answer; raw prompts must fit", TO_NOT(no_shift)),
};

/* What some clients send outside `options`; temperature and top_p, too. */
static const spry_field ollama_top[] = {
    BOUND("max_output_tokens", INTEGER, "8", "the same as `options.num_predict`", LIMIT(-2)),
};

static const spry_field ollama_chat[] = {
    HONOURED("messages", LIST, "[{\"role\": \"user\", \"content\": \"Hi\"}]",
             "`images` inside are for models with eyes"),
    HONOURED("tools", LIST, "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]", "functions"),
    HONOURED("tool_choice", STRING | OBJECT, "\"auto\"", "`auto`, `none`, `required`, or a function"),
};

static const spry_field generate[] = {
    HONOURED("prompt", STRING, "\"Hi\"", "empty: the model is loaded"),
    HONOURED("suffix", STRING, "\"\"", "the text after the answer; needs a model with fill-in tokens"),
    HONOURED("system", STRING, "\"Be brief.\"", "the system message"),
    BOUND("raw", BOOL, "true", "no template", TO_NOT(keep_raw_text)),
    HONOURED("context", LIST, "[5, 6]", "tokens of the conversation so far"),
    REFUSED("template", STRING, "\"{{ .Prompt }}\"", "--chat-template, or a model made with /api/create", "[\"\"]"),
    HONOURED("images", LIST, "[]", "base64 of pictures, for models with eyes; not with `raw`"),
};

static const char *const ollama_sampling[] = {"temperature", "top_p", NULL};

const spry_field_table spry_fields_ollama_chat = {.title = "POST /api/chat",
                                                  .within = "",
                                                  .groups = {SPRY_FIELD_GROUP(ollama_chat),
                                                             SPRY_FIELD_GROUP(ollama_top), SPRY_FIELD_GROUP(both),
                                                             SPRY_FIELD_GROUP(own)},
                                                  .options = spry_completion_sampling,
                                                  .only = ollama_sampling,
                                                  .inside = inside,
                                                  .places = spry_places_ollama};

const spry_field_table spry_fields_ollama_generate = {
    .title = "POST /api/generate",
    .within = "",
    .groups = {SPRY_FIELD_GROUP(generate), SPRY_FIELD_GROUP(ollama_top), SPRY_FIELD_GROUP(both), SPRY_FIELD_GROUP(own)},
    .options = spry_completion_sampling,
    .only = ollama_sampling,
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
