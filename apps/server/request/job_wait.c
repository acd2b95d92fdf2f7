#include "server/request/job_wait.h"

#include "server/http/http_server.h"

enum { CHECK_MS = 20 }; /* between two checks of the connection */

void spry_job_options_of(spry_job_options *options, const spry_exchange *x)
{
    spry_job_options_default(options);
    options->salt = x->key.data;
    options->salt_size = x->key.size;
    options->client = x->client;
}

spry_status spry_job_begin(spry_job *job, const spry_costs *costs, spry_error *error)
{
    spry_status status = spry_http_check_reader(costs->exchange, error);
    return status == SPRY_OK ? spry_job_submit(job, error) : status;
}

spry_status spry_job_finish(spry_job *job, spry_costs *costs, spry_error *error)
{
    spry_result result;
    spry_laps *laps = &costs->laps;
    spry_status status = SPRY_OK;
    while (status == SPRY_OK && spry_job_wait(job, CHECK_MS, NULL) != SPRY_OK)
        status = spry_http_check_reader(costs->exchange, error);
    if (status != SPRY_OK)
        return status;
    status = spry_job_result(job, &result, error);
    if (!laps->ns[SPRY_PART_PREFILL])
        spry_lap_until(laps, SPRY_PART_QUEUE, laps->last_ns + (uint64_t)(result.parts_ms[SPRY_PART_QUEUE] * 1e6));
    spry_lap(laps, SPRY_PART_PREFILL);
    return status;
}
