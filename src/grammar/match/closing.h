/* Scratch memory of a step. */
#ifndef SPRY_GRAMMAR_CLOSING_H
#define SPRY_GRAMMAR_CLOSING_H

typedef struct spry_closing spry_closing;

spry_closing *spry_closing_create(void); /* NULL when memory is short */
void spry_closing_destroy(spry_closing *closing);

#endif
