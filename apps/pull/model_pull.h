/* Adds a model to the models folder: a local file or folder, a file at an http(s) URL, or a model of a hub.
 *
 * Data is written under a name that begins with a dot, which no model has, and is renamed when it is complete: a GGUF
 * file, or a folder with config.json and weights. The running pull holds a lock on the unfinished file. An interrupted
 * download is kept and resumed by the next pull if the server confirms that the file is unchanged; copies start again.
 * Nothing is ever replaced. */
#ifndef SPRY_PULL_MODEL_PULL_H
#define SPRY_PULL_MODEL_PULL_H

#include "base/error.h"
#include "platform/model_names.h"

/* Called repeatedly with the bytes done and the total; false cancels. */
typedef bool (*spry_pull_progress)(void *user, uint64_t done, uint64_t total);

typedef struct spry_pull_request {
    const char *source; /* a path, file://PATH, http://..., https://..., or a name on a hub (hub.h) */
    const char *name;   /* NULL: the name of the source, without ".gguf" */
    const char *folder; /* the models folder; created if missing */
    spry_pull_progress progress;
    void *user; /* for `progress` */
} spry_pull_request;

typedef struct spry_model_pull spry_model_pull;

/* Checks everything that can be refused at once: invalid or existing names, missing sources. Writes nothing. */
spry_status spry_model_pull_open(spry_model_pull **out, const spry_pull_request *request, spry_error *error);
void spry_model_pull_close(spry_model_pull *pull);

/* The name of the model. */
const char *spry_model_pull_name(const spry_model_pull *pull);

/* Runs the pull; SPRY_ERR_CANCELLED when `progress` returned false. */
spry_status spry_model_pull_run(spry_model_pull *pull, spry_error *error);

/* ---- at a terminal ----------------------------------------------------------------------------------------------- */

/* On a terminal, asks whether a model of a hub shall be downloaded, and does it; elsewhere fails with the command that
 * does. */
spry_status spry_pull_offer(const char *source, const char *folder, spry_error *error);

#endif
