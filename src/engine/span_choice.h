/* Which pages of a fragment are recomputed in place. The choice depends on where the prompt's spans lie and on the
 * repair alone, never on what is cached; and for the spans of one place not on spans that follow later text, so that a
 * conversation that goes on finds what it has computed. */
#ifndef SPRY_ENGINE_SPAN_CHOICE_H
#define SPRY_ENGINE_SPAN_CHOICE_H

#include "engine/sequence.h"

typedef struct spry_span_choice {
    size_t head; /* pages before this one, */
    size_t tail; /* this page and those behind it, */
    size_t step; /* and every so manieth page are recomputed; 0: only these two */
} spry_span_choice;

spry_span_choice spry_span_choose(const spry_prompt *prompt, const spry_span *span);

static inline bool spry_span_chosen(const spry_span_choice *choice, size_t page)
{
    return page < choice->head || page >= choice->tail || (choice->step && page % choice->step == 0);
}

/* What reusing `spans` tokens of a prompt, with `repaired` more of them recomputed in place, is expected to cost: the
 * mean KL divergence from full prefill, in nats per token, by what was measured with the bundled model. */
double spry_span_divergence(size_t spans, size_t repaired, size_t prompt);

#endif
