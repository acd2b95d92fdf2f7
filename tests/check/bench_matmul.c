/* The speed of matrix products: one row against a matrix no cache holds, which shows the memory's speed, and many rows
 * against a small one, which shows the arithmetic's. Types a table leaves to ref are not measured again. */
#include <string.h>

#include "check/check.h"
#include "kernels/packed.h"

enum { N_IN = 4096, LARGE_BYTES = 96 << 20, SMALL_OUTPUTS = 512, MANY_ROWS = 64 };

typedef struct matmul_work {
    const spry_ops *ops; /* whose activations and weights `m` has */
    spry_dtype type;
    size_t n_out;
    spry_matmul m, plain;
} matmul_work;

static void call_matmul(const spry_ops *ops, const void *context)
{
    const matmul_work *work = context;
    ops->matmul[work->type].run(ops == work->ops ? &work->m : &work->plain, 0, work->n_out);
}

/* The first rows again and again: random numbers take longer than the measurement. */
static void repeat(unsigned char *data, size_t first, size_t all)
{
    for (size_t done = first; done < all; done += first)
        memcpy(data + done, data, all - done < first ? all - done : first);
}

static void bench_rows(check *c, spry_dtype type, size_t n_rows, size_t n_out)
{
    enum { FIRST_ROWS = SPRY_PACK_MAX_ROWS };
    const spry_matmul_kernel *kernel = &c->ops->matmul[type];
    size_t group = kernel->group, row_bytes = check_bytes(type, N_IN), act_blocks = N_IN / SPRY_ACT_BLOCK;
    size_t group_bytes = spry_packed_row_bytes(type) * group * (N_IN / spry_dtype_block(type));
    guarded file = guarded_create(n_out * row_bytes);
    guarded packed = guarded_create(group ? n_out / group * group_bytes : 0);
    guarded floats = guarded_floats(n_rows * N_IN), out = guarded_floats(n_rows * n_out);
    guarded act = guarded_create(n_rows * act_blocks * sizeof(spry_act_block));
    check_fill_type(c, file.data, type, FIRST_ROWS * N_IN);
    repeat(file.data, FIRST_ROWS * row_bytes, file.size);
    if (group) {
        spry_pack_group(type, packed.data, file.data, row_bytes, N_IN, group, group);
        repeat(packed.data, group_bytes, packed.size);
    }
    check_fill(c, guarded_f(&floats), n_rows * N_IN, 1);
    spry_act_encode((spry_act_block *)(void *)act.data, guarded_f(&floats), n_rows * N_IN);

    matmul_work work = {.ops = c->ops, .type = type, .n_out = n_out};
    work.plain = (spry_matmul){.out = guarded_f(&out),
                               .out_stride = n_out,
                               .weight = file.data,
                               .weight_stride = row_bytes,
                               .act = floats.data,
                               .act_stride = N_IN * sizeof(float),
                               .n_rows = n_rows,
                               .n_in = N_IN};
    work.m = work.plain;
    if (group) {
        work.m.weight = packed.data;
        work.m.weight_stride = group_bytes;
    }
    if (kernel->integer) {
        work.m.act = act.data;
        work.m.act_stride = act_blocks * sizeof(spry_act_block);
    }
    double bytes = (double)(group ? packed.size : file.size);
    check_bench(c, &(bench_work){call_matmul, &work, bytes, (double)n_rows * (double)n_out * N_IN});
    guarded *const buffers[] = {&file, &packed, &floats, &out, &act};
    for (size_t i = 0; i < SPRY_COUNT(buffers); i++)
        guarded_destroy(c, buffers[i]);
}

void bench_matmul(check *c)
{
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++) {
        spry_dtype type = (spry_dtype)id;
        if (!spry_dtype_known(id) || (!check_is_ref(c) && c->ops->matmul[id].run == c->ref->matmul[id].run))
            continue;
        size_t large = LARGE_BYTES / check_bytes(type, N_IN) / SPRY_PACK_MAX_ROWS * SPRY_PACK_MAX_ROWS;
        if (check_begin(c, "matmul %s rows 1", spry_dtype_name(type)))
            bench_rows(c, type, 1, large);
        if (check_begin(c, "matmul %s rows %d", spry_dtype_name(type), (int)MANY_ROWS))
            bench_rows(c, type, MANY_ROWS, SMALL_OUTPUTS);
    }
}
