/* Jobs of a request that its connection's thread waits for: evaluations and embeddings. */
#ifndef SPRY_SERVER_JOB_WAIT_H
#define SPRY_SERVER_JOB_WAIT_H

#include "server/request/request_costs.h"

/* The options of an exchange's jobs: its key's pages, its client's turn. */
void spry_job_options_of(spry_job_options *options, const spry_exchange *exchange);

/* Submits a job; then waits for it. SPRY_ERR_CANCELLED: the client has disconnected, or --answer-timeout has passed.
 * Waiting is charged to the request: until the first of its jobs began as queueing, the rest as prefill. */
spry_status spry_job_begin(spry_job *job, const spry_costs *costs, spry_error *error);
spry_status spry_job_finish(spry_job *job, spry_costs *costs, spry_error *error);

#endif
