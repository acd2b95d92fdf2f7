/* Linux reports these facts in small text files: /proc for processor and memory, /sys for the rest; other systems by
 * calls (os.h). Values that are not understood stay unknown. */
#include "platform/hardware.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <xxhash.h>

#include "base/compiler.h"
#include "base/number.h"
#include "base/view.h"
#include "platform/os.h"
#include "platform/system_file.h"

/* ---- features of the processor ----------------------------------------------------------------------------------- */

/* The processor itself tells on x86; elsewhere, and on Macs, the operating system. */

#if defined(__x86_64__) && !defined(__APPLE__)
#include <cpuid.h>

/* Clang's builtin does not support this feature name. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

/* The instruction's short form; enabled with AVX2. */
static bool has_avxvnni(void)
{
    enum { AVXVNNI = 1 << 4 };
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & AVXVNNI);
}

uint32_t spry_cpu_features(void)
{
    uint32_t features = spry_os_cpu_features();
    if (SPRY_X86_HAS("avx2") && SPRY_X86_HAS("fma") && has_f16c())
        features |= has_avxvnni() ? SPRY_CPU_AVX2 | SPRY_CPU_AVXVNNI : SPRY_CPU_AVX2;
    if (SPRY_X86_HAS("avx512f") && SPRY_X86_HAS("avx512bw") && SPRY_X86_HAS("avx512dq") && SPRY_X86_HAS("avx512vl"))
        features |= SPRY_CPU_AVX512;
    if (SPRY_X86_HAS("avx512vnni"))
        features |= SPRY_CPU_VNNI;
    if (SPRY_X86_HAS("avx512vbmi") && SPRY_X86_HAS("gfni"))
        features |= SPRY_CPU_VBMI;
    if (SPRY_X86_HAS("avx512bf16"))
        features |= SPRY_CPU_BF16;
    return features;
}

#else

uint32_t spry_cpu_features(void)
{
    return spry_os_cpu_features();
}

#endif

/* ---- the processor's name ---------------------------------------------------------------------------------------- */

/* Copies printable characters, joins runs of spaces and trims the ends. */
static void tidy(char out[SPRY_PROCESSOR_NAME_MAX], const char *text)
{
    size_t used = 0;
    for (; *text && used + 1 < SPRY_PROCESSOR_NAME_MAX; text++) {
        bool space = *text <= ' ' || *text > '~';
        if (!space || (used && out[used - 1] != ' '))
            out[used++] = space ? ' ' : *text;
    }
    while (used && out[used - 1] == ' ')
        used--;
    out[used] = '\0';
}

/* spry_processor_name with `root` prepended to /proc, for tests. */
static void processor_name_below(char out[SPRY_PROCESSOR_NAME_MAX], const char *root)
{
    char line[512], path[PATH_MAX];
    out[0] = '\0';
    int length = snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    FILE *file = length > 0 && length < PATH_MAX ? fopen(path, "re") : NULL;
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (value && strncmp(line, "model name", strlen("model name")) == 0)
            tidy(out, value + 1);
    }
    if (file)
        fclose(file);
    struct utsname machine;
    if (!out[0])
        tidy(out, uname(&machine) == 0 ? machine.machine : "unknown");
}

void spry_processor_name(char out[SPRY_PROCESSOR_NAME_MAX])
{
    spry_hardware named;
    processor_name_below(named.cpu, "");
    spry_os_hardware(&named);
    memcpy(out, named.cpu, sizeof named.cpu);
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* ---- lists of processors ----------------------------------------------------------------------------------------- */

/* Number of items in a list; 0: not a list. */
static uint32_t list_count(const char *list)
{
    uint32_t count = 0, first, last;
    while (spry_system_range(&first, &last, &list))
        count += count < SPRY_SYSTEM_PROCESSORS ? last - first + 1 : 0;
    return *list ? 0 : count;
}

static uint32_t list_first(const char *list)
{
    uint32_t first, last;
    return spry_system_range(&first, &last, &list) ? first : 0;
}

/* ---- the processor ----------------------------------------------------------------------------------------------- */

/* Whether the processor is the first of those that share its core; unknown where the system does not report it. */
static spry_known leads_core(const char *root, uint32_t processor)
{
    char list[SPRY_SYSTEM_VALUE];
    if (!spry_system_value(list, root, "/sys/devices/system/cpu/cpu%u/topology/core_cpus_list", processor) &&
        !spry_system_value(list, root, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", processor))
        return SPRY_UNKNOWN;
    return !list_count(list) ? SPRY_UNKNOWN : list_first(list) == processor ? SPRY_YES : SPRY_NO;
}

static uint32_t count_cores(const char *root, const char *online)
{
    uint32_t cores = 0, first, last;
    while (spry_system_range(&first, &last, &online))
        for (uint32_t processor = first; processor <= last; processor++) {
            spry_known leads = leads_core(root, processor);
            if (leads == SPRY_UNKNOWN)
                return 0;
            cores += leads == SPRY_YES;
        }
    return cores;
}

static uint32_t smaller_known(uint32_t a, uint32_t b)
{
    return !a ? b : !b ? a : a < b ? a : b;
}

static void read_processors(spry_hardware *h, const char *root, const char *online, const spry_cgroup_limits *limits)
{
    h->processors = list_count(online);
    h->cores = h->processors ? count_cores(root, online) : 0;
    h->cgroup_cpus = limits->cpus < SPRY_SYSTEM_PROCESSORS ? (uint32_t)limits->cpus : 0;
    char *allowed = spry_system_line(root, "/proc/self/status", "Cpus_allowed_list");
    h->usable = smaller_known(allowed ? list_count(allowed) : 0, smaller_known(h->processors, h->cgroup_cpus));
    free(allowed);
}

/* Instruction sets that kernels use or could use: Linux's spelling and ours. */
static const struct set_name {
    const char *linux_name, *name;
} set_names[] = {
    {"sse4_2", "sse4.2"},
    {"avx", "avx"},
    {"f16c", "f16c"},
    {"fma", "fma"},
    {"avx2", "avx2"},
    {"avx_vnni", "avxvnni"},
    {"avx512f", "avx512f"},
    {"avx512bw", "avx512bw"},
    {"avx512dq", "avx512dq"},
    {"avx512vl", "avx512vl"},
    {"avx512_vnni", "avx512vnni"},
    {"avx512_bf16", "avx512bf16"},
    {"avx512_fp16", "avx512fp16"},
    {"amx_tile", "amxtile"},
    {"amx_int8", "amxint8"},
    {"amx_bf16", "amxbf16"},
    {"asimd", "neon"},
    {"asimdhp", "fp16"},
    {"asimddp", "dotprod"},
    {"i8mm", "i8mm"},
    {"bf16", "bf16"},
    {"sve", "sve"},
    {"sve2", "sve2"},
    {"sme", "sme"},
};

_Static_assert(SPRY_COUNT(set_names) <= SPRY_HARDWARE_SETS, "every set fits");

static bool list_has_word(const char *list, const char *word)
{
    for (;;) {
        size_t length = strcspn(list, " ");
        if (spry_view_is((spry_view){list, length}, word))
            return true;
        if (!list[length])
            return false;
        list += length + 1;
    }
}

/* x86 has "flags", which also show a hypervisor; ARM has "Features". */
static void read_sets(spry_hardware *h, const char *root)
{
    char *flags = spry_system_line(root, "/proc/cpuinfo", "flags");
    char *features = flags ? NULL : spry_system_line(root, "/proc/cpuinfo", "Features");
    const char *list = flags ? flags : features ? features : "";
    for (size_t i = 0; i < SPRY_COUNT(set_names); i++)
        if (list_has_word(list, set_names[i].linux_name))
            h->sets[h->n_sets++] = set_names[i].name;
    char type[SPRY_SYSTEM_VALUE];
    if (flags)
        h->virtual_machine = list_has_word(flags, "hypervisor") ? SPRY_YES : SPRY_NO;
    else if (spry_system_value(type, root, "/sys/hypervisor/type") ||
             spry_system_value(type, root, "/proc/device-tree/hypervisor/compatible"))
        h->virtual_machine = SPRY_YES;
    free(flags);
    free(features);
}

/* Copies a word reported by the system: printable, lower case. */
static void copy_word(char out[SPRY_HARDWARE_WORD], const char *text, size_t length)
{
    size_t used = 0;
    for (; used < length && used + 1 < SPRY_HARDWARE_WORD; used++) {
        char c = text[used];
        out[used] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c > ' ' && c <= '~' ? c : '?';
    }
    out[used] = '\0';
}

#define CACHE "/sys/devices/system/cpu/cpu%u/cache/index%zu"

static bool read_cache(spry_hardware_cache *cache, const char *root, uint32_t processor, size_t index)
{
    char level[SPRY_SYSTEM_VALUE], kind[SPRY_SYSTEM_VALUE], size[SPRY_SYSTEM_VALUE], shared[SPRY_SYSTEM_VALUE];
    uint64_t number, bytes;
    if (!spry_system_value(level, root, CACHE "/level", processor, index) ||
        !spry_system_value(kind, root, CACHE "/type", processor, index) ||
        !spry_system_value(size, root, CACHE "/size", processor, index) ||
        !spry_number_u64(&number, spry_view_of(level)) || !spry_number_bytes(&bytes, spry_view_of(size)))
        return false;
    *cache = (spry_hardware_cache){.level = (uint32_t)(number & 0xFF), .bytes = (size_t)bytes};
    copy_word(cache->kind, kind, strlen(kind));
    if (spry_system_value(shared, root, CACHE "/shared_cpu_list", processor, index))
        cache->shared_by = list_count(shared);
    return true;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* A value of /proc/meminfo; 0: unknown. */
static size_t memory_line(const char *root, const char *key)
{
    char *value = spry_system_line(root, "/proc/meminfo", key);
    uint64_t kib;
    size_t bytes = 0;
    if (value && spry_system_number(&kib, value) && !spry_checked_mul(&bytes, (size_t)kib, 1024))
        bytes = 0;
    free(value);
    return bytes;
}

static void read_memory(spry_hardware *h, const char *root, const spry_cgroup_limits *limits)
{
    h->memory_bytes = memory_line(root, "MemTotal");
    h->usable_bytes = limits->memory < h->memory_bytes ? limits->memory : h->memory_bytes;
    char *space = spry_system_line(root, "/proc/self/limits", "Max address space");
    uint64_t most;
    if (space && spry_system_number(&most, space) && most < h->usable_bytes)
        h->usable_bytes = (size_t)most;
    free(space);
    size_t available = memory_line(root, "MemAvailable"), swap_free = memory_line(root, "SwapFree");
    h->available_bytes = available < h->usable_bytes ? available : h->usable_bytes;
    h->swap_bytes = memory_line(root, "SwapTotal");
    h->swap_used_bytes = swap_free < h->swap_bytes ? h->swap_bytes - swap_free : 0;
}

/* "always [madvise] never": the one in brackets. */
static void read_huge_pages(spry_hardware *h, const char *root)
{
    char text[SPRY_SYSTEM_VALUE];
    if (!spry_system_value(text, root, "/sys/kernel/mm/transparent_hugepage/enabled"))
        return;
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    if (close)
        copy_word(h->huge_pages, open + 1, (size_t)(close - open - 1));
}

/* "0.52 0.58 0.59 1/467 12345": averages over one, five and fifteen minutes. */
static double read_load(const char *root)
{
    char text[SPRY_SYSTEM_VALUE];
    double load;
    if (!spry_system_value(text, root, "/proc/loadavg") ||
        !spry_number_double(&load, (spry_view){text, strcspn(text, " ")}))
        return -1;
    return load;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

void spry_hardware_read(spry_hardware *h, const char *root)
{
    char online[SPRY_SYSTEM_VALUE] = "", value[SPRY_SYSTEM_VALUE];
    spry_cgroup_limits limits;
    *h = (spry_hardware){0};
    processor_name_below(h->cpu, root);
    spry_cgroup_read(&limits, root);
    spry_system_value(online, root, "/sys/devices/system/cpu/online");
    uint32_t first = list_first(online);
    read_processors(h, root, online, &limits);
    read_sets(h, root);
    while (h->n_caches < SPRY_HARDWARE_CACHES && read_cache(&h->caches[h->n_caches], root, first, h->n_caches))
        h->n_caches++;
    if (spry_system_value(value, root, "/sys/devices/system/cpu/cpu%u/cpufreq/scaling_governor", first))
        copy_word(h->governor, value, strlen(value));
    if (spry_system_value(value, root, "/sys/devices/system/node/online"))
        h->numa_nodes = list_count(value);
    h->load = read_load(root);
    read_memory(h, root, &limits);
    read_huge_pages(h, root);
    if (!*root)
        spry_os_hardware(h);
}

bool spry_hardware_has(const spry_hardware *h, const char *set)
{
    for (size_t i = 0; i < h->n_sets; i++)
        if (strcmp(h->sets[i], set) == 0)
            return true;
    return false;
}

void spry_machine_id(char out[SPRY_MACHINE_ID], const char *cpu, uint32_t threads, const char *kernels, size_t memory)
{
    char text[SPRY_PROCESSOR_NAME_MAX + SPRY_SYSTEM_VALUE];
    double gib = (double)memory / (1 << 30);
    int length =
        snprintf(text, sizeof text, "%.*s\n%u\n%.64s\n%.0f", SPRY_PROCESSOR_NAME_MAX, cpu, threads, kernels, gib);
    size_t used = length < 0 ? 0 : (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
    snprintf(out, SPRY_MACHINE_ID, "%016llx", (unsigned long long)XXH3_64bits(text, used));
}
