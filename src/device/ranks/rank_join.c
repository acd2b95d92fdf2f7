/* Joining and leaving the processes that a launcher started together. */
#include "device/ranks/rank_worker.h"
#include "device/ranks/ranks.h"
#include "platform/environment.h"
#include "spry_serve.h"

spry_status spry_ranks_join(void (*on_quit)(const char *why), spry_error *error)
{
    double timeout_s;
    long started = spry_environment_take_ranks(&timeout_s);
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
    spry_status status = spry_ranks_use(link, error);
    if (status)
        link->leave();
    return status;
}

uint32_t spry_ranks_number(uint32_t *size)
{
    const spry_rank_link *link = spry_ranks_link();
    *size = link ? link->size : 1;
    return link ? link->rank : 0;
}

spry_status spry_ranks_serve(spry_error *error)
{
    return spry_rank_worker_run(error);
}

bool spry_ranks_post(uint32_t to, const void *bytes, size_t size)
{
    spry_ranks_lock();
    bool sent = spry_ranks_link()->post(to, bytes, size);
    spry_ranks_unlock();
    return sent;
}

bool spry_ranks_fetch(uint32_t *from, char **bytes, size_t *size)
{
    spry_ranks_lock();
    bool found = spry_ranks_link()->fetch(from, bytes, size);
    spry_ranks_unlock();
    return found;
}

void spry_ranks_leave(void)
{
    const spry_rank_link *link = spry_ranks_link();
    if (!link)
        return;
    spry_ranks_lock();
    if (spry_ranks_shared() && !link->rank)
        spry_ranks_send(&(spry_rank_command){.op = SPRY_RANK_STOP}, NULL);
    spry_ranks_unlock();
    link->leave();
}
