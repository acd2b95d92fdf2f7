/* The pool of KV pages: numbers, layout and reference counts. A page holds the keys and values of SPRY_PAGE_TOKENS
 * tokens for every layer. The bytes are on a device, which reserves room for all of them when it is opened; this folder
 * refers to pages by number and moves bytes only through the pool's mover. Each table entry holds one reference to its
 * page. A page takes memory of the host from its first use until the pool is told to return free pages to the system.
 * One thread owns a pool. */
#ifndef SPRY_KV_KV_POOL_H
#define SPRY_KV_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "kernels/ops.h"

/* The position offsets of pages that are used at other positions than computed. Few differ at a time: a table entry
 * refers to one by number, and the device holds cos and sin of each. Number 0 is always offset 0 and is not counted. */

enum { SPRY_KV_TURNS_MAX = 1024 };

typedef struct spry_kv_turns {
    int32_t deltas[SPRY_KV_TURNS_MAX];
    uint32_t references[SPRY_KV_TURNS_MAX];
    uint32_t end; /* numbers from here on were never used */
} spry_kv_turns;

void spry_kv_turns_init(spry_kv_turns *turns);

/* The number of an offset, with one more reference; false when there are too many. */
bool spry_kv_turn_take(spry_kv_turns *turns, uint32_t *number, int32_t delta);
void spry_kv_turn_release(spry_kv_turns *turns, uint32_t number);

/* Layers whose keys and values have other sizes than those of the first kind, after them in a page. */
typedef struct spry_kv_kind {
    size_t n_layers, n_kv_heads, head_dim;
} spry_kv_kind;

typedef struct spry_kv_shape {
    size_t n_layers, n_kv_heads, head_dim;
    spry_dtype type;    /* F32, F16 or Q8_0 */
    bool keys_only;     /* values are a part of the keys, and have no place of their own */
    size_t state;       /* bytes of a recurrent state (kv_states.h); 0: the model has none */
    size_t n_states;    /* number of states in the pool, at least 1 if there are recurrent layers */
    spry_kv_kind other; /* no layers: all are of the first kind */
} spry_kv_shape;

/* Keys and values, or keys. */
static inline size_t spry_kv_sides(const spry_kv_shape *shape)
{
    return shape->keys_only ? 1 : 2;
}

/* Moves the bytes of pages; a device implements it (device/device.h). All but `read` is for the owner of the pool. */
typedef struct spry_kv_mover {
    void *self;
    /* Copies a page. Steps submitted later see the copy. */
    void (*copy)(void *self, uint32_t to, uint32_t from);
    /* The bytes of a page that is referenced and no longer written by any step; from any thread. They are in `room`
     * (page_bytes) or in memory that is valid while the reference is held. NULL: the hardware failed. */
    const void *(*read)(void *self, uint32_t page, void *room);
    /* Pages that can be written at once: begun before the first write_finish. */
    size_t max_writes;
    /* Host memory of page_bytes for the new bytes of a page; any thread may fill it. NULL: none available. */
    void *(*write_begin)(void *self, uint32_t page);
    /* Sends the bytes on their way to the page, or with `whole` false abandons the page. False: the hardware failed. */
    bool (*write_end)(void *self, uint32_t page, bool whole);
    /* Returns when everything that was sent has arrived: one wait for many pages. Steps submitted later see them.
     * False: the hardware failed. */
    bool (*write_finish)(void *self);
    /* Returns the memory of free pages to the system; they need it again when they are next written. NULL: the device
     * keeps the memory of all pages while it is open. */
    void (*release)(void *self, uint32_t first, size_t count);

    /* The tier of host memory below the pages. All NULL: the pages are in host memory themselves, or the device cannot.
     * Copies are made one after the other, and the caller waits for none of them. */
    void *(*host_allocate)(void *self, size_t bytes); /* NULL: there is no more */
    void (*host_free)(void *self, void *memory);      /* after copies that use it */
    /* Starts to copy a page to such memory, after all steps submitted so far. The page may be written at once: what is
     * done to it later comes after the copy. Returns the number of the copy, greater than 0; 0: the hardware failed. */
    uint64_t (*save)(void *self, void *to, uint32_t page);
    /* Starts to copy it into a page. Steps submitted later see it, and the memory may be saved to at once. False: the
     * hardware failed. */
    bool (*load)(void *self, uint32_t page, const void *from);
    /* Whether a copy is done, so that the host can read what was saved. */
    bool (*saved)(void *self, uint64_t copy);
} spry_kv_mover;

struct spry_kv_states;

/* Inside a page: layer after layer, each keys then values, each n_kv_heads heads as in kernels/kv_layout.h. */
typedef struct spry_kv_pool {
    spry_kv_shape shape;
    size_t token_bytes; /* [head_dim] */
    size_t head_bytes;  /* [SPRY_PAGE_TOKENS, head_dim] */
    size_t side_bytes;  /* keys, or values, of one layer */
    size_t other_bytes; /* keys and values of all layers of the other kind */
    size_t page_bytes;
    size_t n_pages, n_free;
    uint32_t *references; /* [n_pages]; 0: free */
    uint32_t *free;       /* the last n_free are free pages, those that were in use last at the end */
    bool *held;           /* [n_pages]: in use since its memory was last returned */
    size_t n_held;
    spry_kv_turns turns;           /* rotations of the tables' entries */
    struct spry_kv_states *states; /* NULL: the model has none */
    spry_kv_mover mover;           /* set when the device is open; before that no bytes move */
} spry_kv_pool;

/* Bytes of all recurrent states; SIZE_MAX: more than that. */
static inline size_t spry_kv_states_bytes(const spry_kv_shape *shape)
{
    return shape->state && shape->n_states > SIZE_MAX / shape->state ? SIZE_MAX : shape->state * shape->n_states;
}

/* Bytes per token in all layers; false when the shape does not fit the type's blocks or overflows. */
bool spry_kv_token_bytes(size_t *bytes, const spry_kv_shape *shape);

spry_status spry_kv_pool_init(spry_kv_pool *pool, const spry_kv_shape *shape, size_t n_pages, spry_error *error);
/* A pool of pages that have a size, and no layout that this folder knows. */
spry_status spry_kv_pool_init_plain(spry_kv_pool *pool, size_t page_bytes, size_t n_pages, spry_error *error);
void spry_kv_pool_deinit(spry_kv_pool *pool);

/* Allocates a page with one reference; false when none is free. */
bool spry_kv_page_take(spry_kv_pool *pool, uint32_t *page);
void spry_kv_page_ref(spry_kv_pool *pool, uint32_t page);
void spry_kv_page_unref(spry_kv_pool *pool, uint32_t page);

/* The same, for a page that is free then and still being copied: other free pages are taken before it. */
void spry_kv_page_unref_copied(spry_kv_pool *pool, uint32_t page);

/* Returns the memory of all free pages to the system, where the device can. Pages are taken in order afterwards. */
void spry_kv_pool_release(spry_kv_pool *pool);

/* The offset of keys (side 0) or values (side 1) of a layer in a page. */
static inline size_t spry_kv_offset(const spry_kv_pool *pool, size_t layer, size_t side)
{
    return (layer * spry_kv_sides(&pool->shape) + side) * pool->side_bytes;
}

/* Where a layer's keys and values are in a page. */
typedef struct spry_kv_place {
    size_t keys, values; /* offsets */
    size_t n_heads, head_dim;
    size_t head_bytes, token_bytes; /* [SPRY_PAGE_TOKENS, head_dim], [head_dim] */
} spry_kv_place;

/* The place of layer number `layer` of its kind. */
spry_kv_place spry_kv_place_of(const spry_kv_pool *pool, bool other, size_t layer);

#endif
