/* What the files that pull models share. Every name is one inside `folder`, and no link is followed there. */
#ifndef SPRY_APPS_PULL_STATE_H
#define SPRY_APPS_PULL_STATE_H

#include "platform/directory.h"
#include "pull/model_pull.h"

enum { SPRY_PULL_NAME_BYTES = SPRY_MODEL_NAME_MAX + 32 };

typedef enum spry_pull_kind { SPRY_PULL_FILE, SPRY_PULL_FOLDER, SPRY_PULL_WEB } spry_pull_kind;

struct spry_model_pull {
    spry_pull_kind kind;
    char *source; /* a path, or an address */
    char name[SPRY_MODEL_NAME_MAX + 1];
    char target[SPRY_PULL_NAME_BYTES], part[SPRY_PULL_NAME_BYTES]; /* finished, and not yet */
    spry_directory folder;
    spry_pull_progress progress;
    void *user;
    uint64_t done, total;
};

/* Tells how far it is; SPRY_ERR_CANCELLED when it is not to go on. */
spry_status spry_pull_tell(const spry_model_pull *pull, spry_error *error);

/* Fails when so many more bytes would leave less than a little on the disk. */
spry_status spry_pull_check_room(const spry_model_pull *pull, uint64_t more, spry_error *error);

/* Opens and locks the unfinished file or folder, made if it is not there; the descriptor holds the lock. */
spry_status spry_pull_lock(const spry_model_pull *pull, int *descriptor, spry_error *error);

/* Appends at the file's position, and counts. */
spry_status spry_pull_write(spry_model_pull *pull, int descriptor, const char *data, size_t size, spry_error *error);

/* Whether the file begins as GGUF files do. */
spry_status spry_pull_check_gguf(const spry_model_pull *pull, int descriptor, spry_error *error);

/* Writes all of it to the disk and gives it its name. */
spry_status spry_pull_publish(const spry_model_pull *pull, int descriptor, spry_error *error);

/* The path of an address, decoded. */
spry_status spry_pull_url_path(spry_buffer *path, const char *url, spry_error *error);

/* The three kinds. */
spry_status spry_pull_copy_file(spry_model_pull *pull, spry_error *error);
spry_status spry_pull_copy_folder(spry_model_pull *pull, spry_error *error);
spry_status spry_pull_download(spry_model_pull *pull, spry_error *error);

#endif
