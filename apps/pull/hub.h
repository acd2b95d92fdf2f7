/* Models on hubs, by name: hf:OWNER/REPO[:TYPE] and ollama:[SPACE/]NAME[:TAG].
 *
 * A hub lists a model's files with sizes and, for large ones, checksums. A model that the hub's own program has already
 * downloaded is used from that program's folder. */
#ifndef SPRY_APPS_HUB_H
#define SPRY_APPS_HUB_H

#include "base/buffer.h"
#include "base/error.h"
#include "platform/model_names.h"

/* The hubs' default addresses; HF_ENDPOINT and SPRY_OLLAMA_REGISTRY replace them. */
#define SPRY_HUB_HF     "https://huggingface.co"
#define SPRY_HUB_OLLAMA "https://registry.ollama.ai"

typedef struct spry_remote_file {
    const char *name;   /* its file name, without folders */
    const char *url;    /* may redirect */
    const char *bearer; /* NULL, or a token that is sent to the URL's host only */
    const char *sha256; /* NULL: only the size is known */
    uint64_t size;
} spry_remote_file;

typedef struct spry_hub_model {
    char name[SPRY_MODEL_NAME_MAX + 1];
    bool folder; /* several files that belong together; otherwise one GGUF file */
    spry_remote_file *files;
    size_t count;
    uint64_t bytes; /* sum of all files */
    spry_arena arena;
} spry_hub_model;

/* Whether the source names a hub. */
bool spry_hub_is(const char *source);

/* Whether its name is well formed. */
spry_status spry_hub_check(const char *source, spry_error *error);

/* Asks the hub for the model's files. On success the caller calls deinit. */
spry_status spry_hub_find(spry_hub_model *model, const char *source, spry_error *error);
void spry_hub_deinit(spry_hub_model *model);

/* Replaces `path` with the model's file or folder in the folder of the hub's own program; false: it is not there. */
bool spry_hub_local(spry_buffer *path, const char *source);

/* Replaces `path` with the model that an earlier pull of this source stored in the models folder; false: there is none.
 */
bool spry_hub_pulled(spry_buffer *path, const char *folder, const char *source);

/* ---- shared by the hubs' files ----------------------------------------------------------------------------------- */

/* The parts of hf:OWNER/REPO:TYPE or ollama:SPACE/NAME:TAG; `last` is empty when it is not given. */
typedef struct spry_hub_name {
    char owner[128], repo[128], last[128];
} spry_hub_name;

/* Index of the GGUF file of this type, or with an empty type of the usual one; the first part of a split file. Fails
 * with the types that are there. SIZE_MAX: there is no GGUF file. */
spry_status spry_hub_choose(size_t *index, const char *const *names, size_t count, const char *type, const char *source,
                            spry_error *error);

/* Whether `name` is a part of the split file whose first part is `first`; a file that is not split has itself as its
 * only part. */
bool spry_hub_same_split(const char *first, const char *name);

#endif
