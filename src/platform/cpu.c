/* Asks the processor on x86 and Linux's auxiliary vector on ARM; on other systems only the features the program was
 * compiled for are known. */
#include "platform/cpu.h"

#include <stdbool.h>

#include "base/compiler.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

/* Tiles are 8 KB of state a thread: Linux saves them only for processes that have asked for it. */
static bool has_amx(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25, REQUEST_STATE = 0x1023, TILE_DATA = 18 };
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & AMX_TILE) && (edx & AMX_INT8) &&
           (edx & AMX_BF16) && syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
    return false;
#endif
}

uint32_t spry_cpu_features(void)
{
    uint32_t features = 0;
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
    if (has_amx())
        features |= SPRY_CPU_AMX;
    return features;
}

#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

uint32_t spry_cpu_features(void)
{
    enum { I8MM = 1 << 13, BF16 = 1 << 14 }; /* of AT_HWCAP2, which older headers do not name */
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    uint32_t features = first & HWCAP_ASIMDDP ? SPRY_CPU_DOTPROD : 0;
    features |= second & I8MM ? SPRY_CPU_I8MM : 0;
    features |= second & BF16 ? SPRY_CPU_ARM_BF16 : 0;
    return features;
}

#else

uint32_t spry_cpu_features(void)
{
    uint32_t features = 0;
#if defined(__ARM_FEATURE_DOTPROD)
    features |= SPRY_CPU_DOTPROD;
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
    features |= SPRY_CPU_I8MM;
#endif
#if defined(__ARM_FEATURE_BF16)
    features |= SPRY_CPU_ARM_BF16;
#endif
    return features;
}

#endif
