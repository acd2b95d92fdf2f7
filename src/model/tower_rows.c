/* A picture on its way through a tower: sheets, patches, and after the layers rows for the model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/tower.h"

/* ---- sheets ------------------------------------------------------------------------------------------------------ */

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

/* Tiles in lines, and the whole picture as one more. */
static spry_status make_tiles(const spry_tower *t, spry_sheets *out, const spry_image *image, double most,
                              spry_error *error)
{
    uint32_t even[2], whole[2], side = (uint32_t)t->side;
    double longest = fmin(t->longest, fmax(1, floor(sqrt(most) / side)) * side);
    spry_image small = {0}, large = {0};
    tiled_sides(even, whole, image, longest, side);
    spry_status status = resize(&small, image, even[0], even[1], t->filter, error);
    if (!status)
        status = resize(&large, &small, whole[0], whole[1], t->filter, error);
    out->columns = whole[0] / side;
    out->rows = whole[1] / side;
    if (out->rows * out->columns == 1)
        out->rows = out->columns = 0;
    out->sheets = calloc((size_t)out->rows * out->columns + 1, sizeof *out->sheets);
    if (!status && !out->sheets)
        status = spry_fail_memory(error, "a picture", out->rows * out->columns * sizeof *out->sheets);
    while (!status && out->n < out->rows * out->columns) {
        uint32_t i = out->n++;
        status = cut(&out->sheets[i], &large, i % out->columns * side, i / out->columns * side, side, error);
    }
    if (!status)
        status = resize(&out->sheets[out->n++], &large, side, side, t->filter, error);
    spry_image_deinit(&small);
    spry_image_deinit(&large);
    return status;
}

spry_status spry_tower_sheets(const spry_tower *t, spry_sheets *out, const spry_image *image, double max_pixels,
                              spry_error *error)
{
    double unit = (double)t->patch * t->merge, ratio = (double)image->width / image->height;
    double most = fmax(fmin(max_pixels, t->max_pixels), unit * unit);
    spry_status status;
    uint32_t width, height;
    *out = (spry_sheets){0};
    if (ratio > SPRY_TOWER_RATIO || ratio < 1.0 / SPRY_TOWER_RATIO)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "a picture of %u x %u pixels is too narrow: one side is over %d times the other", image->width,
                         image->height, SPRY_TOWER_RATIO);
    if (t->kind->tiles) {
        status = make_tiles(t, out, image, most, error);
    } else {
        t->kind->sides(t, &width, &height, image, most);
        out->sheets = calloc(1, sizeof *out->sheets);
        out->n = out->sheets != NULL;
        status = out->sheets ? resize(out->sheets, image, width, height, t->filter, error)
                             : spry_fail_memory(error, "a picture", sizeof *out->sheets);
    }
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
    bool fine = true;
    for (uint32_t row = 0; row < sheets->rows; row++) {
        for (uint32_t column = 0; column < sheets->columns; column++)
            fine = fine && spry_buffer_format(text, "<fake_token_around_image><row_%u_col_%u>\1", row + 1, column + 1);
        fine = fine && spry_buffer_text(text, "\n");
    }
    return fine && spry_buffer_text(text, sheets->rows ? "\n" : "") && spry_buffer_text(text, t->kind->frame);
}

/* ---- products on the host ---------------------------------------------------------------------------------------- */

typedef struct product {
    const spry_tower *tower;
    spry_matmul m;
    spry_dtype type;
    const float *bias;
    bool gelu;
} product;

static void multiply(void *context, size_t begin, size_t end)
{
    const product *p = context;
    p->tower->ops->matmul[p->type].run(&p->m, begin, end);
    for (size_t row = 0; row < p->m.n_rows; row++)
        for (size_t i = begin; i < end; i++) {
            float *value = &p->m.out[row * p->m.out_stride + i];
            *value += p->bias ? p->bias[i] : 0;
            if (p->gelu)
                *value = (float)(0.5 * (double)*value * (1 + erf((double)*value / 1.4142135623730951)));
        }
}

/* out [n_rows, w->n_out] */
static void linear(const spry_tower *t, float *out, const spry_weight *w, const float *in, size_t n_rows, bool gelu,
                   spry_threads *threads)
{
    product p = {.tower = t,
                 .m = {.out = out,
                       .out_stride = w->n_out,
                       .weight = w->data,
                       .weight_stride = w->row_bytes,
                       .act = in,
                       .act_stride = w->n_in * sizeof *in,
                       .n_rows = n_rows,
                       .n_in = w->n_in},
                 .type = w->type,
                 .bias = w->bias,
                 .gelu = gelu};
    spry_threads_share(threads, multiply, &p, w->n_out, 1);
}

/* ---- patches ----------------------------------------------------------------------------------------------------- */

/* Patches of a window as the tower's first product takes them: [channel, y, x]. */
static void cut_patches(const spry_tower *t, float *out, const spry_image *sheet, const spry_picture *window)
{
    size_t line = (size_t)sheet->width * 3;
    for (size_t i = 0; i < window->n_rows; i++) {
        size_t row = window->top + i / window->columns, column = window->left + i % window->columns;
        const unsigned char *corner = sheet->rgb + row * t->patch * line + column * t->patch * 3;
        for (size_t channel = 0; channel < 3; channel++)
            for (size_t y = 0; y < t->patch; y++)
                for (size_t x = 0; x < t->patch; x++)
                    *out++ = (corner[y * line + x * 3 + channel] / 255.0f - t->mean[channel]) / t->deviation[channel];
    }
}

/* A coordinate of `n` in the learned grid, whose corners are the picture's corners. */
static float place_in(uint32_t at, uint32_t n, size_t side)
{
    return n > 1 ? (float)at * (float)(side - 1) / (float)(n - 1) : 0;
}

/* Adds the learned positions, a sheet of [rows, columns] resized. */
static void add_positions(const spry_tower *t, spry_picture *window, uint32_t rows, uint32_t columns)
{
    size_t n = t->config.n_embd, side = t->position_side;
    float *out = window->values;
    for (uint32_t k = 0; side && k < window->n_rows; k++, out += n) {
        float y = place_in(window->top + k / window->columns, rows, side);
        float x = place_in(window->left + k % window->columns, columns, side);
        size_t top = (size_t)y, left = (size_t)x, below = top + 1 < side ? top + 1 : top;
        size_t right = left + 1 < side ? left + 1 : left;
        float dy = y - (float)top, dx = x - (float)left;
        const float *at[] = {t->positions + (top * side + left) * n, t->positions + (top * side + right) * n,
                             t->positions + (below * side + left) * n, t->positions + (below * side + right) * n};
        const float part[] = {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx};
        for (size_t i = 0; i < n; i++)
            out[i] += at[0][i] * part[0] + at[1][i] * part[1] + at[2][i] * part[2] + at[3][i] * part[3];
    }
}

static spry_status make_window(const spry_tower *t, spry_picture **out, const spry_image *sheet,
                               const spry_patches *all, uint32_t top, uint32_t left, spry_threads *threads,
                               spry_error *error)
{
    const size_t n_in = (size_t)3 * t->patch * t->patch;
    uint32_t height = all->rows - top, width = all->columns - left;
    height = t->window && t->window < height ? t->window : height;
    width = t->window && t->window < width ? t->window : width;
    spry_status status = spry_picture_create(out, (spry_kv_key){0, 0}, height * width, t->config.n_embd, 0, error);
    float *pixels = status ? NULL : malloc((size_t)height * width * n_in * sizeof *pixels);
    if (!status && !pixels)
        status = spry_fail_memory(error, "a picture", (size_t)height * width * n_in * sizeof *pixels);
    if (status)
        return status;
    const spry_weight w = {.data = (const unsigned char *)t->patches,
                           .type = SPRY_F32,
                           .n_out = t->config.n_embd,
                           .n_in = n_in,
                           .row_bytes = n_in * sizeof(float),
                           .bias = t->patch_bias};
    (*out)->columns = width;
    (*out)->top = top;
    (*out)->left = left;
    cut_patches(t, pixels, sheet, *out);
    linear(t, (*out)->values, &w, pixels, (*out)->n_rows, false, threads);
    add_positions(t, *out, all->rows, all->columns);
    free(pixels);
    return SPRY_OK;
}

spry_status spry_tower_patches(const spry_tower *t, spry_patches *out, const spry_image *sheet, spry_threads *threads,
                               spry_error *error)
{
    *out = (spry_patches){.rows = sheet->height / t->patch, .columns = sheet->width / t->patch};
    uint32_t down = t->window ? t->window : out->rows, across = t->window ? t->window : out->columns;
    size_t n = (size_t)((out->rows + down - 1) / down) * ((out->columns + across - 1) / across);
    out->windows = calloc(n, sizeof *out->windows);
    spry_status status = out->windows ? SPRY_OK : spry_fail_memory(error, "a picture", n * sizeof *out->windows);
    for (uint32_t top = 0; !status && top < out->rows; top += down)
        for (uint32_t left = 0; !status && left < out->columns; left += across)
            status = make_window(t, &out->windows[out->n++], sheet, out, top, left, threads, error);
    if (status)
        spry_patches_deinit(out);
    return status;
}

void spry_patches_deinit(spry_patches *patches)
{
    for (uint32_t i = 0; i < patches->n; i++)
        spry_picture_unref(patches->windows[i]);
    free(patches->windows);
    *patches = (spry_patches){0};
}

/* ---- rows for the model ------------------------------------------------------------------------------------------ */

/* Hidden states, window by window, in the order of the sheet; each normalised, where there is a norm for it. */
static void put_in_order(const spry_tower *t, float *out, const spry_patches *patches, const float *hidden)
{
    size_t n = t->config.n_embd;
    for (uint32_t i = 0; i < patches->n; i++) {
        const spry_picture *window = patches->windows[i];
        for (uint32_t k = 0; k < window->n_rows; k++, hidden += n) {
            size_t row = window->top + k / window->columns, column = window->left + k % window->columns;
            float *to = out + (row * patches->columns + column) * n;
            memcpy(to, hidden, n * sizeof *to);
            if (t->patch_norm)
                t->ops->rms_norm(to, to, t->patch_norm, n, t->patch_norm_eps);
        }
    }
}

/* Neighbouring patches, merge x merge of them, in one row. Returns its size. */
static size_t join_patches(const spry_tower *t, float *out, const float *hidden, const spry_patches *patches)
{
    size_t n = t->config.n_embd, parts = (size_t)t->merge * t->merge;
    bool averages = t->kind->joining == SPRY_JOIN_AVERAGE, unfolds = t->kind->joining == SPRY_JOIN_UNFOLD;
    size_t width = averages ? n : n * parts, part_step = averages ? 0 : unfolds ? 1 : n, step = unfolds ? parts : 1;
    for (uint32_t row = 0; row < patches->rows; row += t->merge)
        for (uint32_t column = 0; column < patches->columns; column += t->merge, out += width) {
            memset(out, 0, width * sizeof *out);
            for (uint32_t i = 0; i < parts; i++) {
                const float *from =
                    hidden + ((size_t)(row + i / t->merge) * patches->columns + column + i % t->merge) * n;
                for (size_t k = 0; k < n; k++)
                    out[i * part_step + k * step] += averages ? from[k] / (float)parts : from[k];
            }
        }
    return width;
}

/* out [n_rows, t->width]; the floats of `in` are [n_rows, n_in], which are changed. */
static spry_status project(const spry_tower *t, float *out, const spry_projector *p, float *in, size_t n_rows,
                           size_t n_in, spry_threads *threads, spry_error *error)
{
    for (size_t row = 0; p->norm && row < n_rows; row++)
        if (p->norm_bias)
            t->ops->layer_norm(in + row * n_in, in + row * n_in, p->norm, p->norm_bias, n_in, t->config.norm_eps);
        else
            t->ops->rms_norm(in + row * n_in, in + row * n_in, p->norm, n_in, t->config.norm_eps);
    float *from = in;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const spry_weight *w = &p->steps[i];
        bool last = i + 1 == p->n_steps;
        float *to = last ? out : malloc(n_rows * w->n_out * sizeof *to);
        if (to)
            linear(t, to, w, from, n_rows, i + 2 == p->n_steps, threads);
        if (from != in)
            free(from);
        if (!to)
            return spry_fail_memory(error, "a picture", n_rows * w->n_out * sizeof *to);
        from = to;
    }
    return SPRY_OK;
}

/* Opens room for a row between two lines, last line first. */
static void end_lines(const spry_tower *t, spry_picture *picture, uint32_t lines)
{
    size_t n = picture->line;
    for (size_t i = lines; i-- > 0;) {
        memmove(picture->values + i * (n + 1) * t->width, picture->values + i * n * t->width,
                n * t->width * sizeof *picture->values);
        if (i + 1 < lines)
            memcpy(picture->values + (i * (n + 1) + n) * t->width, t->row_end, t->width * sizeof *picture->values);
    }
}

spry_status spry_tower_project(const spry_tower *t, spry_picture **out, const spry_patches *patches,
                               const float *hidden, spry_kv_key hash, spry_threads *threads, spry_error *error)
{
    uint32_t lines = patches->rows / t->merge, line = patches->columns / t->merge;
    uint32_t n_rows = lines * line, ends = t->row_end ? lines - 1 : 0;
    size_t all = (size_t)patches->rows * patches->columns * t->config.n_embd;
    spry_status status = spry_picture_create(out, hash, n_rows + ends, t->width, t->config.n_taps, error);
    float *ordered = status ? NULL : malloc(2 * all * sizeof *ordered), *joined = ordered + all;
    if (!status && !ordered)
        status = spry_fail_memory(error, "a picture", 2 * all * sizeof *ordered);
    for (uint32_t i = 0; !status && i <= t->config.n_taps; i++) {
        put_in_order(t, ordered, patches, hidden + i * all);
        size_t width = join_patches(t, joined, ordered, patches);
        status = project(t, (*out)->values + (size_t)i * n_rows * t->width, i ? &t->deep[i - 1] : &t->projector,
                         joined, n_rows, width, threads, error);
    }
    free(ordered);
    if (status) {
        spry_picture_unref(*out);
        *out = NULL;
        return status;
    }
    (*out)->columns = t->kind->columns ? line : 0;
    (*out)->two_way = t->kind->two_way;
    if (t->row_end) {
        (*out)->line = line;
        end_lines(t, *out, lines);
    }
    return SPRY_OK;
}
