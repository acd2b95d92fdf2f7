/* What the files behind spry.h share. */
#ifndef SPRY_ENGINE_ENGINE_STATE_H
#define SPRY_ENGINE_ENGINE_STATE_H

#include <stdatomic.h>

#include "base/log.h"
#include "model/model.h"
#include "model/pass.h"
#include "sampling/sampler.h"

struct spry_engine {
    spry_model *model;
    spry_kv_pool pool;
    spry_threads *threads;
    const spry_ops *ops;
    spry_pass *pass;
    spry_log log;
    uint32_t context, chunk, sessions;
    uint32_t n_sessions; /* alive */
    bool from_file;      /* the model is mapped, not given in memory */
};

struct spry_session {
    spry_engine *engine;
    spry_kv_table table;
    int32_t *tokens; /* [context]: what the table's pages hold */
    size_t n_tokens;
    spry_sampler *sampler;
    atomic_bool cancelled;
};

/* Rows of logits a step can give: verification of drafts and small batches fit; longer lists go in parts. */
enum { SPRY_MAX_LOGIT_ROWS = 16 };

/* Makes the session hold `ids`, reusing what it holds of them already, in chunks; the logits of the last row stay in
 * the pass. `progress` may be NULL; when it says stop, status is SPRY_ERR_CANCELLED and what was computed is kept. */
typedef struct spry_progress {
    bool (*report)(void *user, size_t done, size_t total);
    void *user;
} spry_progress;

spry_status spry_session_advance(spry_session *session, size_t *reused, const int32_t *ids, size_t count,
                                 const spry_progress *progress, spry_error *error);

/* Appends one token and computes its logits. */
spry_status spry_session_step(spry_session *session, int32_t id, spry_error *error);

#endif
