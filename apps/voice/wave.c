#include "voice/wave.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- WAV --------------------------------------------------------------------------------------------------------- */

enum { TAG_PCM = 1, TAG_FLOAT = 3, TAG_ALAW = 6, TAG_ULAW = 7, TAG_EXTENSIBLE = 0xfffe };

static unsigned read_u16(const unsigned char *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

static uint32_t read_u32(const unsigned char *p)
{
    return read_u16(p) | (uint32_t)read_u16(p + 2) << 16;
}

static spry_status read_format(spry_wave *wave, const unsigned char *p, size_t size, const char *name,
                               spry_error *error)
{
    if (size < 16)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: a WAV file with a format of %zu bytes, at least 16", name, size);
    unsigned tag = read_u16(p), block = read_u16(p + 12), bits = read_u16(p + 14);
    if (tag == TAG_EXTENSIBLE && size >= 26)
        tag = read_u16(p + 24);
    wave->channels = read_u16(p + 2);
    wave->rate = read_u32(p + 4);
    wave->sample_bytes = (bits + 7) / 8;
    wave->coding = tag == TAG_FLOAT  ? SPRY_WAVE_FLOAT
                   : tag == TAG_ALAW ? SPRY_WAVE_ALAW
                   : tag == TAG_ULAW ? SPRY_WAVE_ULAW
                                     : SPRY_WAVE_PCM;
    bool known = tag == TAG_PCM     ? bits >= 8 && bits <= 32
                 : tag == TAG_FLOAT ? bits == 32 || bits == 64
                                    : (tag == TAG_ALAW || tag == TAG_ULAW) && bits == 8;
    if (!known)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: a WAV file with samples of kind %u in %u bits cannot be read; convert it to 16-bit PCM",
                         name, tag, bits);
    if (wave->channels < 1 || wave->channels > SPRY_SOUND_CHANNELS_MAX || wave->rate < SPRY_SOUND_RATE_LEAST ||
        wave->rate > SPRY_SOUND_RATE_MOST)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: %u channels at %lu Hz; at most %d channels at %d to %d Hz",
                         name, wave->channels, (unsigned long)wave->rate, SPRY_SOUND_CHANNELS_MAX,
                         SPRY_SOUND_RATE_LEAST, SPRY_SOUND_RATE_MOST);
    if (block != wave->channels * wave->sample_bytes)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: a WAV file with frames of %u bytes for %u channels of %u bits",
                         name, block, wave->channels, bits);
    return SPRY_OK;
}

spry_status spry_wave_open(spry_wave *wave, const void *data, size_t size, const char *name, spry_error *error)
{
    const unsigned char *p = data;
    bool has_format = false;
    *wave = (spry_wave){0};
    if (size < 12 || memcmp(p, "RIFF", 4) != 0 || memcmp(p + 8, "WAVE", 4) != 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: not a WAV file", name);
    for (size_t at = 12; size - at >= 8;) {
        const unsigned char *chunk = p + at;
        size_t bytes = read_u32(chunk + 4), left = size - at - 8;
        if (memcmp(chunk, "data", 4) == 0 && has_format) {
            /* Programs that do not know the length beforehand write 0 or the largest number. */
            if (bytes > left || bytes == 0)
                bytes = left;
            wave->frames = chunk + 8;
            wave->n_frames = bytes / (wave->channels * wave->sample_bytes);
            return SPRY_OK;
        }
        if (bytes > left)
            break;
        if (memcmp(chunk, "fmt ", 4) == 0) {
            spry_status status = read_format(wave, chunk + 8, bytes, name, error);
            if (status != SPRY_OK)
                return status;
            has_format = true;
        }
        bytes += bytes % 2; /* chunks begin at even places */
        at += 8 + (bytes < left ? bytes : left);
    }
    return spry_fail(error, SPRY_ERR_FORMAT, "%s: a WAV file without %s", name, has_format ? "samples" : "a format");
}

/* G.711: eight bits as sign, exponent and fraction. */
static float decode_law(unsigned char byte, spry_wave_coding coding)
{
    unsigned code = coding == SPRY_WAVE_ALAW ? byte ^ 0x55u : ~(unsigned)byte & 0xff, exponent = code >> 4 & 7;
    int value;
    if (coding == SPRY_WAVE_ALAW) {
        value = (int)(code & 15) * 16 + 8;
        value = exponent ? (value + 256) << (exponent - 1) : value;
        return (float)(code & 0x80 ? value : -value) / 32768;
    }
    value = ((((int)(code & 15) << 3) + 132) << exponent) - 132;
    return (float)(code & 0x80 ? -value : value) / 32768;
}

static float decode_sample(const spry_wave *wave, const unsigned char *p)
{
    if (wave->coding == SPRY_WAVE_FLOAT && wave->sample_bytes == 4) {
        float value;
        memcpy(&value, p, sizeof value);
        return value;
    }
    if (wave->coding == SPRY_WAVE_FLOAT) {
        double value;
        memcpy(&value, p, sizeof value);
        return (float)value;
    }
    if (wave->coding != SPRY_WAVE_PCM)
        return decode_law(*p, wave->coding);
    if (wave->sample_bytes == 1) /* the only unsigned one */
        return ((float)*p - 128) / 128;
    uint32_t bits = 0; /* left-justified */
    for (unsigned b = 0; b < wave->sample_bytes; b++)
        bits |= (uint32_t)p[b] << (8 * (4 - wave->sample_bytes + b));
    return (float)((double)(int32_t)bits / 2147483648.0);
}

size_t spry_wave_read(void *user, float *samples, size_t count)
{
    spry_wave *wave = user;
    size_t n = wave->n_frames - wave->at < count ? wave->n_frames - wave->at : count;
    for (size_t i = 0; i < n; i++, wave->at++) {
        const unsigned char *frame = wave->frames + wave->at * wave->channels * wave->sample_bytes;
        float sum = 0;
        for (unsigned c = 0; c < wave->channels; c++)
            sum += decode_sample(wave, frame + c * wave->sample_bytes);
        sum /= (float)wave->channels;
        samples[i] = isfinite(sum) ? fmaxf(-1, fminf(1, sum)) : 0;
    }
    return n;
}

static void put(unsigned char *p, uint32_t value, int bytes)
{
    for (int b = 0; b < bytes; b++)
        p[b] = (unsigned char)(value >> (8 * b));
}

void spry_wave_header(unsigned char header[SPRY_WAVE_HEADER], uint32_t bytes)
{
    memcpy(header, "RIFF....WAVEfmt ", 16);
    put(header + 4, bytes + SPRY_WAVE_HEADER - 8, 4);
    put(header + 16, 16, 4);
    put(header + 20, TAG_PCM, 2);
    put(header + 22, 1, 2);
    put(header + 24, SPRY_SOUND_RATE, 4);
    put(header + 28, SPRY_SOUND_RATE * 2, 4);
    put(header + 32, 2, 2);
    put(header + 34, 16, 2);
    memcpy(header + 36, "data", 4);
    put(header + 40, bytes, 4);
}

/* ---- sample rates ------------------------------------------------------------------------------------------------ */

enum { ZEROS = 24, STEPS = 256, READ_AHEAD = 4096 };
static const double BETA = 9, PASS = 0.95; /* stop band 90 dB down, and the share of the band that is kept */

struct spry_resampler {
    spry_sound_reader read;
    void *user;
    unsigned rate;
    size_t half;     /* inputs on either side of an output */
    double cutoff;   /* cutoff frequency as a share of half the input's rate */
    float *kernel;   /* [ZEROS * STEPS + 2]: weights by distance in zero crossings */
    float *inputs;   /* the inputs that are buffered */
    uint64_t first;  /* index of inputs[0], plus `half`: zeros come before the first sample */
    size_t n_inputs; /* without the zeros after the last sample */
    size_t capacity;
    uint64_t n_read, n_written;
    bool ended;
};

/* The modified Bessel function of order 0. */
static double bessel(double x)
{
    double sum = 1, term = 1;
    for (int k = 1; k < 60 && term > sum * 1e-12; k++) {
        term *= x / (2 * k) * (x / (2 * k));
        sum += term;
    }
    return sum;
}

spry_status spry_resampler_create(spry_resampler **out, unsigned rate, spry_sound_reader read, void *user,
                                  spry_error *error)
{
    const double pi = 3.14159265358979323846;
    spry_resampler *r = *out = calloc(1, sizeof *r);
    if (!r)
        return spry_fail_memory(error, "converting sound", sizeof *r);
    r->read = read;
    r->user = user;
    r->rate = rate;
    r->cutoff = PASS * (rate > SPRY_SOUND_RATE ? (double)SPRY_SOUND_RATE / rate : 1);
    r->half = (size_t)ceil(ZEROS / r->cutoff) + 1;
    r->capacity = 2 * r->half + READ_AHEAD;
    r->n_inputs = r->half;
    r->kernel = calloc(ZEROS * STEPS + 2, sizeof *r->kernel);
    r->inputs = calloc(r->capacity, sizeof *r->inputs);
    if (!r->kernel || !r->inputs) {
        spry_fail_memory(error, "converting sound", r->capacity * sizeof *r->inputs);
        spry_resampler_destroy(r);
        *out = NULL;
        return SPRY_ERR_MEMORY;
    }
    for (int i = 0; i <= ZEROS * STEPS; i++) {
        double x = (double)i / STEPS, share = x / ZEROS;
        double sinc = i ? sin(pi * x) / (pi * x) : 1;
        r->kernel[i] = (float)(r->cutoff * sinc * bessel(BETA * sqrt(1 - share * share)) / bessel(BETA));
    }
    return SPRY_OK;
}

void spry_resampler_destroy(spry_resampler *r)
{
    if (!r)
        return;
    free(r->kernel);
    free(r->inputs);
    free(r);
}

/* Drops inputs before `from` and reads until `until` or the end; what follows the end is zero. */
static void refill(spry_resampler *r, uint64_t from, uint64_t until)
{
    size_t drop = (size_t)(from - r->first) < r->n_inputs ? (size_t)(from - r->first) : r->n_inputs;
    memmove(r->inputs, r->inputs + drop, (r->n_inputs - drop) * sizeof *r->inputs);
    r->n_inputs -= drop;
    r->first += drop;
    while (!r->ended && r->first + r->n_inputs < until) {
        size_t n = r->read(r->user, r->inputs + r->n_inputs, r->capacity - r->n_inputs);
        r->n_inputs += n;
        r->n_read += n;
        r->ended = n == 0;
    }
}

size_t spry_resampler_read(void *user, float *samples, size_t count)
{
    spry_resampler *r = user;
    for (size_t n = 0; n < count; n++, r->n_written++) {
        uint64_t exact = r->n_written * r->rate, centre = exact / SPRY_SOUND_RATE;
        double fraction = (double)(exact % SPRY_SOUND_RATE) / SPRY_SOUND_RATE, sum = 0;
        /* `half` zeros come before the first sample, so the window of `centre` begins at that index. */
        if (!r->ended && r->first + r->n_inputs < centre + 2 * r->half)
            refill(r, centre, centre + 2 * r->half);
        if (r->ended && centre >= r->n_read)
            return n;
        for (size_t i = 0; i < 2 * r->half; i++) {
            uint64_t at = centre + i - r->first;
            double distance = fabs((double)i - (double)r->half - fraction) * r->cutoff * STEPS;
            size_t step = (size_t)distance;
            if (at >= r->n_inputs || step >= ZEROS * STEPS)
                continue;
            float share = (float)(distance - (double)step);
            sum += (double)r->inputs[at] * (double)(r->kernel[step] + share * (r->kernel[step + 1] - r->kernel[step]));
        }
        samples[n] = (float)fmax(-1, fmin(1, sum));
    }
    return count;
}

/* 16-bit samples that a resampler reads. */
typedef struct pcm_source {
    const int16_t *samples;
    size_t count;
} pcm_source;

static size_t read_pcm(void *user, float *samples, size_t count)
{
    pcm_source *source = user;
    size_t n = source->count < count ? source->count : count;
    for (size_t i = 0; i < n; i++)
        samples[i] = (float)source->samples[i] / 32768;
    source->samples += n;
    source->count -= n;
    return n;
}

spry_status spry_sound_convert(int16_t **out, size_t *n_out, const int16_t *samples, size_t count, unsigned rate,
                               spry_error *error)
{
    enum { BLOCK = 1024 };
    float block[BLOCK];
    pcm_source source = {samples, count};
    spry_resampler *r;
    *out = NULL;
    *n_out = 0;
    if (rate < SPRY_SOUND_RATE_LEAST || rate > SPRY_SOUND_RATE_MOST)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "sound at %u Hz; %d to %d Hz can be converted", rate,
                         SPRY_SOUND_RATE_LEAST, SPRY_SOUND_RATE_MOST);
    spry_status status = spry_resampler_create(&r, rate, read_pcm, &source, error);
    if (status != SPRY_OK)
        return status;
    size_t room = (size_t)((double)count * SPRY_SOUND_RATE / rate) + 2;
    *out = calloc(room, sizeof **out);
    if (!*out)
        status = spry_fail_memory(error, "converting sound", room * sizeof **out);
    for (size_t n; status == SPRY_OK && (n = spry_resampler_read(r, block, BLOCK)) > 0;)
        for (size_t i = 0; i < n && *n_out < room; i++)
            (*out)[(*n_out)++] = (int16_t)lrintf(fmaxf(-32768, fminf(32767, block[i] * 32768)));
    spry_resampler_destroy(r);
    return status;
}
