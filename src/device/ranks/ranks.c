/* The link in use, what all ranks must have in common, and commands. */
#include "device/ranks/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/ops.h"
#include "platform/memory.h"
#include "spry_serve.h"

/* What ranks tell each other at the start. */
typedef struct introduction {
    char program[64]; /* version and revision of kernels */
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
        ranks.memory += first == i ? all[i].memory : 0; /* ranks of one machine share its memory */
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
    if (sent < command->size) /* broadcasting does not change the sender's bytes */
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
