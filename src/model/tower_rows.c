/* A sheet on its way through a tower: patches, and after the layers rows for the model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/packed.h"
#include "model/tower.h"

/* ---- products on the host ---------------------------------------------------------------------------------------- */

enum { UNIT = SPRY_PACK_MAX_ROWS, UNITS = 4, ROWS = 8, HALVED_ROWS = 16 /* with fewer, kernels round them */ };

typedef struct product {
    const spry_ops *ops;
    const spry_matmul_kernel *kernel;
    const spry_weight *w;
    const float *in;
    spry_matmul m;
    void *rounded;     /* NULL, or the input as the kernel takes it */
    const float *ones; /* [n_out]; NULL: no activation */
} product;

static void round_rows(void *context, size_t begin, size_t end)
{
    const product *p = context;
    size_t n = p->w->n_in;
    for (size_t row = begin; row < end; row++)
        if (p->kernel->integer)
            p->ops->encode_act((spry_act_block *)p->rounded + row * (n / SPRY_ACT_BLOCK), p->in + row * n, n);
        else
            p->kernel->halve((uint16_t *)p->rounded + row * spry_halves_stride(n), p->in + row * n, n);
}

static void multiply(void *context, size_t begin, size_t end)
{
    const product *p = context;
    size_t from = begin * UNIT, to = end * UNIT < p->w->n_out ? end * UNIT : p->w->n_out;
    p->kernel->run(&p->m, from, to);
    for (size_t row = 0; row < p->m.n_rows; row++) {
        float *out = p->m.out + row * p->m.out_stride + from;
        if (p->w->bias)
            p->ops->add(out, p->w->bias + from, to - from);
        if (p->ones)
            p->ops->gate[SPRY_GATE_GELU](out, out, p->ones, to - from);
    }
}

/* out [n_rows, w->n_out] = w * in + bias, and GELU by the error function with `ones`. */
static spry_status linear(const spry_tower *t, float *out, const spry_weight *w, const float *in, size_t n_rows,
                          const float *ones, spry_threads *threads, spry_error *error)
{
    const spry_matmul_kernel *kernel = &t->ops->matmul[spry_weight_kernel_type(w)];
    bool halves = kernel->halve && n_rows >= HALVED_ROWS;
    size_t each = kernel->integer ? w->n_in / SPRY_ACT_BLOCK * sizeof(spry_act_block)
                                  : spry_halves_stride(w->n_in) * sizeof(uint16_t);
    void *rounded = kernel->integer || halves ? malloc(n_rows * each) : NULL;
    if ((kernel->integer || halves) && !rounded)
        return spry_fail_memory(error, "a picture", n_rows * each);
    product p = {.ops = t->ops,
                 .kernel = kernel,
                 .w = w,
                 .in = in,
                 .m = {.out = out,
                       .out_stride = w->n_out,
                       .weight = kernel->group ? w->packed : w->data,
                       .weight_stride = kernel->group ? w->group_bytes : w->row_bytes,
                       .act = kernel->integer ? rounded : in,
                       .act_stride = kernel->integer ? each : w->n_in * sizeof *in,
                       .n_rows = n_rows,
                       .n_in = w->n_in,
                       .halves = halves ? rounded : NULL,
                       .halves_stride = spry_halves_stride(w->n_in)},
                 .rounded = rounded,
                 .ones = ones};
    if (rounded)
        spry_threads_share(threads, round_rows, &p, n_rows, ROWS);
    spry_threads_share(threads, multiply, &p, (w->n_out + UNIT - 1) / UNIT, UNITS);
    free(rounded);
    return SPRY_OK;
}

/* ---- patches ----------------------------------------------------------------------------------------------------- */

/* Patches of a window as the tower's first product takes them: [channel, y, x]. */
static void cut_patches(const spry_tower *t, float *out, const spry_image *sheet, const spry_picture *window,
                        size_t n_patches)
{
    size_t line = (size_t)sheet->width * 3;
    for (size_t i = 0; i < n_patches; i++) {
        size_t row = window->top + i / window->columns, column = window->left + i % window->columns;
        const unsigned char *corner = sheet->rgb + row * t->patch * line + column * t->patch * 3;
        for (size_t channel = 0; channel < 3; channel++)
            for (size_t y = 0; y < t->patch; y++)
                for (size_t x = 0; x < t->patch; x++)
                    *out++ = (corner[y * line + x * 3 + channel] / 255.0f - t->mean[channel]) / t->deviation[channel];
    }
}

/* A coordinate of `n` in the learned table, whose corners are the picture's corners. */
static float place_in(uint32_t at, uint32_t n, size_t side)
{
    return n > 1 ? (float)at * (float)(side - 1) / (float)(n - 1) : 0;
}

/* out += the table at (y, x), between four of its positions. */
static void add_between(const spry_tower *t, float *out, float y, float x)
{
    size_t n = t->config.n_embd, side = t->position_side;
    size_t top = (size_t)y, left = (size_t)x, below = top + 1 < side ? top + 1 : top;
    size_t right = left + 1 < side ? left + 1 : left;
    float dy = y - (float)top, dx = x - (float)left;
    const float *at[] = {t->positions + (top * side + left) * n, t->positions + (top * side + right) * n,
                         t->positions + (below * side + left) * n, t->positions + (below * side + right) * n};
    const float part[] = {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx};
    for (size_t i = 0; i < n; i++)
        out[i] += at[0][i] * part[0] + at[1][i] * part[1] + at[2][i] * part[2] + at[3][i] * part[3];
}

/* out += the sum of all positions of the table that a patch covers. */
static void add_covered(const spry_tower *t, float *out, const spry_weighing *down, const spry_weighing *across)
{
    size_t n = t->config.n_embd, side = t->position_side;
    for (size_t y = 0; y < down->n; y++)
        for (size_t x = 0; x < across->n; x++) {
            const float *from = t->positions + ((down->first + y) * side + across->first + x) * n;
            t->ops->add_scaled(out, from, (float)(down->weights[y] * across->weights[x]), n);
        }
}

/* Adds the learned positions of a window of a sheet of [rows, columns]. */
static spry_status add_positions(const spry_tower *t, spry_picture *window, uint32_t n_patches, uint32_t rows,
                                 uint32_t columns, spry_error *error)
{
    size_t n = t->config.n_embd, side = t->position_side;
    float *out = window->values;
    spry_weighing down, across;
    bool smooth = t->positions && t->kind->placing == SPRY_PLACES_SMOOTH;
    double *room = smooth ? calloc(spry_weighing_most(rows, t->position_side, SPRY_BILINEAR) +
                                       spry_weighing_most(columns, t->position_side, SPRY_BILINEAR),
                                   sizeof *room)
                          : NULL;
    if (smooth && !room)
        return spry_fail_memory(error, "a picture", side * sizeof *room);
    down.weights = room;
    across.weights = smooth ? room + spry_weighing_most(rows, t->position_side, SPRY_BILINEAR) : NULL;
    for (uint32_t k = 0; t->positions && k < n_patches; k++, out += n) {
        uint32_t row = window->top + k / window->columns, column = window->left + k % window->columns;
        if (smooth) {
            spry_weighing_make(&down, row, rows, t->position_side, SPRY_BILINEAR);
            spry_weighing_make(&across, column, columns, t->position_side, SPRY_BILINEAR);
            add_covered(t, out, &down, &across);
        } else if (t->kind->placing == SPRY_PLACES_AXES) {
            t->ops->add(out, t->positions + column * n, n);
            t->ops->add(out, t->positions + (side + row) * n, n);
        } else {
            add_between(t, out, place_in(row, rows, side), place_in(column, columns, side));
        }
    }
    free(room);
    return SPRY_OK;
}

static spry_status make_window(const spry_tower *t, spry_picture **out, const spry_image *sheet,
                               const spry_patches *all, uint32_t top, uint32_t left, spry_threads *threads,
                               spry_error *error)
{
    const size_t n_in = (size_t)3 * t->patch * t->patch;
    uint32_t height = all->rows - top, width = all->columns - left;
    height = t->window && t->window < height ? t->window : height;
    width = t->window && t->window < width ? t->window : width;
    uint32_t n_patches = height * width, n_rows = n_patches + (t->class_row != NULL);
    spry_status status = spry_picture_create(out, (spry_kv_key){0, 0}, n_rows, t->config.n_embd, 0, error);
    float *pixels = status ? NULL : malloc((size_t)height * width * n_in * sizeof *pixels);
    if (!status && !pixels)
        status = spry_fail_memory(error, "a picture", (size_t)height * width * n_in * sizeof *pixels);
    if (status)
        return status;
    (*out)->columns = width;
    (*out)->top = top;
    (*out)->left = left;
    cut_patches(t, pixels, sheet, *out, n_patches);
    status = linear(t, (*out)->values, &t->patches, pixels, n_patches, NULL, threads, error);
    if (!status)
        status = add_positions(t, *out, n_patches, all->rows, all->columns, error);
    if (t->class_row)
        memcpy((*out)->values + (size_t)n_patches * t->config.n_embd, t->class_row,
               t->config.n_embd * sizeof *t->class_row);
    free(pixels);
    return status;
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

/* Hidden states, window by window, in the order of the sheet and without class rows; each normalised, where there is a
 * norm for it. */
static void put_in_order(const spry_tower *t, float *out, const spry_patches *patches, const float *hidden)
{
    size_t n = t->config.n_embd;
    for (uint32_t i = 0; i < patches->n; i++) {
        const spry_picture *window = patches->windows[i];
        uint32_t n_patches = window->n_rows - (t->class_row != NULL);
        for (uint32_t k = 0; k < n_patches; k++, hidden += n) {
            size_t row = window->top + k / window->columns, column = window->left + k % window->columns;
            float *to = out + (row * patches->columns + column) * n;
            memcpy(to, hidden, n * sizeof *to);
            if (t->patch_norm)
                t->ops->rms_norm(to, to, t->patch_norm, n, t->patch_norm_eps);
        }
        hidden += (window->n_rows - n_patches) * n;
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
            for (size_t k = 0; t->joined_scale != 0 && k < width; k++)
                out[k] *= t->joined_scale;
            for (size_t k = 0; t->joined_mean && k < n; k++)
                out[k] = (out[k] - t->joined_mean[k]) * t->joined_scales[k];
        }
    return width;
}

/* out [n_rows, t->width]; the floats of `in` are [n_rows, n_in], which are changed. */
static spry_status project(const spry_tower *t, float *out, const spry_projector *p, float *in, size_t n_rows,
                           size_t n_in, spry_threads *threads, spry_error *error)
{
    float eps = p->eps > 0 ? p->eps : t->config.norm_eps;
    for (size_t row = 0; p->norm && row < n_rows; row++)
        if (p->norm_bias)
            t->ops->layer_norm(in + row * n_in, in + row * n_in, p->norm, p->norm_bias, n_in, eps);
        else
            t->ops->rms_norm(in + row * n_in, in + row * n_in, p->norm, n_in, eps);
    float *from = in;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const spry_weight *w = &p->steps[i];
        bool last = i + 1 == p->n_steps;
        float *to = last ? out : malloc(n_rows * w->n_out * sizeof *to);
        spry_status status = to ? linear(t, to, w, from, n_rows, i + 2 == p->n_steps ? t->ones : NULL, threads, error)
                                : spry_fail_memory(error, "a picture", n_rows * w->n_out * sizeof *to);
        if (from != in)
            free(from);
        if (status && !last)
            free(to);
        if (status)
            return status;
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
    size_t all = (size_t)spry_patches_rows(t, patches) * t->config.n_embd;
    spry_status status = spry_picture_create(out, hash, n_rows + ends, t->width, t->config.n_taps, error);
    float *ordered = status ? NULL : malloc(2 * all * sizeof *ordered), *joined = ordered + all;
    if (!status && !ordered)
        status = spry_fail_memory(error, "a picture", 2 * all * sizeof *ordered);
    for (uint32_t i = 0; !status && i <= t->config.n_taps; i++) {
        put_in_order(t, ordered, patches, hidden + i * all);
        size_t width = join_patches(t, joined, ordered, patches);
        status = project(t, (*out)->values + (size_t)i * n_rows * t->width, i ? &t->deep[i - 1] : &t->projector, joined,
                         n_rows, width, threads, error);
    }
    free(ordered);
    if (status) {
        spry_picture_unref(*out);
        *out = NULL;
        return status;
    }
    (*out)->columns = t->kind->columns ? line : 0;
    (*out)->two_way = t->two_way;
    if (t->row_end) {
        (*out)->line = line;
        end_lines(t, *out, lines);
    }
    return SPRY_OK;
}
