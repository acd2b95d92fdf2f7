/* A link over MPI, built as a module, so that a program that computes alone needs no MPI. Messages are waited for with
 * a time limit: MPI itself would wait forever for a rank that does not answer. */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "device/ranks/ranks.h"
#include "spry.h"

static spry_rank_link link;
static double limit_s; /* for an answer of the other ranks */
static void (*tell)(const char *why);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void quit(const char *why)
{
    char message[256];
    snprintf(message, sizeof message, "rank %u of %u: %s", link.rank, link.size, why);
    tell(message);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Looks often at first, then lets other processes run; long idle waits sleep. */
static void wait_for(MPI_Request *request, bool idle)
{
    enum { LOOKS = 200 };
    const double nap_after_s = 0.02;
    const struct timespec nap = {.tv_nsec = 200000};
    double start = 0;
    for (unsigned looks = 0;; looks++) {
        int done = 0;
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            quit("a message was lost");
        if (done)
            return;
        if (looks < LOOKS)
            continue;
        if (looks == LOOKS)
            start = now();
        double waited = now() - start;
        if (!idle && waited > limit_s)
            quit("another rank has not answered for too long (SPRY_RANK_TIMEOUT seconds); it is stuck, or the "
                 "network is");
        if (waited > nap_after_s)
            nanosleep(&nap, NULL);
        else
            sched_yield();
    }
}

static void broadcast(void *bytes, size_t size, bool idle)
{
    while (size) {
        size_t part = size < INT_MAX ? size : INT_MAX;
        MPI_Request request;
        MPI_Ibcast(bytes, (int)part, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
        wait_for(&request, idle);
        bytes = (char *)bytes + part;
        size -= part;
        idle = false;
    }
}

static void gather(void *all, const void *own, const size_t *bytes, bool to_first)
{
    int counts[SPRY_TEAM_MAX], offsets[SPRY_TEAM_MAX];
    size_t offset = 0;
    for (size_t i = 0; i < link.size; offset += bytes[i++]) {
        if (offset + bytes[i] > INT_MAX)
            quit("a message is larger than 2 GB: use smaller chunks (--chunk)");
        counts[i] = (int)bytes[i];
        offsets[i] = (int)offset;
    }
    MPI_Request request;
    if (to_first)
        MPI_Igatherv(own, counts[link.rank], MPI_BYTE, all, counts, offsets, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    else
        MPI_Iallgatherv(own, counts[link.rank], MPI_BYTE, all, counts, offsets, MPI_BYTE, MPI_COMM_WORLD, &request);
    wait_for(&request, false);
}

static void leave(void)
{
    MPI_Finalize();
}

SPRY_API spry_rank_link_open spry_mpi_link;

const spry_rank_link *spry_mpi_link(double timeout_s, void (*on_quit)(const char *why))
{
    int threads, rank, size;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads) != MPI_SUCCESS)
        return NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    limit_s = timeout_s;
    tell = on_quit;
    link = (spry_rank_link){(uint32_t)rank, (uint32_t)size, broadcast, gather, leave, quit};
    if (threads < MPI_THREAD_SERIALIZED)
        quit("this MPI was built without threads");
    return &link;
}
