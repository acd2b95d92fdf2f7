/* Processes that were started together, on one machine or several, and compute each model together. Rank 0 has the
 * engine; its CPU device sends every command to the other ranks, which execute it (rank_device.c). A *link* transports
 * the bytes; the only one uses MPI (mpi/mpi_link.c). */
#ifndef SPRY_DEVICE_RANKS_RANKS_H
#define SPRY_DEVICE_RANKS_RANKS_H

#include "base/buffer.h"
#include "base/error.h"
#include "device/cpu/team.h"
#include "device/device.h"

/* Calls come from one thread at a time; all ranks call broadcast and gather in the same order. These functions end all
 * processes (quit) when a rank does not answer or has disappeared. */
typedef struct spry_rank_link {
    uint32_t rank, size;
    /* From rank 0 to all ranks. `idle`: any time may pass before rank 0 sends. */
    void (*broadcast)(void *bytes, size_t size, bool idle);
    /* As in spry_team. */
    void (*gather)(void *all, const void *own, const size_t *bytes, bool to_first);
    bool (*post)(uint32_t to, const void *bytes, size_t size); /* sends a message to one rank; false: it does not
                                                                * answer */
    bool (*fetch)(uint32_t *from, char **bytes, size_t *size); /* receives a message from any rank, which the caller
                                                                * frees; false: there is none now */
    void (*leave)(void);                                       /* does not wait for ranks that did not answer before */
    /* Ends the processes of all ranks, after the callback of spry_ranks_join was called with the reason. */
    void (*quit)(const char *why);
} spry_rank_link;

/* The function that a module with a link exports. `timeout_s`: seconds to wait for another rank. NULL: the link could
 * not be started. */
typedef const spry_rank_link *spry_rank_link_open(double timeout_s, void (*on_quit)(const char *why));

/* Starts to use a link, which must outlive all devices. Fails on every rank if the programs' versions differ, or if
 * there are too many ranks. */
spry_status spry_ranks_use(const spry_rank_link *link, spry_error *error);

/* NULL: this process was not started with others. */
const spry_rank_link *spry_ranks_link(void);

/* True if all ranks share each model (spry_ranks_share). */
bool spry_ranks_shared(void);

/* Bytes of memory of all ranks together. */
size_t spry_ranks_memory(void);

/* ---- commands from rank 0 to the others -------------------------------------------------------------------------- */

typedef enum spry_rank_op {
    SPRY_RANK_STOP,
    SPRY_RANK_OPEN,
    SPRY_RANK_CLOSE,
    SPRY_RANK_STEP,
    SPRY_RANK_COPY_PAGE,
    SPRY_RANK_RELEASE_PAGES,
    SPRY_RANK_READ_PAGE,
    SPRY_RANK_WRITE_PAGE,
} spry_rank_op;

typedef struct spry_rank_command {
    uint32_t op, device;
    uint32_t page, from; /* numbers for the page commands; `release` applies to pages before `from` */
    uint64_t size;       /* bytes of the data that follow the command */
} spry_rank_command;

/* A command and the exchanges that belong to it happen between lock and unlock, because pages are read from any
 * thread. */
void spry_ranks_lock(void);
void spry_ranks_unlock(void);
void spry_ranks_send(const spry_rank_command *command, const void *bytes);
/* Receives a command; `bytes` is replaced by the data that follow it. False: memory is short. */
bool spry_ranks_receive(spry_rank_command *command, spry_buffer *bytes);

/* Exchanges the ranks' results of a command that can fail; returns the first failure, the same on all ranks. */
spry_status spry_ranks_agree(spry_status own, const spry_error *own_error, spry_error *error);

/* A step as bytes: the parts of it that other ranks need. */

/* Appends segments, tables, tokens and turns; a failure is recorded in the buffer. */
void spry_rank_step_write(spry_buffer *out, const spry_segment *segments, size_t n_segments,
                          const spry_kv_turns *turns);

/* Segments that point into the message, and the memory for them. */
typedef struct spry_rank_step {
    spry_segment *segments;
    spry_kv_table *tables;
    size_t n_segments, capacity;
} spry_rank_step;

/* Reads a step, and sets the turns. False: memory is short. */
bool spry_rank_step_read(spry_rank_step *step, spry_kv_turns *turns, const spry_buffer *message);
void spry_rank_step_deinit(spry_rank_step *step);

/* Runs a rank other than 0; returns when rank 0 has ended. */
spry_status spry_rank_worker_run(spry_error *error);

#endif
