/* Where speech begins and ends: a made voice (harmonics of 120 Hz, four syllables a second) in silence and in noise of
 * several kinds; and what is no speech. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "spry_voice.h"

enum { RATE = SPRY_SOUND_RATE, SECONDS = 6, SAMPLES = RATE * SECONDS };
#define PI 3.14159265358979323846

static double gaussian(spry_random *random)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += spry_random_unit(random);
    return sum - 6;
}

/* Speech from 2 to 4 seconds with power 0.01 within syllables. */
static void add_voice(float *x)
{
    for (size_t i = 2 * RATE; i < 4 * RATE; i++) {
        double t = (double)i / RATE, voice = 0, syllable = sin(PI * fmod(t * 4, 1));
        for (int h = 1; h <= 20; h++)
            voice += sin(2 * PI * 120 * h * t) / h;
        x[i] += (float)(0.1 * voice * syllable);
    }
}

/* `colour`: 0 is white; towards 1 low tones are louder. */
static void add_noise(float *x, double power, double colour)
{
    spry_random random;
    double low = 0, scale = sqrt(power * (1 - colour * colour));
    spry_random_seed(&random, 7);
    for (size_t i = 0; i < SAMPLES; i++) {
        low = colour * low + gaussian(&random);
        x[i] += (float)(scale * low);
    }
}

typedef struct events {
    size_t begins, ends;
    double begin, end;
} events;

static events listen(const float *x)
{
    spry_vad *vad;
    events e = {0};
    assert_int_equal(spry_vad_create(&vad, NULL, NULL), SPRY_OK);
    for (size_t i = 0; i + SPRY_VAD_STEP <= SAMPLES; i += SPRY_VAD_STEP) {
        spry_vad_event event = spry_vad_push(vad, x + i);
        e.begins += event == SPRY_VAD_BEGIN;
        e.ends += event == SPRY_VAD_END;
    }
    e.begin = (double)spry_vad_begin_at(vad) / RATE;
    e.end = (double)spry_vad_end_at(vad) / RATE;
    spry_vad_destroy(vad);
    return e;
}

static void test_speech(void **state)
{
    (void)state;
    const struct {
        double noise, colour;
    } scenes[] = {{0, 0}, {1e-6, 0}, {0.001, 0}, {0.001, 0.9}};
    float *x = malloc(SAMPLES * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        memset(x, 0, SAMPLES * sizeof *x);
        add_voice(x);
        add_noise(x, scenes[i].noise, scenes[i].colour);
        events e = listen(x);
        assert_int_equal(e.begins, 1);
        assert_int_equal(e.ends, 1);
        assert_true(e.begin > 1.5 && e.begin < 2.1); /* with what precedes it */
        assert_true(e.end > 3.8 && e.end < 4.2);
    }
    free(x);
}

static void test_no_speech(void **state)
{
    (void)state;
    float *x = calloc(SAMPLES, sizeof *x);
    assert_non_null(x);
    assert_int_equal(listen(x).begins, 0); /* silence */
    add_noise(x, 0.01, 0);
    assert_int_equal(listen(x).begins, 0); /* steady noise */
    memset(x, 0, SAMPLES * sizeof *x);
    add_noise(x, 0.01, 0.95);
    assert_int_equal(listen(x).begins, 0);
    memset(x, 0, SAMPLES * sizeof *x);
    for (size_t i = 3 * RATE; i < 3 * RATE + 200; i++) /* a click */
        x[i] = 0.8f;
    assert_int_equal(listen(x).begins, 0);
    free(x);
}

/* A loud hum that starts does not stay speech. */
static void test_noise_begins(void **state)
{
    (void)state;
    float *x = calloc(SAMPLES, sizeof *x);
    assert_non_null(x);
    for (size_t i = RATE; i < SAMPLES; i++)
        x[i] = (float)(0.2 * sin(2 * PI * 440 * (double)i / RATE) + 0.1 * sin(2 * PI * 1330 * (double)i / RATE));
    events e = listen(x);
    assert_int_equal(e.begins, e.ends);
    free(x);
}

static void test_options(void **state)
{
    (void)state;
    spry_vad *vad;
    spry_vad_options options;
    spry_vad_options_default(&options);
    options.size = 3;
    assert_int_equal(spry_vad_create(&vad, &options, NULL), SPRY_ERR_INPUT);
    assert_null(vad);
    spry_vad_destroy(vad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_speech), cmocka_unit_test(test_no_speech),
                                       cmocka_unit_test(test_noise_begins), cmocka_unit_test(test_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
