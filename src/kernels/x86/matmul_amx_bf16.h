/* Products with BF16 weights by AMX tiles, for any number of rows: 16 rows times 16 outputs times 32 values is one
 * instruction, whose order of additions the manual fixes and which other instructions do not have. So it is used for
 * any number of rows, even one: results have the same bits for any number of rows, but not the bits of matmul_bf16.h.
 * Include after it and matmul_amx.h.
 *
 * Activations are encoded by each call, a block of rows and values at a time; rows and values that a tile lacks are
 * zeros. Between blocks the sums wait in the output. */

enum { TILE_VALUES = 32, TILE_PAIRS = TILE_VALUES / 2, MATRIX_ROWS = 128, MATRIX_BLOCK = 512 };
/* Floats from one row of pairs to the next; 64 bytes more than a power of two, so that rows do not compete for the same
 * cache sets. */
enum { MATRIX_STRIDE = MATRIX_BLOCK / 2 + 16 };

/* Numbers of the tile registers: sums of two tiles of rows and two groups, the activations of these rows, and the
 * weights. */
#define SUMS_00     0
#define SUMS_01     1
#define SUMS_10     2
#define SUMS_11     3
#define UPPER_PAIRS 4
#define LOWER_PAIRS 5
#define LEFT_GROUP  6
#define RIGHT_GROUP 7

typedef struct matrix_rows {
    uint32_t pair[MATRIX_ROWS][MATRIX_STRIDE];
} matrix_rows;

/* The outputs whose sums one register has; `whole`: all of them exist. */
typedef struct sums_place {
    float *out;
    size_t stride, n_rows, n_out;
    bool first, whole;
} sums_place;

typedef struct sums_copy {
    float value[TILE][TILE];
} sums_copy;

static inline sums_place place_of(const spry_matmul *m, size_t row, size_t end, size_t group, size_t out_end,
                                  bool first)
{
    size_t rows = end - row < TILE ? end - row : TILE, left = out_end - group * GROUP;
    size_t n_out = left < GROUP ? left : GROUP;
    return (sums_place){.out = m->out + row * m->out_stride + group * GROUP,
                        .stride = m->out_stride,
                        .n_rows = rows,
                        .n_out = n_out,
                        .first = first,
                        .whole = rows == TILE && n_out == GROUP};
}

static void copy_sums_in(sums_copy *copy, const sums_place *p)
{
    memset(copy, 0, sizeof *copy);
    for (size_t r = 0; r < p->n_rows; r++)
        memcpy(copy->value[r], p->out + r * p->stride, p->n_out * sizeof(float));
}

static void copy_sums_out(const sums_place *p, const sums_copy *copy)
{
    for (size_t r = 0; r < p->n_rows; r++)
        memcpy(p->out + r * p->stride, copy->value[r], p->n_out * sizeof(float));
}

/* Tile registers are part of the instructions, so these are macros. */
#define BEGIN_SUMS(tile, place)                                                                                        \
    do {                                                                                                               \
        sums_copy copy;                                                                                                \
        if ((place)->first) {                                                                                          \
            tile_zero(tile);                                                                                           \
        } else if ((place)->whole) {                                                                                   \
            tile_load(tile, (place)->out, (place)->stride * sizeof(float));                                            \
        } else {                                                                                                       \
            copy_sums_in(&copy, place);                                                                                \
            SPRY_BARRIER();                                                                                            \
            tile_load(tile, copy.value, sizeof copy.value[0]);                                                         \
        }                                                                                                              \
    } while (0)
#define END_SUMS(tile, place)                                                                                          \
    do {                                                                                                               \
        sums_copy copy;                                                                                                \
        if ((place)->whole) {                                                                                          \
            tile_store(tile, (place)->out, (place)->stride * sizeof(float));                                           \
        } else {                                                                                                       \
            tile_store(tile, copy.value, sizeof copy.value[0]);                                                        \
            SPRY_BARRIER();                                                                                            \
            copy_sums_out(place, &copy);                                                                               \
        }                                                                                                              \
    } while (0)

/* 32 values of a group: in place, or a copy of the last values with zeros after them. */
static const unsigned char *whole_weights(__m512i copy[TILE_PAIRS], const unsigned char *p, size_t n)
{
    if (n >= TILE_VALUES)
        return p;
    for (size_t pair = 0; pair < TILE_PAIRS; pair++)
        copy[pair] = pair < n / 2             ? _mm512_loadu_si512(p + 64 * pair)
                     : pair == n / 2 && n % 2 ? load_single(p + 64 * pair)
                                              : _mm512_setzero_si512();
    SPRY_BARRIER();
    return (const unsigned char *)copy;
}

/* Multiplies n values from `first` on for two tiles of rows and two groups. If there is no second tile or group, the
 * first is used again, and its sums are not stored. */
static void multiply_four(const spry_matmul *m, const uint32_t *act, const sums_place place[2][2], size_t group,
                          size_t first, size_t n, bool two_rows, bool two_groups)
{
    const uint32_t *below = two_rows ? act + (size_t)TILE * MATRIX_STRIDE : act;
    const unsigned char *left = group_at(m, group) + first * value_bytes(KIND_BF16);
    const unsigned char *right = two_groups ? left + m->weight_stride : left;
    const size_t stride = MATRIX_STRIDE * sizeof *act;
    __m512i copies[2][TILE_PAIRS];
    SPRY_BARRIER(); /* compilers do not know which memory a tile load reads */
    BEGIN_SUMS(SUMS_00, &place[0][0]);
    BEGIN_SUMS(SUMS_01, &place[0][two_groups]);
    BEGIN_SUMS(SUMS_10, &place[two_rows][0]);
    BEGIN_SUMS(SUMS_11, &place[two_rows][two_groups]);
    for (size_t i = 0; i < n; i += TILE_VALUES) {
        size_t at = i * value_bytes(KIND_BF16);
        tile_load(LEFT_GROUP, whole_weights(copies[0], left + at, n - i), 64);
        tile_load(UPPER_PAIRS, act + i / 2, stride);
        tile_multiply_bf16(SUMS_00, UPPER_PAIRS, LEFT_GROUP);
        if (two_rows) {
            tile_load(LOWER_PAIRS, below + i / 2, stride);
            tile_multiply_bf16(SUMS_10, LOWER_PAIRS, LEFT_GROUP);
        }
        if (two_groups) {
            tile_load(RIGHT_GROUP, whole_weights(copies[1], right + at, n - i), 64);
            tile_multiply_bf16(SUMS_01, UPPER_PAIRS, RIGHT_GROUP);
            if (two_rows)
                tile_multiply_bf16(SUMS_11, LOWER_PAIRS, RIGHT_GROUP);
        }
    }
    END_SUMS(SUMS_00, &place[0][0]);
    if (two_groups)
        END_SUMS(SUMS_01, &place[0][1]);
    if (two_rows)
        END_SUMS(SUMS_10, &place[1][0]);
    if (two_rows && two_groups)
        END_SUMS(SUMS_11, &place[1][1]);
    SPRY_BARRIER();
}

/* The product for rows [begin, end), at most MATRIX_ROWS of them. */
static void multiply_matrix(const spry_matmul *m, size_t begin, size_t end, size_t out_begin, size_t out_end)
{
    matrix_rows act;
    size_t n_tiles = (end - begin + TILE - 1) / TILE;
    for (size_t row = end - begin; row < n_tiles * TILE; row++)
        memset(act.pair[row], 0, sizeof act.pair[row]);
    for (size_t first = 0, n; first < m->n_in; first += n) {
        n = m->n_in - first < MATRIX_BLOCK ? m->n_in - first : MATRIX_BLOCK;
        for (size_t row = begin; row < end; row++)
            encode_pairs(act.pair[row - begin], floats_at(m, row) + first, n);
        for (size_t group = out_begin / GROUP; group * GROUP < out_end; group += 2) {
            bool two_groups = (group + 1) * GROUP < out_end;
            for (size_t row = begin; row < end; row += 2 * TILE) {
                bool two_rows = row + TILE < end;
                sums_place place[2][2];
                for (size_t r = 0; r <= two_rows; r++)
                    for (size_t g = 0; g <= two_groups; g++)
                        place[r][g] = place_of(m, row + r * TILE, end, group + g, out_end, first == 0);
                multiply_four(m, act.pair[row - begin], place, group, first, n, two_rows, two_groups);
            }
        }
    }
}

static const tile_shapes whole_shapes = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE},
};

static void amx_matmul_bf16(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    tile_configure(&whole_shapes);
    for (size_t row = 0; row < m->n_rows; row += MATRIX_ROWS)
        multiply_matrix(m, row, m->n_rows - row < MATRIX_ROWS ? m->n_rows : row + MATRIX_ROWS, out_begin, out_end);
    tile_release();
}

/* The table's entry for this file's product. */
#define TILED_BF16_OPS .matmul[SPRY_BF16] = {.bf16 = true, .group = GROUP, .run = amx_matmul_bf16},
