/* Weights that a GPU uses where the host has them. A first pass over the model lists them (cuda_model.c); those that
 * follow each other in memory become ranges of whole pages, which the driver makes known to the GPU. If it refuses one
 * of them, all are copied. */
#include <stdlib.h>

#include "device/cuda/cuda_model.h"

enum { PAGE = 4096, RANGES_MAX = 2048 };

static uintptr_t page_of(uintptr_t address)
{
    return address / PAGE * PAGE;
}

void spry_cuda_share_list(spry_cuda_shared *s, const void *bytes, size_t n, bool matrix)
{
    if (s->n == s->capacity) {
        size_t more = s->capacity ? 2 * s->capacity : 256;
        spry_cuda_range *list = realloc(s->ranges, more * sizeof *list);
        s->lacks = s->lacks || !list;
        if (!list)
            return;
        s->ranges = list;
        s->capacity = more;
    }
    s->ranges[s->n++] = (spry_cuda_range){.begin = (uintptr_t)bytes, .end = (uintptr_t)bytes + n, .used = matrix};
}

static int by_begin(const void *a, const void *b)
{
    const spry_cuda_range *first = a, *second = b;
    return (first->begin > second->begin) - (first->begin < second->begin);
}

/* Joins what shares or continues pages: then every page of a range is one with weights, which exists. A range is as
 * large as a buffer may be. */
static void join(spry_cuda_shared *s, size_t most)
{
    size_t n = 0;
    qsort(s->ranges, s->n, sizeof *s->ranges, by_begin);
    for (size_t i = 0; i < s->n; i++) {
        spry_cuda_range next = s->ranges[i], *last = n ? &s->ranges[n - 1] : NULL;
        next.begin = page_of(next.begin);
        next.end = page_of(next.end + PAGE - 1);
        uintptr_t end = last && last->end > next.end ? last->end : next.end;
        if (last && next.begin <= last->end && end - last->begin <= most) {
            last->end = end;
            last->used = last->used || next.used;
        } else {
            s->ranges[n++] = next;
        }
    }
    s->n = 0;
    for (size_t i = 0; i < n; i++)
        if (s->ranges[i].used && s->ranges[i].end - s->ranges[i].begin <= most)
            s->ranges[s->n++] = s->ranges[i];
}

void spry_cuda_share(spry_cuda_shared *s, spry_cuda_context *c)
{
    bool refused = s->lacks;
    join(s, c->max_allocation ? c->max_allocation : SIZE_MAX);
    refused = refused || s->n > RANGES_MAX;
    for (size_t i = 0; i < s->n && !refused; i++) {
        spry_cuda_range *r = &s->ranges[i];
        refused = c->cuda->memory_share(&r->address, (void *)r->begin, r->end - r->begin);
        s->bytes += r->end - r->begin;
    }
    if (refused)
        spry_cuda_unshare(s, c);
}

spry_cuda_memory spry_cuda_shared_at(const spry_cuda_shared *s, const void *bytes, size_t n)
{
    uintptr_t begin = (uintptr_t)bytes;
    for (size_t low = 0, high = s->n; low < high;) {
        size_t middle = (low + high) / 2;
        const spry_cuda_range *r = &s->ranges[middle];
        if (begin >= r->begin && begin + n <= r->end)
            return r->address + (begin - r->begin);
        if (begin < r->begin)
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
}

void spry_cuda_unshare(spry_cuda_shared *s, spry_cuda_context *c)
{
    for (size_t i = 0; i < s->n; i++)
        spry_cuda_free(c, &s->ranges[i].address);
    free(s->ranges);
    *s = (spry_cuda_shared){0};
}
