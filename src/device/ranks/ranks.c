/* The link in use, the check that all ranks agree, and commands. */
#include "device/ranks/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/ops.h"
#include "platform/environment.h"
#include "platform/memory.h"
#include "spry_serve.h"

/* ---- steps as bytes ---------------------------------------------------------------------------------------------- */

/* Precedes each segment's entries and tokens. All lists consist of 32-bit numbers. */
typedef struct segment_head {
    uint32_t first_position, n_rows, want, n_entries, n_tokens;
} segment_head;

void spry_rank_step_write(spry_buffer *out, const spry_segment *segments, size_t n_segments, const spry_kv_turns *turns)
{
    const uint32_t counts[] = {(uint32_t)n_segments, turns->end};
    spry_buffer_append(out, counts, sizeof counts);
    spry_buffer_append(out, turns->deltas, turns->end * sizeof *turns->deltas);
    for (size_t i = 0; i < n_segments; i++) {
        const spry_segment *g = &segments[i];
        const segment_head head = {g->first_position, g->n_rows, (uint32_t)g->want, (uint32_t)g->table->n_entries,
                                   (uint32_t)g->table->n_tokens};
        spry_buffer_append(out, &head, sizeof head);
        spry_buffer_append(out, g->table->entries, g->table->n_entries * sizeof *g->table->entries);
        spry_buffer_append(out, g->tokens, g->n_rows * sizeof *g->tokens);
    }
}

static bool reserve(spry_rank_step *step, size_t n)
{
    if (n <= step->capacity)
        return true;
    spry_rank_step_deinit(step);
    step->segments = calloc(n, sizeof *step->segments);
    step->tables = calloc(n, sizeof *step->tables);
    step->capacity = step->segments && step->tables ? n : 0;
    return step->capacity;
}

bool spry_rank_step_read(spry_rank_step *step, spry_kv_turns *turns, const spry_buffer *message)
{
    const char *at = message->data;
    uint32_t counts[2];
    memcpy(counts, at, sizeof counts);
    at += sizeof counts;
    turns->end = counts[1];
    memcpy(turns->deltas, at, turns->end * sizeof *turns->deltas);
    at += turns->end * sizeof *turns->deltas;
    if (!reserve(step, counts[0]))
        return false;
    step->n_segments = counts[0];
    for (size_t i = 0; i < step->n_segments; i++) {
        segment_head head;
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        step->tables[i] = (spry_kv_table){
            .entries = (spry_kv_entry *)(void *)at, .n_entries = head.n_entries, .n_tokens = head.n_tokens};
        at += head.n_entries * sizeof(spry_kv_entry);
        step->segments[i] = (spry_segment){.table = &step->tables[i],
                                           .tokens = (const int32_t *)(const void *)at,
                                           .first_position = head.first_position,
                                           .n_rows = head.n_rows,
                                           .want = (spry_want)head.want};
        at += head.n_rows * sizeof(int32_t);
    }
    return true;
}

void spry_rank_step_deinit(spry_rank_step *step)
{
    free(step->segments);
    free(step->tables);
    *step = (spry_rank_step){0};
}

/* ---- the link ---------------------------------------------------------------------------------------------------- */

/* What ranks send each other at the start. */
typedef struct introduction {
    char program[64]; /* version of the program, and revision of its kernels */
    char host[64];
    uint64_t memory;
} introduction;

static struct {
    const spry_rank_link *link;
    bool shared;
    pthread_mutex_t lock;
    size_t memory;
} ranks = {.lock = PTHREAD_MUTEX_INITIALIZER};

const spry_rank_link *spry_ranks_link(void)
{
    return ranks.link;
}

bool spry_ranks_shared(void)
{
    return ranks.shared;
}

void spry_ranks_share(void)
{
    ranks.shared = ranks.link;
}

size_t spry_ranks_memory(void)
{
    return ranks.memory;
}

static void gather_equal(const spry_rank_link *link, void *all, const void *own, size_t size)
{
    size_t bytes[SPRY_TEAM_MAX];
    for (size_t i = 0; i < link->size; i++)
        bytes[i] = size;
    link->gather(all, own, bytes, false);
}

spry_status spry_ranks_use(const spry_rank_link *link, spry_error *error)
{
    introduction own = {.memory = spry_memory_total()}, all[SPRY_TEAM_MAX];
    if (link->size > SPRY_TEAM_MAX)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%u ranks were started; at most %d can compute together",
                         link->size, SPRY_TEAM_MAX);
    snprintf(own.program, sizeof own.program, "%s, kernels of revision %d", spry_version(), SPRY_KERNEL_REVISION);
    gethostname(own.host, sizeof own.host - 1);
    gather_equal(link, all, &own, sizeof own);
    for (size_t i = 0; i < link->size; i++) {
        if (strcmp(all[i].program, all[0].program) != 0)
            return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                             "rank %zu (%s) runs spry %s, rank 0 (%s) runs %s: install the same program on all", i,
                             all[i].host, all[i].program, all[0].host, all[0].program);
        size_t first = 0;
        while (strcmp(all[first].host, all[i].host) != 0)
            first++;
        ranks.memory += first == i ? all[i].memory : 0; /* ranks on the same machine share its memory, so it counts
                                                         * once */
    }
    ranks.link = link;
    return SPRY_OK;
}

void spry_ranks_lock(void)
{
    pthread_mutex_lock(&ranks.lock);
}

void spry_ranks_unlock(void)
{
    pthread_mutex_unlock(&ranks.lock);
}

/* The first message has this size, so that a short command is one message. */
typedef struct envelope {
    spry_rank_command command;
    unsigned char bytes[4096 - sizeof(spry_rank_command)];
} envelope;

static size_t enclosed(const spry_rank_command *command)
{
    size_t room = sizeof((envelope *)NULL)->bytes;
    return command->size < room ? command->size : room;
}

void spry_ranks_send(const spry_rank_command *command, const void *bytes)
{
    envelope first = {.command = *command};
    size_t sent = enclosed(command);
    if (sent)
        memcpy(first.bytes, bytes, sent);
    ranks.link->broadcast(&first, sizeof first, false);
    if (sent < command->size) /* the sender's bytes do not change, so the cast is safe */
        ranks.link->broadcast((unsigned char *)bytes + sent, command->size - sent, false);
}

bool spry_ranks_receive(spry_rank_command *command, spry_buffer *bytes)
{
    envelope first;
    ranks.link->broadcast(&first, sizeof first, true);
    *command = first.command;
    spry_buffer_clear(bytes);
    char *room = spry_buffer_extend(bytes, command->size);
    size_t came = enclosed(command);
    if (!room && command->size)
        return false;
    if (came)
        memcpy(room, first.bytes, came);
    if (came < command->size)
        ranks.link->broadcast(room + came, command->size - came, false);
    return true;
}

spry_status spry_ranks_agree(spry_status own, const spry_error *own_error, spry_error *error)
{
    struct verdict {
        spry_status status;
        spry_error error;
    } mine = {.status = own}, all[SPRY_TEAM_MAX];
    if (own)
        mine.error = *own_error;
    gather_equal(ranks.link, all, &mine, sizeof mine);
    for (size_t i = 0; i < ranks.link->size; i++)
        if (all[i].status)
            return i == 0 ? spry_fail(error, all[i].status, "%s", all[i].error.message)
                          : spry_fail(error, all[i].status, "rank %zu: %s", i, all[i].error.message);
    return SPRY_OK;
}

/* ---- joining and leaving ----------------------------------------------------------------------------------------- */

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
