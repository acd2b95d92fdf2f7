/* spry_draw_order by words: its last member is a double, which not every device knows. */
const uint ORDER_BYTES = 6 * 4 + 3 * 8 + 4 * 4 + 4 * 4 + 8;

uint64_t order_at(uint draw)
{
    return args.a.orders + uint64_t(draw) * ORDER_BYTES;
}

uint order_row(uint draw)
{
    return Words(order_at(draw)).v[0];
}
