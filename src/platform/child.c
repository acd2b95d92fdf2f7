#include "platform/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef SPRY_OS_LINUX
#include <sys/prctl.h>

#include "platform/system_calls.h"
#endif

#include "base/compiler.h"
#include "base/interrupt.h"
#include "platform/clock.h"
#include "platform/os.h"

extern char **environ;

enum { READ_END, WRITE_END, PIPE_ENDS, CHUNK = 4096, VARIABLES = 96, POLL_MS = 200, NOT_RUN = 127 };
#define SECOND_NS 1000000000ull

static void close_pipe(int ends[PIPE_ENDS])
{
    for (size_t i = 0; i < PIPE_ENDS; i++)
        if (ends[i] >= 0)
            close(ends[i]);
}

/* ---- the child's side -------------------------------------------------------------------------------------------- */

static const char *environment_path(void)
{
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "PATH=", 5) == 0)
            return *variable + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

/* Whether one of the variables has the name of `variable`. */
static bool is_given(char *const *list, size_t count, const char *variable)
{
    size_t size = strcspn(variable, "=") + 1;
    for (size_t i = 0; i < count; i++)
        if (strncmp(list[i], variable, size) == 0)
            return true;
    return false;
}

/* What programs need to find their files, language and sound; no keys, no tokens, no proxies with passwords. */
static void list_variables(char *out[VARIABLES + 1], const char *const *more)
{
    static const char *const kept[] = {"PATH=",
                                       "HOME=",
                                       "USER=",
                                       "LOGNAME=",
                                       "SHELL=",
                                       "LANG=",
                                       "LANGUAGE=",
                                       "LC_",
                                       "TZ=",
                                       "TERM=",
                                       "TMPDIR=",
                                       "XDG_RUNTIME_DIR=",
                                       "XDG_CACHE_HOME=",
                                       "PULSE_",
                                       "PIPEWIRE_",
                                       "ALSA_",
                                       "ESPEAK_DATA_PATH=",
                                       "LD_LIBRARY_PATH="};
    size_t count = 0;
    for (; more && *more && count < VARIABLES; more++)
        out[count++] = (char *)(uintptr_t)*more;
    size_t n_more = count;
    for (char **variable = environ; *variable && count < VARIABLES; variable++)
        for (size_t i = 0; i < SPRY_COUNT(kept); i++)
            if (strncmp(*variable, kept[i], strlen(kept[i])) == 0 && !is_given(out, n_more, *variable)) {
                out[count++] = *variable;
                break;
            }
    out[count] = NULL;
}

bool spry_child_find(char out[SPRY_CHILD_PATH], const char *name)
{
    const char *path = strchr(name, '/') ? "" : environment_path();
    for (;;) {
        size_t size = strcspn(path, ":");
        int n = snprintf(out, SPRY_CHILD_PATH, "%.*s%s%s", (int)size, path, size ? "/" : "", name);
        if (n > 0 && n < SPRY_CHILD_PATH && access(out, X_OK) == 0)
            return true;
        if (!path[size])
            return false;
        path += size + 1;
    }
}

typedef struct start {
    const spry_child *child;
    const char *const *arguments;
    char program[SPRY_CHILD_PATH];
    spry_sandbox sandbox;
    char *listed[VARIABLES + 1];
    char **variables;
    int input, output, messages; /* ends of pipes; messages -1: standard error is this program's, or discarded */
    volatile int why;            /* errno of a child that could not run the program; it shares this memory until then */
} start;

/* In the child, which shares the memory of the parent but not its descriptors: system calls only, as below. */
static void close_on_exec(void)
{
#ifdef SPRY_OS_LINUX
    enum { CLOSE_ON_EXEC = 4 };
    (void)syscall(SYS_close_range, STDERR_FILENO + 1, UINT_MAX, CLOSE_ON_EXEC);
#else
    enum { FILES_CLOSED = 4096 };
    for (int file = STDERR_FILENO + 1; file < FILES_CLOSED; file++)
        (void)fcntl(file, F_SETFD, FD_CLOEXEC);
#endif
}

static void run_program(start *s)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t none;
    sigemptyset(&none); /* a thread of the server blocks SIGTERM, which must end the command */
    bool ready = setpgid(0, 0) == 0 && sigaction(SIGPIPE, &usual, NULL) == 0 && dup2(s->input, STDIN_FILENO) >= 0 &&
                 dup2(s->output, STDOUT_FILENO) >= 0;
    if (ready && s->messages >= 0) {
        ready = dup2(s->messages, STDERR_FILENO) >= 0;
    } else if (ready && s->child->arguments) {
        int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
        ready = nothing >= 0 && dup2(nothing, STDERR_FILENO) >= 0;
    }
#ifdef SPRY_OS_LINUX
    ready = ready && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
#endif
    if (!s->child->is_self)
        close_on_exec();
    if (ready && s->child->folder)
        ready = chdir(s->child->folder) == 0;
    if (ready && s->child->sandbox)
        ready = spry_sandbox_enter(&s->sandbox);
    if (ready && sigprocmask(SIG_SETMASK, &none, NULL) == 0)
        execve(s->program, (char *const *)(uintptr_t)s->arguments, s->variables);
    s->why = errno;
}

/* vfork copies no page tables: models take gigabytes of them, and pages that a fork shares are copied when written. */
static pid_t start_program(start *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
#ifdef __APPLE__
    pid_t child = fork(); /* there vfork is deprecated; a program that cannot be run is seen by its status 127 */
#else
    pid_t child = vfork();
#endif
    if (child == 0) {
        run_program(s);
        _exit(NOT_RUN);
    }
    int why = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return child;
}

/* ---- the parent's side ------------------------------------------------------------------------------------------- */

/* Moves bytes until the child closes its output, which is the result SPRY_OK. SPRY_ERR_BUSY: on_output wants no more.
 */
static spry_status exchange(const spry_child *c, int *input, int output)
{
    spry_view bytes = c->input;
    uint64_t until = c->seconds ? spry_clock_ns() + c->seconds * SECOND_NS : UINT64_MAX;
    for (;;) {
        char chunk[CHUNK];
        struct pollfd files[] = {{output, POLLIN, 0}, {*input, POLLOUT, 0}};
        if (poll(files, *input >= 0 ? 2 : 1, POLL_MS) < 0 && errno != EINTR)
            return SPRY_OK;
        if (spry_interrupted(SPRY_INTERRUPT_WORK) || spry_clock_ns() > until)
            return SPRY_ERR_CANCELLED;
        if (*input >= 0 && files[1].revents) {
            ssize_t n = bytes.size ? write(*input, bytes.data, bytes.size) : 0;
            if (n > 0)
                bytes = (spry_view){bytes.data + n, bytes.size - (size_t)n};
            if (bytes.size == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                close(*input);
                *input = -1;
            }
        }
        if (files[0].revents) {
            ssize_t n = read(output, chunk, sizeof chunk);
            if (n == 0 || (n < 0 && errno != EINTR))
                return SPRY_OK;
            if (n > 0 && !c->on_output(c->user, chunk, (size_t)n))
                return SPRY_ERR_BUSY;
        }
    }
}

static spry_status wait_for(pid_t child, const char *name, spry_error *error)
{
    int result = 0;
    while (waitpid(child, &result, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(result) && WEXITSTATUS(result) == 0)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FILE, "'%.100s' failed with status %d", name,
                     WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result));
}

static spry_status talk(const spry_child *c, pid_t child, const char *name, int input, int output, spry_error *error)
{
    fcntl(input, F_SETFL, O_NONBLOCK);
    spry_status result = exchange(c, &input, output);
    if (result != SPRY_OK)
        kill(-child, result == SPRY_ERR_BUSY ? SIGTERM : SIGKILL);
    if (input >= 0)
        close(input);
    close(output);
    spry_status status = wait_for(child, name, error);
    if (result == SPRY_ERR_CANCELLED)
        return spry_fail(error, SPRY_ERR_CANCELLED,
                         "'%.100s' was ended: it took too long, or its result is no longer wanted", name);
    return result == SPRY_ERR_BUSY ? SPRY_OK : status;
}

/* `errors` NULL: without a pipe for messages. */
static spry_status start_child(pid_t *started, const spry_child *c, int in[PIPE_ENDS], int out[PIPE_ENDS], int *errors,
                               spry_error *error)
{
    const char *const shell[] = {"sh", "-c", c->command, NULL};
    if (!spry_os_pipe(in) || !spry_os_pipe(out) || (errors && !spry_os_pipe(errors)))
        return spry_fail(error, SPRY_ERR_FILE, "no pipe to a command: %s", strerror(errno));
    start s = {.child = c,
               .arguments = c->arguments ? c->arguments : shell,
               .input = in[READ_END],
               .output = out[WRITE_END],
               .messages = errors ? errors[WRITE_END] : -1};
    list_variables(s.listed, c->variables);
    s.variables = c->is_self ? environ : s.listed;
    const char *name = c->arguments ? c->arguments[0] : c->command;
    if (c->sandbox)
        s.sandbox = *c->sandbox;
    s.sandbox.program = s.program;
    bool found = spry_child_find(s.program, s.arguments[0]);
    pid_t child = found ? start_program(&s) : -1;
    if (child < 0 || s.why) {
        int why = child > 0 ? s.why : found ? errno : ENOENT;
        if (child > 0)
            (void)wait_for(child, name, NULL);
        return spry_fail(error, SPRY_ERR_FILE, "'%.100s' cannot be started: %s", s.arguments[0], strerror(why));
    }
    *started = child;
    return SPRY_OK;
}

spry_status spry_child_run(const spry_child *c, spry_error *error)
{
    int in[PIPE_ENDS] = {-1, -1}, out[PIPE_ENDS] = {-1, -1};
    pid_t child;
    spry_status status = start_child(&child, c, in, out, NULL, error);
    if (status != SPRY_OK) {
        close_pipe(in);
        close_pipe(out);
        return status;
    }
    close(in[READ_END]);
    close(out[WRITE_END]);
    return talk(c, child, c->arguments ? c->arguments[0] : c->command, in[WRITE_END], out[READ_END], error);
}

/* ---- a program that runs ----------------------------------------------------------------------------------------- */

spry_status spry_process_start(spry_process *process, const spry_child *c, spry_error *error)
{
    int in[PIPE_ENDS] = {-1, -1}, out[PIPE_ENDS] = {-1, -1}, errors[PIPE_ENDS] = {-1, -1};
    pid_t child;
    spry_status status = start_child(&child, c, in, out, errors, error);
    if (status != SPRY_OK) {
        close_pipe(in);
        close_pipe(out);
        close_pipe(errors);
        return status;
    }
    close(in[READ_END]);
    close(out[WRITE_END]);
    close(errors[WRITE_END]);
    *process = (spry_process){child, in[WRITE_END], out[READ_END], errors[READ_END]};
    fcntl(process->input, F_SETFL, O_NONBLOCK);
    fcntl(process->output, F_SETFL, O_NONBLOCK);
    fcntl(process->messages, F_SETFL, O_NONBLOCK);
    return SPRY_OK;
}

int spry_process_end(spry_process *process, unsigned patience_ms)
{
    enum { NAP_MS = 5 };
    int result = 0;
    pid_t ended = 0;
    close(process->input);
    for (unsigned ms = 0; (ended = waitpid(process->id, &result, WNOHANG)) == 0 && ms < patience_ms; ms += NAP_MS)
        (void)poll(NULL, 0, NAP_MS);
    kill(-process->id, SIGKILL);
    while (ended == 0 && waitpid(process->id, &result, 0) < 0 && errno == EINTR)
        ;
    close(process->output);
    close(process->messages);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
}
