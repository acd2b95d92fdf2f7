/* Processes that were started together, on one machine or several, and compute each model together. Rank 0 has the
 * engine; its CPU device sends every command to the others, which follow (rank_device.c). A *link* carries the bytes;
 * the one there is uses MPI (mpi/mpi_link.c). */
#ifndef SPRY_DEVICE_RANKS_RANKS_H
#define SPRY_DEVICE_RANKS_RANKS_H

#include "base/buffer.h"
#include "base/error.h"
#include "device/cpu/team.h"
#include "device/device.h"

/* Calls come from one thread at a time; broadcast and gather from all ranks in the same order. They end all processes
 * (quit) when a rank does not answer or is gone. */
typedef struct spry_rank_link {
    uint32_t rank, size;
    /* From rank 0 to all. `idle`: others may take any time before they send. */
    void (*broadcast)(void *bytes, size_t size, bool idle);
    /* As in spry_team. */
    void (*gather)(void *all, const void *own, const size_t *bytes, bool to_first);
    bool (*post)(uint32_t to, const void *bytes, size_t size); /* a message to one rank; false: it does not answer */
    bool (*fetch)(uint32_t *from, char **bytes, size_t *size); /* one from any, to be freed; false: there is none now */
    void (*leave)(void);                                       /* does not wait for ranks that did not answer */
    /* Ends the processes of all ranks, after the function of spry_ranks_join was told why. */
    void (*quit)(const char *why);
} spry_rank_link;

/* What a module with a link exports. `timeout_s`: seconds to wait for another rank. NULL: it could not be started. */
typedef const spry_rank_link *spry_rank_link_open(double timeout_s, void (*on_quit)(const char *why));

/* Begins to use a link, which outlives all devices. Fails on every rank when programs differ in their version, or when
 * there are too many ranks. */
spry_status spry_ranks_use(const spry_rank_link *link, spry_error *error);

/* NULL: this process was not started with others. */
const spry_rank_link *spry_ranks_link(void);

/* Whether each model is shared among all ranks (spry_ranks_share). */
bool spry_ranks_shared(void);

/* Bytes of memory that all ranks have together. */
size_t spry_ranks_memory(void);

/* ---- commands: rank 0 to the others ------------------------------------------------------------------------------ */

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
    uint32_t page, from; /* of the page commands; pages are released up to before `from` */
    uint64_t size;       /* bytes of what follows */
} spry_rank_command;

/* Every command, with the exchanges that belong to it, is between lock and unlock: pages are read from any thread. */
void spry_ranks_lock(void);
void spry_ranks_unlock(void);
void spry_ranks_send(const spry_rank_command *command, const void *bytes);
/* `bytes` is replaced by what follows the command. False: memory is short. */
bool spry_ranks_receive(spry_rank_command *command, spry_buffer *bytes);

/* Each rank's result of a command that may fail; returns the first failure, the same one on all ranks. */
spry_status spry_ranks_agree(spry_status own, const spry_error *own_error, spry_error *error);

/* A step as bytes: the part of it that the other ranks need. */

/* Appends segments, tables, tokens and turns; a failure shows in the buffer. */
void spry_rank_step_write(spry_buffer *out, const spry_segment *segments, size_t n_segments,
                          const spry_kv_turns *turns);

/* Segments that point into the message, and room for them. */
typedef struct spry_rank_step {
    spry_segment *segments;
    spry_kv_table *tables;
    size_t n_segments, capacity;
} spry_rank_step;

/* Sets the turns, too. False: memory is short. */
bool spry_rank_step_read(spry_rank_step *step, spry_kv_turns *turns, const spry_buffer *message);
void spry_rank_step_deinit(spry_rank_step *step);

/* Returns when rank 0 has ended. */
spry_status spry_rank_worker_run(spry_error *error);

#endif
