/* The kernels this machine would take. Include after cmocka.h. */
#ifndef SPRY_TESTS_BEST_OPS_H
#define SPRY_TESTS_BEST_OPS_H

#include "kernels/ops.h"

static inline const spry_ops *best_ops(void)
{
    const spry_ops *ops;
    assert_int_equal(spry_ops_get(&ops, "auto", NULL), SPRY_OK);
    return ops;
}

#endif
