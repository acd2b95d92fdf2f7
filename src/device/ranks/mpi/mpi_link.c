/* A link over MPI, built as a module, so that a program that computes alone needs no MPI. Messages have a time limit,
 * because MPI itself would wait without end for a rank that does not answer. */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "device/ranks/ranks.h"
#include "spry.h"

static spry_rank_link link;
static double limit_s; /* seconds to wait for an answer of another rank */
static void (*tell)(const char *why);
static bool missed; /* a rank did not answer */
enum { TAG = 1 };

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

/* Polls often at first, then yields to other processes, then sleeps. False: `limit` seconds have passed; 0: no
 * limit. */
static bool wait_within(MPI_Request *request, double limit)
{
    enum { LOOKS = 200 };
    const double nap_after_s = 0.02;
    const struct timespec nap = {.tv_nsec = 200000};
    double start = 0;
    for (unsigned looks = 0;; looks++) {
        int done = 0;
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return false;
        if (done)
            return true;
        if (looks < LOOKS)
            continue;
        if (looks == LOOKS)
            start = now();
        double waited = now() - start;
        if (limit > 0 && waited > limit)
            return false;
        if (waited > nap_after_s)
            nanosleep(&nap, NULL);
        else
            sched_yield();
    }
}

static void wait_for(MPI_Request *request, bool idle)
{
    if (!wait_within(request, idle ? 0 : limit_s))
        quit("another rank has not answered for too long (SPRY_RANK_TIMEOUT seconds); it is stuck, or the network is");
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

static bool post(uint32_t to, const void *bytes, size_t size)
{
    MPI_Request request;
    if (size > INT_MAX ||
        MPI_Isend(bytes, (int)size, MPI_BYTE, (int)to, TAG, MPI_COMM_WORLD, &request) != MPI_SUCCESS ||
        !wait_within(&request, limit_s))
        missed = true;
    return !missed;
}

static bool fetch(uint32_t *from, char **bytes, size_t *size)
{
    MPI_Status status;
    int found = 0, count = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &found, &status) != MPI_SUCCESS || !found)
        return false;
    MPI_Get_count(&status, MPI_BYTE, &count);
    *from = (uint32_t)status.MPI_SOURCE;
    *size = (size_t)count;
    *bytes = malloc(*size + 1);
    if (!*bytes)
        quit("there is no memory for a message");
    MPI_Request request;
    MPI_Irecv(*bytes, count, MPI_BYTE, status.MPI_SOURCE, TAG, MPI_COMM_WORLD, &request);
    if (wait_within(&request, limit_s))
        return true;
    missed = true;
    free(*bytes);
    return false;
}

/* Waits for all ranks to leave, unless one is lost, because then the wait would never end. */
static void leave(void)
{
    MPI_Request request;
    if (missed || MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS || !wait_within(&request, limit_s))
        return;
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
    link = (spry_rank_link){(uint32_t)rank, (uint32_t)size, broadcast, gather, post, fetch, leave, quit};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (threads < MPI_THREAD_SERIALIZED)
        quit("this MPI was built without threads");
    return &link;
}
