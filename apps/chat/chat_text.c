/* The text is built in one buffer and written at once, so that a partial transcript is never taken for a complete
 * one. */
#include "chat/chat_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/terminal.h"

enum { TRANSCRIPT_BYTES_MAX = 1 << 30 };

/* "2026-11-15 08:01" in local time. */
static const char *time_text(char out[SPRY_CHAT_TIME_MAX], int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    if (!localtime_r(&seconds, &parts) || strftime(out, SPRY_CHAT_TIME_MAX, "%Y-%m-%d %H:%M", &parts) == 0)
        snprintf(out, SPRY_CHAT_TIME_MAX, "at an unknown time");
    return out;
}

/* ---- as it looked ------------------------------------------------------------------------------------------------ */

static void append_text(spry_buffer *out, spry_view text, bool terminal)
{
    if (terminal)
        spry_terminal_defuse(out, text, "\n\t");
    else
        spry_buffer_append(out, text.data, text.size);
}

/* The user's input, with the prompts shown before it. */
static void append_typed(spry_buffer *out, const char *text, bool terminal)
{
    const char *prompt = "> ";
    for (bool more = true; more; prompt = ". ") {
        spry_view line = {text, strcspn(text, "\n")};
        more = text[line.size] != 0;
        spry_buffer_format(out, "%s%s%s", terminal ? spry_style_begin(stdout, SPRY_STYLE_PROMPT) : "", prompt,
                           terminal ? spry_style_end(stdout) : "");
        append_text(out, line, terminal);
        spry_buffer_text(out, "\n");
        text += line.size + more;
    }
}

static void append_paragraph(spry_buffer *out, const char *text, bool terminal)
{
    append_text(out, spry_view_of(text), terminal);
    if (!spry_view_ends(spry_view_of(text), SPRY_VIEW("\n")))
        spry_buffer_text(out, "\n");
}

/* The turns from number `first` (0: all) as the chat shows them, for a terminal with colours and without control
 * characters, or unchanged. */
static void write_turns(spry_buffer *out, const spry_conversation *conversation, size_t first, bool terminal)
{
    for (size_t i = first + 1; i <= conversation->count; i++) {
        const spry_message *turn = &conversation->slots[i];
        bool typed = strcmp(turn->role, "user") == 0;
        if (typed && i > first + 1)
            spry_buffer_text(out, "\n");
        (typed ? append_typed : append_paragraph)(out, turn->content, terminal);
    }
}

void spry_chat_text_print(const spry_conversation *conversation, size_t first)
{
    spry_buffer text;
    spry_buffer_init(&text, TRANSCRIPT_BYTES_MAX);
    write_turns(&text, conversation, first, isatty(STDOUT_FILENO));
    spry_out_write(spry_buffer_view(&text).data, text.size);
    spry_buffer_deinit(&text);
}

void spry_chat_text_plain(spry_buffer *out, const spry_chat *chat, const spry_conversation *conversation, bool terminal)
{
    char begun[SPRY_CHAT_TIME_MAX], changed[SPRY_CHAT_TIME_MAX];
    const char *bold = terminal ? spry_style_begin(stdout, SPRY_STYLE_BOLD) : "";
    const char *dim = terminal ? spry_style_begin(stdout, SPRY_STYLE_DIM) : "";
    const char *plain = terminal ? spry_style_end(stdout) : "";
    const char *system = spry_conversation_system(conversation);
    spry_buffer_format(out, "%sChat %" PRId64 ": ", bold, chat->id);
    spry_terminal_defuse(out, spry_view_of(chat->title), "");
    spry_buffer_format(out, "%s\n%sWith ", plain, dim);
    spry_terminal_defuse(out, spry_view_of(chat->model), "");
    spry_buffer_format(out, ", %zu turns, begun %s, last changed %s.%s\n\n", chat->turns,
                       time_text(begun, chat->created), time_text(changed, chat->updated), plain);
    if (system) {
        spry_buffer_format(out, "%sSystem:%s ", dim, plain);
        append_paragraph(out, system, terminal);
        spry_buffer_text(out, "\n");
    }
    write_turns(out, conversation, 0, terminal);
}

/* ---- Markdown ---------------------------------------------------------------------------------------------------- */

static void append_section(spry_buffer *out, const char *heading, const char *text)
{
    spry_buffer_format(out, "\n## %s\n\n", heading);
    append_paragraph(out, text, false);
}

void spry_chat_text_markdown(spry_buffer *out, const spry_chat *chat, const spry_conversation *conversation)
{
    char begun[SPRY_CHAT_TIME_MAX], changed[SPRY_CHAT_TIME_MAX];
    const char *system = spry_conversation_system(conversation);
    spry_buffer_text(out, "# ");
    spry_terminal_defuse(out, spry_view_of(chat->title), "");
    spry_buffer_format(out, "\n\nWith %s, begun %s, last changed %s.\n", chat->model, time_text(begun, chat->created),
                       time_text(changed, chat->updated));
    if (system)
        append_section(out, "System", system);
    for (size_t i = 1; i <= conversation->count; i++) {
        const spry_message *turn = &conversation->slots[i];
        append_section(out, strcmp(turn->role, "user") == 0 ? "User" : "Assistant", turn->content);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *time_json(int64_t ms)
{
    char text[SPRY_TIME_TEXT];
    spry_time_text(text, ms / 1000);
    return text[0] ? json_string(text) : json_null();
}

/* Settings that are not JSON are omitted. */
static json_t *settings_json(const char *text)
{
    json_t *settings = json_loads(text, 0, NULL);
    return settings ? settings : json_object();
}

static json_t *path_json(const char *path)
{
    spry_buffer valid;
    spry_buffer_init(&valid, 4 * strlen(path) + 1);
    spry_utf8_append_valid(&valid, spry_view_of(path));
    json_t *json = json_string(spry_buffer_view(&valid).data);
    spry_buffer_deinit(&valid);
    return json;
}

json_t *spry_chat_text_facts(const spry_chat *chat)
{
    return json_pack("{s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:I}", "id", (json_int_t)chat->id, "title", chat->title,
                     "model", chat->model, "model_path", path_json(chat->model_path), "settings",
                     settings_json(chat->settings), "created", time_json(chat->created), "updated",
                     time_json(chat->updated), "turns", (json_int_t)chat->turns);
}

json_t *spry_chat_text_json(const spry_chat *chat, const spry_conversation *conversation)
{
    json_t *json = spry_chat_text_facts(chat), *talk = spry_conversation_to_json(conversation, chat->model);
    if (!json || !talk || json_object_update(json, talk) != 0) {
        json_decref(json);
        json = NULL;
    }
    json_decref(talk);
    return json;
}
