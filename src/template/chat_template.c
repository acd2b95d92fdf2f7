/* Templates and the ChatML fallback. */
#include "template/chat_template.h"

#include <stdlib.h>

#include "template/chat_messages.h"
#include "template/jinja_eval.h"
#include "template/jinja_json.h"
#include "template/jinja_parser.h"
#include "template/tool_calls.h"

enum { MAX_SOURCE_BYTES = 1 << 20 };

struct spry_chat_template {
    spry_buffer source; /* the model's own template */
    spry_view used;     /* the template that was parsed */
    spry_arena arena;
    const spry_jinja_node *nodes;
    bool own;
    char problem[SPRY_ERROR_MAX];
    const spry_tool_style *tool_style;
    const spry_thought_style *thought_style;
    spry_chat_template *tool_use; /* NULL: this template is also used with tools */
};

static const char chatml[] = "{%- for message in messages %}"
                             "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
                             "{%- endfor %}"
                             "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

void spry_chat_text_init(spry_chat_text *text, size_t max)
{
    spry_buffer_init(&text->text, max);
    spry_buffer_init(&text->literal, max);
}

void spry_chat_text_deinit(spry_chat_text *text)
{
    spry_buffer_deinit(&text->text);
    spry_buffer_deinit(&text->literal);
}

/* Parses the model's template, or ChatML when that is empty or invalid. */
static spry_status parse(spry_chat_template *chat, spry_error *error)
{
    spry_error why = {0};
    spry_status status = SPRY_OK;
    chat->used = spry_buffer_view(&chat->source);
    if (chat->used.size)
        status = spry_jinja_parse(&chat->nodes, chat->used, &chat->arena, &why);
    if (status == SPRY_ERR_MEMORY)
        return spry_fail(error, status, "%s", why.message);
    chat->own = chat->used.size && !status;
    memcpy(chat->problem, why.message, sizeof chat->problem);
    if (chat->own)
        return SPRY_OK;
    chat->used = SPRY_VIEW(chatml);
    return spry_jinja_parse(&chat->nodes, chat->used, &chat->arena, error);
}

spry_status spry_chat_template_create(spry_chat_template **out, spry_view source, spry_error *error)
{
    spry_status status = SPRY_OK;
    spry_chat_template *chat = calloc(1, sizeof *chat);
    *out = NULL;
    if (!chat)
        return spry_fail_memory(error, "a chat template", sizeof *chat);
    spry_buffer_init(&chat->source, MAX_SOURCE_BYTES);
    spry_arena_init(&chat->arena);
    if (!spry_buffer_append(&chat->source, source.data, source.size))
        status = spry_fail(error, SPRY_ERR_FORMAT, "a chat template of %zu bytes is too long (at most %d)", source.size,
                           MAX_SOURCE_BYTES);
    if (!status)
        status = parse(chat, error);
    chat->tool_style = spry_tool_style_find(chat->used);
    chat->thought_style = spry_thought_style_find(chat->used);
    if (status)
        spry_chat_template_destroy(chat);
    else
        *out = chat;
    return status;
}

void spry_chat_template_destroy(spry_chat_template *chat)
{
    if (!chat)
        return;
    spry_chat_template_destroy(chat->tool_use);
    spry_arena_deinit(&chat->arena);
    spry_buffer_deinit(&chat->source);
    free(chat);
}

spry_status spry_chat_template_add_tool_use(spry_chat_template *chat, spry_view source, spry_error *error)
{
    spry_chat_template *tool_use;
    spry_status status = spry_chat_template_create(&tool_use, source, error);
    if (status)
        return status;
    if (!tool_use->own) {
        spry_chat_template_destroy(tool_use);
        return SPRY_OK;
    }
    spry_chat_template_destroy(chat->tool_use);
    chat->tool_use = tool_use;
    return SPRY_OK;
}

spry_view spry_chat_template_source(const spry_chat_template *chat)
{
    return spry_buffer_view(&chat->source);
}

static const spry_chat_template *used(const spry_chat_template *chat, bool tools)
{
    return tools && chat->tool_use ? chat->tool_use : chat;
}

spry_view spry_chat_template_used_source(const spry_chat_template *chat, bool tools)
{
    return used(chat, tools)->used;
}

const spry_tool_style *spry_chat_template_tool_style(const spry_chat_template *chat, bool tools)
{
    return used(chat, tools)->tool_style;
}

const spry_thought_style *spry_chat_template_thought_style(const spry_chat_template *chat, bool tools)
{
    return used(chat, tools)->thought_style;
}

bool spry_chat_template_needs_token(const spry_chat_template *chat, spry_view spelling)
{
    return spry_answer_needs_token(chat->tool_style, chat->thought_style, spelling) ||
           (chat->tool_use && spry_chat_template_needs_token(chat->tool_use, spelling));
}

bool spry_chat_template_is_own(const spry_chat_template *chat)
{
    return chat->own;
}

const char *spry_chat_template_problem(const spry_chat_template *chat)
{
    return chat->problem;
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

static spry_view or_empty(spry_view text)
{
    return text.data ? text : SPRY_VIEW("");
}

/* The date under a name that templates use, unless the caller gave one. */
static void bind_date(spry_jinja_run *run, const char *name, const char *format, const spry_chat_input *input)
{
    if (input->dates && !json_object_get(input->extra, name))
        spry_jinja_bind(run, spry_view_of(name), spry_jinja_date(run, spry_view_of(format)));
}

/* The tools as JSON text, which some templates expect, unless the caller gave one. */
static void bind_functions(spry_jinja_run *run, const spry_chat_input *input)
{
    if (!input->dates || json_object_get(input->extra, "functions"))
        return;
    char *text = input->tools ? json_dumps(input->tools, JSON_INDENT(2)) : NULL;
    spry_jinja_bind(run, SPRY_VIEW("functions"), spry_jinja_text(run, spry_view_of(text ? text : ""), true));
    free(text);
}

static void bind_input(spry_jinja_run *run, const spry_chat_input *input, const json_t *messages)
{
    const spry_jinja_value extra = input->extra ? spry_jinja_from_json(run, input->extra) : SPRY_JINJA_NOTHING;
    if (extra.kind == SPRY_JINJA_DICT)
        for (size_t i = 0; i < extra.dict->count && !run->status; i++)
            spry_jinja_bind(run, spry_jinja_view(extra.dict->entries[i].key), extra.dict->entries[i].value);
    bind_date(run, "date_string", "%d %b %Y", input);
    bind_date(run, "datetime", "%b %d %Y %H:%M:%S", input);
    bind_functions(run, input);
    spry_jinja_bind(run, SPRY_VIEW("messages"), spry_chat_messages_value(run, messages));
    if (input->tools)
        spry_jinja_bind(run, SPRY_VIEW("tools"), spry_jinja_from_json(run, input->tools));
    spry_jinja_bind(run, SPRY_VIEW("add_generation_prompt"), SPRY_JINJA_BOOLEAN(input->add_generation_prompt));
    spry_jinja_bind(run, SPRY_VIEW("bos_token"), spry_jinja_text(run, or_empty(input->bos_token), false));
    spry_jinja_bind(run, SPRY_VIEW("eos_token"), spry_jinja_text(run, or_empty(input->eos_token), false));
}

static spry_status hand_over(spry_chat_text *out, const spry_jinja_builder *from, spry_error *error)
{
    size_t start = out->text.size;
    spry_buffer_append(&out->text, from->data, from->size);
    for (size_t i = 0; i < from->n_marks; i++) {
        spry_text_range range = {start + from->marks[i].begin, start + from->marks[i].end};
        spry_buffer_append(&out->literal, &range, sizeof range);
    }
    if (out->text.failed || out->literal.failed)
        return spry_fail(error, SPRY_ERR_INPUT, "a conversation of more than %zu bytes is too long", out->text.max);
    return SPRY_OK;
}

/* One attempt; *parts_missed: nothing failed, but the template did not output the lists of text parts. */
static spry_status attempt(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                           const json_t *messages, bool *parts_missed, spry_error *error)
{
    spry_jinja_run run;
    spry_jinja_builder text;
    size_t bytes =
        spry_chat_json_bytes(messages) + spry_chat_json_bytes(input->tools) + spry_chat_json_bytes(input->extra);
    spry_jinja_run_init(&run, out->text.max - out->text.size, bytes, error);
    spry_jinja_builder_init(&text, &run);
    run.now = input->now;
    run.out = &text;
    run.scope = spry_jinja_scope_create(&run, NULL);
    if (run.scope) {
        bind_input(&run, input, messages);
        spry_jinja_exec(&run, chat->nodes);
    }
    spry_status status = run.status;
    *parts_missed = !status && (run.parts_printed || !run.parts_used) && spry_chat_messages_have_parts(messages);
    if (!status && !*parts_missed)
        status = hand_over(out, &text, error);
    spry_jinja_run_deinit(&run);
    return status;
}

/* The messages in each form that templates accept, until one is rendered. */
static spry_status render_forms(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                                spry_error *error)
{
    spry_status status = SPRY_OK, first = SPRY_OK; /* the error of the first attempt is the most useful */
    spry_error later;
    bool missed = true;
    for (spry_chat_form form = SPRY_CHAT_AS_GIVEN; form < SPRY_CHAT_FORMS && (status || missed); form++) {
        json_t *messages;
        bool differs;
        spry_status made = spry_chat_messages_form(&messages, &differs, input->messages, form, error);
        if (made)
            return made;
        if (form == SPRY_CHAT_AS_GIVEN || differs)
            status = attempt(chat, out, input, messages, &missed, form == SPRY_CHAT_AS_GIVEN ? error : &later);
        first = form == SPRY_CHAT_AS_GIVEN ? status : first;
        json_decref(messages);
    }
    return status && first ? first : status;
}

spry_status spry_chat_template_render(const spry_chat_template *chat, spry_chat_text *out, const spry_chat_input *input,
                                      spry_error *error)
{
    if (!json_is_array(input->messages))
        return spry_fail(error, SPRY_ERR_INPUT, "messages must be a list");
    spry_status status = render_forms(used(chat, json_array_size(input->tools) > 0), out, input, error);
    if (!status || !json_array_size(input->tools))
        return status;
    json_t *tools;
    bool differs;
    spry_error later;
    spry_chat_input described = *input;
    spry_status made = spry_chat_tools_described(&tools, &differs, input->tools, error);
    if (made)
        return made;
    described.tools = tools;
    if (differs && render_forms(used(chat, true), out, &described, &later) == SPRY_OK)
        status = SPRY_OK;
    json_decref(tools);
    return status;
}
