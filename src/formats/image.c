/* Decodes image files. Each decoder first reads the header, then the pixels if they are not too many. Everything except
 * the choice of the decoder runs in a child process. */
#include "formats/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SPRY_IMAGES
#include <jpeglib.h>

#include <jerror.h> /* after jpeglib.h, whose types it needs */
#include <png.h>
#include <webp/decode.h>
#endif

#include "base/compiler.h"
#include "platform/child.h"

enum { SIDE_MAX = 65500, SECONDS = 10 };

/* The child sends this, followed by the pixels. */
typedef struct sent_head {
    uint32_t width, height;
    char trouble[160]; /* why there are no pixels; empty: there are */
} sent_head;

typedef struct decoding {
    const unsigned char *file;
    size_t size, max_pixels;
    spry_isolated_write write;
    void *self;
    sent_head head;
    unsigned char *rgb;
} decoding;

/* Allocates the pixels; false, with the trouble noted, when there are too many. */
static bool begin(decoding *d, uint64_t width, uint64_t height)
{
    d->head.width = (uint32_t)(width < UINT32_MAX ? width : UINT32_MAX);
    d->head.height = (uint32_t)(height < UINT32_MAX ? height : UINT32_MAX);
    if (!width || !height || width > SIDE_MAX || height > SIDE_MAX || width * height > d->max_pixels)
        snprintf(d->head.trouble, sizeof d->head.trouble, "has %llu x %llu pixels, the limit is %zu in all",
                 (unsigned long long)width, (unsigned long long)height, d->max_pixels);
    else if (!(d->rgb = malloc((size_t)width * height * 3)))
        snprintf(d->head.trouble, sizeof d->head.trouble, "needs more memory than there is");
    return !d->head.trouble[0];
}

static void damaged(decoding *d, const char *why)
{
    if (!d->head.trouble[0])
        snprintf(d->head.trouble, sizeof d->head.trouble, "is damaged: %.80s", why && *why ? why : "it ends too early");
}

#ifdef SPRY_IMAGES

/* Blends a pixel with a white background. */
static void put_on_white(unsigned char *rgb, const unsigned char *rgba)
{
    for (int i = 0; i < 3; i++)
        rgb[i] = (unsigned char)((rgba[i] * rgba[3] + 255 * (255 - rgba[3]) + 127) / 255);
}

/* ---- EXIF -------------------------------------------------------------------------------------------------------- */

enum { EXIF_HEAD = 6 };
static const char exif_head[] = "Exif\0"; /* before EXIF data in JPEG files, and in some WebP files */

static unsigned exif_number(const unsigned char *at, size_t n, bool little)
{
    unsigned value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (unsigned)at[i] << 8 * (little ? i : n - 1 - i);
    return value;
}

/* The orientation in EXIF data, 1 to 8; 1 where there is none. */
static unsigned exif_orientation(const unsigned char *tiff, size_t size)
{
    if (size < 8)
        return 1;
    bool little = tiff[0] == 'I';
    size_t at = exif_number(tiff + 4, 4, little);
    if (at > size || size - at < 2)
        return 1;
    unsigned n = exif_number(tiff + at, 2, little);
    for (at += 2; n-- && at <= size && size - at >= 12; at += 12)
        if (exif_number(tiff + at, 2, little) == 0x112) {
            unsigned value = exif_number(tiff + at + 8, 2, little);
            return value >= 1 && value <= 8 ? value : 1;
        }
    return 1;
}

/* Rotates and mirrors the pixels as EXIF data requires. */
static void orient(decoding *d, const unsigned char *exif, size_t size)
{
    unsigned how = exif ? exif_orientation(exif, size) : 1;
    uint32_t w = d->head.width, h = d->head.height, out_w = how > 4 ? h : w, out_h = how > 4 ? w : h;
    unsigned char *turned = how > 1 ? malloc((size_t)w * h * 3) : NULL;
    if (!turned)
        return;
    for (uint32_t y = 0; y < out_h; y++)
        for (uint32_t x = 0; x < out_w; x++) {
            uint32_t from_x = how > 4 ? y : x, from_y = how > 4 ? x : y;
            if (how == 2 || how == 3 || how == 7 || how == 8)
                from_x = w - 1 - from_x;
            if (how == 3 || how == 4 || how == 6 || how == 7)
                from_y = h - 1 - from_y;
            memcpy(turned + ((size_t)y * out_w + x) * 3, d->rgb + ((size_t)from_y * w + from_x) * 3, 3);
        }
    d->rgb = turned;
    d->head.width = out_w;
    d->head.height = out_h;
}

/* ---- PNG --------------------------------------------------------------------------------------------------------- */

typedef struct png_source {
    decoding *decoding;
    size_t at;
    bool done; /* all pixels are there */
    jmp_buf out;
} png_source;

static void png_trouble(png_structp png, png_const_charp why)
{
    png_source *s = png_get_error_ptr(png);
    if (!s->done)
        damaged(s->decoding, why);
    longjmp(s->out, 1);
}

static void png_quiet(png_structp png, png_const_charp why)
{
    (void)png;
    (void)why;
}

static void png_feed(png_structp png, png_bytep to, size_t n)
{
    png_source *s = png_get_io_ptr(png);
    if (n > s->decoding->size - s->at)
        png_error(png, "it ends too early");
    memcpy(to, s->decoding->file + s->at, n);
    s->at += n;
}

static uint32_t png_number(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Reads what follows the pixels, such as EXIF data; faults there do not matter. */
static void read_png_end(png_structp png, png_infop info, png_source *s)
{
    s->done = true;
    if (!setjmp(s->out))
        png_read_end(png, info);
}

static void orient_png(decoding *d, png_structp png, png_infop info)
{
    png_bytep exif;
    png_uint_32 size;
    if (png_get_eXIf_1(png, info, &size, &exif))
        orient(d, exif, size);
}

static void decode_png(decoding *d)
{
    /* Sides over its own limit are "Invalid IHDR data" to libpng, which would read like damage. */
    uint32_t sides[] = {d->size < 24 ? 0 : png_number(d->file + 16), d->size < 24 ? 0 : png_number(d->file + 20)};
    if ((sides[0] > SIDE_MAX || sides[1] > SIDE_MAX) && !begin(d, sides[0], sides[1]))
        return;
    png_source s = {.decoding = d};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, png_trouble, png_quiet);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info || setjmp(s.out))
        return; /* the child ends: nothing needs to be freed */
    png_set_read_fn(png, &s, png_feed);
    png_set_user_limits(png, SIDE_MAX, SIDE_MAX);
    png_read_info(png, info);
    uint32_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    if (!begin(d, width, height))
        return;
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_gray_to_rgb(png);
    png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    unsigned char *rgba = malloc((size_t)width * height * 4);
    png_bytepp rows = malloc(height * sizeof *rows);
    for (uint32_t y = 0; rgba && rows && y < height; y++)
        rows[y] = rgba + (size_t)y * width * 4;
    if (!rgba || !rows) {
        damaged(d, "memory is short");
        return;
    }
    png_read_image(png, rows);
    for (size_t i = 0; i < (size_t)width * height; i++)
        put_on_white(d->rgb + i * 3, rgba + i * 4);
    read_png_end(png, info, &s);
    orient_png(d, png, info);
}

/* ---- JPEG -------------------------------------------------------------------------------------------------------- */

typedef struct jpeg_trouble {
    struct jpeg_error_mgr base;
    decoding *decoding;
    bool ended; /* the file has no more bytes; the library continues as if it had an end marker */
    jmp_buf out;
} jpeg_trouble;

static void jpeg_fail(j_common_ptr jpeg)
{
    jpeg_trouble *t = (jpeg_trouble *)(void *)jpeg->err;
    char why[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, why);
    int code = jpeg->err->msg_code;
    if (code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED || code == JERR_CONVERSION_NOTIMPL)
        snprintf(t->decoding->head.trouble, sizeof t->decoding->head.trouble,
                 "is a JPEG file of a kind that is not read (%.60s); save it as an 8-bit JPEG or PNG file", why);
    damaged(t->decoding, why);
    longjmp(t->out, 1);
}

/* Warnings are about bytes that the library skips, or replaces by grey pixels: cameras and editors write such files, so
 * what it recovers is the picture. Only a file that ends within its pixels is damaged. */
static void jpeg_message(j_common_ptr jpeg, int level)
{
    jpeg_trouble *t = (jpeg_trouble *)(void *)jpeg->err;
    if (level >= 0)
        return;
    if (t->ended && jpeg->err->msg_code == JWRN_HIT_MARKER) {
        damaged(t->decoding, "it ends too early");
        longjmp(t->out, 1);
    }
    t->ended = t->ended || jpeg->err->msg_code == JWRN_JPEG_EOF;
}

static void decode_jpeg(decoding *d)
{
    struct jpeg_decompress_struct jpeg = {0};
    jpeg_trouble trouble = {.decoding = d};
    jpeg.err = jpeg_std_error(&trouble.base);
    trouble.base.error_exit = jpeg_fail;
    trouble.base.emit_message = jpeg_message;
    if (setjmp(trouble.out))
        return;
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, d->file, d->size);
    jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&jpeg, TRUE);
    if (!begin(d, jpeg.image_width, jpeg.image_height))
        return;
    bool ink = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
    jpeg.out_color_space = ink ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&jpeg);
    size_t width = jpeg.output_width;
    unsigned char *line = malloc(width * 4);
    while (line && jpeg.output_scanline < jpeg.output_height) {
        unsigned char *rgb = d->rgb + (size_t)jpeg.output_scanline * width * 3;
        jpeg_read_scanlines(&jpeg, ink ? &line : &rgb, 1);
        for (size_t i = 0; ink && i < width * 3; i++) /* Adobe stores inverted CMYK values */
            rgb[i] = (unsigned char)(line[i / 3 * 4 + i % 3] * line[i / 3 * 4 + 3] / 255);
    }
    for (jpeg_saved_marker_ptr m = jpeg.marker_list; m; m = m->next)
        if (m->data_length > EXIF_HEAD && !memcmp(m->data, exif_head, EXIF_HEAD)) {
            orient(d, m->data + EXIF_HEAD, m->data_length - EXIF_HEAD);
            break;
        }
}

/* ---- WebP -------------------------------------------------------------------------------------------------------- */

/* A part of a RIFF file: a name, a size, and data. */
typedef struct webp_chunk {
    const unsigned char *data; /* NULL: there is none of this name */
    size_t size;
} webp_chunk;

enum { WEBP_HEAD = 12, CHUNK_HEAD = 8, FRAME_HEAD = 16, CANVAS_CHUNK = CHUNK_HEAD + 10, ALPHA_FLAG = 16 };

static uint32_t webp_number(const unsigned char *at, size_t n)
{
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint32_t)at[i] << 8 * i;
    return value;
}

/* The first chunk of this name. */
static webp_chunk find_chunk(const unsigned char *at, size_t size, const char *name)
{
    while (size >= CHUNK_HEAD) {
        size_t n = webp_number(at + 4, 4), left = size - CHUNK_HEAD;
        if (!memcmp(at, name, 4))
            return (webp_chunk){at + CHUNK_HEAD, n < left ? n : left};
        n += n % 2;
        if (n > left)
            break;
        at += CHUNK_HEAD + n;
        size = left - n;
    }
    return (webp_chunk){0};
}

/* Puts pixels with alpha on the canvas, which is white there. */
static void put_frame(decoding *d, const unsigned char *rgba, size_t left, size_t top, size_t width, size_t height)
{
    for (size_t y = 0; y < height && top + y < d->head.height; y++)
        for (size_t x = 0; x < width && left + x < d->head.width; x++)
            put_on_white(d->rgb + ((top + y) * d->head.width + left + x) * 3, rgba + (y * width + x) * 4);
}

/* The first frame of an animation becomes a file of its own, with the canvas of its size that alpha requires. */
static void decode_webp_frame(decoding *d)
{
    const webp_chunk frame = find_chunk(d->file + WEBP_HEAD, d->size - WEBP_HEAD, "ANMF");
    unsigned char *file = frame.size > FRAME_HEAD ? malloc(WEBP_HEAD + CANVAS_CHUNK + frame.size) : NULL, *rgba = NULL;
    if (file) {
        static const unsigned char head[] = "RIFF\0\0\0\0WEBPVP8X\12\0\0\0\20\0\0";
        size_t size = WEBP_HEAD + CANVAS_CHUNK - CHUNK_HEAD + frame.size - FRAME_HEAD;
        int width, height;
        memcpy(file, head, sizeof head);
        memcpy(file + WEBP_HEAD + CHUNK_HEAD + 4, frame.data + 6, 6); /* width and height */
        memcpy(file + WEBP_HEAD + CANVAS_CHUNK, frame.data + FRAME_HEAD, frame.size - FRAME_HEAD);
        for (size_t i = 0; i < 4; i++)
            file[4 + i] = (unsigned char)(size >> 8 * i);
        size += CHUNK_HEAD;
        if (WebPGetInfo(file, size, &width, &height) && (size_t)width * (size_t)height <= d->max_pixels)
            rgba = WebPDecodeRGBA(file, size, &width, &height);
        if (rgba)
            put_frame(d, rgba, 2 * (size_t)webp_number(frame.data, 3), 2 * (size_t)webp_number(frame.data + 3, 3),
                      (size_t)width, (size_t)height);
    }
    if (!rgba)
        damaged(d, "its first frame");
}

static void decode_webp(decoding *d)
{
    WebPBitstreamFeatures features;
    int width, height;
    if (d->size < WEBP_HEAD || WebPGetFeatures(d->file, d->size, &features)) {
        damaged(d, "its header");
        return;
    }
    if (!begin(d, (uint64_t)features.width, (uint64_t)features.height))
        return;
    memset(d->rgb, 255, (size_t)d->head.width * d->head.height * 3);
    if (features.has_animation) {
        decode_webp_frame(d);
    } else {
        unsigned char *rgba = WebPDecodeRGBA(d->file, d->size, &width, &height);
        if (rgba)
            put_frame(d, rgba, 0, 0, (size_t)width, (size_t)height);
        else
            damaged(d, "its data");
    }
    webp_chunk exif = find_chunk(d->file + WEBP_HEAD, d->size - WEBP_HEAD, "EXIF");
    if (exif.size > EXIF_HEAD && !memcmp(exif.data, exif_head, EXIF_HEAD))
        exif = (webp_chunk){exif.data + EXIF_HEAD, exif.size - EXIF_HEAD};
    if (!d->head.trouble[0])
        orient(d, exif.data, exif.size);
}

#else

/* A program without the decoders still recognises the kinds of files. */
static void decode_none(decoding *d)
{
    snprintf(d->head.trouble, sizeof d->head.trouble,
             "cannot be read: this program was built without libpng, libjpeg or libwebp");
}

#define decode_png  decode_none
#define decode_jpeg decode_none
#define decode_webp decode_none

#endif

/* ---- GIF --------------------------------------------------------------------------------------------------------- */

/* Decodes the first frame on a white canvas. Codes are LZW: each code adds a string to a table, which is the string of
 * the previous code and one more pixel. A string is stored as its last pixel and the index of the string before it. */

enum { GIF_CODES = 4096, GIF_EXTENSION = 0x21, GIF_FRAME = 0x2c, GIF_CONTROL = 0xf9 };

typedef struct gif_reader {
    decoding *decoding;
    size_t at;
    unsigned left; /* number of bytes left in the current block */
    uint32_t bits, n_bits;
    int transparent; /* colour; -1: none */
} gif_reader;

/* The next `n` bytes, or NULL. */
static const unsigned char *gif_bytes(gif_reader *r, size_t n)
{
    if (n > r->decoding->size - r->at)
        return NULL;
    r->at += n;
    return r->decoding->file + r->at - n;
}

/* The next byte of data, which is divided into blocks; -1 at the end of the data. */
static int gif_byte(gif_reader *r)
{
    const unsigned char *byte = NULL;
    if (!r->left && (byte = gif_bytes(r, 1)))
        r->left = *byte;
    if (!r->left || !(byte = gif_bytes(r, 1)))
        return -1;
    r->left--;
    return *byte;
}

static int gif_code(gif_reader *r, unsigned width)
{
    while (r->n_bits < width) {
        int byte = gif_byte(r);
        if (byte < 0)
            return -1;
        r->bits |= (uint32_t)byte << r->n_bits;
        r->n_bits += 8;
    }
    int code = (int)(r->bits & ((1u << width) - 1));
    r->bits >>= width;
    r->n_bits -= width;
    return code;
}

/* Decodes `n` colour numbers of a frame; false when the data ends before. */
static bool gif_pixels(gif_reader *r, unsigned char *out, size_t n)
{
    static uint16_t before[GIF_CODES];
    static unsigned char last[GIF_CODES], string[GIF_CODES];
    const unsigned char *smallest = gif_bytes(r, 1);
    if (!smallest || *smallest < 2 || *smallest > 8)
        return false;
    const int clear = 1 << *smallest, end = clear + 1;
    unsigned width = *smallest + 1u;
    int next = end + 1, previous = -1, first = 0;
    for (size_t done = 0; done < n;) {
        int code = gif_code(r, width), at = code;
        if (code < 0 || code == end || code > next || (code == next && previous < 0))
            return false;
        if (code == clear) {
            width = *smallest + 1u;
            next = end + 1;
            previous = -1;
            continue;
        }
        size_t length = 0;
        if (code == next) { /* the string that is being added: the previous string and its own first pixel */
            string[length++] = (unsigned char)first;
            at = previous;
        }
        for (; at > end && length < GIF_CODES - 1; at = before[at])
            string[length++] = last[at];
        first = at;
        string[length++] = (unsigned char)at;
        while (length && done < n)
            out[done++] = string[--length];
        if (previous >= 0 && next < GIF_CODES) {
            before[next] = (uint16_t)previous;
            last[next++] = (unsigned char)first;
            width += next == 1 << width && width < 12;
        }
        previous = code;
    }
    return true;
}

static unsigned gif_number(const unsigned char *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

/* A white canvas, which is larger than the file says where its first frame is. */
static bool gif_canvas(decoding *d, unsigned width, unsigned height)
{
    width = width > d->head.width ? width : d->head.width;
    height = height > d->head.height ? height : d->head.height;
    if (!begin(d, width, height))
        return false;
    memset(d->rgb, 255, (size_t)width * height * 3);
    return true;
}

static bool gif_frame(gif_reader *r, const unsigned char *colours, size_t n_colours)
{
    static const unsigned first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    decoding *d = r->decoding;
    const unsigned char *head = gif_bytes(r, 9);
    if (!head)
        return false;
    unsigned left = gif_number(head), top = gif_number(head + 2), w = gif_number(head + 4), h = gif_number(head + 6);
    if (!gif_canvas(d, left + w, top + h))
        return false;
    if (head[8] & 0x80) {
        n_colours = (size_t)2 << (head[8] & 7);
        colours = gif_bytes(r, n_colours * 3);
    }
    unsigned char *pixels = (size_t)w * h <= d->max_pixels ? malloc((size_t)w * h + 1) : NULL;
    if (!colours || !pixels || !gif_pixels(r, pixels, (size_t)w * h))
        return false;
    bool interlaced = head[8] & 0x40;
    for (unsigned pass = 0; pass < (interlaced ? 4u : 1u); pass++)
        for (unsigned y = interlaced ? first[pass] : 0; y < h; y += interlaced ? step[pass] : 1)
            for (unsigned x = 0; x < w; x++) {
                unsigned char colour = *pixels++;
                if (colour != r->transparent && colour < n_colours && left + x < d->head.width &&
                    top + y < d->head.height)
                    memcpy(d->rgb + ((size_t)(top + y) * d->head.width + left + x) * 3, colours + colour * 3u, 3);
            }
    return true;
}

static bool gif_extension(gif_reader *r)
{
    const unsigned char *kind = gif_bytes(r, 1), *size, *block;
    while ((size = kind ? gif_bytes(r, 1) : NULL) && *size && (block = gif_bytes(r, *size)))
        if (*kind == GIF_CONTROL && *size >= 4 && block[0] & 1)
            r->transparent = block[3];
    return size && !*size;
}

static void decode_gif(decoding *d)
{
    gif_reader r = {.decoding = d, .transparent = -1};
    const unsigned char *head = gif_bytes(&r, 13), *kind;
    if (!head) {
        damaged(d, "");
        return;
    }
    size_t n_colours = head[10] & 0x80 ? (size_t)2 << (head[10] & 7) : 0;
    const unsigned char *colours = n_colours ? gif_bytes(&r, n_colours * 3) : NULL;
    if (!begin(d, gif_number(head + 6), gif_number(head + 8)))
        return;
    free(d->rgb); /* the frame decides */
    d->rgb = NULL;
    while ((kind = gif_bytes(&r, 1)) && *kind == GIF_EXTENSION && gif_extension(&r))
        ;
    if (!kind || *kind != GIF_FRAME || !gif_frame(&r, colours, n_colours))
        damaged(d, "its first frame");
}

/* ---- choosing the decoder ---------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *magic;
    size_t at, length;
    void (*decode)(decoding *d);
} kinds[] = {{"PNG", "\x89PNG\r\n\x1a\n", 0, 8, decode_png},
             {"JPEG", "\xff\xd8\xff", 0, 3, decode_jpeg},
             {"WebP", "WEBP", 8, 4, decode_webp},
             {"GIF", "GIF8", 0, 4, decode_gif}};

static size_t kind_of(const void *file, size_t size)
{
    size_t i = 0;
    while (i < SPRY_COUNT(kinds) && !(size >= kinds[i].at + kinds[i].length &&
                                      !memcmp((const char *)file + kinds[i].at, kinds[i].magic, kinds[i].length)))
        i++;
    return i;
}

const char *spry_image_kind(const void *file, size_t size)
{
    size_t i = kind_of(file, size);
    return i < SPRY_COUNT(kinds) ? kinds[i].name : NULL;
}

static void work(void *context, spry_isolated_write write, void *self)
{
    decoding *d = context;
    kinds[kind_of(d->file, d->size)].decode(d);
    if (write(self, &d->head, sizeof d->head) && !d->head.trouble[0])
        write(self, d->rgb, (size_t)d->head.width * d->head.height * 3);
}

spry_status spry_image_decode(spry_image *out, const void *file, size_t size, size_t max_pixels, const char *name,
                              spry_error *error)
{
    *out = (spry_image){0};
    if (!spry_image_kind(file, size))
        return spry_fail(error, SPRY_ERR_INPUT, "%s is no PNG, JPEG, WebP or GIF file", name);
    decoding d = {.file = file, .size = size, .max_pixels = max_pixels};
    sent_head h;
    spry_buffer bytes;
    spry_buffer_init(&bytes, sizeof h + max_pixels * 3);
    spry_status status = spry_isolated_run(&bytes, work, &d, SECONDS, error);
    if (status) {
        spry_buffer_deinit(&bytes);
        return spry_fail_prefix(error, status == SPRY_ERR_FORMAT ? SPRY_ERR_INPUT : status, name);
    }
    if (bytes.size >= sizeof h)
        memcpy(&h, bytes.data, sizeof h);
    if (bytes.size < sizeof h || (!h.trouble[0] && bytes.size != sizeof h + (size_t)h.width * h.height * 3))
        status = spry_fail(error, SPRY_ERR_INPUT, "%s: the child process that read it failed", name);
    else if (h.trouble[0])
        status = spry_fail(error, SPRY_ERR_INPUT, "%s %.*s", name, (int)sizeof h.trouble - 1, h.trouble);
    if (status) {
        spry_buffer_deinit(&bytes);
        return status;
    }
    spry_buffer_consume(&bytes, sizeof h);
    *out = (spry_image){h.width, h.height, (unsigned char *)bytes.data};
    return SPRY_OK;
}

void spry_image_deinit(spry_image *image)
{
    free(image->rgb);
    *image = (spry_image){0};
}
