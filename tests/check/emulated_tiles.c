/* The AMX kernels over tile registers in plain C, as the manual describes them, so that they are checked on machines
 * without AMX. One thread. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define TILES_EMULATED
#include "kernels/half.h"
#include "kernels/x86/tiles.h"

enum { N_TILES = 8, TILE_ROW = 64 };

static tile_shapes shape;
static unsigned char tiles[N_TILES][16][TILE_ROW];

static void tile_configure(const tile_shapes *shapes)
{
    assert(shapes->palette == 1 && shapes->start_row == 0);
    for (int t = 0; t < N_TILES; t++)
        assert(shapes->rows[t] <= 16 && shapes->row_bytes[t] <= TILE_ROW);
    shape = *shapes;
    memset(tiles, 0, sizeof tiles);
}

/* Any use without a configuration is a mistake, which poison makes visible. */
static void tile_release(void)
{
    memset(&shape, 0, sizeof shape);
    memset(tiles, 0x5a, sizeof tiles);
}

static void tile_zero(int t)
{
    memset(tiles[t], 0, sizeof tiles[t]);
}

static void tile_load(int t, const void *from, size_t stride)
{
    tile_zero(t);
    for (size_t row = 0; row < shape.rows[t]; row++)
        memcpy(tiles[t][row], (const unsigned char *)from + row * stride, shape.row_bytes[t]);
}

static void tile_store(int t, void *to, size_t stride)
{
    for (size_t row = 0; row < shape.rows[t]; row++)
        memcpy((unsigned char *)to + row * stride, tiles[t][row], shape.row_bytes[t]);
}

static void tile_multiply(int sum, int a, int b)
{
    assert(shape.rows[sum] == shape.rows[a] && shape.row_bytes[a] == 4 * shape.rows[b] &&
           shape.row_bytes[sum] == shape.row_bytes[b]);
    for (size_t row = 0; row < shape.rows[a]; row++)
        for (size_t column = 0; column < shape.row_bytes[sum] / 4u; column++) {
            int32_t total;
            memcpy(&total, tiles[sum][row] + 4 * column, sizeof total);
            for (size_t k = 0; k < shape.row_bytes[a]; k++)
                total += (int8_t)tiles[a][row][k] * (int8_t)tiles[b][k / 4][4 * column + k % 4];
            memcpy(tiles[sum][row] + 4 * column, &total, sizeof total);
        }
}

/* Subnormal numbers are zeros, before and after an operation. */
static float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static float bf16_at(const unsigned char *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return flushed(spry_bf16_decode(bits));
}

static void tile_multiply_bf16(int sum, int a, int b)
{
    assert(shape.rows[sum] == shape.rows[a] && shape.row_bytes[a] == 4 * shape.rows[b] &&
           shape.row_bytes[sum] == shape.row_bytes[b]);
    for (size_t row = 0; row < shape.rows[a]; row++)
        for (size_t column = 0; column < shape.row_bytes[sum] / 4u; column++) {
            float even = 0, odd = 0, total;
            for (size_t k = 0; k < shape.rows[b]; k++) {
                const unsigned char *left = tiles[a][row] + 4 * k, *right = tiles[b][k] + 4 * column;
                even = flushed(fmaf(bf16_at(left), bf16_at(right), even));
                odd = flushed(fmaf(bf16_at(left + 2), bf16_at(right + 2), odd));
            }
            memcpy(&total, tiles[sum][row] + 4 * column, sizeof total);
            total = flushed(flushed(total) + flushed(even + odd));
            memcpy(tiles[sum][row] + 4 * column, &total, sizeof total);
        }
}

/* Beside the real tables. */
#define spry_ops_avx512     check_avx512_again
#define spry_ops_avx512bf16 check_avx512bf16_again
#define spry_ops_amx        check_amx_emulated
#define AMX_NAME            "amx-emulated"
#include "kernels/x86/ops_avx512.c"
