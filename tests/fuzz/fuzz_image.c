/* Any bytes as a picture: pixels or a clean refusal. What runs in a child without rights runs here in this process, so
 * that the fuzzer sees which code it reaches; memory that the end of the child would free is freed here. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef SPRY_IMAGES
#include <stdio.h>

#include <jpeglib.h>
#include <png.h>
#include <webp/decode.h>
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KEPT_MAX = 16, MAX_PIXELS = 1 << 18 };

static void *kept[KEPT_MAX];
static size_t n_kept;

static void *keep(void *memory)
{
    if (n_kept == KEPT_MAX)
        abort();
    return kept[n_kept++] = memory;
}

static void drop(void *memory)
{
    for (size_t i = 0; i < n_kept; i++)
        if (kept[i] == memory)
            kept[i] = kept[--n_kept];
    (free)(memory);
}

#define malloc(size) keep((malloc)(size))
#define free(memory) drop(memory)
#ifdef SPRY_IMAGES
static png_structp the_png;
static png_infop the_info;
static struct jpeg_decompress_struct the_jpeg;
static struct jpeg_error_mgr no_errors;
#define png_create_read_struct(...) (the_png = (png_create_read_struct)(__VA_ARGS__))
#define png_create_info_struct(png) (the_info = (png_create_info_struct)(png))
#undef jpeg_create_decompress
#define jpeg_create_decompress(jpeg) (jpeg_CreateDecompress(jpeg, JPEG_LIB_VERSION, sizeof *(jpeg)), the_jpeg = *(jpeg))
#define WebPDecodeRGBA(...)          keep((WebPDecodeRGBA)(__VA_ARGS__))
#endif
#include "formats/image.c"
#undef malloc
#undef free

static void release(void)
{
#ifdef SPRY_IMAGES
    if (the_png)
        png_destroy_read_struct(&the_png, &the_info, NULL);
    if (the_jpeg.mem) {
        the_jpeg.err = jpeg_std_error(&no_errors);
        jpeg_destroy((j_common_ptr)&the_jpeg);
    }
    the_png = NULL;
    the_info = NULL;
    the_jpeg = (struct jpeg_decompress_struct){0};
#endif
    while (n_kept)
        free(kept[--n_kept]);
}

/* Every pixel was decoded: a sanitizer sees a buffer that is too small, and memory checkers see one without a value. */
static void look(const decoding *d)
{
    unsigned sum = 0;
    for (size_t i = 0; i < (size_t)d->head.width * d->head.height * 3; i++)
        sum += d->rgb[i];
    volatile unsigned seen = sum;
    (void)seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decoding d = {.file = data, .size = size, .max_pixels = MAX_PIXELS};
    if (!spry_image_kind(data, size))
        return 0;
    kinds[kind_of(data, size)].decode(&d);
    if (!d.head.trouble[0])
        look(&d);
    release();
    return 0;
}
