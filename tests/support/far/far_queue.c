#include "support/far/far_device.h"

#include "platform/threads.h"

static void *thread_main(void *argument)
{
    spry_far_queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (!queue->stopping && (!queue->first || queue->held))
            pthread_cond_wait(&queue->changed, &queue->lock);
        spry_far_call *call = queue->first;
        if (!call)
            break;
        queue->first = call->next;
        if (!queue->first)
            queue->last = &queue->first;
        pthread_mutex_unlock(&queue->lock);
        queue->open_memory(queue->device, true);
        call->run(queue->device, call);
        queue->open_memory(queue->device, false);
        pthread_mutex_lock(&queue->lock);
        call->done = true;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static void release(spry_far_queue *queue)
{
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
}

spry_status spry_far_queue_open(spry_far_queue *queue, void *device, void (*open_memory)(void *device, bool open),
                                spry_error *error)
{
    *queue = (spry_far_queue){.device = device, .open_memory = open_memory, .last = &queue->first};
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    open_memory(device, false);
    spry_status status = spry_background_start(&queue->thread, thread_main, queue, "the far device", error);
    if (status) {
        open_memory(device, true);
        release(queue);
    }
    return status;
}

void spry_far_queue_close(spry_far_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->stopping = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    release(queue);
}

void spry_far_queue_start(spry_far_queue *queue, spry_far_call *call)
{
    call->next = NULL;
    call->done = false;
    pthread_mutex_lock(&queue->lock);
    *queue->last = call;
    queue->last = &call->next;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

void spry_far_queue_finish(spry_far_queue *queue, const spry_far_call *call)
{
    pthread_mutex_lock(&queue->lock);
    queue->waits++;
    while (!call->done)
        pthread_cond_wait(&queue->changed, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
}

bool spry_far_queue_is_done(spry_far_queue *queue, const spry_far_call *call)
{
    pthread_mutex_lock(&queue->lock);
    bool done = call->done;
    pthread_mutex_unlock(&queue->lock);
    return done;
}

uint64_t spry_far_queue_waits(spry_far_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t waits = queue->waits;
    pthread_mutex_unlock(&queue->lock);
    return waits;
}

void spry_far_queue_call(spry_far_queue *queue, spry_far_call *call)
{
    spry_far_queue_start(queue, call);
    spry_far_queue_finish(queue, call);
}

void spry_far_queue_hold(spry_far_queue *queue, bool hold)
{
    pthread_mutex_lock(&queue->lock);
    queue->held = hold;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}
