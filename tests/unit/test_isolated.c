/* Children without rights: what they write arrives, what they may not do ends them, and no read waits in vain. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/interrupt.h"
#include "platform/child.h"
#include "support/hostile.h"

enum { COUNT = 100000, SECONDS = 20 };

static void count(void *context, spry_isolated_write write, void *self)
{
    (void)context;
    for (uint32_t i = 0; i < COUNT; i++)
        if (!write(self, &i, sizeof i))
            return;
}

static void count_for_ever(void *context, spry_isolated_write write, void *self)
{
    (void)context;
    for (uint32_t i = 0; write(self, &i, sizeof i); i++)
        ;
}

static void be_busy(void *context, spry_isolated_write write, void *self)
{
    (void)context, (void)write, (void)self;
    for (volatile int more = 1; more;)
        ;
}

static void open_a_file(void *context, spry_isolated_write write, void *self)
{
    (void)context;
    int file = open("/dev/null", O_RDONLY);
    write(self, &file, sizeof file);
}

static void open_a_socket(void *context, spry_isolated_write write, void *self)
{
    (void)context;
    int file = socket(AF_INET, SOCK_STREAM, 0);
    write(self, &file, sizeof file);
}

/* In a thread other than the first, malloc has other memory, which it returns to the kernel in another way. */
static void allocate_and_free(void *context, spry_isolated_write write, void *self)
{
    (void)context;
    enum { BLOCKS = 4096, BLOCK = 4000 };
    static void *blocks[BLOCKS];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = memset(malloc(BLOCK), i, BLOCK);
        for (int i = BLOCKS; i-- > 0;)
            free(blocks[i]);
    }
    write(self, "", 1);
}

/* Writes whether a descriptor of the parent is open; without reading, which the filter does not allow. */
static void write_to_it(void *context, spry_isolated_write to_parent, void *self)
{
    char wrote = write(*(const int *)context, "x", 1) == 1;
    to_parent(self, &wrote, 1);
}

static void test_bytes_arrive(void **state)
{
    (void)state;
    spry_error error;
    spry_isolated *child;
    uint32_t wanted = 0, value;
    assert_int_equal(spry_isolated_start(&child, count, NULL, SECONDS, &error), SPRY_OK);
    for (;;) {
        size_t n = 0, got = 1;
        while (n < sizeof value && got)
            n += got = spry_isolated_read(child, (char *)&value + n, sizeof value - n);
        if (!n)
            break;
        assert_int_equal(value, wanted++);
    }
    assert_int_equal(wanted, COUNT);
    assert_int_equal(spry_isolated_read(child, &value, sizeof value), 0);
    assert_int_equal(spry_isolated_end(child, &error), SPRY_OK);
}

static void test_the_parent_leaves(void **state)
{
    (void)state;
    spry_error error;
    spry_isolated *child;
    char byte;
    assert_int_equal(spry_isolated_start(&child, count_for_ever, NULL, SECONDS, &error), SPRY_OK);
    assert_int_equal(spry_isolated_read(child, &byte, 1), 1);
    assert_int_not_equal(spry_isolated_end(child, &error), SPRY_OK); /* it did not end itself */
}

static void test_limits_of_results(void **state)
{
    (void)state;
    spry_error error;
    spry_buffer out;
    spry_buffer_init(&out, 1 << 16);
    assert_int_equal(spry_isolated_run(&out, count_for_ever, NULL, SECONDS, &error), SPRY_ERR_MEMORY);
    spry_buffer_deinit(&out);
}

static bool is_over(void *user)
{
    ++*(int *)user;
    return true;
}

static void test_interrupts(void **state)
{
    (void)state;
    spry_error error;
    spry_buffer out;
    int asked = 0;
    spry_buffer_init(&out, 1 << 16);
    spry_interrupt_begin(is_over, &asked);
    assert_int_equal(spry_isolated_run(&out, be_busy, NULL, SECONDS, &error), SPRY_ERR_CANCELLED);
    spry_interrupt_end();
    assert_int_equal(asked, 1);
    spry_buffer_deinit(&out);
}

static void test_rights(void **state)
{
    (void)state;
    spry_error error;
    spry_buffer out;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    spry_buffer_init(&out, 1 << 16);
    assert_int_equal(spry_isolated_run(&out, write_to_it, &ends[1], SECONDS, &error), SPRY_OK);
    assert_int_equal(out.size, 1);
    assert_int_equal(out.data[0], 0);
    spry_buffer_clear(&out);
#if defined(SPRY_OS_LINUX) && (defined(__x86_64__) || defined(__aarch64__)) && !SPRY_SANITIZE_ADDRESS &&               \
    !SPRY_SANITIZE_THREAD
    int file = 0;
    assert_int_equal(spry_isolated_run(&out, open_a_file, NULL, SECONDS, &error), SPRY_OK);
    assert_int_equal(out.size, sizeof file);
    memcpy(&file, out.data, sizeof file);
    assert_int_equal(file, -1);
    spry_buffer_clear(&out);
    assert_int_equal(spry_isolated_run(&out, open_a_socket, NULL, SECONDS, &error), SPRY_ERR_FORMAT);
    assert_int_equal(out.size, 0);
#else
    printf("SKIPPED test_isolated files: this build has no filter of system calls\n");
    (void)open_a_file, (void)open_a_socket;
#endif
    spry_buffer_deinit(&out);
    close(ends[0]);
    close(ends[1]);
}

static void *run_there(void *out)
{
    spry_error error;
    return spry_isolated_run(out, allocate_and_free, NULL, SECONDS, &error) == SPRY_OK ? out : NULL;
}

static void test_memory_of_threads(void **state)
{
    (void)state;
    spry_buffer out;
    pthread_t thread;
    void *result;
    spry_buffer_init(&out, 1 << 16);
    assert_int_equal(pthread_create(&thread, NULL, run_there, &out), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &out);
    assert_int_equal(out.size, 1);
    spry_buffer_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_arrive),
                                       cmocka_unit_test(test_the_parent_leaves),
                                       cmocka_unit_test(test_limits_of_results),
                                       cmocka_unit_test(test_interrupts),
                                       cmocka_unit_test(test_rights),
                                       cmocka_unit_test(test_memory_of_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
