/* The fields of every path, as data. */
#include "server/fields/field_row.h"

const spry_field spry_own_fields[SPRY_OWN_FIELDS] = {
    HONOURED("priority", STRING, "\"batch\"",
             "`interactive` (default), or `batch`: it gives way to requests that are not"),
    HONOURED(
        "context_overflow", STRING, "\"slide\"",
        "a full context: `error`; `slide`: the oldest messages or tokens are dropped; `truncate_middle`: the prompt "
        "loses its middle. `timings.dropped_tokens` says how many went"),
    HONOURED("answer_span", BOOL, "true",
             "the answer is computed as a fragment, too, for prompts that contain it as a part with `cache: span`"),
    HONOURED("lora", LIST | STRING | OBJECT, "[]",
             "adapters of this answer: a name, `{\"name\": \"a\", \"scale\": 0.5}` or llama-server's `{\"id\": 0, "
             "\"scale\": 0.5}`, or a list of these; an empty list: none; absent: those of `--lora` by their scales"),
    HONOURED(
        "stream_id", STRING, "\"8f1c2d3e4a5b6c7d\"",
        "with `stream`: 16 to 64 letters and digits of the client's choice. The answer goes on without its connection; "
        "`GET /v1/streams/ID` reads on"),
};

static const spry_field chats[] = {
    HONOURED("title", STRING, "\"A tale\"",
             "at most 60 characters; of a new chat: its first words unless it says otherwise"),
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
    HONOURED("arguments", OBJECT, "{\"city\": \"Oslo\"}", "the body of the call, as JSON; absent: `{}`"),
};

const spry_field_table spry_fields_tool_call = {
    .title = "POST /v1/tools/call", .within = "", .groups = {SPRY_FIELD_GROUP(tool_call)}};

/* ---- OpenAI and llama-server ------------------------------------------------------------------------------------- */

/* Fields of OpenAI's chat completions, completions and embeddings, with the additions of vLLM and llama-server, and of
 * llama-server's /completion. */

static const spry_field sampling[] = {
    HONOURED("temperature", NUMBER, "0.7", "divides logits; 0: the most probable token"),
    HONOURED("top_p", NUMBER, "0.9", "the most probable tokens that together reach it"),
    HONOURED("top_k", INTEGER, "40", "the most probable tokens; 0 or negative: all"),
    HONOURED("min_p", NUMBER, "0.05", "tokens at least that much as probable as the most probable one"),
    HONOURED("typical_p", NUMBER, "0.9", "tokens about as surprising as expected"),
    HONOURED("repeat_penalty", NUMBER, "1.1", "of tokens seen before"),
    HONOURED("repetition_penalty", NUMBER, "1.1", "vLLM's name of `repeat_penalty`"),
    HONOURED("repeat_last_n", INTEGER, "64", "how many last tokens count as seen; 0 or negative: all"),
    HONOURED("penalty_scope", STRING, "\"all\"",
             "tokens seen before: `generated` ones (default), or `all`, those of the prompt, too, as llama.cpp has it"),
    HONOURED("presence_penalty", NUMBER, "0.5", "subtracted once from tokens seen before"),
    HONOURED("frequency_penalty", NUMBER, "0.5", "subtracted for each time a token was seen"),
    HONOURED("seed", INTEGER, "7", "of the random numbers; negative: random"),
    HONOURED("logit_bias", OBJECT | LIST, "{\"5\": -1}",
             "from token ids or texts to numbers, or a list of pairs; `false` bans a token"),
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

static const spry_field answers[] = {
    HONOURED("stop", STRING | LIST, "[\"\\n\\n\"]", "texts that end the answer"),
    HONOURED("stream", BOOL, "false", "server-sent events"),
    HONOURED("ignore_eos", BOOL, "true", "continue behind the end token"),
    HONOURED("draft", BOOL, "false", "`false`: no drafts; the answer is the same"),
    HONOURED("response_format", OBJECT, "{\"type\": \"json_object\"}",
             "`text`, `json_object` (with `schema`: that schema) or `json_schema`"),
    HONOURED("grammar", STRING, "\"root ::= [a-z ]+\"", "llama.cpp's notation"),
    HONOURED("json_schema", OBJECT | STRING, "{\"type\": \"boolean\"}", "llama-server's"),
    HONOURED("json_style", STRING, "\"pretty\"",
             "blanks in JSON under a schema: `compact` (default), `pretty`, `free`; `any`: also any order of members"),
    HONOURED("json_lenient", BOOL, "true",
             "leave out what a schema says and cannot be enforced, with a warning in `timings`"),
    HONOURED("guided_json", OBJECT | STRING, "{\"type\": \"boolean\"}", "vLLM's"),
    HONOURED("guided_regex", STRING, "\"[a-z]{3}\"", "vLLM's"),
    HONOURED("guided_choice", LIST, "[\"yes\", \"no\"]", "vLLM's"),
    HONOURED("guided_grammar", STRING, "\"root ::= [a-z ]+\"", "vLLM's name of `grammar`"),
    NO_EFFECT("cache_prompt", BOOL, "true", "answers are the same with and without cached pages"),
    NO_EFFECT("id_slot", INTEGER, "0", "cached pages serve every slot"),
    HONOURED("return_progress", BOOL, "true", "with `stream`: events while the prompt is computed"),
    HONOURED("timings_per_token", BOOL, "true", "with `stream`: timings in every event"),
    HONOURED("verbose", BOOL, "true", "`__verbose` in the reply: the prompt and the settings"),
    NO_EFFECT("speculative.n_max", INTEGER, "8", "drafts have the length that pays"),
    NO_EFFECT("speculative.n_min", INTEGER, "1", "drafts have the length that pays"),
    NO_EFFECT("speculative.p_min", NUMBER, "0.5", "drafts have the length that pays"),
    REFUSED("min_tokens", INTEGER, "4", "use ignore_eos with a limit", "[0]"),
    REFUSED("t_max_predict_ms", INTEGER, "100", "--answer-timeout limits the time", "[0, -1]"),
    HONOURED("n_keep", INTEGER, "8", "tokens that are kept when the context slides; -1: the prompt"),
    REFUSED("n_discard", INTEGER, "8", "an eighth of the context is dropped at a time", "[0]"),
};

static const spry_field openai[] = {
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model; case does not matter"),
    HONOURED("n", INTEGER, "2", "answers"),
    HONOURED("max_tokens", INTEGER, "8", "limit for the answer; 0 or -1: none, except in completions"),
    HONOURED("n_predict", INTEGER, "8", "llama-server's name of `max_tokens`"),
    HONOURED("stream_options", OBJECT, "{\"include_usage\": true}", "`include_usage`: counts at the end of the stream"),
    NO_EFFECT("user", STRING, "\"u1\"", NO_CLIENTS),
    NO_EFFECT("safety_identifier", STRING, "\"u1\"", NO_CLIENTS),
    NO_EFFECT("prompt_cache_key", STRING, "\"k\"", "pages are found by their content"),
    NO_EFFECT("prompt_cache_retention", STRING, "\"24h\"", "--cache-ttl decides"),
    NO_EFFECT("service_tier", STRING, "\"auto\"", NO_CHOICE),
    NO_EFFECT("store", BOOL, "false", NO_STORE),
    NO_EFFECT("metadata", OBJECT, "{\"a\": \"b\"}", NO_STORE),
};

static const spry_field chat[] = {
    HONOURED("messages", LIST, "[{\"role\": \"user\", \"content\": \"Hi\"}]", "text parts only; others are refused"),
    HONOURED("tools", LIST, "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]", "functions"),
    HONOURED("tool_choice", STRING | OBJECT, "\"auto\"", "`auto`, `none`, `required`, or a function"),
    HONOURED("parallel_tool_calls", BOOL, "false", "`false`: the answer has at most one call"),
    HONOURED("max_completion_tokens", INTEGER, "8", "the same as `max_tokens`"),
    HONOURED("logprobs", BOOL, "true", "of generated tokens"),
    HONOURED("top_logprobs", INTEGER, "2", "needs `logprobs`"),
    HONOURED("reasoning_effort", STRING, "\"low\"",
             "a variable of the template; `none` sets `enable_thinking` to false"),
    HONOURED("reasoning_format", STRING, "\"none\"", "`none`: thoughts stay in the content"),
    HONOURED("chat_template_kwargs", OBJECT, "{\"enable_thinking\": false}", "variables of the template"),
    HONOURED("add_generation_prompt", BOOL, "true", "end the prompt with the beginning of the answer"),
    HONOURED("continue_final_message", BOOL, "false",
             "the answer continues the last message, which is the assistant's"),
    NO_EFFECT("parse_tool_calls", BOOL, "true", "calls are found where tools are declared"),
    NO_EFFECT("verbosity", STRING, "\"low\"", "models have no such setting"),
    REFUSED("functions", LIST, "[{\"name\": \"f\"}]", "send tools", "[[]]"),
    REFUSED("function_call", STRING | OBJECT, "\"auto\"", "send tool_choice", "[\"none\"]"),
    REFUSED("modalities", LIST, "[\"audio\"]", "only text", "[[\"text\"]]"),
    REFUSED("audio", OBJECT, "{\"voice\": \"x\"}", "only text", NULL),
    REFUSED("prediction", OBJECT, "{\"type\": \"content\", \"content\": \"x\"}", "drafts need no hints", NULL),
    REFUSED("web_search_options", OBJECT, "{\"a\": 1}", "the server has no search", NULL),
};

static const spry_field completion[] = {
    HONOURED("prompt", STRING | LIST, "\"Once\"",
             "a text, token ids, a list of those, or parts: `{\"text\": \"...\", \"cache\": \"span\"}` is a fragment"),
    HONOURED("suffix", STRING, "\"\"", "the text behind the answer; needs a model with fill-in tokens"),
    HONOURED("echo", BOOL, "true", "the prompt is part of the reply"),
    HONOURED("logprobs", INTEGER | BOOL, "2", "of generated and echoed tokens"),
    REFUSED("best_of", INTEGER, "4", "ask for n answers", "[1]"),
};

const spry_field_table spry_fields_openai_chat = {.title = "POST /v1/chat/completions",
                                                  .within = "",
                                                  .groups = {SPRY_FIELD_GROUP(chat), SPRY_FIELD_GROUP(openai),
                                                             SPRY_FIELD_GROUP(answers), SPRY_FIELD_GROUP(sampling),
                                                             SPRY_FIELD_GROUP(spry_own_fields)}};

const spry_field_table spry_fields_openai_completion = {
    .title = "POST /v1/completions",
    .within = "",
    .groups = {SPRY_FIELD_GROUP(completion), SPRY_FIELD_GROUP(openai), SPRY_FIELD_GROUP(answers),
               SPRY_FIELD_GROUP(sampling), SPRY_FIELD_GROUP(spry_own_fields)}};

/* ---- embeddings -------------------------------------------------------------------------------------------------- */

static const spry_field embeddings[] = {
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model"),
    HONOURED("input", STRING | LIST, "\"A text.\"", "a text, texts, token ids and texts, or lists of those"),
    HONOURED("encoding_format", STRING, "\"float\"", "`float` or `base64`"),
    HONOURED("dimensions", INTEGER, "512", "only the model's own size; others are refused"),
    HONOURED("prompt_name", STRING, "\"\"", "which of the model's prompts stands before the texts; empty: none"),
    NO_EFFECT("user", STRING, "\"u1\"", NO_CLIENTS),
};

const spry_field_table spry_fields_openai_embeddings = {
    .title = "POST /v1/embeddings", .within = "", .groups = {SPRY_FIELD_GROUP(embeddings)}};

/* ---- llama-server ------------------------------------------------------------------------------------------------ */

static const spry_field llama[] = {
    HONOURED("prompt", STRING | LIST | OBJECT, "\"Once\"",
             "a text, also as `prompt_string` of an object; token ids, texts and parts (`{\"text\": \"...\", "
             "\"cache\": \"span\"}` is a fragment); or a list "
             "of prompts"),
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model"),
    HONOURED("n_predict", INTEGER, "8", "limit for the answer; negative: none"),
    HONOURED("max_tokens", INTEGER, "8", "the same"),
    HONOURED("n", INTEGER, "1", "answers"),
    HONOURED("n_probs", INTEGER, "2", "alternatives of every token"),
    REFUSED("post_sampling_probs", BOOL, "true", "log probabilities are those of the raw logits", "[false]"),
    HONOURED("return_tokens", BOOL, "true", "ids of the answer in `tokens`"),
    HONOURED("response_fields", LIST, "[\"content\"]", "members of the reply, `/` for members inside"),
    NO_EFFECT("n_indent", INTEGER, "0", "lines are never cut"),
};

static const spry_field infill[] = {
    HONOURED("input_prefix", STRING, "\"int main() {\"", "the text before `prompt`"),
    HONOURED("input_suffix", STRING, "\"}\"", "the text behind the answer"),
    HONOURED("input_extra", LIST, "[{\"filename\": \"a.h\", \"text\": \"int a;\"}]",
             "files that stand before the text"),
};

const spry_field_table spry_fields_llama_infill = {.title = "POST /infill",
                                                   .within = "",
                                                   .groups = {SPRY_FIELD_GROUP(infill), SPRY_FIELD_GROUP(llama),
                                                              SPRY_FIELD_GROUP(answers), SPRY_FIELD_GROUP(sampling),
                                                              SPRY_FIELD_GROUP(spry_own_fields)}};

static const spry_field tokenize[] = {
    HONOURED("content", STRING, "\"Once\"", "the text"),
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model"),
    HONOURED("add_special", BOOL, "true", "with the tokens that begin a text"),
    HONOURED("parse_special", BOOL, "false", "`false`: spellings of control tokens are plain text"),
    HONOURED("with_pieces", BOOL, "true", "each token as `id` and `piece`"),
};

const spry_field_table spry_fields_llama_tokenize = {
    .title = "POST /tokenize", .within = "", .groups = {SPRY_FIELD_GROUP(tokenize)}};

static const spry_field detokenize[] = {
    HONOURED("tokens", LIST, "[5, 6]", "token ids"),
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model"),
};

const spry_field_table spry_fields_llama_detokenize = {
    .title = "POST /detokenize", .within = "", .groups = {SPRY_FIELD_GROUP(detokenize)}};

/* ---- reranking --------------------------------------------------------------------------------------------------- */

static const spry_field rerank[] = {
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model"),
    HONOURED("query", STRING, "\"A fox\"", "what the documents are compared with"),
    HONOURED("documents", LIST, "[\"A fox.\", \"A hen.\"]", "texts, or objects with a `text`"),
    HONOURED("texts", LIST, "[\"A fox.\", \"A hen.\"]", "the same in TEI's form, whose reply is a list"),
    HONOURED("top_n", INTEGER, "1", "the best of them"),
    HONOURED("return_documents", BOOL, "true", "with their texts"),
    HONOURED("return_text", BOOL, "true", "the same in TEI's form"),
    HONOURED("method", STRING, "\"embedding\"",
             "`embedding`: the cosine of embeddings; `yes_no`: the probability of the model's yes; absent: `yes_no` "
             "for models "
             "with `rerank` in their name"),
    HONOURED("instruction", STRING, "\"Find tales.\"", "of `yes_no`: the task"),
    NO_EFFECT("truncate", BOOL, "false", "texts beyond the context are errors"),
    NO_EFFECT("user", STRING, "\"u1\"", NO_CLIENTS),
};

const spry_field_table spry_fields_rerank = {
    .title = "POST /rerank, /reranking, /v1/rerank, /v1/reranking", .within = "", .groups = {SPRY_FIELD_GROUP(rerank)}};

const spry_field_table spry_fields_llama_completion = {.title = "POST /completion",
                                                       .within = "",
                                                       .groups = {SPRY_FIELD_GROUP(llama), SPRY_FIELD_GROUP(answers),
                                                                  SPRY_FIELD_GROUP(sampling),
                                                                  SPRY_FIELD_GROUP(spry_own_fields)}};

/* ---- Anthropic's Messages and OpenAI's Responses ----------------------------------------------------------------- */

/* Fields of Anthropic's Messages and of OpenAI's Responses. */

static const spry_field prompt[] = {
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "one of `GET /v1/models`; case does not matter"),
    HONOURED("messages", LIST, "[{\"role\": \"user\", \"content\": \"Hi\"}]",
             "`text`, `tool_use`, `tool_result` and `thinking` blocks; images and files are refused"),
    HONOURED("system", STRING | LIST, "\"Be brief.\"", "a text, or text blocks"),
    HONOURED("tools", LIST, "[{\"name\": \"f\", \"input_schema\": {\"type\": \"object\"}}]",
             "the client's tools; those that a server runs are refused"),
    HONOURED("tool_choice", OBJECT, "{\"type\": \"auto\"}",
             "`auto`, `any`, `tool` or `none`; with `disable_parallel_tool_use` the answer has at most one call"),
    HONOURED("thinking", OBJECT, "{\"type\": \"disabled\"}",
             "`enable_thinking` of the template; `budget_tokens` has no effect"),
    NO_EFFECT("cache_control", OBJECT, "{\"type\": \"ephemeral\"}", "every prompt is cached"),
    REFUSED("mcp_servers", LIST, "[{\"name\": \"x\"}]", "the server runs no tools", "[[]]"),
    REFUSED("context_management", OBJECT, "{\"edits\": [{\"type\": \"x\"}]}", "send the messages that are wanted",
            "[{\"edits\": []}]"),
    HONOURED("output_config", OBJECT, "{\"effort\": \"low\"}",
             "`effort`: `reasoning_effort` of the template; `format`: a JSON schema"),
    HONOURED("output_format", OBJECT, "{\"type\": \"json_schema\", \"schema\": {\"type\": \"boolean\"}}",
             "a JSON schema, in the older place"),
};

static const spry_field anthropic[] = {
    HONOURED("max_tokens", INTEGER, "8", "required"),
    HONOURED("stop_sequences", LIST, "[\"x\"]", "texts that end the answer; `stop_sequence` says which did"),
    HONOURED("stream", BOOL, "false", "server-sent events"),
    HONOURED("temperature", NUMBER, "0.7", "as above"),
    HONOURED("top_p", NUMBER, "0.9", "as above"),
    HONOURED("top_k", INTEGER, "40", "as above"),
    NO_EFFECT("metadata", OBJECT, "{\"user_id\": \"u1\"}", NO_CLIENTS),
    NO_EFFECT("service_tier", STRING, "\"auto\"", NO_CHOICE),
    NO_EFFECT("inference_geo", STRING, "\"eu\"", "the answer is made here"),
    REFUSED("container", STRING | OBJECT, "\"c\"", "the server runs no code", NULL),
};

const spry_field_table spry_fields_anthropic = {
    .title = "POST /v1/messages",
    .within = "",
    .groups = {SPRY_FIELD_GROUP(prompt), SPRY_FIELD_GROUP(anthropic), SPRY_FIELD_GROUP(spry_own_fields)}};

const spry_field_table spry_fields_anthropic_count = {
    .title = "POST /v1/messages/count_tokens", .within = "", .groups = {SPRY_FIELD_GROUP(prompt)}};

/* ---- Responses --------------------------------------------------------------------------------------------------- */

static const spry_field responses[] = {
    HONOURED("model", STRING, "\"Spry-Tales-29M\"", "absent: the first model; case does not matter"),
    HONOURED("input", STRING | LIST, "\"Hi\"",
             "a text, or items: `message`, `function_call`, `function_call_output`, `reasoning`, `item_reference`"),
    HONOURED("instructions", STRING, "\"Be brief.\"", "the system message of this response only"),
    HONOURED("previous_response_id", STRING, "\"resp_0\"",
             "a stored response: its input and output come first; 404 when it is not stored"),
    HONOURED("store", BOOL, "false", "keep the response for `previous_response_id`; true unless it says otherwise"),
    HONOURED("max_output_tokens", INTEGER, "16", "limit for the answer"),
    HONOURED("temperature", NUMBER, "0.7", "as above"),
    HONOURED("top_p", NUMBER, "0.9", "as above"),
    HONOURED("top_logprobs", INTEGER, "2", "with `include` of `message.output_text.logprobs`"),
    HONOURED("include", LIST, "[\"message.output_text.logprobs\"]",
             "`message.output_text.logprobs`; `reasoning.encrypted_content` has no effect; others are refused"),
    HONOURED("stream", BOOL, "false", "server-sent events"),
    HONOURED("return_progress", BOOL, "true", "with `stream`: `response.in_progress` while the prompt is computed"),
    HONOURED("timings_per_token", BOOL, "true", "with `stream`: timings in every delta and in the last event"),
    NO_EFFECT("stream_options", OBJECT, "{\"include_obfuscation\": false}", "events are never padded"),
    HONOURED("text", OBJECT, "{\"format\": {\"type\": \"text\"}}",
             "`format`: `text`, `json_object` or `json_schema`; `verbosity` has no effect"),
    HONOURED("tools", LIST, "[{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"type\": \"object\"}}]",
             "functions; other tools are refused"),
    HONOURED("tool_choice", STRING | OBJECT, "\"auto\"", "`auto`, `none`, `required`, or a function"),
    HONOURED("parallel_tool_calls", BOOL, "true", "`false`: the answer has at most one call"),
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
    REFUSED("context_management", LIST, "[{\"type\": \"compaction\"}]", "use truncation", "[[]]"),
};

const spry_field_table spry_fields_responses = {
    .title = "POST /v1/responses",
    .within = "",
    .groups = {SPRY_FIELD_GROUP(responses), SPRY_FIELD_GROUP(spry_own_fields)}};

/* ---- Ollama ------------------------------------------------------------------------------------------------------ */

/* Fields of Ollama's interface. */

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

static const spry_field ollama_chat[] = {
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
    .groups = {SPRY_FIELD_GROUP(ollama_chat), SPRY_FIELD_GROUP(both), SPRY_FIELD_GROUP(spry_own_fields)},
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
