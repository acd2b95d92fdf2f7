/* Text to ids and back, through the model's tokenizer and chat template. */
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "engine/engine_state.h"
#include "platform/file.h"
#include "spry_serve.h"

enum { MAX_CHAT_BYTES = 64 << 20 };

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
    size_t fits = out.size < capacity ? out.size + 1 : capacity; /* with the zero */
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

spry_status spry_engine_render(const spry_engine *e, spry_chat_text *out, spry_chat_input *input, spry_error *error)
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
    spry_status status = list ? spry_engine_render(e, &text, &input, error)
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
    if (!json_is_array(input->messages))
        return spry_fail(error, SPRY_ERR_INPUT, "\"messages\" must be a list");
    if (input->tools && !json_is_array(input->tools) && !json_is_null(input->tools))
        return spry_fail(error, SPRY_ERR_INPUT, "\"tools\" must be a list");
    if (input->extra && !json_is_object(input->extra) && !json_is_null(input->extra))
        return spry_fail(error, SPRY_ERR_INPUT, "\"chat_template_kwargs\" must be an object");
    if (prompt && !json_is_boolean(prompt))
        return spry_fail(error, SPRY_ERR_INPUT, "\"add_generation_prompt\" must be true or false");
    input->tools = json_array_size(input->tools) ? input->tools : NULL;
    input->extra = json_is_object(input->extra) ? input->extra : NULL;
    return SPRY_OK;
}

spry_status spry_engine_parse_chat(json_t **request, spry_chat_input *input, const char *json, size_t size,
                                   spry_error *error)
{
    spry_status status = spry_json_object(request, (spry_view){json, size}, error);
    if (status)
        return spry_fail_prefix(error, SPRY_ERR_INPUT, "the conversation");
    return read_request(input, *request, error);
}

spry_status spry_engine_chat_text(const spry_engine *e, char **text, size_t *size, const char *json, size_t json_size,
                                  spry_error *error)
{
    json_t *request = NULL;
    spry_chat_input input;
    spry_chat_text out;
    spry_chat_text_init(&out, MAX_CHAT_BYTES);
    spry_status status = spry_engine_parse_chat(&request, &input, json, json_size, error);
    if (!status)
        status = spry_engine_render(e, &out, &input, error);
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
