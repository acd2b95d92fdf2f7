/* The op tables, from plain C to the fastest, and the selection of one. Every table is a constant: an instruction set
 * starts with the initialiser of the level below and overrides entries, so nothing is filled in at run time and any
 * thread may read it. */
#include "kernels/ops.h"

#include <string.h>

#include "kernels/ref/ref.h"
#if defined(__x86_64__)
#include <cpuid.h>

#include "kernels/x86/x86.h"
#elif defined(__aarch64__)
#include "kernels/arm/arm.h"
#include "platform/cpu.h"
#endif

static const spry_ops ref = {.name = "ref", SPRY_REF_OPS};

/* Ascending: a machine with one level has all levels before it. */
static const struct {
    const spry_ops *ops;
    const char *names; /* names up to this level */
} levels[] = {
    {&ref, "ref"},
#if defined(__x86_64__)
    {&spry_ops_avx2, "ref, avx2"},
    {&spry_ops_avx512, "ref, avx2, avx512"},
#elif defined(__aarch64__)
    {&spry_ops_neon, "ref, neon"},
#endif
};

#if defined(__x86_64__)
/* Clang's builtin does not support this feature name. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

/* The number of levels this machine supports. */
static size_t usable_levels(void)
{
#if defined(__x86_64__)
    bool avx2 = SPRY_X86_HAS("avx2") && SPRY_X86_HAS("fma") && has_f16c();
    bool avx512 = avx2 && SPRY_X86_HAS("avx512f") && SPRY_X86_HAS("avx512bw") && SPRY_X86_HAS("avx512dq") &&
                  SPRY_X86_HAS("avx512vl") && SPRY_X86_HAS("avx512vnni");
    return avx512 ? 3 : avx2 ? 2 : 1;
#elif defined(__aarch64__)
    return spry_cpu_has_dotprod() ? 2 : 1;
#else
    return SPRY_COUNT(levels);
#endif
}

spry_status spry_ops_get(const spry_ops **out, const char *mask, spry_error *error)
{
    size_t n = usable_levels();
    if (!strcmp(mask, "auto")) {
        *out = levels[n - 1].ops;
        return SPRY_OK;
    }
    for (size_t i = 0; i < n; i++)
        if (!strcmp(mask, levels[i].ops->name)) {
            *out = levels[i].ops;
            return SPRY_OK;
        }
    return spry_fail(error, SPRY_ERR_INPUT, "there are no kernels named \"%.40s\" on this machine: say auto, %s", mask,
                     spry_ops_names());
}

const char *spry_ops_names(void)
{
    return levels[usable_levels() - 1].names;
}
