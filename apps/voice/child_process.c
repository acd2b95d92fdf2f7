#include "voice/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { READ_END, WRITE_END, PIPE_ENDS, CHUNK = 4096 };

static void close_pipe(int ends[PIPE_ENDS])
{
    for (size_t i = 0; i < PIPE_ENDS; i++)
        if (ends[i] >= 0)
            close(ends[i]);
}

static spry_status start(pid_t *child, int in[PIPE_ENDS], int out[PIPE_ENDS], const char *command,
                         const char *const *arguments, spry_error *error)
{
    const char *const shell[] = {"sh", "-c", command, NULL};
    const char *const *argv = arguments ? arguments : shell;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults, none;
    sigemptyset(&none); /* a thread of the server blocks SIGTERM, which must end the command */
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0); /* its own, so that what it has started ends with it */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[READ_END], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[WRITE_END], STDOUT_FILENO);
    if (arguments)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int code = posix_spawnp(child, argv[0], &actions, &attributes, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return code ? spry_fail(error, SPRY_ERR_FILE, "'%.100s' cannot be started: %s", argv[0], strerror(code)) : SPRY_OK;
}

/* Moves bytes until the command closes its output. False: `on_output` wants no more. */
static bool exchange(int *input, int output, spry_view bytes, spry_child_output on_output, void *user)
{
    for (;;) {
        char chunk[CHUNK];
        struct pollfd files[] = {{output, POLLIN, 0}, {*input, POLLOUT, 0}};
        if (poll(files, *input >= 0 ? 2 : 1, -1) < 0 && errno != EINTR)
            return true;
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
                return true;
            if (n > 0 && !on_output(user, chunk, (size_t)n))
                return false;
        }
    }
}

spry_status spry_child_run(const char *command, const char *const *arguments, spry_view input,
                           spry_child_output on_output, void *user, spry_error *error)
{
    int in[PIPE_ENDS] = {-1, -1}, out[PIPE_ENDS] = {-1, -1}, result = 0;
    pid_t child;
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
        close_pipe(in);
        return spry_fail(error, SPRY_ERR_FILE, "no pipe to a command: %s", strerror(errno));
    }
    spry_status status = start(&child, in, out, command, arguments, error);
    if (status != SPRY_OK) {
        close_pipe(in);
        close_pipe(out);
        return status;
    }
    close(in[READ_END]);
    close(out[WRITE_END]);
    fcntl(in[WRITE_END], F_SETFL, O_NONBLOCK);
    bool whole = exchange(&in[WRITE_END], out[READ_END], input, on_output, user);
    if (!whole)
        kill(-child, SIGTERM);
    if (in[WRITE_END] >= 0)
        close(in[WRITE_END]);
    close(out[READ_END]);
    while (waitpid(child, &result, 0) < 0 && errno == EINTR)
        ;
    if (whole && (!WIFEXITED(result) || WEXITSTATUS(result) != 0))
        return spry_fail(error, SPRY_ERR_FILE, "'%.100s' failed with status %d", arguments ? arguments[0] : command,
                         WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result));
    return SPRY_OK;
}
