/* Bringing a model into the models folder: a file or folder of this machine, or a file behind an http(s) address.
 *
 * What comes is written under a name that begins with a dot, as no model's does, and gets its own when it is whole: a
 * GGUF file, or a folder with config.json and weights. Whoever is at work holds a lock on the unfinished one. A
 * download that was cut off leaves what it had, and goes on from there the next time, if the server can tell that it
 * still has the same file; copies begin anew. Nothing is ever replaced. */
#ifndef SPRY_APPS_MODEL_PULL_H
#define SPRY_APPS_MODEL_PULL_H

#include "base/error.h"
#include "platform/model_names.h"

/* Called again and again, with how many bytes of how many are there; false stops. */
typedef bool (*spry_pull_progress)(void *user, uint64_t done, uint64_t total);

typedef struct spry_pull_request {
    const char *source; /* a path, file://PATH, http://... or https://... */
    const char *name;   /* NULL: as the source is called, without ".gguf" */
    const char *folder; /* the models folder; made where it is not there */
    spry_pull_progress progress;
    void *user; /* for `progress` */
} spry_pull_request;

typedef struct spry_model_pull spry_model_pull;

/* Whatever can be refused at once: names that are none or taken, sources that are not there. Nothing is written. */
spry_status spry_model_pull_open(spry_model_pull **out, const spry_pull_request *request, spry_error *error);
void spry_model_pull_close(spry_model_pull *pull);

/* What the model will be called. */
const char *spry_model_pull_name(const spry_model_pull *pull);

/* Does it; SPRY_ERR_CANCELLED when `progress` said so. */
spry_status spry_model_pull_run(spry_model_pull *pull, spry_error *error);

#endif
