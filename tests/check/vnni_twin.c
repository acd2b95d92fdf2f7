/* The AVX-VNNI table with AVX-512's form of its one instruction, which computes the same: so that it is checked on
 * machines with AVX-512 and without AVX-VNNI. */
#define DOT_FOUR(sum, weights, values) _mm256_dpbusd_epi32(sum, weights, values)
#define AVXVNNI_NAME                   "avxvnni-512"
#define AVXVNNI_TABLE                  check_avxvnni_512
#include "kernels/x86/ops_avxvnni.c"
