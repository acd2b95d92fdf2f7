/* Responses are kept as text: it is compact, and its size is known. */
#include "server/api/responses_store.h"

#include <stdio.h>
#include <stdlib.h>

#include "platform/clock.h"

enum { N_PARTS = 3, ID_BYTES = 64 };

struct spry_stored_response {
    spry_stored_response *next;
    char id[ID_BYTES];
    const char *key; /* by address; NULL: the server has no keys */
    uint64_t stored_ns;
    size_t bytes;
    char *parts[N_PARTS];
};

void spry_response_store_init(spry_response_store *store, size_t max_bytes, uint32_t keep_s)
{
    *store = (spry_response_store){.max_bytes = max_bytes, .keep_ns = (uint64_t)keep_s * 1000000000};
    store->end = &store->oldest;
    pthread_mutex_init(&store->lock, NULL);
}

static void free_response(spry_stored_response *response)
{
    for (size_t i = 0; i < N_PARTS; i++)
        free(response->parts[i]);
    free(response);
}

/* Under the lock. */
static void remove_at(spry_response_store *store, spry_stored_response **link)
{
    spry_stored_response *response = *link;
    store->bytes -= response->bytes;
    *link = response->next;
    if (store->end == &response->next)
        store->end = link;
    free_response(response);
}

/* Under the lock. */
static void drop_old(spry_response_store *store, uint64_t now_ns)
{
    while (store->oldest && (store->bytes > store->max_bytes || now_ns - store->oldest->stored_ns > store->keep_ns))
        remove_at(store, &store->oldest);
}

void spry_response_store_deinit(spry_response_store *store)
{
    while (store->oldest)
        remove_at(store, &store->oldest);
    pthread_mutex_destroy(&store->lock);
}

void spry_response_store_put(spry_response_store *store, const char *id, spry_view key, const json_t *response,
                             const json_t *messages, const json_t *input)
{
    const json_t *const parts[N_PARTS] = {response, messages, input};
    spry_stored_response *kept = store->keep_ns ? calloc(1, sizeof *kept) : NULL;
    bool complete = kept != NULL;
    if (!kept)
        return;
    snprintf(kept->id, sizeof kept->id, "%s", id);
    kept->key = key.data;
    kept->stored_ns = spry_clock_ns();
    kept->bytes = sizeof *kept;
    for (size_t i = 0; i < N_PARTS && complete; i++) {
        kept->parts[i] = json_dumps(parts[i], JSON_COMPACT);
        complete = kept->parts[i] != NULL;
        kept->bytes += complete ? strlen(kept->parts[i]) + 1 : 0;
    }
    if (!complete) {
        free_response(kept);
        return;
    }
    pthread_mutex_lock(&store->lock);
    *store->end = kept;
    store->end = &kept->next;
    store->bytes += kept->bytes;
    drop_old(store, kept->stored_ns);
    pthread_mutex_unlock(&store->lock);
}

/* The link of a response, or NULL. Under the lock. */
static spry_stored_response **find(spry_response_store *store, const char *id, spry_view key)
{
    drop_old(store, spry_clock_ns());
    for (spry_stored_response **link = &store->oldest; *link; link = &(*link)->next)
        if ((*link)->key == key.data && strcmp((*link)->id, id) == 0)
            return link;
    return NULL;
}

json_t *spry_response_store_get(spry_response_store *store, const char *id, spry_view key, spry_stored_part part)
{
    pthread_mutex_lock(&store->lock);
    spry_stored_response **found = find(store, id, key);
    json_t *json = found ? json_loads((*found)->parts[part], 0, NULL) : NULL;
    pthread_mutex_unlock(&store->lock);
    return json;
}

json_t *spry_response_store_item(spry_response_store *store, const char *id, spry_view key)
{
    json_t *found = NULL, *item;
    size_t i;
    pthread_mutex_lock(&store->lock);
    drop_old(store, spry_clock_ns());
    for (const spry_stored_response *r = store->oldest; r && !found; r = r->next) {
        if (r->key != key.data || !strstr(r->parts[SPRY_STORED_RESPONSE], id))
            continue;
        json_t *response = json_loads(r->parts[SPRY_STORED_RESPONSE], 0, NULL);
        json_array_foreach(json_object_get(response, "output"), i, item)
        {
            const char *name = json_string_value(json_object_get(item, "id"));
            if (!found && name && strcmp(name, id) == 0)
                found = json_incref(item);
        }
        json_decref(response);
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

bool spry_response_store_remove(spry_response_store *store, const char *id, spry_view key)
{
    pthread_mutex_lock(&store->lock);
    spry_stored_response **found = find(store, id, key);
    if (found)
        remove_at(store, found);
    pthread_mutex_unlock(&store->lock);
    return found != NULL;
}
