/* The op tables, from plain C to the fastest, and the selection of one. Every table is a constant: an instruction set
 * starts with the initialiser of a plainer one and overrides entries, so nothing is filled in at run time and any
 * thread may read it. */
#include "kernels/ops.h"

#include <stdio.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "platform/hardware.h"
#if defined(__x86_64__)
#include "kernels/x86/x86.h"
#elif defined(__aarch64__)
#include "kernels/arm/arm.h"
#endif

const spry_ops spry_ops_ref = {.name = "ref", SPRY_REF_OPS};

/* Ascending by speed: the last one whose features a machine has is the best. */
static const struct {
    const spry_ops *ops;
    uint32_t needs;
} tables[] = {
    {&spry_ops_ref, 0},
#if defined(__x86_64__)
#ifndef SPRY_WITHOUT_AVX2 /* cmake/cpu_kernels.cmake leaves out what this processor does not need */
    {&spry_ops_avx2, SPRY_CPU_AVX2},
#endif
#ifndef SPRY_WITHOUT_AVX512BW
    {&spry_ops_avx512bw, SPRY_CPU_AVX2 | SPRY_CPU_AVX512},
#endif
#ifndef SPRY_WITHOUT_AVXVNNI
    {&spry_ops_avxvnni, SPRY_CPU_AVX2 | SPRY_CPU_AVXVNNI},
#endif
#ifndef SPRY_WITHOUT_AVX512
    {&spry_ops_avx512, SPRY_CPU_AVX2 | SPRY_CPU_AVX512 | SPRY_CPU_VNNI},
    {&spry_ops_avx512bf16, SPRY_CPU_AVX2 | SPRY_CPU_AVX512 | SPRY_CPU_VNNI | SPRY_CPU_VBMI | SPRY_CPU_BF16},
    {&spry_ops_amx, SPRY_CPU_AVX2 | SPRY_CPU_AVX512 | SPRY_CPU_VNNI | SPRY_CPU_VBMI | SPRY_CPU_BF16 | SPRY_CPU_AMX},
#endif
#elif defined(__aarch64__)
    {&spry_ops_neon, 0},
    {&spry_ops_dotprod, SPRY_CPU_DOTPROD},
    {&spry_ops_i8mm, SPRY_CPU_DOTPROD | SPRY_CPU_I8MM},
    {&spry_ops_bf16, SPRY_CPU_DOTPROD | SPRY_CPU_I8MM | SPRY_CPU_ARM_BF16},
#endif
};

spry_status spry_ops_get(const spry_ops **out, const char *mask, spry_error *error)
{
    uint32_t features = spry_cpu_features();
    const spry_ops *found = NULL;
    for (size_t i = 0; i < SPRY_COUNT(tables); i++)
        if ((tables[i].needs & ~features) == 0 && (!strcmp(mask, "auto") || !strcmp(mask, tables[i].ops->name)))
            found = tables[i].ops;
    if (!found)
        return spry_fail(error, SPRY_ERR_INPUT, "there are no kernels named \"%.40s\" on this machine: say auto, %s",
                         mask, spry_ops_names());
    *out = found;
    return SPRY_OK;
}

const char *spry_ops_names(void)
{
    static _Thread_local char names[64]; /* every thread writes the same text */
    uint32_t features = spry_cpu_features();
    size_t used = 0;
    for (size_t i = 0; i < SPRY_COUNT(tables); i++)
        if ((tables[i].needs & ~features) == 0)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", tables[i].ops->name);
    return names;
}
