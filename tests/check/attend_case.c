/* Building a case. */
#include "check/attend_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kv_layout.h"

static void choose_shape(check *c, attend_case *k)
{
    static const float caps[] = {0, 0, 5, 50};
    spry_attend *a = &k->a;
    a->n_entries = check_between(c, 1, ATTEND_MAX_ENTRIES);
    a->window = check_between(c, 0, 1) ? (uint32_t)check_between(c, 1, 70) : 0;
    const uint32_t aheads[] = {0, 0, 0, (uint32_t)check_between(c, 1, 40), UINT32_MAX};
    a->ahead = aheads[check_between(c, 0, SPRY_COUNT(aheads) - 1)];
    a->softcap = caps[check_between(c, 0, SPRY_COUNT(caps) - 1)];
    static float sinks[ATTEND_MAX_HEADS];
    for (size_t i = 0; i < ATTEND_MAX_HEADS; i++)
        sinks[i] = 3 * check_uniform(c);
    a->sinks = check_between(c, 0, 2) ? NULL : sinks;
    a->latent = check_between(c, 0, 3) || a->type == SPRY_Q4_0 ? 0 : a->head_dim / 2 + 3;
    a->scale = 1 / sqrtf((float)a->head_dim);
    k->n_kv_heads = check_between(c, 1, 3);
    k->n_pages = check_between(c, 0, 1) ? 7 : 9;
}

/* Pages in any order, each used once; most are full. The sequence may have lost its first tokens, and often two chunks
 * meet in the middle. */
static void choose_table(check *c, attend_case *k)
{
    const size_t starts[] = {0, check_between(c, 1, 1000), SPRY_ATTEND_CHUNK_TOKENS - check_between(c, 1, 100)};
    size_t first = check_between(c, 0, k->n_pages - 1), start = starts[check_between(c, 0, SPRY_COUNT(starts) - 1)];
    k->n_keys = 0;
    for (size_t e = 0; e < k->a.n_entries; e++) {
        size_t count = check_between(c, 0, 2) ? SPRY_PAGE_TOKENS : check_between(c, 1, SPRY_PAGE_TOKENS);
        /* 5 and a number of pages that is no multiple of it share no factor. */
        size_t page = (first + 5 * e) % k->n_pages;
        k->entries[e] = (spry_kv_entry){(uint32_t)page, (uint32_t)(start + k->n_keys), (uint32_t)count, 0};
        k->n_keys += count;
    }
    k->a.entries = k->entries;
    k->a.n_rows = check_between(c, 1, k->n_keys < 19 ? k->n_keys : 19);
    size_t later = check_between(c, 0, 1) ? 0 : check_between(c, 0, k->n_keys - k->a.n_rows);
    k->a.first_position = (uint32_t)(start + k->n_keys - k->a.n_rows - later);
}

/* Some pages are used where they stand, others not; several may share a turn. */
static void choose_turns(check *c, attend_case *k)
{
    spry_attend *a = &k->a;
    a->n_pairs = check_between(c, 0, 1) ? a->head_dim / 2 : check_between(c, 1, a->head_dim / 2);
    a->interleaved = check_between(c, 0, 1);
    for (size_t t = 0; t < ATTEND_TURNS; t++)
        for (size_t i = 0; i < a->n_pairs; i++) {
            float angle = check_uniform(c) * 4;
            k->cosine[t][i] = cosf(angle);
            k->sine[t][i] = sinf(angle);
        }
    for (size_t e = 0; e < a->n_entries; e++) {
        size_t turn = check_between(c, 0, ATTEND_TURNS);
        k->entries[e].turn = (uint32_t)e;
        k->turns[e] = (spry_turn){NULL, NULL};
        if (turn < ATTEND_TURNS)
            k->turns[e] = (spry_turn){k->cosine[turn], k->sine[turn]};
    }
    a->turns = check_between(c, 0, 1) ? k->turns : NULL;
}

double attend_case_turned(double *size, const attend_case *k, size_t e, const float *query, size_t d)
{
    const spry_attend *a = &k->a;
    *size = fabs((double)query[d]);
    if (!a->turns || !a->turns[e].cosine || d >= 2 * a->n_pairs)
        return (double)query[d];
    size_t pair = a->interleaved ? d / 2 : d % a->n_pairs;
    size_t partner = a->interleaved ? d ^ 1 : (d + a->n_pairs) % (2 * a->n_pairs);
    double own = (double)query[d] * (double)a->turns[e].cosine[pair];
    double other = (double)query[partner] * (double)a->turns[e].sine[pair];
    *size = fabs(own) + fabs(other);
    return d > partner ? own + other : own - other;
}

/* A random vector goes through the type; what comes out of it is noted. */
static void encode(check *c, const attend_case *k, void *out, float *floats, double *worth, float size)
{
    double magnitude;
    float rotated[SPRY_ATTEND_HEAD_DIM_MAX];
    check_fill(c, floats, k->a.head_dim, size);
    if (k->a.type == SPRY_Q4_0) { /* what is noted are the rotated coordinates */
        memcpy(rotated, floats, k->a.head_dim * sizeof *floats);
        spry_kv_encode_rotated(c->ref, out, rotated, k->a.head_dim);
    } else
        c->ref->encode[k->a.type](out, floats, k->a.head_dim);
    for (size_t d = 0; d < k->a.head_dim; d++)
        worth[d] = naive_value(&magnitude, k->a.type, out, d);
}

static void store_token(check *c, attend_case *k, unsigned char *page, size_t head, size_t slot, size_t key)
{
    const spry_attend *a = &k->a;
    float floats[SPRY_ATTEND_HEAD_DIM_MAX];
    unsigned char bytes[SPRY_ATTEND_HEAD_DIM_MAX * sizeof(float)];
    size_t at = attend_case_index(k, head, key, 0);
    encode(c, k, bytes, floats, k->keys + at, 3);
    spry_kv_store_key(c->ref, a->type, page + a->key_offset + head * a->head_bytes, slot, floats, a->head_dim);
    encode(c, k, bytes, floats, k->values + at, 1);
    memcpy(page + a->value_offset + head * a->head_bytes + slot * a->token_bytes, bytes, a->token_bytes);
}

static double *allocate(size_t n)
{
    double *numbers = malloc(n * sizeof *numbers);
    if (!numbers) {
        perror("spry-check");
        exit(2);
    }
    return numbers;
}

/* Keys and values of a second layer would stand before ours. */
static void build_pages(check *c, attend_case *k)
{
    spry_attend *a = &k->a;
    a->token_bytes = check_bytes(a->type, a->head_dim);
    a->head_bytes = a->token_bytes * SPRY_PAGE_TOKENS;
    size_t layer_bytes = k->n_kv_heads * a->head_bytes, n = k->n_kv_heads * k->n_keys * a->head_dim, key = 0;
    a->key_offset = 2 * layer_bytes;
    a->value_offset = 3 * layer_bytes;
    a->page_bytes = 4 * layer_bytes;
    k->pages = guarded_create(k->n_pages * a->page_bytes);
    k->keys = allocate(n);
    k->values = allocate(n);
    a->pages = k->pages.data;
    for (size_t e = 0; e < a->n_entries; e++)
        for (size_t slot = 0; slot < k->entries[e].count; slot++, key++)
            for (size_t head = 0; head < k->n_kv_heads; head++)
                store_token(c, k, k->pages.data + k->entries[e].page * a->page_bytes, head, slot, key);
    guarded_freeze(&k->pages);
}

static void build_rows(check *c, attend_case *k)
{
    spry_attend *a = &k->a;
    size_t width = k->n_kv_heads * a->group * a->head_dim;
    /* With large queries some weights are too small for a float. */
    float size = check_between(c, 0, 3) ? 3 : 60;
    a->row_stride = width + check_between(c, 0, 7);
    size_t n = (a->n_rows - 1) * a->row_stride + width;
    k->query = guarded_floats(n);
    for (size_t row = 0; row < a->n_rows; row++)
        check_fill(c, guarded_f(&k->query) + row * a->row_stride, width, size);
    guarded_freeze(&k->query);
    k->out = guarded_floats(n);
    a->query = guarded_f(&k->query);
    a->out = guarded_f(&k->out);
}

void attend_case_build(check *c, attend_case *k, spry_dtype type, size_t head_dim, size_t group)
{
    *k = (attend_case){.a = {.type = type, .head_dim = head_dim, .group = group}};
    choose_shape(c, k);
    choose_table(c, k);
    choose_turns(c, k);
    check_detail(c,
                 "n_rows=%zu head_dim=%zu group=%zu keys=%zu entries=%zu position=%u window=%u ahead=%u softcap=%g "
                 "turns=%d",
                 k->a.n_rows, head_dim, group, k->n_keys, k->a.n_entries, k->a.first_position, k->a.window, k->a.ahead,
                 (double)k->a.softcap, k->a.turns != NULL);
    build_pages(c, k);
    build_rows(c, k);
}

void attend_case_destroy(check *c, attend_case *k)
{
    guarded_destroy(c, &k->pages);
    guarded_destroy(c, &k->query);
    guarded_destroy(c, &k->out);
    free(k->keys);
    free(k->values);
}

/* The layout of kv_layout.h once more. */
static void spoil_slot(const spry_attend *a, unsigned char *keys, unsigned char *values, size_t slot)
{
    bool nibbles = a->type == SPRY_Q4_0, blocks = nibbles || a->type == SPRY_Q8_0;
    size_t size = blocks ? sizeof(int8_t) : spry_dtype_bytes(a->type), rows = nibbles ? a->head_dim / 2 : a->head_dim;
    for (size_t d = 0; d < rows; d++)
        memset(keys + (d * SPRY_PAGE_TOKENS + slot) * size, 0xff, size);
    unsigned char *scales = keys + rows * SPRY_PAGE_TOKENS;
    for (size_t b = 0; blocks && b < a->head_dim / 32; b++)
        memset(scales + (b * SPRY_PAGE_TOKENS + slot) * sizeof(uint16_t), 0xff, sizeof(uint16_t));
    memset(values + slot * a->token_bytes, 0xff, a->token_bytes);
}

void attend_case_spoil(unsigned char *pages, const attend_case *k, size_t position)
{
    const spry_attend *a = &k->a;
    for (size_t e = 0; e < a->n_entries; e++)
        for (size_t slot = 0; slot < k->entries[e].count; slot++)
            for (size_t head = 0; k->entries[e].start + slot >= position && head < k->n_kv_heads; head++) {
                unsigned char *page = pages + k->entries[e].page * a->page_bytes + head * a->head_bytes;
                spoil_slot(a, page + a->key_offset, page + a->value_offset, slot);
            }
}
