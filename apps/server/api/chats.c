/* /api/chats: the chats that the terminal stores, so that one begun there goes on in a browser, and the other way
 * round. Every request opens the file itself, because a handle belongs to one thread. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/number.h"
#include "chat/chat_store.h"
#include "platform/directory.h"
#include "platform/file.h"
#include "server/api/apis.h"
#include "server/fields/fields.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/request/completion.h"

enum { PATH_BYTES = 4096, TITLE_BYTES = 4 * SPRY_CHAT_TITLE_MAX, LIST_MAX = 1000, LIST_USUAL = 100 };

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static spry_status open_file(spry_chat_store **store, const char *chosen, spry_error *error)
{
    spry_directory folder = {-1};
    spry_buffer path;
    spry_status status = SPRY_OK;
    spry_buffer_init(&path, PATH_BYTES);
    if (!chosen) {
        spry_path_user_data(&path, "");
        status = path.size ? spry_directory_open(&folder, path.data, error)
                           : spry_fail(error, SPRY_ERR_FILE, "HOME is not set; give a file with --chats FILE");
        spry_directory_close(&folder);
        spry_buffer_clear(&path);
        spry_path_user_data(&path, "chats.db");
    }
    if (status == SPRY_OK)
        status = spry_chat_store_open(store, chosen ? chosen : spry_buffer_view(&path).data, true, error);
    spry_buffer_deinit(&path);
    return status;
}

/* False, and a reply was given, when chats are not served or their file cannot be used. */
static bool open_store(spry_chat_store **store, spry_exchange *x)
{
    spry_error error;
    *store = NULL;
    if (!x->server->settings->allow_chats) {
        spry_reply_error(x, SPRY_HTTP_FORBIDDEN, NULL, "stored chats are not served; --allow-chats allows it");
        return false;
    }
    if (open_file(store, x->server->settings->chats, &error) == SPRY_OK)
        return true;
    spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "%s", error.message);
    return false;
}

/* A failure of the store: an unknown chat, or the file. */
static void reply_failure(spry_exchange *x, const spry_error *error)
{
    spry_reply_error(x, error->status == SPRY_ERR_INPUT ? SPRY_HTTP_NOT_FOUND : SPRY_HTTP_SERVICE_UNAVAILABLE, NULL,
                     "%s", error->message);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *chat_json(const spry_chat *chat)
{
    return json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I}", "id", (json_int_t)chat->id, "revision",
                     (json_int_t)chat->revision, "title", chat->title, "model", chat->model, "turns",
                     (json_int_t)chat->turns, "created", (json_int_t)chat->created, "updated",
                     (json_int_t)chat->updated);
}

static bool add_chat(void *list, const spry_chat *chat)
{
    return json_array_append_new(list, chat_json(chat)) == 0;
}

static json_t *whole_json(const spry_chat *chat, const spry_conversation *conversation)
{
    json_t *whole = chat_json(chat), *messages = json_array();
    size_t count;
    const spry_message *all = spry_conversation_messages(conversation, &count);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", all[i].role, "content", all[i].content));
    json_object_set_new(whole, "messages", messages);
    return whole;
}

/* The id at the end of the path; false, and a reply was given, when it is none. */
static bool path_id(int64_t *id, spry_exchange *x)
{
    uint64_t number;
    bool fine = spry_number_u64(&number, spry_view_of(x->tail)) && number > 0 && number <= INT64_MAX;
    *id = fine ? (int64_t)number : 0;
    if (!fine)
        spry_reply_error(x, SPRY_HTTP_NOT_FOUND, NULL, "a chat has a number: /api/chats/12");
    return fine;
}

/* ---- list, read, delete ------------------------------------------------------------------------------------------ */

void spry_stored_list(spry_exchange *x)
{
    spry_chat_store *store;
    spry_error error;
    const char *limit_text = spry_exchange_argument(x, "limit"), *search = spry_exchange_argument(x, "search");
    uint64_t limit = LIST_USUAL;
    if (limit_text && (!spry_number_u64(&limit, spry_view_of(limit_text)) || !limit || limit > LIST_MAX)) {
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, "limit", "limit must be a whole number from 1 to %d", LIST_MAX);
        return;
    }
    if (!open_store(&store, x))
        return;
    json_t *list = json_array();
    if (spry_chat_store_search(store, (size_t)limit, search, add_chat, list, &error) == SPRY_OK) {
        spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:o}", "chats", list));
    } else {
        json_decref(list);
        reply_failure(x, &error);
    }
    spry_chat_store_close(store);
}

/* A chat in memory. */
typedef struct loaded {
    spry_chat chat;
    spry_conversation conversation;
} loaded;

static spry_status load(loaded *l, spry_chat_store *store, int64_t id, spry_error *error)
{
    l->chat = (spry_chat){0};
    spry_status status = spry_conversation_init(&l->conversation, error);
    return status == SPRY_OK && id ? spry_chat_store_load(store, &l->chat, &l->conversation, id, error) : status;
}

static void unload(loaded *l)
{
    spry_chat_deinit(&l->chat);
    spry_conversation_deinit(&l->conversation);
}

void spry_stored_read(spry_exchange *x)
{
    spry_chat_store *store;
    spry_error error;
    loaded l;
    int64_t id;
    if (!path_id(&id, x) || !open_store(&store, x))
        return;
    if (load(&l, store, id, &error) == SPRY_OK)
        spry_reply_json(x, SPRY_HTTP_OK, whole_json(&l.chat, &l.conversation));
    else
        reply_failure(x, &error);
    unload(&l);
    spry_chat_store_close(store);
}

void spry_stored_delete(spry_exchange *x)
{
    spry_chat_store *store;
    spry_error error;
    size_t deleted;
    int64_t id;
    if (!path_id(&id, x) || !open_store(&store, x))
        return;
    if (spry_chat_store_delete(store, &deleted, &id, 1, &error) == SPRY_OK)
        spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:I}", "deleted", (json_int_t)id));
    else
        reply_failure(x, &error);
    spry_chat_store_close(store);
}

/* ---- write ------------------------------------------------------------------------------------------------------- */

/* Replaces the conversation by the messages of the body. */
static void read_messages(spry_conversation *c, spry_fields *fields, const json_t *messages)
{
    spry_error error = {0};
    size_t i;
    const json_t *message;
    spry_conversation_clear(c);
    json_array_foreach(messages, i, message)
    {
        const char *name = json_string_value(json_object_get(message, "role"));
        const json_t *content = json_object_get(message, "content");
        const char *role = name ? spry_conversation_role(name) : NULL;
        spry_view text = {json_string_value(content), json_string_length(content)};
        bool system = name && strcmp(name, "system") == 0 && i == 0;
        if (!json_is_string(content) || (!role && !system) || memchr(text.data, 0, text.size)) {
            spry_fields_refuse(fields, "messages",
                               "messages[%zu] must have the role user or assistant, or system in the first, and a text",
                               i);
            return;
        }
        if (system ? spry_conversation_set_system(c, text, &error) : spry_conversation_add(c, role, text, &error)) {
            spry_fields_refuse(fields, "messages", "%s", error.message);
            return;
        }
    }
}

typedef struct search {
    const char *name;
    char path[1024];
    bool found;
} search;

static bool match_model(void *context, const spry_pool_info *info)
{
    search *s = context;
    s->found = strcmp(info->name, s->name) == 0;
    if (s->found)
        snprintf(s->path, sizeof s->path, "%s", info->path);
    return !s->found;
}

/* The terminal finds the model again by its path. */
static void set_model(spry_chat *chat, spry_exchange *x, spry_fields *fields, const char *name)
{
    search s = {.name = name};
    spry_model_pool_each(x->server->pool, match_model, &s);
    char *whole = s.path[0] ? realpath(s.path, NULL) : NULL;
    const char *path = whole ? whole : s.path[0] ? s.path : SPRY_CHAT_BUNDLED;
    if (!s.found)
        spry_fields_refuse(fields, "model", "there is no model \"%.100s\"; GET /v1/models lists them", name);
    else if (!spry_chat_set(&chat->model, spry_view_of(name)) || !spry_chat_set(&chat->model_path, spry_view_of(path)))
        spry_fields_refuse_memory(fields, "model");
    free(whole);
}

static void set_title(spry_chat *chat, const spry_conversation *c, spry_fields *fields, const char *title)
{
    spry_buffer made;
    const char *source = title ? title : c->count ? c->slots[1].content : "";
    spry_buffer_init(&made, TITLE_BYTES);
    spry_chat_make_title(&made, spry_view_of(source));
    if (!spry_chat_set(&chat->title, spry_buffer_view(&made)))
        spry_fields_refuse_memory(fields, "title");
    spry_buffer_deinit(&made);
}

/* Applies the fields of the body; false when a field is wrong, and a reply was given. */
static bool change(loaded *l, spry_exchange *x, spry_fields *fields, bool *replaced)
{
    const json_t *messages = spry_fields_array(fields, "messages");
    const char *title = spry_fields_string(fields, "title", NULL), *model = spry_fields_string(fields, "model", NULL);
    const char *system = spry_fields_string(fields, "system", NULL);
    int64_t revision = spry_fields_integer(fields, "revision", l->chat.revision, 0, INT64_MAX);
    bool is_new = !l->chat.id;
    *replaced = messages != NULL;
    l->chat.revision = revision;
    if (messages)
        read_messages(&l->conversation, fields, messages);
    if (system && spry_conversation_set_system(&l->conversation, spry_view_of(system), &fields->error))
        spry_fields_refuse_memory(fields, "system");
    if (is_new && !fields->wrong[0] && (!model || !l->conversation.count))
        spry_fields_refuse(fields, model ? "messages" : "model", "a new chat needs a model and messages");
    if (!fields->wrong[0] && model)
        set_model(&l->chat, x, fields, model);
    if (!fields->wrong[0] && (title || is_new))
        set_title(&l->chat, &l->conversation, fields, title);
    if (is_new && !spry_chat_set(&l->chat.settings, SPRY_VIEW("{}")))
        spry_fields_refuse_memory(fields, "messages");
    return spry_fields_fine(fields, x);
}

static void save(spry_exchange *x, spry_chat_store *store, loaded *l, bool replaced)
{
    spry_chat_saved saved;
    spry_error error;
    size_t kept = replaced ? 0 : l->conversation.count;
    if (spry_chat_store_save(store, &saved, &l->chat, &l->conversation, kept, &error) != SPRY_OK)
        reply_failure(x, &error);
    else if (saved == SPRY_CHAT_GONE)
        spry_reply_error(x, SPRY_HTTP_NOT_FOUND, NULL, "the chat was deleted meanwhile");
    else if (saved == SPRY_CHAT_CHANGED)
        spry_reply_error(x, SPRY_HTTP_CONFLICT, "revision", "the chat was changed meanwhile; read it again");
    else
        spry_reply_json(x, SPRY_HTTP_OK, chat_json(&l->chat));
}

/* `id` 0: a new chat. */
static void write_chat(spry_exchange *x, int64_t id)
{
    spry_chat_store *store;
    spry_fields fields;
    spry_error error;
    loaded l;
    json_t *root;
    bool replaced;
    if (!spry_fields_open(&fields, &root, x, &spry_fields_chats))
        return;
    if (spry_fields_fine(&fields, x) && open_store(&store, x)) {
        if (load(&l, store, id, &error) != SPRY_OK)
            reply_failure(x, &error);
        else if (change(&l, x, &fields, &replaced))
            save(x, store, &l, replaced);
        unload(&l);
        spry_chat_store_close(store);
    }
    json_decref(root);
}

void spry_stored_create(spry_exchange *x)
{
    write_chat(x, 0);
}

void spry_stored_change(spry_exchange *x)
{
    int64_t id;
    if (path_id(&id, x))
        write_chat(x, id);
}
