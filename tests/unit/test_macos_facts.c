/* What macOS reports, read from tables in place of a Mac: an M1, an Intel Mac, a virtual machine, and nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "platform/macos_facts.h"

typedef struct fact {
    const char *name, *text; /* NULL: a number of `size` bytes */
    uint64_t number;
    size_t size;
} fact;

static bool read_fact(void *context, const char *name, void *value, size_t *size)
{
    for (const fact *f = context; f->name; f++) {
        if (strcmp(f->name, name) != 0)
            continue;
        size_t length = f->text ? strlen(f->text) + 1 : f->size;
        if (length > *size)
            return false;
        memcpy(value, f->text ? (const void *)f->text : &f->number, length);
        *size = length;
        return true;
    }
    return false;
}

static const fact m1[] = {
    {"machdep.cpu.brand_string", "Apple M1 Pro", 0, 0},
    {"hw.physicalcpu", NULL, 10, 4},
    {"hw.logicalcpu", NULL, 10, 4},
    {"hw.perflevel0.logicalcpu", NULL, 8, 4},
    {"hw.perflevel0.l1dcachesize", NULL, 131072, 4},
    {"hw.perflevel0.l1icachesize", NULL, 196608, 4},
    {"hw.perflevel0.l2cachesize", NULL, 12582912, 4},
    {"hw.perflevel0.cpusperl2", NULL, 4, 4},
    {"hw.l1dcachesize", NULL, 65536, 8}, /* of the efficient cores */
    {"hw.memsize", NULL, UINT64_C(17179869184), 8},
    {"hw.optional.AdvSIMD", NULL, 1, 4},
    {"hw.optional.arm.FEAT_DotProd", NULL, 1, 4},
    {"hw.optional.arm.FEAT_FP16", NULL, 1, 4},
    {"hw.optional.arm.FEAT_I8MM", NULL, 0, 4},
    {"hw.optional.arm.FEAT_BF16", NULL, 0, 4},
    {"kern.hv_vmm_present", NULL, 0, 4},
    {"kern.memorystatus_vm_pressure_level", NULL, 2, 4},
    {0},
};

static void a_mac_with_two_kinds_of_cores(void **state)
{
    (void)state;
    const spry_sysctl sysctl = {read_fact, (void *)(uintptr_t)m1};
    spry_hardware h = {0};
    spry_macos_hardware(&h, &sysctl);
    assert_string_equal(h.cpu, "Apple M1 Pro");
    assert_int_equal(h.cores, 10);
    assert_int_equal(h.processors, 10);
    assert_int_equal(h.usable, 8); /* the fast ones */
    assert_int_equal(spry_macos_processors(&sysctl), 8);
    assert_int_equal(h.virtual_machine, SPRY_NO);
    assert_int_equal(h.memory_bytes, (size_t)16 << 30);
    assert_int_equal(h.usable_bytes, (size_t)16 << 30);
    assert_int_equal(h.n_caches, 3);
    assert_int_equal(h.caches[0].bytes, 128 << 10); /* of the fast ones too */
    assert_string_equal(h.caches[1].kind, "instruction");
    assert_int_equal(h.caches[2].level, 2);
    assert_int_equal(h.caches[2].shared_by, 4);
    assert_true(spry_hardware_has(&h, "neon") && spry_hardware_has(&h, "dotprod") && !spry_hardware_has(&h, "i8mm"));
    assert_int_equal(spry_macos_cpu_features(&sysctl), SPRY_CPU_DOTPROD);
    assert_true(spry_macos_memory_pressure(&sysctl));
}

static void an_intel_mac_and_a_virtual_machine(void **state)
{
    static const fact intel[] = {
        {"machdep.cpu.brand_string", "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz", 0, 0},
        {"hw.physicalcpu", NULL, 6, 4},
        {"hw.logicalcpu", NULL, 12, 4},
        {"hw.l2cachesize", NULL, 262144, 8},
        {"hw.l3cachesize", NULL, 12582912, 8},
        {"hw.optional.avx2_0", NULL, 1, 4},
        {"hw.optional.fma", NULL, 1, 4},
        {"hw.optional.f16c", NULL, 1, 4},
        {"hw.optional.avx512f", NULL, 1, 4},
        {"hw.optional.avx512bw", NULL, 0, 4},
        {"hw.memsize", NULL, UINT64_C(34359738368), 8},
        {"kern.hv_vmm_present", NULL, 1, 4},
        {0},
    };
    (void)state;
    const spry_sysctl sysctl = {read_fact, (void *)(uintptr_t)intel};
    spry_hardware h = {0};
    spry_macos_hardware(&h, &sysctl);
    assert_int_equal(h.cores, 6);
    assert_int_equal(h.usable, 12);
    assert_int_equal(h.virtual_machine, SPRY_YES);
    assert_int_equal(h.n_caches, 2);
    assert_int_equal(h.caches[1].level, 3);
    assert_true(spry_hardware_has(&h, "avx2") && !spry_hardware_has(&h, "neon"));
    assert_int_equal(spry_macos_cpu_features(&sysctl), SPRY_CPU_AVX2);
    assert_false(spry_macos_memory_pressure(&sysctl));
}

/* Each feature of a processor, alone: the kernels that it selects, and the name that spry doctor prints. AVX2 and
 * AVX-512 are several features, none of which may be missing. */
static void every_instruction_set(void **state)
{
    static const struct {
        const char *names[4], *set;
        uint32_t feature;
    } features[] = {
        {{"hw.optional.arm.FEAT_DotProd"}, "dotprod", SPRY_CPU_DOTPROD},
        {{"hw.optional.arm.FEAT_I8MM"}, "i8mm", SPRY_CPU_I8MM},
        {{"hw.optional.arm.FEAT_BF16"}, "bf16", SPRY_CPU_ARM_BF16},
        {{"hw.optional.arm.FEAT_SME"}, "sme", 0}, /* named; no kernel uses it */
        {{"hw.optional.avx2_0", "hw.optional.fma", "hw.optional.f16c"}, "avx2", SPRY_CPU_AVX2},
        {{"hw.optional.avx512f", "hw.optional.avx512bw", "hw.optional.avx512dq", "hw.optional.avx512vl"},
         "avx512bw",
         SPRY_CPU_AVX512},
    };
    enum { ROOM = 5 };
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(features); i++)
        for (size_t missing = 0; missing < ROOM; missing++) { /* ROOM - 1: none */
            fact facts[ROOM] = {{0}};
            bool whole = true;
            for (size_t n = 0; n < SPRY_COUNT(features[i].names) && features[i].names[n]; n++) {
                facts[n] = (fact){features[i].names[n], NULL, n != missing, 4};
                whole = whole && n != missing;
            }
            const spry_sysctl sysctl = {read_fact, facts};
            spry_hardware h = {0};
            assert_int_equal(spry_macos_cpu_features(&sysctl), whole ? features[i].feature : 0);
            spry_macos_hardware(&h, &sysctl);
            assert_true(!whole || spry_hardware_has(&h, features[i].set));
            if (!facts[1].name)
                assert_int_equal(h.n_sets, whole);
        }
}

/* Values that are missing, of other sizes, or out of bounds are unknown. */
static void nonsense_is_unknown(void **state)
{
    static const fact odd[] = {
        {"machdep.cpu.brand_string", "", 0, 0}, {"hw.physicalcpu", NULL, UINT64_MAX, 8},
        {"hw.logicalcpu", NULL, 1000000, 4},    {"hw.perflevel0.logicalcpu", NULL, 8, 2},
        {"hw.l2cachesize", "big", 0, 0},        {"kern.hv_vmm_present", NULL, 7, 4},
        {"vm.swapusage", NULL, 5, 8},           {0},
    };
    (void)state;
    const spry_sysctl sysctl = {read_fact, (void *)(uintptr_t)odd};
    spry_hardware h = {.cpu = "arm64"};
    spry_macos_hardware(&h, &sysctl);
    assert_string_equal(h.cpu, "arm64");
    assert_int_equal(h.cores, 0);
    assert_int_equal(h.processors, 0);
    assert_int_equal(h.usable, 1);
    assert_int_equal(h.virtual_machine, SPRY_UNKNOWN);
    assert_int_equal(h.memory_bytes, 0);
    assert_int_equal(h.swap_bytes, 0);
    assert_int_equal(h.n_sets, 0);
    static const fact long_name[] = {
        {"machdep.cpu.brand_string",
         "a name that is longer than the room for it, so that nothing of it is taken: "
         "0123456789012345678901234567890123456789",
         0, 0},
        {0},
    };
    const spry_sysctl second = {read_fact, (void *)(uintptr_t)long_name};
    spry_macos_hardware(&h, &second);
    assert_string_equal(h.cpu, "arm64");
}

static void swap_memory_energy_and_heat(void **state)
{
    (void)state;
    assert_int_equal(spry_macos_available(&(spry_macos_pages){16384, 10, 20, 3, 4}), 37 * 16384);
    assert_int_equal(spry_macos_nanojoules(5, 7), 5);
    assert_int_equal(spry_macos_nanojoules(0, 7), 7);
    assert_true(spry_macos_thermal_level(0) < 0.5 && spry_macos_thermal_level(4) > 3.5);
    assert_true(isnan(spry_macos_thermal_level(5)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mac_with_two_kinds_of_cores), cmocka_unit_test(an_intel_mac_and_a_virtual_machine),
        cmocka_unit_test(every_instruction_set),         cmocka_unit_test(nonsense_is_unknown),
        cmocka_unit_test(swap_memory_energy_and_heat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
