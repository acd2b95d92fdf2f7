/* Joining and leaving the processes that a launcher started together. */
#include "device/ranks/rank_worker.h"
#include "device/ranks/ranks.h"
#include "platform/environment.h"
#include "platform/module.h"
#include "spry_serve.h"

spry_status spry_ranks_join(uint32_t *rank, uint32_t *size, void (*on_quit)(const char *why), spry_error *error)
{
    double timeout_s;
    long started = spry_environment_take_ranks(&timeout_s);
    *rank = 0;
    *size = 1;
    if (started < 2)
        return SPRY_OK;
    spry_error missing;
    spry_rank_link_open *open_link;
    void *symbol = spry_module_symbol("spry_mpi", "spry_mpi_link", &missing);
    if (!symbol)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "mpirun started %ld processes, but spry's MPI module cannot be opened (%.200s): install "
                         "libopenmpi-dev and build spry again",
                         started, missing.message);
    *(void **)(void *)&open_link = symbol;
    const spry_rank_link *link = open_link(timeout_s, on_quit);
    if (!link)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "MPI could not be started");
    *rank = link->rank;
    *size = link->size;
    spry_status status = spry_ranks_use(link, error);
    if (status)
        link->leave();
    return status;
}

spry_status spry_ranks_serve(spry_error *error)
{
    spry_status status = spry_rank_worker_run(error);
    spry_ranks_link()->leave();
    return status;
}

void spry_ranks_leave(void)
{
    const spry_rank_link *link = spry_ranks_link();
    if (!link || link->rank)
        return;
    spry_ranks_lock();
    spry_ranks_send(&(spry_rank_command){.op = SPRY_RANK_STOP}, NULL);
    spry_ranks_unlock();
    link->leave();
}
