/* Any bytes as a chat template, rendered over a small conversation: a text or a clean refusal, within the limits. */
#include <stddef.h>
#include <stdint.h>

#include "template/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_TEXT = 1 << 20 };

static const char conversation[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": "
                                   "\"user\", \"content\": [{\"type\": \"text\","
                                   "\"text\": \"Hi\"}]}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
                                   "[{\"id\": \"1\", \"type\": \"function\","
                                   "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [1, 2.5, "
                                   "null]}\"}}]}], \"tools\": [{\"type\": \"function\","
                                   "\"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}], "
                                   "\"extra\": {\"enable_thinking\": true}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_chat_template *chat;
    spry_chat_text text;
    json_t *request = json_loads(conversation, 0, NULL);
    spry_chat_input input = {
        .messages = json_object_get(request, "messages"),
        .tools = json_object_get(request, "tools"),
        .extra = json_object_get(request, "extra"),
        .add_generation_prompt = true,
        .bos_token = SPRY_VIEW("<s>"),
        .eos_token = SPRY_VIEW("</s>"),
    };
    spry_chat_text_init(&text, MAX_TEXT);
    if (spry_chat_template_create(&chat, (spry_view){(const char *)data, size}, NULL) == SPRY_OK)
        spry_chat_template_render(chat, &text, &input, NULL);
    spry_chat_text_deinit(&text);
    spry_chat_template_destroy(chat);
    json_decref(request);
    return 0;
}
