/* WAV files of every kind and cut anywhere, and conversion of sample rates against the sine that it should give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "voice/wave.h"

static const double PI = 3.14159265358979323846;

static void put(unsigned char *p, uint64_t value, int bytes)
{
    for (int b = 0; b < bytes; b++)
        p[b] = (unsigned char)(value >> (8 * b));
}

/* A file with one chunk before its format, of odd length, and `bytes` of samples; returns its size. */
static size_t make_file(unsigned char *out, unsigned tag, unsigned channels, unsigned rate, unsigned bits,
                        const void *samples, size_t bytes)
{
    bool extended = tag == 0xfffe;
    memcpy(out, "RIFF....WAVELIST\3\0\0\0abc", 23);
    out[23] = 0;
    unsigned char *p = out + 24;
    memcpy(p, "fmt ", 4);
    put(p + 4, extended ? 40 : 16, 4);
    memset(p + 8, 0, 40);
    put(p + 8, tag, 2);
    put(p + 10, channels, 2);
    put(p + 12, rate, 4);
    put(p + 16, (uint64_t)rate * channels * (bits / 8), 4);
    put(p + 20, channels * (bits / 8), 2);
    put(p + 22, bits, 2);
    put(p + 32, 1, 2); /* what an extended format really has: PCM */
    p += extended ? 48 : 24;
    memcpy(p, "data", 4);
    put(p + 4, bytes, 4);
    memcpy(p + 8, samples, bytes);
    size_t size = (size_t)(p + 8 - out) + bytes;
    put(out + 4, size - 8, 4);
    return size;
}

static void test_codings(void **state)
{
    (void)state;
    static const struct {
        unsigned tag, bits;
        unsigned char bytes[16];
        float wanted[2];
    } cases[] = {
        {1, 8, {192, 64}, {0.5f, -0.5f}},
        {1, 16, {0, 0x40, 0, 0xc0}, {0.5f, -0.5f}},
        {1, 24, {0, 0, 0x40, 0, 0, 0xc0}, {0.5f, -0.5f}},
        {1, 32, {0, 0, 0, 0x40, 0, 0, 0, 0xc0}, {0.5f, -0.5f}},
        {0xfffe, 16, {0, 0x40, 0, 0xc0}, {0.5f, -0.5f}},
        {3, 32, {0, 0, 0, 0x3f, 0, 0, 0, 0xbf}, {0.5f, -0.5f}},
        {3, 64, {0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 0, 0, 0, 0, 0, 0, 0xe0, 0xbf}, {0.5f, -0.5f}},
        {7, 8, {0x80, 0xff}, {32124.0f / 32768, 0}},
        {6, 8, {0xaa, 0x2a}, {32256.0f / 32768, -32256.0f / 32768}},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        unsigned char file[256];
        float samples[4] = {9, 9, 9, 9};
        spry_wave wave;
        size_t bytes = 2 * cases[i].bits / 8,
               size = make_file(file, cases[i].tag, 1, 8000, cases[i].bits, cases[i].bytes, bytes);
        assert_int_equal(spry_wave_open(&wave, file, size, "a", NULL), SPRY_OK);
        assert_int_equal(wave.rate, 8000);
        assert_int_equal(spry_wave_read(&wave, samples, 4), 2);
        for (int s = 0; s < 2; s++)
            assert_true(fabsf(samples[s] - cases[i].wanted[s]) < 1e-6f);
        assert_int_equal(spry_wave_read(&wave, samples, 4), 0);
    }
}

static void test_channels_are_averaged_and_values_limited(void **state)
{
    (void)state;
    const float frames[] = {1, 0.5f, INFINITY, 0, 8, 8, NAN, 0};
    unsigned char file[256];
    float samples[4];
    spry_wave wave;
    size_t size = make_file(file, 3, 2, 16000, 32, frames, sizeof frames);
    assert_int_equal(spry_wave_open(&wave, file, size, "a", NULL), SPRY_OK);
    assert_int_equal(spry_wave_read(&wave, samples, 4), 4);
    const float wanted[] = {0.75f, 0, 1, 0};
    assert_memory_equal(samples, wanted, sizeof wanted);
}

/* Cut at every byte, and with every byte changed: an error or samples, never more than the file has. */
static void test_hostile(void **state)
{
    (void)state;
    const int16_t frames[] = {1, 2, 3, 4};
    unsigned char file[256];
    size_t size = make_file(file, 1, 2, 16000, 16, frames, sizeof frames);
    for (size_t cut = 0; cut <= size; cut++)
        for (int change = 0; change < 3; change++) {
            unsigned char *copy = malloc(cut + 1); /* exactly as long, so that a sanitizer sees what is read after it */
            spry_wave wave;
            spry_error error = {0};
            float samples[1000];
            assert_non_null(copy);
            unsigned char *end = copy + 1;
            memcpy(end, file, cut);
            if (cut && change)
                end[(cut * 7 + (size_t)change) % cut] ^= change == 1 ? 0xff : 0x80;
            if (spry_wave_open(&wave, end, cut, "a", &error) == SPRY_OK)
                assert_true(spry_wave_read(&wave, samples, 1000) * wave.channels * wave.sample_bytes <= cut);
            else
                assert_true(error.message[0]);
            free(copy);
        }
    unsigned char many[300] = "RIFF....WAVE";
    spry_wave wave;
    assert_int_equal(spry_wave_open(&wave, many, 300, "a", NULL), SPRY_ERR_FORMAT); /* empty chunks to the end */
    make_file(file, 1, 65, 16000, 16, frames, 0);
    assert_int_equal(spry_wave_open(&wave, file, 60, "a", NULL), SPRY_ERR_UNSUPPORTED);
    make_file(file, 0x11, 1, 16000, 4, frames, 0);
    assert_int_equal(spry_wave_open(&wave, file, 60, "a", NULL), SPRY_ERR_UNSUPPORTED);
}

typedef struct tone {
    double frequency, rate;
    size_t at, n;
} tone;

static size_t read_tone(void *user, float *samples, size_t count)
{
    tone *t = user;
    size_t n = t->n - t->at < count ? t->n - t->at : count;
    n = n > 700 ? 700 : n; /* readers may give less */
    for (size_t i = 0; i < n; i++, t->at++)
        samples[i] = (float)(0.5 * sin(2 * PI * t->frequency * (double)t->at / t->rate));
    return n;
}

/* A second of a tone; returns the largest difference from the same tone at 16 kHz times `gain`, away from both ends. */
static double convert_tone(unsigned rate, double frequency, double gain)
{
    tone t = {frequency, rate, 0, rate};
    spry_resampler *r;
    static float out[20000];
    size_t n = 0, got;
    double worst = 0;
    assert_int_equal(spry_resampler_create(&r, rate, read_tone, &t, NULL), SPRY_OK);
    while ((got = spry_resampler_read(r, out + n, 333)) > 0)
        n += got;
    spry_resampler_destroy(r);
    assert_in_range(n, SPRY_SOUND_RATE - 1, SPRY_SOUND_RATE + 1);
    for (size_t i = 800; i < n - 800; i++)
        worst = fmax(worst, fabs((double)out[i] - gain * 0.5 * sin(2 * PI * frequency * (double)i / SPRY_SOUND_RATE)));
    return worst;
}

static void test_tones_keep_their_shape(void **state)
{
    (void)state;
    static const unsigned rates[] = {1000, 8000, 11025, 16000, 22050, 44100, 48000, 96000, 768000};
    for (size_t i = 0; i < SPRY_COUNT(rates); i++) {
        double highest = (rates[i] < SPRY_SOUND_RATE ? rates[i] : SPRY_SOUND_RATE) / 2.0;
        assert_true(convert_tone(rates[i], 0.1 * highest, 1) < 1e-3);
        assert_true(convert_tone(rates[i], 0.7 * highest, 1) < 1e-3);
    }
    /* What 16 kHz cannot hold is removed, and does not come back as another tone. */
    assert_true(convert_tone(48000, 12000, 0) < 1e-3);
    assert_true(convert_tone(44100, 9500, 0) < 1e-3);
}

static void test_header_is_read_back(void **state)
{
    (void)state;
    unsigned char file[SPRY_WAVE_HEADER + 4] = {0};
    spry_wave wave;
    float samples[4];
    spry_wave_header(file, 4);
    file[SPRY_WAVE_HEADER + 1] = 0x40;
    assert_int_equal(spry_wave_open(&wave, file, sizeof file, "a", NULL), SPRY_OK);
    assert_int_equal(wave.rate, SPRY_SOUND_RATE);
    assert_int_equal(wave.channels, 1);
    assert_int_equal(spry_wave_read(&wave, samples, 4), 2);
    assert_true(samples[0] == 0.5f && samples[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codings),
        cmocka_unit_test(test_channels_are_averaged_and_values_limited),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_tones_keep_their_shape),
        cmocka_unit_test(test_header_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
