/* Prints numbers like Python, in every locale. */
#ifndef SPRY_TEMPLATE_JINJA_PRINT_H
#define SPRY_TEMPLATE_JINJA_PRINT_H

enum { SPRY_JINJA_NUMBER_TEXT = 48 };

/* The fewest digits that identify the number; "nan", "inf". */
void spry_jinja_print_real(char out[SPRY_JINJA_NUMBER_TEXT], double value);

#endif
