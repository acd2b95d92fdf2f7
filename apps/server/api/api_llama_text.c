/* llama-server's paths for text and tokens. */
#include "server/api/apis.h"
#include "server/fields/field_table.h"
#include "server/http/http_reply.h"
#include "server/models/derived_model.h"
#include "server/request/prompt.h"

enum { TEXT_BYTES_MAX = 256 << 20 };

typedef struct text_call {
    spry_fields fields;
    json_t *root;
    const spry_pooled *model;
} text_call;

/* Reads the body and loads its model; false when a reply was given. */
static bool begin_text(text_call *call, spry_exchange *x, const spry_field_table *table)
{
    call->model = NULL;
    if (!spry_fields_open(&call->fields, &call->root, x))
        return false;
    spry_fields_check(&call->fields, table);
    const char *name = spry_fields_string(&call->fields, "model", NULL);
    if (spry_fields_fine(&call->fields, x))
        call->model = spry_completion_model(x, name);
    if (!call->model)
        json_decref(call->root);
    return call->model != NULL;
}

static void end_text(text_call *call, spry_exchange *x)
{
    spry_model_pool_release(x->server->pool, call->model);
    json_decref(call->root);
}

static json_t *tokens_json(const spry_tokens *tokens, const spry_engine *engine, bool pieces)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tokens->count; i++) {
        json_t *id = json_integer(tokens->ids[i]);
        spry_view bytes;
        bytes.data = spry_engine_token_bytes(engine, tokens->ids[i], true, &bytes.size);
        if (pieces)
            id = json_pack("{s:o, s:o}", "id", id, "piece", spry_view_json(bytes));
        json_array_append_new(list, id);
    }
    return list;
}

void spry_llama_tokenize(spry_exchange *x)
{
    text_call call;
    spry_tokens tokens = {0};
    spry_error error;
    if (!begin_text(&call, x, &spry_fields_llama_tokenize))
        return;
    const json_t *content = json_object_get(call.root, "content");
    bool begin = spry_fields_bool(&call.fields, "add_special", false);
    bool special = spry_fields_bool(&call.fields, "parse_special", true);
    bool pieces = spry_fields_bool(&call.fields, "with_pieces", false);
    if (!json_is_string(content))
        spry_fields_refuse(&call.fields, "content", "content must be a string");
    if (spry_fields_fine(&call.fields, x)) {
        spry_view text = {json_string_value(content), json_string_length(content)};
        if (spry_prompt_encode(&tokens, call.model->engine, text, special, begin, &error) == SPRY_OK)
            spry_reply_json(x, MHD_HTTP_OK,
                            json_pack("{s:o}", "tokens", tokens_json(&tokens, call.model->engine, pieces)));
        else
            spry_reply_failure(x, &error);
    }
    spry_tokens_deinit(&tokens);
    end_text(&call, x);
}

static spry_status decode(spry_buffer *out, const spry_engine *engine, const spry_tokens *ids, spry_error *error)
{
    size_t size = 0;
    spry_status status = spry_engine_detokenize(engine, NULL, 0, &size, ids->ids, ids->count, true, error);
    char *text = status == SPRY_OK && size ? spry_buffer_extend(out, size) : NULL;
    if (text)
        status = spry_engine_detokenize(engine, text, size, &size, ids->ids, ids->count, true, error);
    return status;
}

void spry_llama_detokenize(spry_exchange *x)
{
    text_call call;
    spry_tokens ids = {0};
    spry_buffer text;
    spry_error error;
    if (!begin_text(&call, x, &spry_fields_llama_detokenize))
        return;
    spry_buffer_init(&text, TEXT_BYTES_MAX);
    const json_t *list = spry_fields_array(&call.fields, "tokens");
    if (!list)
        spry_fields_refuse(&call.fields, "tokens", "tokens must be a list of token ids");
    if (spry_fields_fine(&call.fields, x)) {
        spry_status status = spry_prompt_ids(&ids, call.model->engine, list, "tokens", false, &error);
        if (status == SPRY_OK)
            status = decode(&text, call.model->engine, &ids, &error);
        if (status == SPRY_OK)
            spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:o}", "content", spry_buffer_json(&text)));
        else
            spry_reply_failure(x, &error);
    }
    spry_buffer_deinit(&text);
    spry_tokens_deinit(&ids);
    end_text(&call, x);
}

void spry_llama_apply_template(spry_exchange *x)
{
    text_call call;
    json_t *text;
    spry_error error;
    if (!begin_text(&call, x, &spry_fields_openai_chat))
        return;
    spry_derived_apply(x->server->defaults, call.root, false);
    const json_t *messages = spry_fields_array(&call.fields, "messages"), *tools = spry_fields_tools(&call.fields),
                 *extra = spry_fields_object(&call.fields, "chat_template_kwargs");
    bool generate = spry_fields_bool(&call.fields, "add_generation_prompt", true);
    spry_fields_messages(&call.fields, messages);
    if (spry_fields_fine(&call.fields, x)) {
        if (spry_prompt_render(&text, call.model->engine, messages, tools, extra, generate, &error) == SPRY_OK)
            spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:o}", "prompt", text));
        else
            spry_reply_failure(x, &error);
    }
    end_text(&call, x);
}
