/* Fields of Anthropic's Messages and of OpenAI's Responses. */
#include "server/fields/field_row.h"

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
