/* The work of each op, for the op watch. */
#include "device/cpu/pass_state.h"
#include "device/device_impl.h"

void spry_pass_charge(spry_pass *p, spry_op op)
{
    if (p->watch)
        spry_op_watch_add(p->watch, op, SPRY_F32, p->ops->name, 0, 0);
}

void spry_pass_took_products(spry_pass *p, spry_op op, const spry_product *products, size_t n_products, size_t n_rows)
{
    double bytes = 0, multiplied = 0;
    if (!p->watch)
        return;
    for (size_t i = 0; i < n_products; i++) {
        const spry_weight *w = products[i].w;
        bytes += spry_weight_read_bytes(w, p->ops->matmul[spry_weight_kernel_type(w)].group);
        multiplied += (double)w->n_out * (double)w->n_in * (double)n_rows;
    }
    spry_op_watch_add(p->watch, op, spry_weight_kernel_type(products[0].w), p->ops->name, bytes, multiplied);
}

void spry_pass_took_attention(spry_pass *p, uint32_t layer)
{
    double bytes, products;
    if (!p->watch)
        return;
    spry_device_attention_work(&bytes, &products, p->segments, p->n_segments, p->config, p->pool, layer);
    spry_op_watch_add(p->watch, SPRY_OP_ATTEND, p->pool->shape.type, p->ops->name, bytes, products);
}
