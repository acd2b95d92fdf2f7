/* Text to ids and back, through the model's tokenizer and chat template: prompts of conversations with the fragments
 * and tool calls they declare, and answers split into content, reasoning and calls. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/json.h"
#include "engine/engine_state.h"
#include "engine/eyes.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "spry_serve.h"
#include "template/tool_calls.h"
#include "template/tool_styles.h"
#include "tokenizer/normalize.h"

/* ---- tool calls that a conversation allows ----------------------------------------------------------------------- */

enum { PROMPT_END = 16, END_BYTES = 4096, TOOLS_MAX = 20000, VARIABLES_MAX = 256 };

/* Whether the prompt ends inside a thought. */
static bool in_thought(const spry_engine *engine, const spry_tokens *ids, const spry_thought_style *thoughts)
{
    char text[END_BYTES];
    size_t size, n = ids->count < PROMPT_END ? ids->count : PROMPT_END;
    if (!n || spry_engine_detokenize(engine, text, sizeof text, &size, ids->ids + ids->count - n, n, true, NULL))
        return false;
    return spry_answer_opens_thought(thoughts, (spry_view){text, size < sizeof text ? size : sizeof text});
}

/* Sets prompt->call_constraint from the request's tools and its choice. `ids`: the tokens of the prompt. */
static spry_status constrain_calls(spry_chat_prompt *prompt, const spry_tokens *ids, const spry_engine *engine,
                                   const json_t *request, const json_t *tools, spry_error *error)
{
    spry_tool_choice choice;
    const spry_tool_style *style = spry_chat_template_tool_style(engine->model->chat, true);
    const spry_thought_style *thoughts = spry_chat_template_thought_style(engine->model->chat, true);
    spry_status status = spry_tool_choice_read(&choice, tools, json_object_get(request, "tool_choice"), error);
    if (status)
        return status;
    size_t count = json_array_size(choice.functions);
    if (count && (count <= TOOLS_MAX || choice.required)) {
        json_t *spec =
            json_pack("{s:b, s:s, s:O, s:b, s:b}", "required", choice.required, "style", style->name, "tools",
                      choice.functions, "parallel", !json_is_false(json_object_get(request, "parallel_tool_calls")),
                      "in_thought", in_thought(engine, ids, thoughts));
        const json_t *thinks = json_object_get(json_object_get(request, "chat_template_kwargs"), "enable_thinking");
        if (spec && !thoughts->anywhere && !json_is_false(thinks)) {
            json_object_set_new(spec, "thought_open", json_string(thoughts->open));
            json_object_set_new(spec, "thought_close", json_string(thoughts->close));
        }
        prompt->call_constraint = spec ? spry_json_text(spec, JSON_COMPACT) : NULL;
        if (!prompt->call_constraint)
            status = spry_fail_memory(error, "the tools", count);
        json_decref(spec);
    }
    spry_tool_choice_deinit(&choice);
    return status;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

enum { MAX_CHAT_BYTES = 64 << 20, MAX_PICTURE_BYTES = 32 << 20 };

static spry_status need_tokenizer(const spry_engine *e, spry_error *error)
{
    if (e->model->tokenizer)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: the model has no tokenizer", e->model->name);
}

static spry_status hand_over(int32_t *ids, size_t capacity, size_t *count, spry_tokens *tokens, spry_status status)
{
    size_t fits = tokens->count < capacity ? tokens->count : capacity;
    if (!status && fits)
        memcpy(ids, tokens->ids, fits * sizeof *ids);
    *count = status ? 0 : tokens->count;
    spry_tokens_deinit(tokens);
    return status;
}

static spry_status tokenize(const spry_engine *e, int32_t *ids, size_t capacity, size_t *count, spry_view text,
                            unsigned flags, spry_error *error)
{
    spry_tokens tokens = {0};
    spry_status status = need_tokenizer(e, error);
    if (!status)
        status = spry_tokenizer_encode(e->model->tokenizer, &tokens, text, NULL, 0, flags, error);
    return hand_over(ids, capacity, count, &tokens, status);
}

spry_status spry_engine_tokenize(const spry_engine *e, int32_t *ids, size_t capacity, size_t *count, const char *text,
                                 size_t size, bool special, spry_error *error)
{
    return tokenize(e, ids, capacity, count, (spry_view){text, size},
                    SPRY_ENCODE_BOS_EOS | (special ? SPRY_ENCODE_SPECIAL : 0u), error);
}

spry_status spry_engine_tokenize_part(const spry_engine *e, int32_t *ids, size_t capacity, size_t *count,
                                      const char *text, size_t size, bool special, spry_error *error)
{
    return tokenize(e, ids, capacity, count, (spry_view){text, size}, special ? SPRY_ENCODE_SPECIAL : 0u, error);
}

bool spry_engine_ranks(const spry_engine *e)
{
    return e->model->pooling.ranks;
}

/* [CLS] first [SEP] second [SEP], or <s> first </s></s> second </s>. */
spry_status spry_engine_tokenize_pair(const spry_engine *e, int32_t *ids, size_t capacity, size_t *count,
                                      const char *first, const char *second, spry_error *error)
{
    spry_tokens one = {0}, two = {0};
    spry_status status = need_tokenizer(e, error);
    const spry_tokenizer *t = e->model->tokenizer;
    if (!status)
        status = spry_tokenizer_encode(t, &one, spry_view_of(first), NULL, 0, SPRY_ENCODE_BOS_EOS, error);
    if (!status)
        status = spry_tokenizer_encode(t, &two, spry_view_of(second), NULL, 0, SPRY_ENCODE_BOS_EOS, error);
    int32_t eos = status ? -1 : spry_tokenizer_eos(t);
    bool twice = eos >= 0 && !spry_view_is(spry_tokenizer_name(t, eos), "[SEP]");
    bool starts = !status && two.count && two.ids[0] == spry_tokenizer_bos(t);
    if (starts && twice)
        two.ids[0] = eos;
    size_t skipped = starts && !twice, fits = one.count < capacity ? capacity - one.count : 0;
    size_t more = status ? 0 : two.count - skipped;
    fits = fits < more ? fits : more;
    if (fits)
        memcpy(ids + one.count, two.ids + skipped, fits * sizeof *ids);
    spry_tokens_deinit(&two);
    status = hand_over(ids, capacity, count, &one, status);
    *count += more;
    return status;
}

const char *spry_engine_token_bytes(const spry_engine *e, int32_t id, bool special, size_t *size)
{
    const spry_tokenizer *tokenizer = e->model->tokenizer;
    *size = 0;
    if (!tokenizer || id < 0 || (size_t)id >= spry_tokenizer_size(tokenizer))
        return NULL;
    bool control = spry_tokenizer_kind(tokenizer, id) == SPRY_TOKEN_CONTROL;
    if (control && !special)
        return "";
    spry_view bytes = spry_tokenizer_bytes(tokenizer, id);
    if (!bytes.size && special)
        bytes = spry_tokenizer_name(tokenizer, id);
    *size = bytes.size;
    return bytes.size ? bytes.data : "";
}

const char *spry_engine_embedding_prompt(const spry_engine *e, const char *name)
{
    return spry_pooling_prompt(&e->model->pooling, name);
}

bool spry_engine_only_embeds(const spry_engine *e)
{
    return e->model->config.bidirectional;
}

bool spry_engine_is_end(const spry_engine *e, int32_t id)
{
    const spry_tokenizer *tokenizer = e->model->tokenizer;
    return tokenizer && id >= 0 && (size_t)id < spry_tokenizer_size(tokenizer) && spry_tokenizer_is_end(tokenizer, id);
}

int32_t spry_engine_begin_token(const spry_engine *e)
{
    return e->model->tokenizer ? spry_tokenizer_bos(e->model->tokenizer) : -1;
}

spry_status spry_engine_detokenize(const spry_engine *e, char *text, size_t capacity, size_t *size, const int32_t *ids,
                                   size_t count, bool special, spry_error *error)
{
    spry_buffer out;
    spry_buffer_init(&out, SIZE_MAX / 2);
    spry_status status = need_tokenizer(e, error);
    if (!status)
        status = spry_tokenizer_decode(e->model->tokenizer, &out, ids, count, special, error);
    size_t fits = out.size < capacity ? out.size + 1 : capacity; /* bytes including the terminating zero */
    if (!status && fits)
        memcpy(text, spry_buffer_view(&out).data, fits);
    *size = status ? 0 : out.size;
    spry_buffer_deinit(&out);
    return status;
}

/* ---- chat -------------------------------------------------------------------------------------------------------- */

/* Seconds since 1970. */
static int64_t wall_clock(void)
{
    time_t now = time(NULL);
    struct tm local;
    return localtime_r(&now, &local) ? (int64_t)now + local.tm_gmtoff : (int64_t)now;
}

static spry_view token_name(const spry_engine *e, int32_t id)
{
    return id < 0 ? (spry_view){NULL, 0} : spry_tokenizer_name(e->model->tokenizer, id);
}

static spry_status render_chat(const spry_engine *e, spry_chat_text *out, spry_chat_input *input, spry_error *error)
{
    spry_status status = need_tokenizer(e, error);
    if (status)
        return status;
    input->bos_token = token_name(e, spry_tokenizer_bos(e->model->tokenizer));
    input->eos_token = token_name(e, spry_tokenizer_eos(e->model->tokenizer));
    input->now = wall_clock();
    input->dates = true;
    if (!input->source.data)
        return spry_chat_template_render(e->model->chat, out, input, error);
    spry_chat_template *own = NULL;
    status = spry_chat_template_create(&own, input->source, error);
    if (!status && !spry_chat_template_is_own(own))
        status = spry_fail(error, SPRY_ERR_INPUT, "chat_template: %s", spry_chat_template_problem(own));
    if (!status)
        status = spry_chat_template_render(own, out, input, error);
    spry_chat_template_destroy(own);
    return status;
}

/* Messages as JSON; NULL when memory is short. Texts may be any bytes. */
static json_t *messages_json(const spry_message *messages, size_t n_messages)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n_messages; i++) {
        json_t *message = json_object();
        if (json_array_append_new(list, message) ||
            json_object_set_new(message, "role", json_string_nocheck(messages[i].role)) ||
            json_object_set_new(message, "content", json_string_nocheck(messages[i].content))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

spry_status spry_engine_chat(const spry_engine *e, int32_t *ids, size_t capacity, size_t *count,
                             const spry_message *messages, size_t n_messages, spry_error *error)
{
    spry_tokens tokens = {0};
    spry_chat_text text;
    json_t *list = messages_json(messages, n_messages);
    spry_chat_input input = {.messages = list, .add_generation_prompt = true};
    spry_chat_text_init(&text, MAX_CHAT_BYTES);
    spry_status status = list ? render_chat(e, &text, &input, error)
                              : spry_fail_memory(error, "a conversation", n_messages * sizeof *messages);
    if (!status)
        status = spry_tokenizer_encode(e->model->tokenizer, &tokens, spry_buffer_view(&text.text),
                                       (const spry_text_range *)(const void *)text.literal.data,
                                       text.literal.size / sizeof(spry_text_range), SPRY_ENCODE_SPECIAL, error);
    spry_chat_text_deinit(&text);
    json_decref(list);
    return hand_over(ids, capacity, count, &tokens, status);
}

/* The parts of a request; they belong to `request`. */
static spry_status read_request(spry_chat_input *input, const json_t *request, spry_error *error)
{
    const json_t *prompt = json_object_get(request, "add_generation_prompt");
    const json_t *source = json_object_get(request, "chat_template");
    const json_t *begun = json_object_get(request, "continuation");
    *input = (spry_chat_input){
        .messages = json_object_get(request, "messages"),
        .tools = json_object_get(request, "tools"),
        .extra = json_object_get(request, "chat_template_kwargs"),
        .source = {json_string_value(source), json_string_length(source)},
        .continuation = {json_string_value(begun), json_string_length(begun)},
        .add_generation_prompt = !json_is_false(prompt),
    };
    if (!json_is_array(input->messages) && !json_is_array(json_object_get(request, "prompt")))
        return spry_fail(error, SPRY_ERR_INPUT, "\"messages\" must be a list");
    if (input->tools && !json_is_array(input->tools) && !json_is_null(input->tools))
        return spry_fail(error, SPRY_ERR_INPUT, "\"tools\" must be a list");
    if (input->extra && !json_is_object(input->extra) && !json_is_null(input->extra))
        return spry_fail(error, SPRY_ERR_INPUT, "\"chat_template_kwargs\" must be an object");
    if (json_object_size(input->extra) > VARIABLES_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "\"chat_template_kwargs\" has %zu variables; at most %d are possible",
                         json_object_size(input->extra), VARIABLES_MAX);
    if (prompt && !json_is_boolean(prompt))
        return spry_fail(error, SPRY_ERR_INPUT, "\"add_generation_prompt\" must be true or false");
    input->tools = json_array_size(input->tools) ? input->tools : NULL;
    input->extra = json_is_object(input->extra) ? input->extra : NULL;
    return SPRY_OK;
}

/* Tools with "defer_loading" are defined by a message: they can be called, but the template does not list them. */
static spry_status hide_deferred(spry_chat_input *input, json_t *request, spry_error *error)
{
    json_t *shown = json_array();
    for (size_t i = 0; i < json_array_size(input->tools); i++) {
        json_t *tool = json_array_get(input->tools, i);
        if (!json_is_true(json_object_get(tool, "defer_loading")))
            json_array_append(shown, tool);
    }
    if (json_object_set_new(request, "shown_tools", shown))
        return spry_fail_memory(error, "tools", json_array_size(input->tools));
    input->tools = json_array_size(shown) ? shown : NULL;
    return SPRY_OK;
}

/* Parses a conversation in JSON; the caller owns *request, and `input` points into it. */
static spry_status parse_chat(json_t **request, spry_chat_input *input, const char *json, size_t size,
                              spry_error *error)
{
    spry_status status = spry_json_object(request, (spry_view){json, size}, error);
    if (status)
        return spry_fail_prefix(error, status == SPRY_ERR_FORMAT ? SPRY_ERR_INPUT : status, "the conversation");
    status = read_request(input, *request, error);
    return status || !input->tools ? status : hide_deferred(input, *request, error);
}

spry_status spry_engine_chat_text(const spry_engine *e, char **text, size_t *size, const char *json, size_t json_size,
                                  spry_error *error)
{
    json_t *request = NULL;
    spry_chat_input input;
    spry_chat_text out;
    spry_chat_text_init(&out, MAX_CHAT_BYTES);
    spry_status status = parse_chat(&request, &input, json, json_size, error);
    if (!status)
        status = render_chat(e, &out, &input, error);
    if (!status && !spry_buffer_append(&out.text, "", 0))
        status = spry_fail_memory(error, "a conversation", out.text.size);
    *size = status ? 0 : out.text.size;
    *text = status ? NULL : out.text.data;
    if (!status)
        out.text.data = NULL; /* the caller's now */
    spry_chat_text_deinit(&out);
    json_decref(request);
    return status;
}

const char *spry_engine_chat_template(const spry_engine *e, bool tools, size_t *size)
{
    spry_view source = spry_chat_template_used_source(e->model->chat, tools);
    *size = source.size;
    return source.data;
}

spry_status spry_engine_use_template(spry_engine *e, const char *file_or_text, spry_error *error)
{
    spry_buffer source;
    spry_chat_template *chat = NULL;
    bool is_text = strstr(file_or_text, "{{") || strstr(file_or_text, "{%");
    spry_status status = SPRY_OK;
    spry_buffer_init(&source, MAX_CHAT_BYTES);
    if (is_text)
        spry_buffer_text(&source, file_or_text);
    else
        status = spry_file_read(&source, file_or_text, error);
    if (!status)
        status = spry_chat_template_create(&chat, spry_buffer_view(&source), error);
    spry_buffer_deinit(&source);
    if (!status && !spry_chat_template_is_own(chat)) {
        const char *problem = spry_chat_template_problem(chat);
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s: no chat template: %s", is_text ? "the text" : file_or_text,
                           *problem ? problem : "it is empty");
        spry_chat_template_destroy(chat);
    } else if (!status) {
        spry_chat_template_destroy(e->model->chat);
        e->model->chat = chat;
    }
    return status;
}

/* ---- fragments --------------------------------------------------------------------------------------------------- */

/* Fragments of messages as spans of a prompt. Each fragment is replaced by an unpredictable mark; the template renders
 * the marks like any text; then the marks are replaced by the fragments' tokens. So a fragment begins and ends at token
 * borders, and its tokens are the same at any position. */

enum { MAX_FRAGMENTS = 1024, MARK_BYTES = 64, MAX_PICTURES = 128, MAX_PLACED = 1 << 16 };

typedef struct fragments {
    const spry_engine *engine;
    uint64_t nonce;
    json_t *texts;                     /* by number: strings, and numbers of pictures */
    spry_seen *pictures[MAX_PICTURES]; /* whose marks are replaced by their tokens */
    size_t n_pictures;
    spry_eyes_cost cost; /* time that the pictures took */
} fragments;

static void print_mark(char out[MARK_BYTES], const fragments *f, size_t number)
{
    snprintf(out, MARK_BYTES, "\xee\x80\x80%016" PRIx64 ":%zu\xee\x80\x81", f->nonce, number);
}

/* Puts a mark in place of a part's text, between two `margin`s; takes `item`. */
static spry_status put_mark(fragments *f, json_t *part, json_t *item, const char *margin, spry_error *error)
{
    char mark[MARK_BYTES];
    margin = margin ? margin : "";
    print_mark(mark, f, json_array_size(f->texts));
    if (json_array_append_new(f->texts, item) || json_object_set_new(part, "type", json_string("text")) ||
        json_object_set_new(part, "text", json_sprintf("%s%s%s", margin, mark, margin)))
        return spry_fail_memory(error, "fragments", 0);
    return SPRY_OK;
}

/* The bytes of "data:image/png;base64,...". Blanks in base64 are skipped. */
static spry_status read_data_url(spry_buffer *out, const json_t *url, const char *name, spry_error *error)
{
    spry_view text = {json_string_value(url), json_string_length(url)};
    const char *comma = text.data ? memchr(text.data, ',', text.size) : NULL;
    if (!text.data || !spry_view_starts(text, SPRY_VIEW("data:")))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%s: its url must be a data: URL, as \"data:image/png;base64,...\"; nothing is fetched", name);
    spry_view head = {text.data, comma ? (size_t)(comma - text.data) : 0};
    if (head.size < 7 || memcmp(head.data + head.size - 7, ";base64", 7) != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "%s: its data: URL is not base64", name);
    spry_buffer clean;
    spry_buffer_init(&clean, text.size + 1);
    for (const char *at = comma + 1; at < text.data + text.size; at++)
        if (!strchr(" \t\r\n", *at))
            spry_buffer_append(&clean, at, 1);
    spry_status status = SPRY_OK;
    if (clean.failed)
        status = spry_fail_memory(error, "a picture", text.size);
    else if (!clean.size || !spry_base64_decode(out, spry_buffer_view(&clean)))
        status = spry_fail(error, SPRY_ERR_INPUT, "%s is not valid base64, or larger than %d MB", name,
                           MAX_PICTURE_BYTES >> 20);
    spry_buffer_deinit(&clean);
    return status;
}

/* Encodes a picture and puts a mark in its place. */
static spry_status mark_picture(fragments *f, json_t *part, spry_error *error)
{
    char name[32];
    spry_buffer file;
    json_t *url = json_object_get(part, "image_url");
    url = json_is_object(url) ? json_object_get(url, "url") : url;
    snprintf(name, sizeof name, "picture %zu", f->n_pictures + 1);
    if (!f->engine->eyes)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "the model %s cannot see pictures", f->engine->model->name);
    if (f->n_pictures == MAX_PICTURES || json_array_size(f->texts) == MAX_FRAGMENTS)
        return spry_fail(error, SPRY_ERR_INPUT, "a conversation can have %d pictures", MAX_PICTURES);
    spry_buffer_init(&file, MAX_PICTURE_BYTES);
    spry_status status = read_data_url(&file, url, name, error);
    spry_seen *seen = NULL;
    if (!status)
        status = spry_eyes_look(f->engine->eyes, &seen, &f->cost, file.data, file.size, name, error);
    spry_buffer_deinit(&file);
    if (status)
        return status;
    f->pictures[f->n_pictures] = seen;
    return put_mark(f, part, json_integer((json_int_t)f->n_pictures++), seen->margin, error);
}

static bool is_picture(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && !strcmp(type, "image_url");
}

/* Moves the text out of a part that is a fragment. */
static spry_status mark_part(fragments *f, json_t *part, spry_error *error)
{
    if (is_picture(part))
        return mark_picture(f, part, error);
    const char *cache = json_string_value(json_object_get(part, "cache"));
    json_t *text = json_object_get(part, "text");
    if (!cache)
        return SPRY_OK;
    if (strcmp(cache, "span") != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "\"cache\" of a part is \"%.40s\"; known is \"span\"", cache);
    if (!json_is_string(text))
        return spry_fail(error, SPRY_ERR_INPUT, "a part with \"cache\" must have a \"text\"");
    if (!json_string_length(text))
        return SPRY_OK;
    if (json_array_size(f->texts) == MAX_FRAGMENTS)
        return spry_fail(error, SPRY_ERR_INPUT, "a conversation can have %d fragments", MAX_FRAGMENTS);
    return put_mark(f, part, json_incref(text), NULL, error);
}

/* Parts of a message with pictures become one text: no template puts anything between them. */
static spry_status join_parts(json_t *message, json_t *content, spry_error *error)
{
    spry_buffer all;
    spry_buffer_init(&all, MAX_CHAT_BYTES);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *text = json_object_get(json_array_get(content, i), "text");
        spry_buffer_append(&all, json_string_value(text) ? json_string_value(text) : "", json_string_length(text));
    }
    json_t *joined = all.failed ? NULL : json_stringn(spry_buffer_view(&all).data, all.size);
    spry_buffer_deinit(&all);
    if (!joined || json_object_set_new(message, "content", joined))
        return spry_fail_memory(error, "a message", 0);
    return SPRY_OK;
}

/* Marks the parts of a message; `joins`: they become one text in any case. */
static spry_status mark_parts(fragments *f, json_t *message, json_t *content, bool joins, spry_error *error)
{
    spry_status status = SPRY_OK;
    for (size_t k = 0; !status && k < json_array_size(content); k++) {
        joins = joins || is_picture(json_array_get(content, k));
        status = mark_part(f, json_array_get(content, k), error);
    }
    return status || !joins ? status : join_parts(message, content, error);
}

/* Marks the fragments of all messages, or of a prompt without a template, which becomes the "content" of the request.
 */
static spry_status mark_all(fragments *f, json_t *request, spry_error *error)
{
    json_t *messages = json_object_get(request, "messages");
    spry_status status = messages ? SPRY_OK : mark_parts(f, request, json_object_get(request, "prompt"), true, error);
    for (size_t i = 0; !status && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        status = mark_parts(f, message, json_object_get(message, "content"), false, error);
    }
    return status;
}

/* ---- the prompt in pieces ---------------------------------------------------------------------------------------- */

typedef struct pieces {
    const spry_engine *engine;
    spry_chat_text *text;
    spry_tokens ids;
    spry_buffer spans;    /* spry_span */
    spry_buffer pictures; /* spry_placed */
    spry_error *error;
} pieces;

/* Bytes [begin, end) of the rendered text. */
static spry_status add_text(pieces *p, size_t begin, size_t end)
{
    const spry_text_range *ranges = (const spry_text_range *)(const void *)p->text->literal.data;
    size_t n_ranges = p->text->literal.size / sizeof *ranges;
    spry_buffer literal;
    spry_buffer_init(&literal, p->text->literal.size + 1);
    for (size_t i = 0; i < n_ranges; i++) {
        spry_text_range r = {ranges[i].begin > begin ? ranges[i].begin : begin,
                             ranges[i].end < end ? ranges[i].end : end};
        if (r.begin >= r.end)
            continue;
        r.begin -= begin;
        r.end -= begin;
        spry_buffer_append(&literal, &r, sizeof r);
    }
    spry_status status = SPRY_OK;
    if (literal.failed)
        status = spry_fail_memory(p->error, "a prompt", p->text->literal.size);
    else if (begin < end)
        status = spry_tokenizer_encode(p->engine->model->tokenizer, &p->ids,
                                       (spry_view){p->text->text.data + begin, end - begin},
                                       (const spry_text_range *)(const void *)literal.data,
                                       literal.size / sizeof *ranges, SPRY_ENCODE_SPECIAL, p->error);
    spry_buffer_deinit(&literal);
    return status;
}

static spry_status add_fragment(pieces *p, const json_t *text)
{
    size_t begin = p->ids.count;
    spry_status status =
        spry_tokenizer_encode(p->engine->model->tokenizer, &p->ids,
                              (spry_view){json_string_value(text), json_string_length(text)}, NULL, 0, 0, p->error);
    const spry_span span = {begin, p->ids.count};
    if (!status && span.end > begin && !spry_buffer_append(&p->spans, &span, sizeof span))
        status = spry_fail_memory(p->error, "fragments", p->spans.size);
    return status;
}

/* The tokens and pictures that a file became. */
static spry_status add_picture(pieces *p, const spry_seen *seen)
{
    size_t begin = p->ids.count;
    bool fine = true;
    for (size_t i = 0; fine && i < seen->ids.count; i++)
        fine = spry_tokens_push(&p->ids, seen->ids.ids[i]);
    for (size_t i = 0; fine && i < seen->n_placed; i++) {
        const spry_placed placed = {begin + seen->placed[i].at, seen->placed[i].picture};
        fine = spry_buffer_append(&p->pictures, &placed, sizeof placed);
        if (fine)
            spry_picture_ref(placed.picture);
    }
    return fine ? SPRY_OK : spry_fail_memory(p->error, "a picture", p->ids.count * sizeof *p->ids.ids);
}

/* The first mark at or after `from`; false: there is none. */
static bool find_mark(spry_view text, size_t from, const fragments *f, size_t *at, size_t *size, size_t *number)
{
    char head[MARK_BYTES], mark[MARK_BYTES];
    print_mark(head, f, 0);
    size_t head_size = strlen(head) - 4; /* up to the number */
    for (; json_array_size(f->texts) && from + head_size < text.size; from++)
        for (size_t i = 0; !memcmp(text.data + from, head, head_size) && i < json_array_size(f->texts); i++) {
            print_mark(mark, f, i);
            *at = from;
            *size = strlen(mark);
            *number = i;
            if (spry_view_starts((spry_view){text.data + from, text.size - from}, spry_view_of(mark)))
                return true;
        }
    return false;
}

static spry_status cut(pieces *p, const fragments *f)
{
    spry_view text = spry_buffer_view(&p->text->text);
    spry_status status = SPRY_OK;
    size_t done = 0, at, size, number;
    while (!status && find_mark(text, done, f, &at, &size, &number)) {
        status = add_text(p, done, at);
        const json_t *item = json_array_get(f->texts, number);
        if (!status)
            status =
                json_is_string(item) ? add_fragment(p, item) : add_picture(p, f->pictures[json_integer_value(item)]);
        done = at + size;
    }
    return status ? status : add_text(p, done, text.size);
}

/* A text without a template begins as the tokenizer wants, and all of it may be control tokens. */
static spry_status begin_plain(pieces *p, const json_t *content)
{
    const spry_tokenizer *tokenizer = p->engine->model->tokenizer;
    spry_status status =
        spry_tokenizer_encode(tokenizer, &p->ids, SPRY_VIEW(""), NULL, 0, SPRY_ENCODE_BOS_EOS, p->error);
    p->ids.count = p->ids.count && p->ids.ids[0] == spry_tokenizer_bos(tokenizer);
    if (!status && !spry_buffer_append(&p->text->text, json_string_value(content), json_string_length(content)))
        status = spry_fail_memory(p->error, "a prompt", json_string_length(content));
    return status;
}

/* Renders and tokenises; the times go to `prompt`. `plain`: the text that is not rendered, or NULL. */
static spry_status make_pieces(pieces *p, spry_chat_prompt *prompt, const fragments *f, spry_chat_input *input,
                               const json_t *plain)
{
    uint64_t start = spry_clock_ns();
    spry_chat_text text;
    spry_chat_text_init(&text, MAX_CHAT_BYTES);
    p->text = &text;
    spry_status status = plain ? begin_plain(p, plain) : render_chat(p->engine, &text, input, p->error);
    uint64_t rendered = spry_clock_ns();
    const spry_text_range more = {text.text.size, text.text.size + input->continuation.size};
    if (!status && input->continuation.size &&
        !(spry_buffer_append(&text.text, input->continuation.data, input->continuation.size) &&
          spry_buffer_append(&text.literal, &more, sizeof more)))
        status = spry_fail_memory(p->error, "a prompt", more.end);
    if (!status)
        status = cut(p, f);
    prompt->template_ms = (double)(rendered - start) / 1e6;
    prompt->tokenize_ms = (double)(spry_clock_ns() - rendered) / 1e6;
    spry_chat_text_deinit(&text);
    return status;
}

spry_status spry_engine_chat_prompt(const spry_engine *e, spry_chat_prompt *prompt, const char *json, size_t size,
                                    spry_error *error)
{
    fragments f = {.engine = e, .nonce = spry_entropy(), .texts = json_array()};
    pieces p = {.engine = e, .error = error};
    spry_chat_input input;
    json_t *request = NULL;
    *prompt = (spry_chat_prompt){.size = offsetof(spry_chat_prompt, reserved)};
    spry_buffer_init(&p.spans, (size_t)MAX_CHAT_BYTES);
    spry_buffer_init(&p.pictures, sizeof(spry_placed) * MAX_PLACED);
    spry_status status = parse_chat(&request, &input, json, size, error);
    if (!status)
        status = mark_all(&f, request, error);
    const json_t *plain = status || json_object_get(request, "messages") ? NULL : json_object_get(request, "content");
    if (!status)
        status = make_pieces(&p, prompt, &f, &input, plain);
    prompt->preprocess_ms = (double)f.cost.preprocess_ns / 1e6;
    prompt->encode_ms = (double)f.cost.encode_ns / 1e6;
    if (!status && !json_is_false(json_object_get(request, "add_generation_prompt")))
        status = constrain_calls(prompt, &p.ids, e, request, json_object_get(request, "tools"), error);
    if (status) {
        spry_tokens_deinit(&p.ids);
        spry_buffer_deinit(&p.spans);
    }
    prompt->ids = p.ids.ids; /* owned by the caller now */
    prompt->count = p.ids.count;
    prompt->spans = (spry_span *)(void *)p.spans.data;
    prompt->n_spans = p.spans.size / sizeof *prompt->spans;
    prompt->pictures = (spry_placed *)(void *)p.pictures.data;
    prompt->n_pictures = p.pictures.size / sizeof *prompt->pictures;
    for (size_t i = 0; i < prompt->n_pictures; i++)
        prompt->picture_tokens += prompt->pictures[i].picture->n_rows;
    for (size_t i = 0; i < f.n_pictures; i++)
        spry_seen_unref(f.pictures[i]);
    if (status)
        spry_chat_prompt_deinit(prompt);
    json_decref(f.texts);
    json_decref(request);
    return status;
}

void spry_chat_prompt_deinit(spry_chat_prompt *prompt)
{
    spry_placed_free(prompt->pictures, (size_t)prompt->n_pictures);
    free(prompt->ids);
    free(prompt->spans);
    free(prompt->call_constraint);
    *prompt = (spry_chat_prompt){0};
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

enum { OPENING_TOKENS = 16, OPENING_BYTES = 4096 };

struct spry_chat_parser {
    spry_answer_parser *parser;
    json_t *tools;
    char eos[64]; /* how the model spells the end of a turn */
    void (*on_event)(void *user, const spry_chat_event *event);
    void *user;
};

void spry_chat_parser_options_default_sized(spry_chat_parser_options *options, size_t size)
{
    const spry_chat_parser_options own = {0};
    spry_sized_default(options, size, &own, sizeof own);
}

static void pass_on(void *user, const spry_answer_event *event)
{
    static const spry_chat_event_kind kinds[] = {
        [SPRY_ANSWER_CONTENT] = SPRY_CHAT_CONTENT,       [SPRY_ANSWER_REASONING] = SPRY_CHAT_REASONING,
        [SPRY_ANSWER_CALL_BEGIN] = SPRY_CHAT_CALL_BEGIN, [SPRY_ANSWER_ARGUMENTS] = SPRY_CHAT_ARGUMENTS,
        [SPRY_ANSWER_CALL_END] = SPRY_CHAT_CALL_END,     [SPRY_ANSWER_CALL_CUT] = SPRY_CHAT_CALL_CUT};
    const spry_chat_parser *p = user;
    const spry_chat_event out = {.size = offsetof(spry_chat_event, reserved),
                                 .kind = kinds[event->kind],
                                 .index = (uint32_t)event->index,
                                 .id = event->id,
                                 .name = event->name.data,
                                 .name_size = event->name.size,
                                 .text = event->text.data,
                                 .text_size = event->text.size};
    p->on_event(p->user, &out);
}

/* The end of a prompt as text, which may have begun a thought or a call. */
static spry_view prompt_end(const spry_engine *e, char text[OPENING_BYTES], const spry_chat_prompt *prompt)
{
    size_t size, n = prompt && prompt->count < OPENING_TOKENS ? prompt->count : OPENING_TOKENS;
    if (!prompt || !n ||
        spry_engine_detokenize(e, text, OPENING_BYTES, &size, prompt->ids + prompt->count - n, n, true, NULL))
        return (spry_view){"", 0};
    return (spry_view){text, size < OPENING_BYTES ? size : OPENING_BYTES};
}

static spry_status fill(spry_chat_parser *p, const spry_engine *e, const spry_chat_parser_options *o, spry_error *error)
{
    char text[OPENING_BYTES];
    if (!o->on_event || !spry_sized_zero(o->reserved, sizeof o->reserved))
        return spry_fail(error, SPRY_ERR_INPUT, "spry_chat_parser_options.on_event is NULL, or reserved is not zero");
    p->tools =
        o->tools ? spry_json_value(spry_view_of(o->tools)) : NULL; /* json_is_array evaluates its argument twice */
    if (o->tools && !json_is_array(p->tools))
        return spry_fail(error, SPRY_ERR_INPUT, "the tools are not a JSON array");
    int32_t end = e->model->tokenizer ? spry_tokenizer_eos(e->model->tokenizer) : -1;
    if (end >= 0)
        snprintf(p->eos, sizeof p->eos, "%.*s", SPRY_VIEW_ARG(spry_tokenizer_name(e->model->tokenizer, end)));
    spry_view source = spry_chat_template_used_source(e->model->chat, o->tools != NULL);
    const spry_answer_options options = {
        .tools = o->tools != NULL,
        .style = spry_chat_template_tool_style(e->model->chat, o->tools != NULL),
        .declared = json_array_size(p->tools) ? p->tools : NULL,
        .reasoning = o->reasoning,
        .thoughts = spry_chat_template_thought_style(e->model->chat, o->tools != NULL),
        .prompt = prompt_end(e, text, o->prompt),
        .source = source,
        .eos = p->eos,
        .seed = o->seed,
        .on_event = pass_on,
        .user = p,
    };
    p->on_event = o->on_event;
    p->user = o->user;
    return spry_answer_parser_create(&p->parser, &options, error);
}

spry_status spry_chat_parser_create(spry_chat_parser **out, const spry_engine *engine,
                                    const spry_chat_parser_options *theirs, spry_error *error)
{
    spry_chat_parser_options options;
    *out = NULL;
    spry_chat_parser_options_default(&options);
    spry_status status = spry_sized_read(&options, sizeof options, theirs, "spry_chat_parser_options", error);
    if (status)
        return status;
    spry_chat_parser *p = calloc(1, sizeof *p);
    if (!p)
        return spry_fail_memory(error, "a parser", sizeof *p);
    status = fill(p, engine, &options, error);
    if (status)
        spry_chat_parser_destroy(p);
    else
        *out = p;
    return status;
}

void spry_chat_parser_destroy(spry_chat_parser *p)
{
    if (!p)
        return;
    spry_answer_parser_destroy(p->parser);
    json_decref(p->tools);
    free(p);
}

spry_status spry_chat_parser_feed(spry_chat_parser *p, const char *text, size_t size, spry_error *error)
{
    return spry_answer_parser_feed(p->parser, (spry_view){text, size}, error);
}

void spry_chat_parser_finish(spry_chat_parser *p)
{
    spry_answer_parser_finish(p->parser);
}
