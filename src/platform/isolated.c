/* A forked child with a pipe. On Linux a filter of system calls leaves it what malloc and write need. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/interrupt.h"
#include "platform/clock.h"
#include "platform/os.h"
#include "platform/child.h"

#ifdef SPRY_OS_LINUX
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "platform/system_calls.h"
#endif

enum { DONE = 77, READ_BYTES = 1 << 16, CLOCK_FACTOR = 3, POLL_MS = 100, FILES_CLOSED = 4096 };

/* ---- the child --------------------------------------------------------------------------------------------------- */

/* The runtimes of sanitizers make system calls of their own: with them, limits alone. */
#if SPRY_SANITIZE_ADDRESS || SPRY_SANITIZE_THREAD
#define WITH_FILTER 0
#elif defined(SPRY_OS_LINUX) && (defined(__x86_64__) || defined(__aarch64__))
#define WITH_FILTER 1
#else
#define WITH_FILTER 0
#endif

#if WITH_FILTER
#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#else
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static bool give_up_rights(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(write),
        ALLOW(exit_group),
        ALLOW(brk),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(mremap),
        ALLOW(madvise),
        ALLOW(mprotect),
        ALLOW(futex),
        ALLOW(rt_sigprocmask),
        /* malloc reads a setting of the kernel before it gives memory back, and does without it. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
#else
static bool give_up_rights(void)
{
    return true; /* limits alone */
}
#endif

static bool write_all(void *self, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t n = write(*(const int *)self, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* Connections of the server must end when it closes them, and pipes of other children when those end. */
static void close_others(int kept)
{
#ifdef SPRY_OS_LINUX
    if (kept > STDERR_FILENO + 1)
        (void)syscall(SYS_close_range, STDERR_FILENO + 1, kept - 1, 0);
    (void)syscall(SYS_close_range, kept + 1, UINT_MAX, 0);
#else
    for (int file = STDERR_FILENO + 1; file < FILES_CLOSED; file++)
        if (file != kept)
            close(file);
#endif
}

static _Noreturn void be_child(int to, spry_isolated_work work, void *context, unsigned seconds)
{
    const struct rlimit time = {seconds, seconds}, none = {0, 0};
    signal(SIGPIPE, SIG_DFL);
    close_others(to);
    setrlimit(RLIMIT_CPU, &time);
    setrlimit(RLIMIT_FSIZE, &none);
    setrlimit(RLIMIT_CORE, &none);
    bool without_rights = !spry_sandbox_is_on() || give_up_rights();
    if (without_rights)
        work(context, write_all, &to);
    _exit(DONE + !without_rights);
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */

struct spry_isolated {
    pid_t child;
    int from;
    uint64_t left_ns; /* time that reads may still wait */
    bool ended;       /* the end was read */
    bool interrupted;
};

spry_status spry_isolated_start(spry_isolated **out, spry_isolated_work work, void *context, unsigned seconds,
                                spry_error *error)
{
    int ends[2];
    spry_isolated *c = *out = calloc(1, sizeof *c);
    if (!c || !spry_os_pipe(ends)) {
        free(c);
        *out = NULL;
        return spry_fail(error, SPRY_ERR_MEMORY, "no pipe to a child process: %s", strerror(errno));
    }
    c->from = ends[0];
    c->left_ns = (uint64_t)seconds * CLOCK_FACTOR * 1000000000u;
    c->child = fork();
    if (c->child == 0)
        be_child(ends[1], work, context, seconds);
    close(ends[1]);
    if (c->child > 0)
        return SPRY_OK;
    close(ends[0]);
    free(c);
    *out = NULL;
    return spry_fail(error, SPRY_ERR_MEMORY, "no child process: %s", strerror(errno));
}

/* False: the time is over, or the request. */
static bool wait_for_bytes(spry_isolated *c)
{
    struct pollfd waited = {.fd = c->from, .events = POLLIN};
    for (;;) {
        uint64_t before = spry_clock_ns();
        int ready = poll(&waited, 1, POLL_MS);
        uint64_t passed = spry_clock_ns() - before;
        c->left_ns -= passed < c->left_ns ? passed : c->left_ns;
        if (ready > 0)
            return true;
        if ((ready < 0 && errno != EINTR) || !c->left_ns)
            return false;
        c->interrupted = spry_interrupted(SPRY_INTERRUPT_WORK);
        if (c->interrupted)
            return false;
    }
}

size_t spry_isolated_read(spry_isolated *c, void *data, size_t size)
{
    while (!c->ended && wait_for_bytes(c)) {
        ssize_t n = read(c->from, data, size);
        if (n > 0)
            return (size_t)n;
        c->ended = n == 0;
        if (n < 0 && errno != EINTR)
            break;
    }
    return 0;
}

spry_status spry_isolated_end(spry_isolated *c, spry_error *error)
{
    int how = 0;
    if (!c)
        return SPRY_OK;
    bool ended = c->ended, interrupted = c->interrupted, late = !c->left_ns;
    if (!ended)
        kill(c->child, SIGKILL);
    while (waitpid(c->child, &how, 0) < 0 && errno == EINTR)
        ;
    close(c->from);
    free(c);
    if (ended && WIFEXITED(how) && WEXITSTATUS(how) == DONE)
        return SPRY_OK;
    if (interrupted)
        return spry_fail(error, SPRY_ERR_CANCELLED, "interrupted while reading it");
    return spry_fail(error, SPRY_ERR_FORMAT, "%s",
                     late || (WIFSIGNALED(how) && WTERMSIG(how) == SIGXCPU) ? "it took too long"
                                                                            : "the child process that read it failed");
}

spry_status spry_isolated_run(spry_buffer *out, spry_isolated_work work, void *context, unsigned seconds,
                              spry_error *error)
{
    spry_isolated *c;
    char bytes[READ_BYTES];
    size_t n;
    spry_status status = spry_isolated_start(&c, work, context, seconds, error);
    if (status)
        return status;
    while (!out->failed && (n = spry_isolated_read(c, bytes, sizeof bytes)) > 0)
        spry_buffer_append(out, bytes, n);
    status = spry_isolated_end(c, error);
    return out->failed
               ? spry_fail(error, SPRY_ERR_MEMORY, "the result of a child process is too long, or memory is short")
               : status;
}
