#include "template/thought_styles.h"

#include "base/compiler.h"

/* More specific ones first; the last one is the default. */
static const spry_thought_style styles[] = {
    {"<|channel|>analysis",
     "<|channel|>analysis<|message|>",
     "<|end|>",
     true, /* harmony */
     {"<|start|>assistant", "<|channel|>final", "<|channel|>commentary", "<|channel|>analysis", "<|message|>",
      "<|end|>", "<|return|>", "<|call|>"}},
    {"to=self<|message|>",
     " to=self<|message|>",
     "<|eom|>",
     true,
     {"<|start|>assistant", " to=*<|message|>", "<|eom|>"}},
    {"<|begin|>assistant<|think|>",
     "<|think|>",
     "<|end|>",
     true,
     {"<|begin|>assistant", "<|content|>", "<|end|>", "<|calls|>"}},
    {"<|open|>",
     "<|open|>think<|sep|>",
     "<|close|>think<|sep|>",
     false,
     {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>"}},
    {"<|channel>thought", "<|channel>thought\n", "<channel|>", false, {NULL}},
    {"<|START_THINKING|>",
     "<|START_THINKING|>",
     "<|END_THINKING|>",
     false,
     {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
    {"<|inner_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>", true, {NULL}},
    {"<seed:think>", "<seed:think>", "</seed:think>", false, {NULL}},
    {"<mm:think>", "<mm:think>", "</mm:think>", false, {NULL}},
    {":opensource", "<think:opensource>", "</think:opensource>", false, {NULL}},
    {"[BEGIN FINAL RESPONSE]",
     "Here are my reasoning steps:",
     "[BEGIN FINAL RESPONSE]",
     false,
     {"[END FINAL RESPONSE]"}},
    {"[THINK]", "[THINK]", "[/THINK]", false, {NULL}},
    {"<SPECIAL_11>", "<think>", "</think>", false, {"<SPECIAL_12>", "<SPECIAL_11>Assistant"}},
    {">>>all", "<think>", "</think>", false, {">>>all\n"}},
    {"<response>", "<think>", "</think>", false, {"<response>", "</response>"}},
    {"<think>", "<think>", "</think>", false, {NULL}},
};

static bool contains(spry_view source, const char *text)
{
    return source.size && memmem(source.data, source.size, text, strlen(text));
}

const spry_thought_style *spry_thought_style_default(void)
{
    return &styles[SPRY_COUNT(styles) - 1];
}

const spry_thought_style *spry_thought_style_find(spry_view source)
{
    for (size_t i = 0; i < SPRY_COUNT(styles); i++)
        if (contains(source, styles[i].in_template))
            return &styles[i];
    return spry_thought_style_default();
}

size_t spry_turn_ends_find(const char *ends[SPRY_TURN_ENDS], spry_view source, const char *eos)
{
    static const char *const known[] = {"<|im_end|>",
                                        "<|eot_id|>",
                                        "<|eom_id|>",
                                        "<|eot|>",
                                        "<|end_of_text|>",
                                        "<|endoftext|>",
                                        "<end_of_turn>",
                                        "<turn|>",
                                        "<|END_OF_TURN_TOKEN|>",
                                        "<｜end▁of▁sentence｜>",
                                        "<seed:eos>",
                                        "<|message_sep|>",
                                        "[e~[",
                                        "<end_of_sentence>",
                                        "<|assistant_end|>",
                                        "</assistant>",
                                        "<sep>",
                                        "<|tool_response>",
                                        "<|end_of_msg|>",
                                        "<|end|>"};
    size_t count = 0;
    if (eos && *eos && contains(source, "eos_token"))
        ends[count++] = contains(source, ":opensource") ? "<｜hy_eos:opensource｜>" : eos;
    for (size_t i = 0; i < SPRY_COUNT(known) && count < SPRY_TURN_ENDS; i++)
        if (contains(source, known[i]))
            ends[count++] = known[i];
    return count;
}
