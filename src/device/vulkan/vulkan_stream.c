/* Commands of a device of Vulkan: recorded into a batch in one order, with a barrier before each, and submitted
 * together. A graph is a secondary command buffer with arguments of its own, which batches execute. */
#include <stdlib.h>
#include <string.h>

#include "device/vulkan/vulkan_gpu.h"

enum { ALIGNMENT = 64 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_batches(spry_vk_gpu *g)
{
    VkCommandBuffer commands[SPRY_VK_BATCHES];
    const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = g->pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = SPRY_VK_BATCHES};
    int result = g->vk.AllocateCommandBuffers(g->device, &info, commands);
    for (size_t i = 0; !result && i < SPRY_VK_BATCHES; i++) {
        g->batches[i].commands = commands[i];
        result = spry_vk_allocate(g, &g->batches[i].args, SPRY_VK_ARGS_BYTES, SPRY_VK_ARGUMENTS);
    }
    g->batch = g->batches;
    return result;
}

int spry_vk_streams_open(spry_vk_gpu *g)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = g->facts.family};
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo timeline = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    const VkQueryPoolCreateInfo queries = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                           .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                           .queryCount = SPRY_VK_QUERIES};
    int result = g->vk.CreateCommandPool(g->device, &pool, NULL, &g->pool);
    if (!result)
        result = g->vk.CreateSemaphore(g->device, &timeline, NULL, &g->timeline);
    if (!result && g->facts.timestamp_bits)
        result = g->vk.CreateQueryPool(g->device, &queries, NULL, &g->queries);
    return result ? result : open_batches(g);
}

void spry_vk_streams_close(spry_vk_gpu *g)
{
    for (size_t i = 0; i < SPRY_VK_BATCHES; i++) {
        spry_vk_free(g, &g->batches[i].args);
        spry_vk_free(g, &g->batches[i].staging);
    }
    g->vk.DestroyQueryPool(g->device, g->queries, NULL);
    g->vk.DestroySemaphore(g->device, g->timeline, NULL);
    g->vk.DestroyCommandPool(g->device, g->pool, NULL);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

bool spry_vk_is_done(spry_vk_gpu *g, uint64_t serial, int *result)
{
    *result = VK_SUCCESS;
    if (serial > g->done)
        *result = g->vk.GetSemaphoreCounterValue(g->device, g->timeline, &g->done);
    return *result || serial <= g->done;
}

int spry_vk_wait(spry_vk_gpu *g, uint64_t serial, uint64_t timeout_ns)
{
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &g->timeline,
                                      .pValues = &serial};
    int result;
    return spry_vk_is_done(g, serial, &result) ? result : g->vk.WaitSemaphores(g->device, &info, timeout_ns);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static void add_barrier(spry_vk_gpu *g, VkCommandBuffer commands, spry_vk_kind before, spry_vk_kind after)
{
    static const VkPipelineStageFlags stages[] = {[SPRY_VK_COMPUTE] = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                                  [SPRY_VK_COPY] = VK_PIPELINE_STAGE_TRANSFER_BIT,
                                                  [SPRY_VK_ANYTHING] = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
                                                                       VK_PIPELINE_STAGE_TRANSFER_BIT};
    static const VkAccessFlags writes[] = {[SPRY_VK_COMPUTE] = VK_ACCESS_SHADER_WRITE_BIT,
                                           [SPRY_VK_COPY] = VK_ACCESS_TRANSFER_WRITE_BIT,
                                           [SPRY_VK_ANYTHING] =
                                               VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    static const VkAccessFlags reads[] = {[SPRY_VK_COMPUTE] = VK_ACCESS_SHADER_READ_BIT,
                                          [SPRY_VK_COPY] = VK_ACCESS_TRANSFER_READ_BIT,
                                          [SPRY_VK_ANYTHING] = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT};
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = writes[before],
                                     .dstAccessMask = reads[after] | writes[after]};
    if (before != SPRY_VK_NOTHING)
        g->vk.CmdPipelineBarrier(commands, stages[before], stages[after], 0, 1, &barrier, 0, NULL, 0, NULL);
}

/* Begins a batch if none is being recorded; waits until its place is free. */
static int begin_batch(spry_vk_gpu *g)
{
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    if (g->recording)
        return VK_SUCCESS;
    int result = spry_vk_wait(g, g->batch->serial, UINT64_MAX);
    if (!result)
        result = g->vk.BeginCommandBuffer(g->batch->commands, &info);
    if (result)
        return result;
    g->batch->args_used = g->batch->staging_used = 0;
    g->recording = true;
    g->last = SPRY_VK_ANYTHING; /* the batch before */
    return VK_SUCCESS;
}

int spry_vk_flush(spry_vk_gpu *g)
{
    if (!g->recording)
        return VK_SUCCESS;
    spry_vk_batch *b = g->batch;
    uint64_t serial = g->submitted + 1;
    const VkMemoryBarrier to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    const VkTimelineSemaphoreSubmitInfo value = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                 .signalSemaphoreValueCount = 1,
                                                 .pSignalSemaphoreValues = &serial};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &value,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &b->commands,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &g->timeline};
    g->vk.CmdPipelineBarrier(b->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                             VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, NULL, 0, NULL);
    g->recording = false;
    int result = g->vk.EndCommandBuffer(b->commands);
    if (!result)
        result = g->vk.QueueSubmit(g->queue, 1, &info, VK_NULL_HANDLE);
    if (result)
        return result;
    g->submissions++;
    b->serial = g->submitted = serial;
    g->batch = g->batches + (b - g->batches + 1) % SPRY_VK_BATCHES;
    return VK_SUCCESS;
}

/* Prepares a command of a kind in the batch. */
static int add_command(spry_vk_gpu *g, spry_vk_kind kind)
{
    int result = begin_batch(g);
    if (result)
        return result;
    add_barrier(g, g->batch->commands, g->last, kind);
    g->last = kind;
    return VK_SUCCESS;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Room for arguments in the batch. */
static int batch_room(spry_vk_gpu *g, spry_vk_memory **memory, size_t *at, size_t bytes)
{
    int result = begin_batch(g);
    if (!result && g->batch->args_used + bytes > SPRY_VK_ARGS_BYTES) {
        result = spry_vk_flush(g);
        result = result ? result : begin_batch(g);
    }
    *memory = &g->batch->args;
    *at = g->batch->args_used;
    g->batch->args_used += aligned(bytes);
    return result;
}

static int graph_room(spry_vk_gpu *g, spry_vk_graph *graph, spry_vk_memory **memory, size_t *at, size_t bytes)
{
    int result = VK_SUCCESS;
    if (!graph->n_args || graph->used + bytes > SPRY_VK_ARGS_BYTES / 4) {
        if (graph->n_args == SPRY_VK_GRAPH_PARTS)
            return VK_ERROR_OUT_OF_HOST_MEMORY;
        result = spry_vk_allocate(g, &graph->args[graph->n_args], SPRY_VK_ARGS_BYTES / 4, SPRY_VK_ARGUMENTS);
        graph->n_args += !result;
        graph->used = 0;
    }
    *memory = &graph->args[graph->n_args ? graph->n_args - 1 : 0];
    *at = graph->used;
    graph->used += aligned(bytes);
    return result;
}

int spry_vk_dispatch(spry_vk_gpu *g, spry_vk_stream *stream, size_t kernel, const uint32_t grid[3], const void *args)
{
    spry_vk_graph *graph = stream->graph;
    size_t bytes = spry_vulkan_kernels[kernel].args_bytes, at = 0;
    spry_vk_memory *memory = NULL;
    int result = graph ? graph_room(g, graph, &memory, &at, bytes) : batch_room(g, &memory, &at, bytes);
    if (!result)
        result = spry_vk_pipeline(g, kernel);
    if (result)
        return result;
    VkCommandBuffer commands = graph ? graph->commands : g->batch->commands;
    uint64_t address = memory->address + at;
    memcpy(memory->host + at, args, bytes);
    add_barrier(g, commands, graph ? graph->last : g->last, SPRY_VK_COMPUTE);
    *(graph ? &graph->last : &g->last) = SPRY_VK_COMPUTE;
    g->vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, g->pipelines[kernel]);
    g->vk.CmdPushConstants(commands, g->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof address, &address);
    g->vk.CmdDispatch(commands, grid[0], grid[1], grid[2]);
    return VK_SUCCESS;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static void record_copy(spry_vk_gpu *g, const spry_vk_memory *to, uint64_t to_at, const spry_vk_memory *from,
                        uint64_t from_at, size_t bytes)
{
    const VkBufferCopy region = {from_at, to_at, bytes};
    g->vk.CmdCopyBuffer(g->batch->commands, from->buffer, to->buffer, 1, &region);
}

/* Room in the batch's staging memory, for at least one byte; *bytes becomes what fits. */
static int staging_room(spry_vk_gpu *g, size_t *bytes)
{
    int result = begin_batch(g);
    if (!result && g->batch->staging_used == SPRY_VK_STAGING_BYTES) {
        result = spry_vk_flush(g);
        result = result ? result : begin_batch(g);
    }
    if (!result && !g->batch->staging.buffer)
        result = spry_vk_allocate(g, &g->batch->staging, SPRY_VK_STAGING_BYTES, SPRY_VK_READBACK);
    size_t room = SPRY_VK_STAGING_BYTES - g->batch->staging_used;
    *bytes = *bytes < room ? *bytes : room;
    return result;
}

int spry_vk_write(spry_vk_gpu *g, uint64_t to, const void *from, size_t bytes)
{
    size_t target = spry_vk_find(g, to), pinned = spry_vk_find_host(g, from);
    if (target == g->n_memory)
        return VK_ERROR_MEMORY_MAP_FAILED;
    const spry_vk_memory *m = &g->memory[target];
    if (pinned < g->n_memory) {
        const spry_vk_memory *source = &g->memory[pinned];
        int result = add_command(g, SPRY_VK_COPY);
        if (!result)
            record_copy(g, m, to - m->address, source, (size_t)((const unsigned char *)from - source->host), bytes);
        return result;
    }
    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done;
        int result = staging_room(g, &n);
        if (!result)
            result = add_command(g, SPRY_VK_COPY);
        if (result)
            return result;
        size_t at = g->batch->staging_used;
        memcpy(g->batch->staging.host + at, (const unsigned char *)from + done, n);
        record_copy(g, m, to - m->address + done, &g->batch->staging, at, n);
        g->batch->staging_used = at + aligned(n) < SPRY_VK_STAGING_BYTES ? at + aligned(n) : SPRY_VK_STAGING_BYTES;
        done += n;
    }
    return VK_SUCCESS;
}

/* Into pinned memory the copy is only recorded; other memory has it when the function returns. */
int spry_vk_read(spry_vk_gpu *g, void *to, uint64_t from, size_t bytes)
{
    size_t source = spry_vk_find(g, from), pinned = spry_vk_find_host(g, to);
    if (source == g->n_memory)
        return VK_ERROR_MEMORY_MAP_FAILED;
    const spry_vk_memory *m = &g->memory[source];
    if (pinned < g->n_memory) {
        const spry_vk_memory *target = &g->memory[pinned];
        int result = add_command(g, SPRY_VK_COPY);
        if (!result)
            record_copy(g, target, (size_t)((unsigned char *)to - target->host), m, from - m->address, bytes);
        return result;
    }
    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done;
        int result = staging_room(g, &n);
        if (!result)
            result = add_command(g, SPRY_VK_COPY);
        if (result)
            return result;
        const spry_vk_batch *b = g->batch;
        size_t at = b->staging_used;
        record_copy(g, &b->staging, at, m, from - m->address + done, n);
        result = spry_vk_flush(g);
        result = result ? result : spry_vk_wait(g, g->submitted, UINT64_MAX);
        if (result)
            return result;
        memcpy((unsigned char *)to + done, b->staging.host + at, n);
        done += n;
    }
    return VK_SUCCESS;
}

int spry_vk_copy(spry_vk_gpu *g, uint64_t to, uint64_t from, size_t bytes)
{
    size_t target = spry_vk_find(g, to), source = spry_vk_find(g, from);
    if (target == g->n_memory || source == g->n_memory)
        return VK_ERROR_MEMORY_MAP_FAILED;
    const spry_vk_memory *t = &g->memory[target], *s = &g->memory[source];
    int result = add_command(g, SPRY_VK_COPY);
    if (!result)
        record_copy(g, t, to - t->address, s, from - s->address, bytes);
    return result;
}

int spry_vk_fill(spry_vk_gpu *g, uint64_t to, uint32_t word, size_t words)
{
    size_t target = spry_vk_find(g, to);
    if (target == g->n_memory)
        return VK_ERROR_MEMORY_MAP_FAILED;
    const spry_vk_memory *t = &g->memory[target];
    int result = add_command(g, SPRY_VK_COPY);
    if (!result)
        g->vk.CmdFillBuffer(g->batch->commands, t->buffer, to - t->address, words * sizeof word, word);
    return result;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

int spry_vk_graph_begin(spry_vk_gpu *g, spry_vk_stream *stream)
{
    const VkCommandBufferAllocateInfo buffer = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                .commandPool = g->pool,
                                                .level = VK_COMMAND_BUFFER_LEVEL_SECONDARY,
                                                .commandBufferCount = 1};
    const VkCommandBufferInheritanceInfo inherited = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO};
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
                                           .pInheritanceInfo = &inherited};
    spry_vk_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    int result = g->vk.AllocateCommandBuffers(g->device, &buffer, &graph->commands);
    if (!result)
        result = g->vk.BeginCommandBuffer(graph->commands, &info);
    if (result)
        spry_vk_graph_free(g, graph);
    else
        stream->graph = graph;
    return result;
}

int spry_vk_graph_end(spry_vk_gpu *g, spry_vk_stream *stream, spry_vk_graph **graph)
{
    *graph = stream->graph;
    stream->graph = NULL;
    return *graph ? g->vk.EndCommandBuffer((*graph)->commands) : VK_ERROR_UNKNOWN;
}

int spry_vk_graph_run(spry_vk_gpu *g, spry_vk_graph *graph)
{
    int result = add_command(g, SPRY_VK_ANYTHING);
    if (result)
        return result;
    g->vk.CmdExecuteCommands(g->batch->commands, 1, &graph->commands);
    graph->serial = g->submitted + 1;
    return VK_SUCCESS;
}

void spry_vk_graph_free(spry_vk_gpu *g, spry_vk_graph *graph)
{
    if (graph->serial > g->submitted)
        spry_vk_flush(g);
    if (graph->serial <= g->submitted)
        spry_vk_wait(g, graph->serial, UINT64_MAX);
    for (size_t i = 0; i < graph->n_args; i++)
        spry_vk_free(g, &graph->args[i]);
    if (graph->commands)
        g->vk.FreeCommandBuffers(g->device, g->pool, 1, &graph->commands);
    free(graph);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

int spry_vk_event_record(spry_vk_gpu *g, spry_vk_event *event)
{
    int result = begin_batch(g);
    if (result)
        return result;
    event->serial = g->submitted + 1;
    if (event->query < SPRY_VK_QUERIES && g->queries) {
        g->vk.CmdResetQueryPool(g->batch->commands, g->queries, event->query, 1);
        g->vk.CmdWriteTimestamp(g->batch->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, g->queries, event->query);
    }
    return VK_SUCCESS;
}
