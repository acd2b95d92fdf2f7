/* Answers of chats, split into content, reasoning and tool calls according to the engine's chat template. */
#include <stdio.h>
#include <stdlib.h>

#include "base/sized.h"
#include "engine/engine_state.h"
#include "spry_serve.h"
#include "template/tool_calls.h"

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
    json_error_t wrong;
    if (!o->on_event || !spry_sized_zero(o->reserved, sizeof o->reserved))
        return spry_fail(error, SPRY_ERR_INPUT, "spry_chat_parser_options.on_event is NULL, or reserved is not zero");
    p->tools = o->tools ? json_loads(o->tools, 0, &wrong) : NULL; /* json_is_array evaluates its argument twice */
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
