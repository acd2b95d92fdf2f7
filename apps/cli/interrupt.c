/* The handler only sets a flag and cancels, both of which are async-signal-safe. System calls are not restarted, so a
 * read at the prompt returns too. */
#include "cli/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static volatile sig_atomic_t seen;
static _Atomic(spry_session *) watched;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    seen = 1;
    spry_session *session = atomic_load(&watched);
    if (session)
        spry_session_cancel(session);
}

void spry_interrupt_install(spry_session *session, bool once)
{
    atomic_store(&watched, session);
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = once ? (int)SA_RESETHAND : 0};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

void spry_interrupt_remove(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    atomic_store(&watched, NULL);
}

bool spry_interrupt_seen(void)
{
    return seen != 0;
}

void spry_interrupt_clear(void)
{
    seen = 0;
}
