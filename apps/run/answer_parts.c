/* Time and energy of a request by part, as text and as JSON. */
#include "base/compiler.h"
#include "cli/energy_figures.h"
#include "cli/terminal.h"
#include "run/answer.h"

double spry_answer_ms(const spry_answer *answer)
{
    return (double)(answer->laps.last_ns - answer->laps.began_ns) / 1e6;
}

json_t *spry_parts_json(const double ms[SPRY_PART_COUNT])
{
    json_t *object = json_object();
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        if (ms[i] > 0)
            json_object_set_new(object, spry_part_name((spry_part)i), json_real(ms[i]));
    return object;
}

/* Parts can be shorter than the smallest unit used elsewhere. */
static const char *small_time(char out[SPRY_AMOUNT_MAX], double ms)
{
    if (ms >= 1)
        return spry_amount_time(out, ms);
    snprintf(out, SPRY_AMOUNT_MAX, "%.0f us", ms * 1e3);
    return out;
}

/* Parts with a significant time, in order. */
static void print_parts(const char *heading, const double ms[SPRY_PART_COUNT])
{
    const double worth = 0.005;
    char time[SPRY_AMOUNT_MAX];
    double sum = 0, small = 0;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        sum += ms[i];
    fprintf(stderr, "%s %s:", heading, spry_amount_time(time, sum));
    for (size_t i = 0; i < SPRY_PART_COUNT; i++) {
        if (ms[i] >= worth * sum)
            fprintf(stderr, " %s %s,", spry_part_name((spry_part)i), small_time(time, ms[i]));
        else
            small += ms[i];
    }
    fprintf(stderr, " the rest %s\n", small_time(time, small));
}

void spry_answer_print_parts(const spry_answer *answer)
{
    const spry_result *r = &answer->result;
    spry_buffer energy;
    spry_buffer_init(&energy, 1 << 12);
    spry_energy_words(&energy, answer->meter, &answer->energy, spry_answer_ms(answer), r->generated_tokens);
    print_parts("first    token after", r->first_parts_ms);
    print_parts("whole    request in", r->parts_ms);
    fprintf(stderr, "energy   %s\n", spry_buffer_view(&energy).data);
    spry_buffer_deinit(&energy);
}
