/* Groups are packed a few at a time, as many as stay in the cache until they are multiplied. */
#include "device/cpu/late_packing.h"

#include <stdlib.h>

#include "kernels/narrow.h"
#include "kernels/packed.h"
#include "platform/memory.h"

enum {
    CHUNK_BYTES = 256 << 10, /* of groups at a time */
    DROP_BYTES = 1 << 20,    /* of rows in the file beside their packed form, for each worker */
};

spry_status spry_late_store_init(spry_late_store *s, size_t n_rooms, size_t group_bytes, spry_error *error)
{
    s->room_bytes = group_bytes > CHUNK_BYTES ? group_bytes : CHUNK_BYTES;
    s->n_rooms = n_rooms;
    s->rooms = spry_memory_map(n_rooms * s->room_bytes);
    s->taken = calloc(n_rooms, sizeof *s->taken);
    if (s->rooms && s->taken)
        return SPRY_OK;
    spry_late_store_deinit(s);
    return spry_fail_memory(error, "rooms for packing", n_rooms * group_bytes);
}

void spry_late_store_deinit(spry_late_store *s)
{
    spry_memory_unmap(s->rooms, s->n_rooms * s->room_bytes);
    free(s->taken);
    *s = (spry_late_store){0};
}

/* The number of a room; n_rooms: all are taken. */
static size_t take_room(spry_late_store *s)
{
    size_t i = 0;
    while (i < s->n_rooms && atomic_exchange(&s->taken[i], true))
        i++;
    return i;
}

void spry_weight_pack_group(void *out, const spry_weight *w, size_t first, size_t group)
{
    size_t left = w->n_out - first;
    spry_pack_group(w->group_type, out, w->data + first * w->row_bytes, w->row_bytes, w->n_in,
                    left < group ? left : group, group);
    if (w->group_type != w->type)
        spry_narrow(out, group * w->n_in);
}

/* Packs groups [first, end). Packing requests the group after the one at hand, which has no effect on pages that are
 * not mapped yet: those of groups before `touch` are mapped by reading a byte. */
static void pack_groups(unsigned char *out, const spry_weight *w, size_t group, size_t first, size_t end, size_t touch)
{
    for (size_t g = first; g < end; g++, out += w->group_bytes) {
        const unsigned char *rows = w->data + g * group * w->row_bytes;
        size_t left = w->n_out - g * group;
        if (g + 1 < touch)
            (void)*(const volatile unsigned char *)(rows + (left < 2 * group ? left : 2 * group) * w->row_bytes - 1);
        spry_weight_pack_group(out, w, g * group, group);
    }
}

void spry_late_multiply(const spry_weight *w, const spry_matmul_kernel *kernel, const spry_matmul *m, size_t begin,
                        size_t end)
{
    const spry_late_pack *late = w->late;
    spry_late_store *store = late->store;
    size_t group = kernel->group, last = (end + group - 1) / group, most = CHUNK_BYTES / w->group_bytes;
    size_t room = late->keep ? store->n_rooms : take_room(store), kept = begin;
    most = most ? most : 1;
    for (size_t g = begin / group, n; g < last; g += n) {
        n = last - g < most ? last - g : most;
        unsigned char *groups =
            room < store->n_rooms ? store->rooms + room * store->room_bytes : late->memory + g * w->group_bytes;
        spry_matmul part = *m;
        size_t first = g * group, stop = (g + n) * group < end ? (g + n) * group : end;
        pack_groups(groups, w, group, g, g + n, late->keep ? 0 : last);
        part.weight = groups;
        part.weight_stride = w->group_bytes;
        part.out += first;
        kernel->run(&part, 0, stop - first);
        if (late->keep && late->drop && ((stop - kept) * w->row_bytes >= DROP_BYTES || stop == end)) {
            spry_memory_drop(w->data + kept * w->row_bytes, (stop - kept) * w->row_bytes);
            kept = stop;
        }
    }
    if (room < store->n_rooms)
        atomic_store(&store->taken[room], false);
}

bool spry_late_multiplied(const spry_weight *w)
{
    spry_late_pack *late = w->late;
    if (!late || late->packed)
        return false;
    if (!late->keep) {
        late->keep = true;
        return true;
    }
    late->packed = late->memory;
    if (late->drop) /* pages that two workers shared */
        spry_memory_drop(w->data, w->n_out * w->row_bytes);
    spry_late_store *store = late->store;
    if (--store->n_left)
        return true;
    if (store->first) /* pages where matrices meet, or that the system read ahead */
        spry_memory_drop(store->first, (size_t)(store->last - store->first));
    spry_memory_drop(store->rooms, store->n_rooms * store->room_bytes);
    return true;
}
