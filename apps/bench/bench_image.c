/* `spry bench --image WxH`: the first token of a question on a picture that the engine has never seen, by parts, and of
 * a second question on the same picture. Every repeat has a picture of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "bench/bench.h"
#include "run/answer.h"

enum { SIDE_MAX = 16384, BLOCK = 8, COLOURS = 128, RUN = 100 };

typedef struct image {
    uint32_t width, height, seed;
    size_t prompt_tokens, picture_tokens;
} image;

/* ---- a picture --------------------------------------------------------------------------------------------------- */

static void put_number(spry_buffer *out, uint32_t number)
{
    const unsigned char two[] = {(unsigned char)number, (unsigned char)(number >> 8)};
    spry_buffer_append(out, two, sizeof two);
}

/* Coloured blocks as a GIF file. Its codes are not compressed: the code that empties the table, before each run of
 * pixels, keeps all codes at eight bits. */
static void write_gif(spry_buffer *out, const image *i)
{
    unsigned char run[2 + RUN];
    uint32_t line[SIDE_MAX / BLOCK + 1];
    uint64_t chance = i->seed * 0x9e3779b97f4a7c15u + 1;
    size_t n = 0;
    spry_buffer_text(out, "GIF89a");
    put_number(out, i->width);
    put_number(out, i->height);
    spry_buffer_append(out, "\xf6\0\0", 3);
    for (uint32_t c = 0; c < COLOURS; c++) {
        const unsigned char rgb[] = {(unsigned char)(c * 37), (unsigned char)(c * 91), (unsigned char)(c * 151)};
        spry_buffer_append(out, rgb, sizeof rgb);
    }
    spry_buffer_append(out, "\x2c\0\0\0\0", 5);
    put_number(out, i->width);
    put_number(out, i->height);
    spry_buffer_append(out, "\0\7", 2);
    for (uint32_t y = 0; y < i->height; y++) {
        for (uint32_t x = 0; y % BLOCK == 0 && x <= (i->width - 1) / BLOCK; x++) {
            chance = chance * 6364136223846793005u + 1442695040888963407u;
            line[x] = (uint32_t)(chance >> 33) % COLOURS;
        }
        for (uint32_t x = 0; x < i->width; x++) {
            run[2 + n++] = (unsigned char)line[x / BLOCK];
            if (n == RUN || (y + 1 == i->height && x + 1 == i->width)) {
                run[0] = (unsigned char)(n + 1);
                run[1] = COLOURS;
                spry_buffer_append(out, run, n + 2);
                n = 0;
            }
        }
    }
    spry_buffer_append(out, "\1\x81\0\x3b", 4);
}

/* A conversation with a question on the picture, for freeing; NULL: memory was short. */
static char *write_question(const image *i, const char *question)
{
    spry_buffer file, url;
    spry_buffer_init(&file, SIZE_MAX / 4);
    spry_buffer_init(&url, SIZE_MAX / 2);
    write_gif(&file, i);
    spry_buffer_text(&url, "data:image/gif;base64,");
    spry_buffer_base64(&url, spry_buffer_view(&file));
    json_t *json = file.failed || url.failed
                       ? NULL
                       : json_pack("{s:[{s:s, s:[{s:s, s:{s:s}}, {s:s, s:s}]}]}", "messages", "role", "user", "content",
                                   "type", "image_url", "image_url", "url", url.data, "type", "text", "text", question);
    char *text = json ? spry_json_text(json, 0) : NULL;
    json_decref(json);
    spry_buffer_deinit(&file);
    spry_buffer_deinit(&url);
    return text;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* The parts until the first token, from the conversation on. */
static spry_status ask(spry_bench *b, double parts[SPRY_PART_COUNT], image *i, spry_session *session,
                       const char *question)
{
    spry_chat_prompt prompt = {0};
    spry_result result;
    char *text = write_question(i, question);
    spry_status status = text ? spry_bench_go_on(b) : spry_fail_memory(b->error, "a picture", i->width * i->height);
    if (!status)
        status = spry_engine_chat_prompt(b->engine, &prompt, text, strlen(text), b->error);
    spry_request request = spry_bench_request(prompt.ids, prompt.count, 1);
    request.pictures = prompt.pictures;
    request.n_pictures = (size_t)prompt.n_pictures;
    if (!status)
        status = spry_session_generate(session, &result, &request, b->error);
    if (!status) {
        memcpy(parts, result.first_parts_ms, SPRY_PART_COUNT * sizeof *parts);
        parts[SPRY_PART_PREPROCESS] += prompt.preprocess_ms;
        parts[SPRY_PART_ENCODE] += prompt.encode_ms;
        parts[SPRY_PART_TEMPLATE] += prompt.template_ms;
        parts[SPRY_PART_TOKENIZE] += prompt.tokenize_ms;
        i->prompt_tokens = prompt.count;
        i->picture_tokens = (size_t)prompt.picture_tokens;
    }
    spry_chat_prompt_deinit(&prompt);
    free(text);
    return status;
}

static double sum_of(const double parts[SPRY_PART_COUNT])
{
    double sum = 0;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        sum += parts[i];
    return sum;
}

/* The values: first token of the first question, of the second one, and of the first the tower and the prefill. */
static spry_status once(spry_bench *b, void *context, double *values)
{
    image *i = context;
    double first[SPRY_PART_COUNT] = {0}, second[SPRY_PART_COUNT] = {0};
    spry_session *session = NULL;
    uint64_t salt = ++i->seed;
    spry_status status = spry_session_create(&session, b->engine, b->error);
    if (!status) {
        spry_session_set_salt(session, &salt, sizeof salt);
        status = ask(b, first, i, session, "What is in this picture?");
    }
    if (!status)
        status = ask(b, second, i, session, "Which colours does it have, and where are they?");
    values[0] = sum_of(first);
    values[1] = sum_of(second);
    values[2] = first[SPRY_PART_PREPROCESS] + first[SPRY_PART_ENCODE];
    values[3] = first[SPRY_PART_PREFILL];
    spry_session_destroy(session);
    return status;
}

/* "1024x768". */
static spry_status read_sides(image *i, const char *text, spry_error *error)
{
    uint64_t sides[2] = {0};
    const char *x = strchr(text, 'x');
    if (!x || !spry_number_u64(&sides[0], (spry_view){text, (size_t)(x - text)}) ||
        !spry_number_u64(&sides[1], spry_view_of(x + 1)) || !sides[0] || !sides[1] || sides[0] > SIDE_MAX ||
        sides[1] > SIDE_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "--image is '%.40s', but must be WIDTHxHEIGHT, up to %d each", text,
                         SIDE_MAX);
    i->width = (uint32_t)sides[0];
    i->height = (uint32_t)sides[1];
    return SPRY_OK;
}

static spry_status measure(spry_bench *b)
{
    spry_bench_series series;
    image i = {0};
    snprintf(b->doing, sizeof b->doing, "a picture:");
    spry_status status = read_sides(&i, b->flags->image, b->error);
    if (!status)
        status = spry_bench_check_baseline(b);
    if (!status)
        status = spry_bench_open(b, NULL, false);
    if (!status && !spry_engine_sees(b->engine))
        status = spry_fail(b->error, SPRY_ERR_UNSUPPORTED, "%s cannot see pictures; a GGUF model needs --mmproj FILE",
                           b->name);
    if (!status)
        status = spry_bench_repeat(b, &series, true, once, &i);
    double ms[SPRY_BENCH_SERIES_MAX];
    for (size_t k = 0; !status && k < SPRY_COUNT(ms); k++)
        ms[k] = spry_bench_stat_of(series.values[k], series.count).median;
    if (!status) {
        json_t *out = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "width", (json_int_t)i.width, "height",
                                (json_int_t)i.height, "picture_tokens", (json_int_t)i.picture_tokens, "prompt_tokens",
                                (json_int_t)i.prompt_tokens, "first_ms", ms[0], "second_ms", ms[1], "second_share",
                                spry_bench_ratio(ms[1], ms[0]), "tower_ms", ms[2], "prefill_ms", ms[3]);
        spry_bench_put_figures(b, out, "");
        spry_bench_put(b, "image", out);
    }
    spry_bench_close(b);
    return status;
}

static void print(const json_t *report)
{
    const json_t *i = json_object_get(report, "image");
    char first[SPRY_AMOUNT_MAX], second[SPRY_AMOUNT_MAX], tower[SPRY_AMOUNT_MAX], prefill[SPRY_AMOUNT_MAX];
    double first_ms = spry_bench_number(i, "first_ms"), second_ms = spry_bench_number(i, "second_ms");
    spry_bench_print_bold(spry_bench_text(report, "model"));
    spry_out_format("\n");
    spry_bench_print_figure("Picture", spry_amount_time(first, first_ms),
                            "to the first token on one of %.0f x %.0f pixels, which are %.0f of %.0f tokens: tower %s, "
                            "prefill %s",
                            spry_bench_number(i, "width"), spry_bench_number(i, "height"),
                            spry_bench_number(i, "picture_tokens"), spry_bench_number(i, "prompt_tokens"),
                            spry_amount_time(tower, spry_bench_number(i, "tower_ms")),
                            spry_amount_time(prefill, spry_bench_number(i, "prefill_ms")));
    spry_bench_print_figure("Second", spry_amount_time(second, second_ms),
                            "to the first token of a second question on it, %.1f %% of the first",
                            100 * spry_bench_ratio(second_ms, first_ms));
}

const spry_bench_kind spry_bench_image_kind = {"--image", SPRY_IMAGE_FORMAT, measure, print};
