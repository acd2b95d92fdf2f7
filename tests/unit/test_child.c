/* Child processes: what they get, what a sandbox takes from them, and how they end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef SPRY_OS_LINUX
#include <sys/syscall.h>
#endif

#include "base/buffer.h"
#include "base/interrupt.h"
#include "platform/child.h"
#include "platform/clock.h"
#include "platform/os.h"

static bool collect(void *user, const char *data, size_t size)
{
    return spry_buffer_append(user, data, size);
}

static spry_status run(spry_buffer *out, const char *script, const spry_sandbox *sandbox, uint32_t seconds,
                       spry_error *error)
{
    const char *const arguments[] = {"sh", "-c", script, NULL};
    const spry_child child = {.arguments = arguments,
                              .sandbox = sandbox,
                              .seconds = seconds,
                              .input = SPRY_VIEW("hello"),
                              .on_output = collect,
                              .user = out};
    spry_buffer_init(out, 1 << 20);
    return spry_child_run(&child, error);
}

static void expect(const char *script, const spry_sandbox *sandbox, const char *output)
{
    spry_buffer out;
    spry_error error = {0};
    if (run(&out, script, sandbox, 0, &error))
        fail_msg("%s: %s", script, error.message);
    assert_string_equal(spry_buffer_view(&out).data, output);
    spry_buffer_deinit(&out);
}

static void test_input_and_output(void **state)
{
    (void)state;
    expect("cat", NULL, "hello");
    expect("wc -c | tr -d ' '; exit 0", NULL, "5\n");
    spry_buffer out;
    spry_error error;
    assert_int_equal(run(&out, "echo a; exit 3", NULL, 0, &error), SPRY_ERR_FILE);
    assert_non_null(strstr(error.message, "status 3"));
    spry_buffer_deinit(&out);
    const char *const missing[] = {"/no/such/program", NULL};
    const spry_child child = {.arguments = missing, .on_output = collect, .user = &out};
    assert_int_equal(spry_child_run(&child, &error), SPRY_ERR_FILE);
    assert_non_null(strstr(error.message, "No such file"));
}

static void test_environment(void **state)
{
    (void)state;
    setenv("SPRY_API_KEY", "secret", 1);
    setenv("HF_TOKEN", "secret", 1);
    setenv("LC_TEST", "kept", 1);
    expect("echo $SPRY_API_KEY$HF_TOKEN$LC_TEST; test -n \"$PATH\"", NULL, "kept\n");
}

/* Files of this program that are open do not reach the child. */
static void test_descriptors(void **state)
{
    (void)state;
    char script[64];
    int file = open("/dev/null", O_RDONLY), far = fcntl(file, F_DUPFD, 200);
    assert_true(file >= 0 && far >= 200);
    snprintf(script, sizeof script, "ls %s | tr '\\n' ' '", spry_os_descriptors);
    expect(script, NULL, "0 1 2 3 ");
    close(far);
    close(file);
}

static void test_time(void **state)
{
    (void)state;
    spry_buffer out;
    spry_error error;
    assert_int_equal(run(&out, "sleep 1000 & sleep 1000", NULL, 1, &error), SPRY_ERR_CANCELLED);
    spry_buffer_deinit(&out);
}

static bool at_once(void *user)
{
    (void)user;
    return true;
}

static void test_interrupt(void **state)
{
    (void)state;
    spry_buffer out;
    spry_error error;
    spry_interrupt_begin(at_once, NULL);
    assert_int_equal(run(&out, "sleep 1000 & sleep 1000", NULL, 0, &error), SPRY_ERR_CANCELLED);
    spry_interrupt_end();
    spry_buffer_deinit(&out);
}

static void test_sandbox(void **state)
{
    (void)state;
    if (!spry_sandbox_complete()) {
        print_message("SKIPPED test_sandbox: this kernel, or the platform " TEST_PLATFORM
                      ", has no Landlock or no seccomp\n");
        return;
    }
    const spry_sandbox sandbox = {.readable = spry_sandbox_programs, .cpu_s = 5, .memory = (size_t)1 << 30};
    char folder[] = "/tmp/spry-child-XXXXXX", script[512];
    assert_non_null(mkdtemp(folder));
    expect("cat; cat /usr/bin/env >/dev/null && echo fine", &sandbox, "hellofine\n");
    expect("cat /etc/passwd || echo refused", &sandbox, "refused\n");
    expect("cat /proc/1/status || echo refused", &sandbox, "refused\n");
    snprintf(script, sizeof script, "echo x > %s/file || echo refused", folder);
    expect(script, &sandbox, "refused\n");
    snprintf(script, sizeof script, "ls %s || echo refused", folder);
    expect(script, &sandbox, "refused\n");
    snprintf(script, sizeof script, "kill -0 %d || echo refused", (int)getpid());
    expect(script, &sandbox, "refused\n");
    spry_buffer out;
    spry_error error;
    if (access("/usr/bin/python3", X_OK) == 0)
        expect("/usr/bin/python3 -c 'import socket\ntry: socket.socket()\nexcept OSError: print(\"refused\")'",
               &sandbox, "refused\n");
    assert_int_equal(
        run(&out, "while :; do :; done", &(spry_sandbox){.readable = spry_sandbox_programs, .cpu_s = 1}, 0, &error),
        SPRY_ERR_FILE);
    spry_buffer_deinit(&out);
    assert_int_equal(rmdir(folder), 0);
}

#if defined(SPRY_OS_LINUX) && !SPRY_SANITIZE_ADDRESS && !SPRY_SANITIZE_THREAD
/* What a server in its sandbox can still do, one letter each. */
static void try_all(char out[8], const char *inside, const char *outside)
{
    char path[512];
    const char *const writable[] = {inside, NULL};
    spry_sandbox_enter_server(writable);
    snprintf(path, sizeof path, "%s/made", inside);
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    out[0] = file >= 0 && write(file, "x", 1) == 1 ? 'w' : '-';
    snprintf(path, sizeof path, "%s/there", outside);
    out[1] = open(path, O_WRONLY) >= 0 ? 'w' : '-';
    out[2] = unlink(path) == 0 ? 'u' : '-';
    out[3] = open(path, O_RDONLY) >= 0 ? 'r' : '-';
    out[4] = socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 's' : '-';
    out[5] = syscall(SYS_unshare, 0x200) == 0 ? 'm' : '-';
    out[6] = system("grep -q root /etc/passwd") == 0 ? 'p' : '-';
}

static void in_server(char out[8], const char *inside, const char *outside, bool on)
{
    int ends[2], status;
    memset(out, 0, 8);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char found[8] = {0};
        if (!on)
            spry_sandbox_switch_off();
        try_all(found, inside, outside);
        _exit(write(ends[1], found, 8) != 8);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], out, 8), 8);
    close(ends[0]);
    close(ends[1]);
}

#endif

static void test_server(void **state)
{
    (void)state;
#if defined(SPRY_OS_LINUX) && !SPRY_SANITIZE_ADDRESS && !SPRY_SANITIZE_THREAD
    char inside[] = "/tmp/spry-child-XXXXXX", outside[] = "/tmp/spry-child-XXXXXX", path[64], found[8];
    if (!spry_sandbox_complete()) {
        print_message("SKIPPED test_server: this kernel has no Landlock or no seccomp\n");
        return;
    }
    assert_non_null(mkdtemp(inside));
    assert_non_null(mkdtemp(outside));
    snprintf(path, sizeof path, "%s/there", outside);
    close(open(path, O_WRONLY | O_CREAT, 0600));
    in_server(found, inside, outside, true);
    assert_string_equal(found, "w--rs-p");
    in_server(found, inside, outside, false);
    assert_memory_equal(found, "wwu-sm", 6);
    snprintf(path, sizeof path, "%s/made", inside);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(inside), 0);
    assert_int_equal(rmdir(outside), 0);
#else
    print_message("SKIPPED test_server: this build has no sandbox for servers\n");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_input_and_output), cmocka_unit_test(test_environment),
        cmocka_unit_test(test_descriptors),      cmocka_unit_test(test_time),
        cmocka_unit_test(test_interrupt),        cmocka_unit_test(test_sandbox),
        cmocka_unit_test(test_server),
    };
    signal(SIGPIPE, SIG_IGN); /* as the program does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
