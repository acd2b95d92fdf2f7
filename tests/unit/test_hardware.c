/* What a machine is, read from imitated /proc and /sys trees, from incomplete trees and from one with wrong values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "platform/hardware.h"
#include "platform/memory.h"
#include "platform/threads.h"

static const size_t kib = 1024;

static void assert_sets(const spry_hardware *h, const char *expected)
{
    char text[512] = "";
    for (size_t i = 0; i < h->n_sets; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", h->sets[i]);
    assert_string_equal(text, expected);
}

static void assert_cache(const spry_hardware *h, size_t index, uint32_t level, const char *kind, size_t bytes,
                         uint32_t shared_by)
{
    assert_true(index < h->n_caches);
    const spry_hardware_cache *cache = &h->caches[index];
    assert_int_equal(cache->level, level);
    assert_string_equal(cache->kind, kind);
    assert_int_equal(cache->bytes, bytes);
    assert_int_equal(cache->shared_by, shared_by);
}

/* ---- imitated machines ------------------------------------------------------------------------------------------- */

static void a_laptop(void **state)
{
    spry_hardware h;
    (void)state;
    spry_hardware_read(&h, TEST_DATA "/hardware-laptop");
    assert_string_equal(h.cpu, "Example Mobile CPU @ 2.40GHz");
    assert_int_equal(h.cores, 2);
    assert_int_equal(h.processors, 4);
    assert_int_equal(h.usable, 4);
    assert_int_equal(h.cgroup_cpus, 0);
    assert_sets(&h, "sse4.2 avx f16c fma avx2 avxvnni");
    assert_true(spry_hardware_has(&h, "avx2"));
    assert_false(spry_hardware_has(&h, "avx512f"));
    assert_int_equal(h.n_caches, 4);
    assert_cache(&h, 0, 1, "data", 48 * kib, 2);
    assert_cache(&h, 1, 1, "instruction", 32 * kib, 2);
    assert_cache(&h, 2, 2, "unified", 1280 * kib, 2);
    assert_cache(&h, 3, 3, "unified", 8192 * kib, 4);
    assert_string_equal(h.governor, "powersave");
    assert_int_equal(h.numa_nodes, 1);
    assert_int_equal(h.virtual_machine, SPRY_NO);
    assert_true(h.load == 2.5);
    assert_string_equal(h.huge_pages, "never");
    assert_int_equal(h.memory_bytes, 16000000 * kib);
    assert_int_equal(h.usable_bytes, 16000000 * kib);
    assert_int_equal(h.available_bytes, 2000000 * kib);
    assert_int_equal(h.swap_bytes, 8000000 * kib);
    assert_int_equal(h.swap_used_bytes, 3000000 * kib);
}

static void a_part_of_a_server(void **state)
{
    spry_hardware h;
    (void)state;
    spry_hardware_read(&h, TEST_DATA "/hardware-server");
    assert_int_equal(h.cores, 4);
    assert_int_equal(h.processors, 8);
    assert_int_equal(h.cgroup_cpus, 3); /* two and a half */
    assert_int_equal(h.usable, 3);      /* less than the five of the mask */
    assert_sets(&h, "sse4.2 avx f16c fma avx2 avx512f avx512bw avx512dq avx512vl avx512vnni avx512bf16 avx512fp16 "
                    "amxtile amxint8 amxbf16");
    assert_cache(&h, 2, 2, "unified", 2048 * kib, 2);
    assert_cache(&h, 3, 3, "unified", 107520 * kib, 4);
    assert_string_equal(h.governor, "performance");
    assert_int_equal(h.numa_nodes, 2);
    assert_string_equal(h.huge_pages, "always");
    assert_int_equal(h.memory_bytes, 268435456 * kib);
    assert_int_equal(h.usable_bytes, (size_t)8 << 30);    /* the process's own limit, below the group's 32 GiB */
    assert_int_equal(h.available_bytes, (size_t)8 << 30); /* never more than may be used */
    assert_int_equal(h.swap_bytes, 0);
}

static void what_is_missing_is_unknown(void **state)
{
    spry_hardware h;
    (void)state;
    spry_hardware_read(&h, TEST_DATA "/hardware-arm");
    assert_int_equal(h.cores, 2);
    assert_int_equal(h.processors, 2);
    assert_int_equal(h.usable, 2);
    assert_sets(&h, "neon fp16 dotprod i8mm bf16");
    assert_int_equal(h.n_caches, 1); /* of processor 2, the first there is */
    assert_cache(&h, 0, 1, "data", 64 * kib, 1);
    assert_string_equal(h.governor, "schedutil");
    assert_int_equal(h.numa_nodes, 0);
    assert_int_equal(h.virtual_machine, SPRY_YES);
    assert_string_equal(h.huge_pages, "");
    assert_int_equal(h.usable_bytes, 4000000 * kib);
    assert_int_equal(h.swap_bytes, 0);
}

static void nothing_there_is_nothing_known(void **state)
{
    spry_hardware h;
    (void)state;
    spry_hardware_read(&h, TEST_DATA "/no such folder");
    assert_true(h.cpu[0]); /* the machine's kind */
    assert_int_equal(h.cores + h.processors + h.usable + h.cgroup_cpus + h.numa_nodes, 0);
    assert_int_equal(h.n_sets + h.n_caches, 0);
    assert_int_equal(h.memory_bytes + h.usable_bytes + h.available_bytes + h.swap_bytes + h.swap_used_bytes, 0);
    assert_int_equal(h.virtual_machine, SPRY_UNKNOWN);
    assert_true(h.load < 0);
    assert_string_equal(h.governor, "");
    assert_string_equal(h.huge_pages, "");
}

static void nonsense_is_not_believed(void **state)
{
    spry_hardware h;
    (void)state;
    spry_hardware_read(&h, TEST_DATA "/hardware-odd");
    assert_int_equal(h.cores + h.processors + h.usable + h.numa_nodes, 0);
    assert_int_equal(h.n_caches, 0);
    assert_true(h.load < 0);
    assert_sets(&h, "avx2"); /* after a word of 70,000 letters */
    assert_int_equal(h.memory_bytes + h.usable_bytes + h.available_bytes + h.swap_bytes, 0);
    assert_string_equal(h.huge_pages, "");
    assert_int_equal(strlen(h.governor), SPRY_HARDWARE_WORD - 1);
    assert_int_equal(h.governor[0], '?'); /* no escape sequence reaches a terminal */
}

static void a_root_too_long_for_a_path(void **state)
{
    static char root[1 << 14];
    spry_hardware h;
    (void)state;
    memset(root, 'r', sizeof root - 1);
    spry_hardware_read(&h, root);
    assert_int_equal(h.processors, 0);
}

/* ---- this machine ------------------------------------------------------------------------------------------------ */

static void agrees_with_what_engines_use(void **state)
{
    spry_hardware h;
    char name[SPRY_PROCESSOR_NAME_MAX];
    (void)state;
    spry_hardware_read(&h, "");
    spry_processor_name(name);
    assert_string_equal(h.cpu, name);
    if (access("/proc/self/status", R_OK) != 0) {
        print_message("SKIPPED agrees_with_what_engines_use: there is no /proc\n");
        return;
    }
    assert_int_equal(h.usable, spry_threads_usable());
    assert_int_equal(h.usable_bytes, spry_memory_total());
    assert_true(h.processors >= h.cores);
}

/* ---- names of machines ------------------------------------------------------------------------------------------- */

static void ids_tell_machines_apart(void **state)
{
    static const struct machine {
        const char *cpu;
        uint32_t threads;
        const char *kernels;
        size_t gib;
    } machines[] = {{"a", 2, "avx2", 16},   {"b", 2, "avx2", 16}, {"a", 4, "avx2", 16},
                    {"a", 2, "avx512", 16}, {"a", 2, "avx2", 17}, {"", 0, "", 0}};
    char ids[sizeof machines / sizeof *machines][SPRY_MACHINE_ID];
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const struct machine *m = &machines[i];
        spry_machine_id(ids[i], m->cpu, m->threads, m->kernels, m->gib << 30);
        assert_int_equal(strlen(ids[i]), 16);
        assert_int_equal(strspn(ids[i], "0123456789abcdef"), 16);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(ids[i], ids[j]);
    }
    char near[SPRY_MACHINE_ID]; /* a kernel that takes 100 MiB more for itself is no other machine */
    spry_machine_id(near, "a", 2, "avx2", ((size_t)16 << 30) - ((size_t)100 << 20));
    assert_string_equal(near, ids[0]);
    assert_string_equal(ids[0], "087c5e25af931de1"); /* stored profiles must find their machine again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_laptop),
        cmocka_unit_test(a_part_of_a_server),
        cmocka_unit_test(what_is_missing_is_unknown),
        cmocka_unit_test(nothing_there_is_nothing_known),
        cmocka_unit_test(nonsense_is_not_believed),
        cmocka_unit_test(a_root_too_long_for_a_path),
        cmocka_unit_test(agrees_with_what_engines_use),
        cmocka_unit_test(ids_tell_machines_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
