/* Pictures of every kind, written by other programs (tests/data/images): their pixels are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "formats/image.h"
#include "platform/file.h"

enum { WIDTH = 6, HEIGHT = 4, MOST = 1 << 20 };

static bool can_decode(const char *test)
{
    static const unsigned char gif[] = "GIF89a";
    spry_image image;
    spry_error error = {0};
    if (spry_image_decode(&image, gif, sizeof gif, MOST, "it", &error) == SPRY_OK)
        fail();
    bool cannot = strstr(error.message, "built without") != NULL;
    if (cannot)
        print_message("SKIPPED %s: libpng, libjpeg and libwebp were not found when spry was built\n", test);
    return !cannot;
}

static void read_file(spry_buffer *file, const char *name)
{
    spry_error error = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/images/%s", TEST_DATA, name);
    spry_buffer_init(file, 1 << 16);
    if (spry_file_read(file, path, &error))
        fail_msg("%s", error.message);
}

static spry_image decode(const char *name)
{
    spry_buffer file;
    spry_image image;
    spry_error error = {0};
    read_file(&file, name);
    if (spry_image_decode(&image, file.data, file.size, MOST, name, &error))
        fail_msg("%s", error.message);
    spry_buffer_deinit(&file);
    return image;
}

static unsigned on_white(unsigned value, unsigned alpha)
{
    return (value * alpha + 255 * (255 - alpha) + 127) / 255;
}

/* Files without loss: a ramp in each colour; of "rgba" column 4 is half transparent, column 5 wholly. */
static void lossless_pictures_have_their_pixels(void **state)
{
    static const char *const names[] = {"rgb.png",  "rgb16.png", "interlaced.png", "palette.png",
                                        "rgba.png", "rgb.gif",   "interlaced.gif", "animated.gif",
                                        "rgb.webp", "rgba.webp", "animated.webp",  "animated-rgba.webp"};
    (void)state;
    if (!can_decode(__func__))
        skip();
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        spry_image image = decode(names[i]);
        bool alpha = strstr(names[i], "rgba") != NULL;
        assert_int_equal(image.width, WIDTH);
        assert_int_equal(image.height, HEIGHT);
        for (unsigned y = 0; y < HEIGHT; y++)
            for (unsigned x = 0; x < WIDTH; x++) {
                const unsigned values[] = {x * 40, y * 60, (x + y) * 20};
                unsigned opaque = !alpha || x < 4 ? 255 : x == 4 ? 128 : 0;
                for (unsigned c = 0; c < 3; c++) {
                    unsigned want = on_white(values[c], opaque), got = image.rgb[(y * WIDTH + x) * 3 + c];
                    if (got > want + 1 || want > got + 1)
                        fail_msg("%s: pixel %u, %u, colour %u is %u, not %u", names[i], x, y, c, got, want);
                }
            }
        spry_image_deinit(&image);
    }
}

enum { RED, GREEN, BLUE, YELLOW }; /* the quarters of the photographs: above, below */

static unsigned quarter_at(const spry_image *image, bool right, bool below)
{
    static const unsigned char colours[][3] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {255, 255, 0}};
    size_t x = right ? image->width - 2 : 1, y = below ? image->height - 2 : 1;
    const unsigned char *pixel = image->rgb + (y * image->width + x) * 3;
    for (unsigned i = 0; i < SPRY_COUNT(colours); i++) {
        int off = 0;
        for (unsigned c = 0; c < 3; c++)
            off = abs(pixel[c] - colours[i][c]) > off ? abs(pixel[c] - colours[i][c]) : off;
        if (off < 12)
            return i;
    }
    fail_msg("a corner is %u, %u, %u", pixel[0], pixel[1], pixel[2]);
    return 0;
}

static void expect_quarters(const spry_image *image, const unsigned quarters[4])
{
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(quarter_at(image, i % 2, i / 2), quarters[i]);
}

static void photographs_have_their_colours(void **state)
{
    static const char *const names[] = {"turned.jpg", "progressive.jpg", "cmyk.jpg", "quarters-animated.webp"};
    static const unsigned quarters[] = {RED, GREEN, BLUE, YELLOW};
    (void)state;
    if (!can_decode(__func__))
        skip();
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        spry_image image = decode(names[i]);
        assert_int_equal(image.width, 32);
        assert_int_equal(image.height, 16);
        expect_quarters(&image, quarters);
        spry_image_deinit(&image);
    }
    spry_image gray = decode("gray.jpg");
    for (size_t i = 0; i < (size_t)gray.width * gray.height; i++)
        assert_true(gray.rgb[i * 3] == gray.rgb[i * 3 + 1] && gray.rgb[i * 3] == gray.rgb[i * 3 + 2]);
    spry_image_deinit(&gray);
}

static spry_status decode_jpeg_bytes(const char *data, size_t size, spry_error *error)
{
    static const unsigned quarters[] = {RED, GREEN, BLUE, YELLOW};
    spry_image image;
    spry_status status = spry_image_decode(&image, data, size, MOST, "photo.jpg", error);
    if (!status)
        expect_quarters(&image, quarters);
    spry_image_deinit(&image);
    return status;
}

/* What libjpeg only warns of: bytes between parts or after the end, an end marker that is missing. A file that ends
 * within its pixels is no picture. */
static void photographs_with_small_faults_are_read(void **state)
{
    (void)state;
    if (!can_decode(__func__))
        skip();
    spry_buffer file, changed;
    spry_error error = {0};
    read_file(&file, "turned.jpg");
    const char *tables = memmem(file.data, file.size, "\xff\xc4", 2),
               *scan = memmem(file.data, file.size, "\xff\xda", 2);
    assert_true(tables && scan);
    spry_buffer_init(&changed, 1 << 16);
    spry_buffer_append(&changed, file.data, (size_t)(tables - file.data));
    spry_buffer_append(&changed, "junk", 4);
    spry_buffer_append(&changed, tables, file.size - (size_t)(tables - file.data));
    spry_buffer_append(&changed, "\0\0more junk", 11);
    assert_int_equal(decode_jpeg_bytes(changed.data, changed.size, &error), SPRY_OK);
    assert_int_equal(decode_jpeg_bytes(file.data, file.size - 2, &error), SPRY_OK);
    size_t first = (size_t)(scan - file.data) + 14, last = first + (file.size - first) / 2;
    for (size_t size = 4; size < last; size += size < first ? 7 : 1) {
        assert_int_equal(decode_jpeg_bytes(file.data, size, &error), SPRY_ERR_INPUT);
        assert_non_null(strstr(error.message, "photo.jpg is damaged"));
    }
    assert_non_null(strstr(error.message, "ends too early"));
    spry_buffer_deinit(&changed);
    spry_buffer_deinit(&file);
}

/* The eight orientations of EXIF: what is above and left, above and right, below and left, below and right. */
static void photographs_are_turned_as_they_say(void **state)
{
    static const unsigned quarters[][4] = {
        {RED, GREEN, BLUE, YELLOW}, {GREEN, RED, YELLOW, BLUE}, {YELLOW, BLUE, GREEN, RED}, {BLUE, YELLOW, RED, GREEN},
        {RED, BLUE, GREEN, YELLOW}, {BLUE, RED, YELLOW, GREEN}, {YELLOW, GREEN, BLUE, RED}, {GREEN, YELLOW, RED, BLUE}};
    static const unsigned char tag[] = {0x12, 1, 3, 0, 1, 0, 0, 0, 1, 0};
    (void)state;
    if (!can_decode(__func__))
        skip();
    spry_buffer file;
    read_file(&file, "turned.jpg");
    char *found = memmem(file.data, file.size, tag, sizeof tag);
    assert_non_null(found);
    for (unsigned how = 0; how <= 9; how++) {
        spry_image image;
        spry_error error = {0};
        bool valid = how >= 1 && how <= 8;
        found[8] = (char)how;
        assert_int_equal(spry_image_decode(&image, file.data, file.size, MOST, "it", &error), SPRY_OK);
        assert_int_equal(image.width, valid && how > 4 ? 16 : 32);
        assert_int_equal(image.height, valid && how > 4 ? 32 : 16);
        expect_quarters(&image, quarters[valid ? how - 1 : 0]);
        spry_image_deinit(&image);
    }
    spry_buffer_deinit(&file);
}

/* EXIF data of PNG files, before and after the pixels, and of WebP files: the first row is right, the first column
 * above. */
static void other_files_are_turned_too(void **state)
{
    static const char *const names[] = {"turned.png", "turned-late.png", "turned.webp"};
    static const unsigned quarters[] = {BLUE, RED, YELLOW, GREEN};
    (void)state;
    if (!can_decode(__func__))
        skip();
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        spry_image image = decode(names[i]);
        assert_int_equal(image.width, 16);
        assert_int_equal(image.height, 32);
        expect_quarters(&image, quarters);
        spry_image_deinit(&image);
    }
    spry_buffer file;
    read_file(&file, "turned-late.png");
    const char *end = memmem(file.data, file.size, "eXIf", 4);
    assert_non_null(end);
    spry_image image; /* what follows the pixels may be damaged */
    assert_int_equal(spry_image_decode(&image, file.data, (size_t)(end - file.data) + 9, MOST, "it", NULL), SPRY_OK);
    assert_int_equal(image.width, 32);
    spry_image_deinit(&image);
    spry_buffer_deinit(&file);
}

static void expect_pixel(const spry_image *image, unsigned x, unsigned y, unsigned red, unsigned green, unsigned blue)
{
    const unsigned char *pixel = image->rgb + (y * image->width + x) * 3;
    if (pixel[0] != red || pixel[1] != green || pixel[2] != blue)
        fail_msg("pixel %u, %u is %u, %u, %u", x, y, pixel[0], pixel[1], pixel[2]);
}

/* A first frame that is smaller than the picture is on white; a GIF picture is as large as its first frame. */
static void frames_have_places(void **state)
{
    static unsigned char gif[] = "GIF89a\2\0\2\0\x80\0\0\xff\0\0\0\0\xff,\1\0\1\0\2\0\2\0\0\2\3\x44\x18\x14\0;";
    (void)state;
    if (!can_decode(__func__))
        skip();
    spry_image image = decode("offset.webp");
    assert_int_equal(image.width, WIDTH);
    assert_int_equal(image.height, HEIGHT);
    for (unsigned y = 0; y < HEIGHT; y++)
        for (unsigned x = 0; x < WIDTH; x++)
            if (x < 2 || y < 2)
                expect_pixel(&image, x, y, 255, 255, 255);
            else
                expect_pixel(&image, x, y, x * 40, y * 60, (x + y) * 20);
    spry_image_deinit(&image);
    assert_int_equal(spry_image_decode(&image, gif, sizeof gif - 1, MOST, "it", NULL), SPRY_OK);
    assert_int_equal(image.width, 3);
    assert_int_equal(image.height, 3);
    expect_pixel(&image, 0, 0, 255, 255, 255);
    expect_pixel(&image, 1, 1, 255, 0, 0);
    expect_pixel(&image, 2, 1, 0, 0, 255);
    spry_image_deinit(&image);
}

/* JPEG files that libjpeg does not read are not damaged: 12 bits a colour, files without loss. */
static void kinds_that_are_not_read_are_named(void **state)
{
    (void)state;
    if (!can_decode(__func__))
        skip();
    spry_buffer file;
    spry_image image;
    read_file(&file, "turned.jpg");
    char *frame = memmem(file.data, file.size, "\xff\xc0", 2);
    assert_non_null(frame);
    for (unsigned i = 0; i < 2; i++) {
        spry_error error = {0};
        frame[1] = i ? '\xc3' : '\xc1';
        frame[4] = i ? 8 : 12;
        assert_int_equal(spry_image_decode(&image, file.data, file.size, MOST, "it", &error), SPRY_ERR_INPUT);
        assert_non_null(strstr(error.message, "of a kind that is not read"));
        assert_null(strstr(error.message, "damaged"));
    }
    spry_buffer_deinit(&file);
}

/* Every file cut at every length: a picture, as far as it is there, or a sentence; never anything else. */
static void cut_files_are_pictures_or_sentences(void **state)
{
    static const char *const names[] = {"rgba.png",   "animated.gif",       "rgba.webp",
                                        "turned.jpg", "animated-rgba.webp", "turned-late.png"};
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        spry_buffer file;
        read_file(&file, names[i]);
        for (size_t size = 0; size < file.size; size += 1 + file.size / 24) {
            spry_image image;
            spry_error error = {0};
            if (spry_image_decode(&image, file.data, size, MOST, names[i], &error) == SPRY_OK)
                spry_image_deinit(&image);
            else
                assert_non_null(strstr(error.message, names[i]));
        }
        spry_buffer_deinit(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lossless_pictures_have_their_pixels),
        cmocka_unit_test(photographs_with_small_faults_are_read),
        cmocka_unit_test(photographs_have_their_colours),
        cmocka_unit_test(photographs_are_turned_as_they_say),
        cmocka_unit_test(cut_files_are_pictures_or_sentences),
        cmocka_unit_test(other_files_are_turned_too),
        cmocka_unit_test(frames_have_places),
        cmocka_unit_test(kinds_that_are_not_read_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
