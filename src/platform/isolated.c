/* A forked child with a pipe. On Linux a filter of system calls leaves it what malloc and write need. */
#include "platform/isolated.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/clock.h"

#if defined(__linux__)
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

enum { DONE = 77, READ_BYTES = 1 << 16, CLOCK_FACTOR = 3 };

/* ---- the child --------------------------------------------------------------------------------------------------- */

/* The runtimes of sanitizers make system calls of their own: with them, limits alone. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WITH_FILTER 0
#elif defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
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

static _Noreturn void be_child(int to, spry_isolated_work work, void *context, unsigned seconds)
{
    const struct rlimit time = {seconds, seconds}, none = {0, 0};
    signal(SIGPIPE, SIG_DFL);
    setrlimit(RLIMIT_CPU, &time);
    setrlimit(RLIMIT_FSIZE, &none);
    setrlimit(RLIMIT_CORE, &none);
    bool without_rights = give_up_rights();
    if (without_rights)
        work(context, write_all, &to);
    _exit(DONE + !without_rights);
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */

/* False: time is over, memory is short, or the result is too long. */
static bool collect(spry_buffer *out, int from, uint64_t until_ns)
{
    for (;;) {
        uint64_t now = spry_clock_ns();
        struct pollfd waited = {.fd = from, .events = POLLIN};
        int ready = now < until_ns ? poll(&waited, 1, (int)((until_ns - now) / 1000000 + 1)) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        char bytes[READ_BYTES];
        ssize_t n = read(from, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0;
        if (!spry_buffer_append(out, bytes, (size_t)n))
            return false;
    }
}

static int end_child(pid_t child, bool at_once)
{
    int how = 0;
    if (at_once)
        kill(child, SIGKILL);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    return how;
}

spry_status spry_isolated_run(spry_buffer *out, spry_isolated_work work, void *context, unsigned seconds,
                              spry_error *error)
{
    int ends[2];
    if (pipe(ends))
        return spry_fail(error, SPRY_ERR_MEMORY, "no pipe to a child process: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        be_child(ends[1], work, context, seconds);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return spry_fail(error, SPRY_ERR_MEMORY, "no child process: %s", strerror(errno));
    }
    bool whole = collect(out, ends[0], spry_clock_ns() + (uint64_t)seconds * CLOCK_FACTOR * 1000000000u);
    close(ends[0]);
    int how = end_child(child, !whole);
    if (whole && WIFEXITED(how) && WEXITSTATUS(how) == DONE)
        return SPRY_OK;
    if (out->failed)
        return spry_fail(error, SPRY_ERR_MEMORY, "the result of a child process is too long, or memory is short");
    return spry_fail(error, SPRY_ERR_FORMAT, "%s",
                     !whole || (WIFSIGNALED(how) && WTERMSIG(how) == SIGXCPU)
                         ? "it took too long"
                         : "the child process that read it failed");
}
