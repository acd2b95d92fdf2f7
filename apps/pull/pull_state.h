/* Shared state of pulls. Every name is inside `folder`, and links in it are not followed. */
#ifndef SPRY_PULL_PULL_STATE_H
#define SPRY_PULL_PULL_STATE_H

#include "platform/directory.h"
#include "pull/hub.h"
#include "pull/model_pull.h"

enum { SPRY_PULL_NAME_BYTES = SPRY_MODEL_NAME_MAX + 32 };

typedef enum spry_pull_kind { SPRY_PULL_FILE, SPRY_PULL_FOLDER, SPRY_PULL_WEB, SPRY_PULL_HUB } spry_pull_kind;

struct spry_model_pull {
    spry_pull_kind kind;
    char *source;       /* a path, a URL, or a name on a hub */
    spry_hub_model hub; /* the model of SPRY_PULL_HUB */
    char name[SPRY_MODEL_NAME_MAX + 1];
    char target[SPRY_PULL_NAME_BYTES], part[SPRY_PULL_NAME_BYTES]; /* final name; temporary name */
    spry_directory folder;
    spry_pull_progress progress;
    void *user;
    uint64_t done, total;
};

/* Reports progress; SPRY_ERR_CANCELLED when the callback cancels. */
spry_status spry_pull_report(const spry_model_pull *pull, spry_error *error);

/* Fails when `more` bytes would leave too little free space on the disk. */
spry_status spry_pull_check_room(const spry_model_pull *pull, uint64_t more, spry_error *error);

/* Opens and locks the unfinished file or folder, created if missing; the descriptor holds the lock. */
spry_status spry_pull_lock(const spry_model_pull *pull, int *descriptor, spry_error *error);

/* Appends at the file's position, and counts. */
spry_status spry_pull_write(spry_model_pull *pull, int descriptor, const char *data, size_t size, spry_error *error);

/* Checks for GGUF's magic number. */
spry_status spry_pull_check_gguf(const spry_model_pull *pull, int descriptor, spry_error *error);

/* Syncs the data to disk and renames it. */
spry_status spry_pull_publish(const spry_model_pull *pull, int descriptor, spry_error *error);

/* The decoded path of a URL. */
spry_status spry_pull_url_path(spry_buffer *path, const char *url, spry_error *error);

/* Whether the model is a folder of files. */
static inline bool spry_pull_is_folder(const spry_model_pull *pull)
{
    return pull->kind == SPRY_PULL_FOLDER || (pull->kind == SPRY_PULL_HUB && pull->hub.folder);
}

spry_status spry_pull_download(spry_model_pull *pull, spry_error *error);

/* ---- files in chunks --------------------------------------------------------------------------------------------- */

/* One file of a known size, downloaded in chunks, several at once.
 *
 * A record beside the unfinished file lists the chunks that are complete. It is used again when the file has a
 * checksum, which is compared at the end; a file without one begins anew. A broken connection, too many requests and
 * errors of the server are retried as long as every few tries make progress. */

/* Downloads to `part`, a name in `folder`; the record is `part` + ".from". Counts in pull->done. On success the file is
 * complete, checked and synced, and the record is gone; a file with a wrong checksum is removed. */
spry_status spry_pull_ranges(spry_model_pull *pull, const spry_directory *folder, const char *part,
                             const spry_remote_file *file, spry_error *error);

#endif
