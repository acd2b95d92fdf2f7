/* Names of sysctl and what their values mean. Apple's own processors have fast and efficient cores, "perflevel0" and
 * "perflevel1"; caches are told for each kind. */
#include "platform/macos_facts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "platform/system_file.h"

uint64_t spry_sysctl_number(const spry_sysctl *sysctl, const char *name, uint64_t otherwise)
{
    uint64_t value = 0; /* a value of 4 bytes is the lower half: both processors are little-endian */
    size_t size = sizeof value;
    if (!sysctl->read(sysctl->context, name, &value, &size) || (size != 4 && size != 8))
        return otherwise;
    return value;
}

size_t spry_macos_processors(const spry_sysctl *sysctl)
{
    uint64_t fast = spry_sysctl_number(sysctl, "hw.perflevel0.logicalcpu", 0);
    uint64_t all = spry_sysctl_number(sysctl, "hw.logicalcpu", 0);
    uint64_t count = fast && (!all || fast <= all) ? fast : all;
    return count && count <= SPRY_SYSTEM_PROCESSORS ? (size_t)count : 1;
}

enum { NAMES = 4 };

/* What a feature consists of. */
typedef struct named_feature {
    uint32_t feature;
    const char *names[NAMES];
} named_feature;

/* The system enables AVX-512 when a thread first uses it, so the processor itself would deny it. */
uint32_t spry_macos_cpu_features(const spry_sysctl *sysctl)
{
    static const named_feature features[] = {
        {SPRY_CPU_AVX2, {"hw.optional.avx2_0", "hw.optional.fma", "hw.optional.f16c"}},
        {SPRY_CPU_AVX512,
         {"hw.optional.avx512f", "hw.optional.avx512bw", "hw.optional.avx512dq", "hw.optional.avx512vl"}},
        {SPRY_CPU_DOTPROD, {"hw.optional.arm.FEAT_DotProd"}},
        {SPRY_CPU_I8MM, {"hw.optional.arm.FEAT_I8MM"}},
        {SPRY_CPU_ARM_BF16, {"hw.optional.arm.FEAT_BF16"}},
    };
    uint32_t found = 0;
    for (size_t i = 0; i < SPRY_COUNT(features); i++) {
        bool has = true;
        for (size_t n = 0; n < NAMES && features[i].names[n]; n++)
            has = has && spry_sysctl_number(sysctl, features[i].names[n], 0);
        found |= has ? features[i].feature : 0;
    }
    return found;
}

typedef struct named_set {
    const char *name, *set;
} named_set;

/* The names that spry_hardware uses for instruction sets. */
static void add_sets(spry_hardware *h, const spry_sysctl *sysctl)
{
    static const named_set sets[] = {
        {"hw.optional.sse4_2", "sse4.2"},      {"hw.optional.avx1_0", "avx"},
        {"hw.optional.f16c", "f16c"},          {"hw.optional.fma", "fma"},
        {"hw.optional.avx2_0", "avx2"},        {"hw.optional.avx512f", "avx512f"},
        {"hw.optional.avx512bw", "avx512bw"},  {"hw.optional.avx512dq", "avx512dq"},
        {"hw.optional.avx512vl", "avx512vl"},  {"hw.optional.AdvSIMD", "neon"},
        {"hw.optional.arm.FEAT_FP16", "fp16"}, {"hw.optional.arm.FEAT_DotProd", "dotprod"},
        {"hw.optional.arm.FEAT_I8MM", "i8mm"}, {"hw.optional.arm.FEAT_BF16", "bf16"},
        {"hw.optional.arm.FEAT_SME", "sme"},
    };
    _Static_assert(SPRY_COUNT(sets) <= SPRY_HARDWARE_SETS, "every set fits");
    h->n_sets = 0;
    for (size_t i = 0; i < SPRY_COUNT(sets); i++)
        if (spry_sysctl_number(sysctl, sets[i].name, 0))
            h->sets[h->n_sets++] = sets[i].set;
}

/* The size of a cache of the fast processors, or of all where there is one kind. */
static uint64_t cache_number(const spry_sysctl *sysctl, const char *name)
{
    char fast[64], any[64];
    snprintf(fast, sizeof fast, "hw.perflevel0.%s", name);
    snprintf(any, sizeof any, "hw.%s", name);
    return spry_sysctl_number(sysctl, fast, spry_sysctl_number(sysctl, any, 0));
}

static void add_cache(spry_hardware *h, uint32_t level, const char *kind, uint64_t bytes, uint64_t shared_by)
{
    if (!bytes || bytes > SIZE_MAX)
        return;
    spry_hardware_cache *cache = &h->caches[h->n_caches++];
    *cache = (spry_hardware_cache){.level = level, .bytes = (size_t)bytes, .shared_by = (uint32_t)shared_by};
    snprintf(cache->kind, sizeof cache->kind, "%s", kind);
}

static void add_caches(spry_hardware *h, const spry_sysctl *sysctl)
{
    h->n_caches = 0;
    add_cache(h, 1, "data", cache_number(sysctl, "l1dcachesize"), 1);
    add_cache(h, 1, "instruction", cache_number(sysctl, "l1icachesize"), 1);
    add_cache(h, 2, "unified", cache_number(sysctl, "l2cachesize"), cache_number(sysctl, "cpusperl2"));
    add_cache(h, 3, "unified", cache_number(sysctl, "l3cachesize"), 0);
}

static uint32_t small_number(const spry_sysctl *sysctl, const char *name)
{
    uint64_t value = spry_sysctl_number(sysctl, name, 0);
    return value <= SPRY_SYSTEM_PROCESSORS ? (uint32_t)value : 0;
}

void spry_macos_hardware(spry_hardware *h, const spry_sysctl *sysctl)
{
    char name[SPRY_PROCESSOR_NAME_MAX] = "";
    size_t size = sizeof name - 1;
    if (sysctl->read(sysctl->context, "machdep.cpu.brand_string", name, &size) && name[0])
        memcpy(h->cpu, name, sizeof name);
    h->cores = small_number(sysctl, "hw.physicalcpu");
    h->processors = small_number(sysctl, "hw.logicalcpu");
    h->usable = (uint32_t)spry_macos_processors(sysctl);
    uint64_t virtual_machine = spry_sysctl_number(sysctl, "kern.hv_vmm_present", 2);
    h->virtual_machine = virtual_machine > 1 ? SPRY_UNKNOWN : virtual_machine ? SPRY_YES : SPRY_NO;
    uint64_t memory = spry_sysctl_number(sysctl, "hw.memsize", 0);
    h->memory_bytes = memory <= SIZE_MAX ? (size_t)memory : 0;
    h->usable_bytes = h->memory_bytes;
    struct {
        uint64_t total, available, used;
        uint32_t rest[2];
    } swap = {0};
    size = sizeof swap;
    if (sysctl->read(sysctl->context, "vm.swapusage", &swap, &size) && size >= 3 * sizeof swap.total) {
        h->swap_bytes = (size_t)swap.total;
        h->swap_used_bytes = (size_t)(swap.used < swap.total ? swap.used : swap.total);
    }
    add_sets(h, sysctl);
    add_caches(h, sysctl);
}

size_t spry_macos_available(const spry_macos_pages *p)
{
    return (size_t)((p->unused + p->inactive + p->purgeable + p->speculative) * p->page_bytes);
}

uint64_t spry_macos_nanojoules(uint64_t energy, uint64_t billed_energy)
{
    return energy ? energy : billed_energy;
}

double spry_macos_thermal_level(uint64_t state)
{
    return state <= 4 ? (double)state : NAN;
}

bool spry_macos_memory_pressure(const spry_sysctl *sysctl)
{
    uint64_t level = spry_sysctl_number(sysctl, "kern.memorystatus_vm_pressure_level", 1);
    return level == 2 || level == 4;
}
