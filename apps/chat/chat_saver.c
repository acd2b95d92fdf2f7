/* Stores a chat after each answer. A failure is reported once, and the chat goes on. */
#include <inttypes.h>
#include <stdlib.h>

#include "chat/chat_loop.h"
#include "cli/terminal.h"
#include "platform/directory.h"
#include "platform/file.h"

enum { PATH_BYTES = 4096, TITLE_BYTES = 4 * SPRY_CHAT_TITLE_MAX };

static void complain_once(spry_chat_saver *saver, const char *reason)
{
    if (!saver->complained)
        spry_complain("this chat is not stored: %s", reason);
    saver->complained = true;
}

static void stop_saving(spry_chat_saver *saver)
{
    spry_chat_store_close(saver->store);
    saver->store = NULL;
}

/* The user's default folder is created if missing; a folder named by the user is not. */
static spry_status open_store(spry_chat_saver *saver, const spry_chat_flags *flags, spry_error *error)
{
    spry_directory folder = {-1};
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES);
    spry_status status = SPRY_OK;
    if (!flags->chats) {
        spry_path_user_data(&path, "");
        status = path.size ? spry_directory_open(&folder, path.data, error)
                           : spry_fail(error, SPRY_ERR_FILE, "HOME is not set; give a file with --chats FILE");
        spry_directory_close(&folder);
    }
    spry_chat_flags_path(&path, flags);
    if (status == SPRY_OK)
        status = spry_chat_store_open(&saver->store, spry_buffer_view(&path).data, true, error);
    spry_buffer_deinit(&path);
    return status;
}

void spry_chat_saver_init(spry_chat_saver *saver, const spry_chat_flags *flags, spry_chat *chat)
{
    spry_error error;
    *saver = (spry_chat_saver){.file = flags->chats, .chat = *chat, .kept = chat->turns, .last_id = chat->id};
    *chat = (spry_chat){0};
    if (flags->save && open_store(saver, flags, &error) != SPRY_OK)
        complain_once(saver, error.message);
}

void spry_chat_saver_deinit(spry_chat_saver *saver)
{
    stop_saving(saver);
    spry_chat_deinit(&saver->chat);
}

static bool give_title(spry_chat_saver *saver, const spry_conversation *conversation)
{
    spry_buffer title, path;
    spry_view text = spry_view_of(conversation->count ? conversation->slots[1].content : "");
    spry_buffer_init(&title, TITLE_BYTES);
    spry_buffer_init(&path, text.size + 1);
    while (spry_image_line_take(&path, &text))
        ;
    spry_buffer_deinit(&path);
    if (conversation->count)
        spry_chat_make_title(&title, text);
    bool given = spry_chat_set(&saver->chat.title, spry_buffer_view(&title));
    spry_buffer_deinit(&title);
    return given;
}

/* The chat was also continued elsewhere: this one becomes a new chat. */
static void fork_chat(spry_chat_saver *saver)
{
    spry_complain("chat %" PRId64 " was changed by another process; this chat continues as a new one", saver->chat.id);
    saver->chat.id = 0;
    saver->kept = 0;
}

void spry_chat_saver_save(spry_chat_saver *saver, const spry_conversation *conversation)
{
    spry_error error;
    spry_chat_saved saved = SPRY_CHAT_SAVED;
    if (!saver->store)
        return;
    if (!saver->chat.title && !give_title(saver, conversation)) {
        complain_once(saver, "not enough memory");
        return;
    }
    do {
        if (saved == SPRY_CHAT_CHANGED)
            fork_chat(saver);
        if (spry_chat_store_save(saver->store, &saved, &saver->chat, conversation, saver->kept, &error) != SPRY_OK) {
            complain_once(saver, error.message);
            return;
        }
    } while (saved == SPRY_CHAT_CHANGED);
    if (saved == SPRY_CHAT_GONE) {
        complain_once(saver, "it was deleted by another process");
        stop_saving(saver);
        saver->last_id = 0;
        return;
    }
    saver->kept = conversation->count;
    saver->last_id = saver->chat.id;
}

void spry_chat_saver_update(spry_chat_saver *saver, const spry_conversation *conversation)
{
    if (saver->chat.id)
        spry_chat_saver_save(saver, conversation);
}

void spry_chat_saver_cut(spry_chat_saver *saver, size_t count)
{
    saver->kept = saver->kept < count ? saver->kept : count;
}

void spry_chat_saver_restart(spry_chat_saver *saver)
{
    saver->chat.id = 0;
    free(saver->chat.title);
    saver->chat.title = NULL;
    saver->kept = 0;
}

bool spry_chat_saver_title(spry_chat_saver *saver, const spry_conversation *conversation, const char *title)
{
    spry_buffer line;
    spry_buffer_init(&line, TITLE_BYTES);
    spry_chat_make_title(&line, spry_view_of(title));
    bool set = line.size && spry_chat_set(&saver->chat.title, spry_buffer_view(&line));
    spry_buffer_deinit(&line);
    if (set)
        spry_chat_saver_update(saver, conversation);
    return set;
}

bool spry_chat_saver_forget(spry_chat_saver *saver)
{
    spry_error error;
    size_t deleted = 0;
    if (saver->store && saver->chat.id) {
        spry_status status = spry_chat_store_delete(saver->store, &deleted, &saver->chat.id, 1, &error);
        if (status != SPRY_OK) {
            spry_complain("%s", error.message);
            if (status != SPRY_ERR_INPUT)
                return false; /* not deleted: a later /forget may succeed */
        }
    }
    stop_saving(saver);
    saver->last_id = 0;
    return deleted != 0;
}
