/* Clock, random seeds, large memory, and the limits of control groups read from imitated /proc and /sys trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/system_file.h"

/* ---- an imitated system ----------------------------------------------------------------------------------------- */

typedef struct tree {
    char root[64];
} tree;

static int tree_setup(void **state)
{
    tree *t = malloc(sizeof *t);
    if (!t)
        return -1;
    snprintf(t->root, sizeof t->root, "/tmp/spry-test-XXXXXX");
    *state = t;
    return mkdtemp(t->root) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static int tree_teardown(void **state)
{
    tree *t = *state;
    int status = nftw(t->root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(t);
    return status;
}

/* Writes a file of the tree and makes the folders on the way. */
static void put(const tree *t, const char *name, const char *content)
{
    char path[512];
    int length = snprintf(path, sizeof path, "%s/%s", t->root, name);
    assert_in_range(length, 1, sizeof path - 1);
    for (char *slash = strchr(path + strlen(t->root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_limits(const tree *t, size_t cpus, size_t memory)
{
    spry_cgroup_limits limits;
    spry_cgroup_read(&limits, t->root);
    assert_int_equal(limits.cpus, cpus);
    assert_int_equal(limits.memory, memory);
}

/* ---- version 2 -------------------------------------------------------------------------------------------------- */

static void nothing_there_is_no_limit(void **state)
{
    tree *t = *state;
    assert_limits(t, SIZE_MAX, SIZE_MAX);
    put(t, "proc/self/cgroup", "0::/a/b\n");
    assert_limits(t, SIZE_MAX, SIZE_MAX);
    put(t, "proc/self/cgroup", "");
    assert_limits(t, SIZE_MAX, SIZE_MAX);
}

static void quota_is_rounded_up(void **state)
{
    static const struct {
        const char *text;
        size_t cpus;
    } cases[] = {
        {"max 100000\n", SIZE_MAX},
        {"100000 100000\n", 1},
        {"100001 100000\n", 2},
        {"150000 100000\n", 2},
        {"400000 100000\n", 4},
        {"1000 100000\n", 1},
        {"50000 25000", 2},
        {"1 1000000\n", 1},
        {"max\n", SIZE_MAX},
        {"400000\n", SIZE_MAX},
        {"400000 0\n", SIZE_MAX},
        {"0 100000\n", SIZE_MAX},
        {"-1 100000\n", SIZE_MAX},
        {"4e5 100000\n", SIZE_MAX},
        {"", SIZE_MAX},
        {"\n", SIZE_MAX},
        {"400000 max\n", SIZE_MAX},
        {"400000x 100000\n", SIZE_MAX},
        {"18446744073709551615 1\n", SIZE_MAX},
    };
    tree *t = *state;
    put(t, "proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(t, "sys/fs/cgroup/cpu.max", cases[i].text);
        assert_limits(t, cases[i].cpus, SIZE_MAX);
    }
}

static void smallest_on_the_way_up_counts(void **state)
{
    tree *t = *state;
    put(t, "proc/self/cgroup", "0::/system.slice/app.service/worker\n");
    put(t, "sys/fs/cgroup/system.slice/app.service/worker/cpu.max", "800000 100000\n");
    put(t, "sys/fs/cgroup/system.slice/app.service/worker/memory.max", "max\n");
    assert_limits(t, 8, SIZE_MAX);
    put(t, "sys/fs/cgroup/system.slice/cpu.max", "300000 100000\n");
    put(t, "sys/fs/cgroup/system.slice/app.service/memory.max", "1073741824\n");
    assert_limits(t, 3, 1073741824);
    put(t, "sys/fs/cgroup/memory.max", "536870912\n");
    assert_limits(t, 3, 536870912);
    put(t, "sys/fs/cgroup/other.slice/cpu.max", "100000 100000\n"); /* of another process */
    assert_limits(t, 3, 536870912);
}

/* A container with the host's view in /proc but only its own group mounted. */
static void path_that_is_not_mounted(void **state)
{
    tree *t = *state;
    put(t, "proc/self/cgroup", "0::/docker/0123456789abcdef\n");
    put(t, "sys/fs/cgroup/cpu.max", "200000 100000\n");
    put(t, "sys/fs/cgroup/memory.max", "2147483648\n");
    assert_limits(t, 2, 2147483648u);
    put(t, "proc/self/cgroup", "0::/../../elsewhere\n");
    assert_limits(t, 2, 2147483648u);
}

static void odd_lines_do_no_harm(void **state)
{
    tree *t = *state;
    static char lines[20000];
    int head = snprintf(lines, sizeof lines, "nonsense\n\n:\n0:\n::::\n5:cpu\n0::/");
    memset(lines + head, 'a', 9000); /* longer than any path may be */
    snprintf(lines + head + 9000, sizeof lines - 9000 - (size_t)head, "\n0::/with:colon\n");
    put(t, "proc/self/cgroup", lines);
    put(t, "sys/fs/cgroup/with:colon/cpu.max", "500000 100000\n");
    assert_limits(t, 5, SIZE_MAX);
}

/* ---- version 1, and both at once -------------------------------------------------------------------------------- */

static void version_one(void **state)
{
    tree *t = *state;
    put(t, "proc/self/cgroup", "5:cpu,cpuacct:/jobs/7\n4:memory:/jobs/7\n3:cpuset:/jobs/7\n");
    put(t, "sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "250000\n");
    put(t, "sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_period_us", "100000\n");
    put(t, "sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n"); /* its way to say none */
    put(t, "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "4096000\n");
    put(t, "sys/fs/cgroup/cpuset/jobs/7/cpu.cfs_quota_us", "100000\n"); /* not that controller's file */
    put(t, "sys/fs/cgroup/cpuset/jobs/7/cpu.cfs_period_us", "100000\n");
    assert_limits(t, 3, 4096000);
    put(t, "sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "-1\n");
    assert_limits(t, SIZE_MAX, 4096000);
}

static void version_one_under_a_plain_name(void **state)
{
    tree *t = *state;
    put(t, "proc/self/cgroup", "5:cpuacct,cpu:/\n");
    put(t, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "600000\n");
    put(t, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_limits(t, 6, SIZE_MAX);
}

static void hybrid(void **state)
{
    tree *t = *state;
    put(t, "proc/self/cgroup", "2:cpu:/\n1:name=systemd:/x\n0::/x\n");
    put(t, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "700000\n");
    put(t, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put(t, "sys/fs/cgroup/unified/x/memory.max", "777\n");
    assert_limits(t, 7, 777);
}

/* ---- clock, entropy, memory ------------------------------------------------------------------------------------- */

static void clock_goes_forward(void **state)
{
    (void)state;
    uint64_t last = spry_clock_ns();
    for (int i = 0; i < 10000; i++) {
        uint64_t now = spry_clock_ns();
        assert_true(now >= last);
        last = now;
    }
    struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
    assert_true(spry_clock_ns() - last >= 2000000);
}

static void entropy_differs(void **state)
{
    (void)state;
    enum { N = 64 };
    uint64_t values[N], ever_set = 0, ever_clear = 0;
    for (int i = 0; i < N; i++) {
        values[i] = spry_entropy();
        ever_set |= values[i];
        ever_clear |= ~values[i];
        for (int j = 0; j < i; j++)
            assert_true(values[i] != values[j]);
    }
    assert_true(ever_set == UINT64_MAX && ever_clear == UINT64_MAX);
}

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    size_t bytes = 5 * 1024 * 1024 + 1;
    unsigned char *memory = spry_memory_map(bytes);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % (size_t)sysconf(_SC_PAGESIZE), 0);
    for (size_t i = 0; i < bytes; i++)
        assert_true(memory[i] == 0);
    memory[0] = memory[bytes - 1] = 1;
    spry_memory_unmap(memory, bytes);
    spry_memory_unmap(NULL, 0);
    assert_null(spry_memory_map(0));
    assert_null(spry_memory_map(SIZE_MAX - 65536));
}

static void memory_total_is_plausible(void **state)
{
    (void)state;
    size_t total = spry_memory_total();
    size_t physical = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    assert_true(total >= 16u * 1024 * 1024);
    assert_true(total <= physical);
}

static void memory_is_short_at_a_sixteenth_or_under_pressure(void **state)
{
    const tree *t = *state;
    static const struct {
        const char *meminfo, *pressure;
        bool is_short;
    } cases[] = {
        {"MemTotal: 16000 kB\nMemFree: 1 kB\nMemAvailable: 1000 kB\n", "", false},
        {"MemTotal: 16000 kB\nMemFree: 1 kB\nMemAvailable: 999 kB\n", "", true},
        {"MemTotal: 16000 kB\nMemAvailable: 9000 kB\n", "some avg10=90.00 avg60=0.00\nfull avg10=9.99 avg60=0.00\n",
         false},
        {"MemTotal: 16000 kB\nMemAvailable: 9000 kB\n", "some avg10=90.00 avg60=0.00\nfull avg10=10.00 avg60=0.00\n",
         true},
        {"MemTotal: x kB\nMemAvailable: 0 kB\n", "full avg10=", false},
        {"", "full", false},
    };
    assert_false(spry_memory_is_short(t->root)); /* no such files */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(t, "proc/meminfo", cases[i].meminfo);
        put(t, "proc/pressure/memory", cases[i].pressure);
        assert_int_equal(spry_memory_is_short(t->root), cases[i].is_short);
    }
}

#define TREE_TEST(function) cmocka_unit_test_setup_teardown(function, tree_setup, tree_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TREE_TEST(nothing_there_is_no_limit),
        TREE_TEST(quota_is_rounded_up),
        TREE_TEST(smallest_on_the_way_up_counts),
        TREE_TEST(path_that_is_not_mounted),
        TREE_TEST(odd_lines_do_no_harm),
        TREE_TEST(version_one),
        TREE_TEST(version_one_under_a_plain_name),
        TREE_TEST(hybrid),
        cmocka_unit_test(clock_goes_forward),
        cmocka_unit_test(entropy_differs),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(memory_total_is_plausible),
        TREE_TEST(memory_is_short_at_a_sixteenth_or_under_pressure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
