/* Calls of tools that a conversation allows or requires, as a constraint of its answer. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"
#include "template/tool_calls.h"
#include "template/tool_choice.h"

enum { PROMPT_END = 16, END_BYTES = 4096, TOOLS_MAX = 20000 };

/* Whether the prompt ends inside a thought. */
static bool in_thought(const spry_engine *engine, const spry_tokens *ids, const spry_thought_style *thoughts)
{
    char text[END_BYTES];
    size_t size, n = ids->count < PROMPT_END ? ids->count : PROMPT_END;
    if (!n || spry_engine_detokenize(engine, text, sizeof text, &size, ids->ids + ids->count - n, n, true, NULL))
        return false;
    return spry_answer_opens_thought(thoughts, (spry_view){text, size < sizeof text ? size : sizeof text});
}

spry_status spry_engine_constrain_calls(spry_chat_prompt *prompt, const spry_tokens *ids, const spry_engine *engine,
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
        if (spec && !thoughts->anywhere) {
            json_object_set_new(spec, "thought_open", json_string(thoughts->open));
            json_object_set_new(spec, "thought_close", json_string(thoughts->close));
        }
        prompt->call_constraint = spec ? json_dumps(spec, JSON_COMPACT) : NULL;
        if (!prompt->call_constraint)
            status = spry_fail_memory(error, "the tools", count);
        json_decref(spec);
    }
    spry_tool_choice_deinit(&choice);
    return status;
}
