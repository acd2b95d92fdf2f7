#include "base/interrupt.h"

typedef struct interrupt {
    bool (*ended)(void *user); /* NULL: none */
    void *user;
    size_t work; /* since it was asked */
    bool was;
} interrupt;

static _Thread_local interrupt current;

void spry_interrupt_begin(bool (*ended)(void *user), void *user)
{
    current = (interrupt){.ended = ended, .user = user};
}

void spry_interrupt_end(void)
{
    current = (interrupt){0};
}

bool spry_interrupted(size_t work)
{
    if (!current.ended || current.was)
        return current.was;
    current.work = work < SPRY_INTERRUPT_WORK ? current.work + work : SPRY_INTERRUPT_WORK;
    if (current.work < SPRY_INTERRUPT_WORK)
        return false;
    current.work = 0;
    current.was = current.ended(current.user);
    return current.was;
}
