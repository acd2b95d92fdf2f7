/* Fields of OpenAI's chat completions, completions and embeddings, with the additions of vLLM and llama-server, and of
 * llama-server's /completion. */
#include "server/fields/field_row.h"

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
