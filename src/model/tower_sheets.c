/* Sheets of a picture for a tower: the picture in another size, or its tiles and the whole; and their text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/tower.h"

static spry_status resize(spry_image *out, const spry_image *image, uint32_t width, uint32_t height, spry_filter filter,
                          spry_error *error)
{
    *out = (spry_image){width, height, malloc((size_t)width * height * 3)};
    if (!out->rgb)
        return spry_fail_memory(error, "a picture", (size_t)width * height * 3);
    return spry_resample(out->rgb, width, height, image->rgb, image->width, image->height, filter, error);
}

static spry_status cut(spry_image *out, const spry_image *image, uint32_t left, uint32_t top, uint32_t side,
                       spry_error *error)
{
    *out = (spry_image){side, side, malloc((size_t)side * side * 3)};
    if (!out->rgb)
        return spry_fail_memory(error, "a picture", (size_t)side * side * 3);
    for (size_t y = 0; y < side; y++)
        memcpy(out->rgb + y * side * 3, image->rgb + ((top + y) * image->width + left) * 3, (size_t)side * 3);
    return SPRY_OK;
}

/* The longer side becomes `longest`, the other one keeps the ratio and is even; then both go up to whole tiles. */
static void tiled_sides(uint32_t even[2], uint32_t whole[2], const spry_image *image, double longest, double side)
{
    bool wide = image->width >= image->height;
    double ratio = (double)image->width / image->height, other = floor(wide ? longest / ratio : longest * ratio);
    other = fmax(1, other + fmod(other, 2));
    double up = ceil(longest / side) * side, across = ceil(floor(wide ? up * other / longest : up * other / longest));
    across = fmax(1, ceil(across / side)) * side;
    even[wide ? 0 : 1] = (uint32_t)longest;
    even[wide ? 1 : 0] = (uint32_t)other;
    whole[wide ? 0 : 1] = (uint32_t)up;
    whole[wide ? 1 : 0] = (uint32_t)across;
}

void spry_tower_grid(uint32_t *rows, uint32_t *columns, const spry_tower *t, const spry_image *image,
                     uint32_t max_tiles)
{
    double ratio = (double)image->width / image->height, area = (double)image->width * image->height, best = INFINITY;
    *rows = *columns = 1;
    for (uint32_t n = t->min_tiles < max_tiles ? t->min_tiles : max_tiles; n <= max_tiles; n++)
        for (uint32_t across = 1; across <= n; across++) {
            double off = fabs(ratio - (double)across / (n / across));
            /* of equal ratios the one with more tiles, as long as the picture fills more than half of them */
            if (n % across || off > best || (off == best && area <= 0.5 * t->side * t->side * n))
                continue;
            best = off;
            *columns = across;
            *rows = n / across;
        }
}

/* Cuts tiles, line after line, out of a picture of whole tiles, and adds the whole: `image` in these sides. */
static spry_status make_tiles(const spry_tower *t, spry_sheets *out, const spry_image *large, const spry_image *image,
                              uint32_t width, uint32_t height, spry_error *error)
{
    uint32_t side = (uint32_t)t->side, n;
    spry_status status = SPRY_OK;
    out->columns = large->width / side;
    out->rows = large->height / side;
    if (out->rows * out->columns == 1)
        out->rows = out->columns = 0;
    n = out->rows * out->columns;
    out->sheets = calloc((size_t)n + 1, sizeof *out->sheets);
    if (!out->sheets)
        return spry_fail_memory(error, "a picture", n * sizeof *out->sheets);
    while (!status && out->n < n) {
        uint32_t i = out->n++;
        status = cut(&out->sheets[i], large, i % out->columns * side, i / out->columns * side, side, error);
    }
    return status ? status : resize(&out->sheets[out->n++], image, width, height, t->filter, error);
}

static spry_status tile_longest(const spry_tower *t, spry_sheets *out, const spry_image *image, double most,
                                spry_error *error)
{
    uint32_t even[2], whole[2], side = (uint32_t)t->side;
    double longest = fmin(t->longest, fmax(1, floor(sqrt(most) / side)) * side);
    spry_image small = {0}, large = {0};
    tiled_sides(even, whole, image, longest, side);
    spry_status status = resize(&small, image, even[0], even[1], t->filter, error);
    if (!status)
        status = resize(&large, &small, whole[0], whole[1], t->filter, error);
    if (!status)
        status = make_tiles(t, out, &large, &large, side, side, error);
    spry_image_deinit(&small);
    spry_image_deinit(&large);
    return status;
}

/* Tiles of the picture's ratio. `most`: pixels of all tiles. */
static spry_status tile_ratio(const spry_tower *t, spry_sheets *out, const spry_image *image, double most,
                              uint32_t width, uint32_t height, spry_error *error)
{
    uint32_t rows, columns, side = (uint32_t)t->side;
    double tiles = fmax(1, fmin(t->max_tiles, floor(most / (t->side * t->side))));
    spry_image large = {0};
    spry_tower_grid(&rows, &columns, t, image, (uint32_t)tiles);
    spry_status status = resize(&large, image, columns * side, rows * side, t->filter, error);
    if (!status)
        status = make_tiles(t, out, &large, image, width, height, error);
    spry_image_deinit(&large);
    return status;
}

/* True if a picture is cut into tiles because it is large. */
static bool is_large(const spry_tower *t, const spry_image *image)
{
    double unit = (double)t->patch * t->merge;
    double width = fmax(t->patch, rint(image->width / unit) * unit);
    return t->max_tiles > 1 && width * fmax(t->patch, rint(image->height / unit) * unit) > t->large_pixels;
}

/* One sheet. */
static spry_status make_sheet(const spry_tower *t, spry_sheets *out, const spry_image *image, uint32_t width,
                              uint32_t height, spry_error *error)
{
    out->sheets = calloc(1, sizeof *out->sheets);
    out->n = out->sheets != NULL;
    return out->sheets ? resize(out->sheets, image, width, height, t->filter, error)
                       : spry_fail_memory(error, "a picture", sizeof *out->sheets);
}

spry_status spry_tower_sheets(const spry_tower *t, spry_sheets *out, const spry_image *image, double max_pixels,
                              spry_error *error)
{
    double unit = (double)t->patch * t->merge, ratio = (double)image->width / image->height;
    double most = fmax(max_pixels, unit * unit);
    spry_status status;
    uint32_t width, height;
    *out = (spry_sheets){0};
    if (ratio > SPRY_TOWER_RATIO || ratio < 1.0 / SPRY_TOWER_RATIO)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "a picture of %u x %u pixels is too narrow: one side is over %d times the other", image->width,
                         image->height, SPRY_TOWER_RATIO);
    t->kind->sides(t, &width, &height, image, fmin(most, t->max_pixels));
    if (t->kind->placing == SPRY_PLACES_AXES &&
        (width / t->patch > t->position_side || height / t->patch > t->position_side))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "a picture of %u x %u pixels is too narrow: the tower knows places of %u patches a side",
                         image->width, image->height, t->position_side);
    if (t->kind->tiling == SPRY_TILES_LONGEST)
        status = tile_longest(t, out, image, most, error);
    else if (t->kind->tiling == SPRY_TILES_RATIO || (t->kind->tiling == SPRY_TILES_LARGE && is_large(t, image)))
        status = tile_ratio(t, out, image, most, width, height, error);
    else
        status = make_sheet(t, out, image, width, height, error);
    if (status)
        spry_sheets_deinit(out);
    return status;
}

void spry_sheets_deinit(spry_sheets *sheets)
{
    for (uint32_t i = 0; i < sheets->n; i++)
        spry_image_deinit(&sheets->sheets[i]);
    free(sheets->sheets);
    *sheets = (spry_sheets){0};
}

bool spry_tower_write(spry_buffer *text, const spry_tower *t, const spry_sheets *sheets)
{
    const spry_tile_text *tiles = &t->kind->tiles;
    bool fine = true;
    if (!sheets->rows)
        return spry_buffer_text(text, t->kind->frame);
    fine = spry_buffer_text(text, tiles->before);
    for (uint32_t row = 0; row < sheets->rows; row++) {
        for (uint32_t column = 0; column < sheets->columns; column++)
            fine = fine &&
                   (!tiles->open || spry_buffer_format(text, "%s%u_col_%u", tiles->open, row + 1, column + 1)) &&
                   spry_buffer_text(text, tiles->close);
        fine = fine && spry_buffer_text(text, tiles->line);
    }
    return fine && spry_buffer_text(text, tiles->after);
}
