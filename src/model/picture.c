/* Pictures in memory, shared by everything that refers to them. */
#include "model/picture.h"

#include <stdlib.h>
#include <xxhash.h>

#include "base/number.h"

spry_status spry_picture_create(spry_picture **out, spry_kv_key hash, uint32_t n_rows, uint32_t n_embd, uint32_t n_deep,
                                spry_error *error)
{
    size_t bytes;
    *out = NULL;
    if (!spry_checked_mul(&bytes, (size_t)n_rows * n_embd, (n_deep + (size_t)1) * sizeof(float)) ||
        !spry_checked_add(&bytes, bytes, sizeof **out))
        return spry_fail(error, SPRY_ERR_MEMORY, "a picture of %u rows is larger than any memory", n_rows);
    spry_picture *p = malloc(bytes);
    if (!p)
        return spry_fail_memory(error, "a picture", bytes);
    p->hash = hash;
    p->n_rows = n_rows;
    p->n_embd = n_embd;
    p->n_deep = n_deep;
    p->columns = p->top = p->left = p->line = 0;
    p->two_way = false;
    atomic_init(&p->references, 1);
    *out = p;
    return SPRY_OK;
}

/* Only the number of references changes once a picture is shared. */
static spry_picture *writable(const spry_picture *picture)
{
    return (spry_picture *)(uintptr_t)picture;
}

spry_picture *spry_picture_ref(const spry_picture *picture)
{
    atomic_fetch_add(&writable(picture)->references, 1);
    return writable(picture);
}

void spry_picture_unref(const spry_picture *picture)
{
    if (picture && atomic_fetch_sub(&writable(picture)->references, 1) == 1)
        free(writable(picture));
}

int32_t spry_picture_content(const spry_picture *picture, uint32_t row)
{
    return (int32_t)(XXH3_64bits_withSeed(&picture->hash, sizeof picture->hash, row) | UINT32_C(0x80000000));
}
