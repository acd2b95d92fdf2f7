/* Sets of code points and their UTF-8 spellings. */
#ifndef SPRY_GRAMMAR_CODE_RANGES_H
#define SPRY_GRAMMAR_CODE_RANGES_H

#include "grammar/ir/grammar_ir.h"

enum { SPRY_CODE_LAST = 0x10FFFF };

/* Sorts and merges the ranges in place and removes values above U+10FFFF. Returns the number of ranges left. */
size_t spry_code_ranges_normalize(spry_code_range *ranges, size_t count);

/* Writes the complement of a normalised set, at most count + 1 ranges, to `out`. Returns their number. */
size_t spry_code_ranges_invert(spry_code_range *out, const spry_code_range *ranges, size_t count);

/* Removes the surrogates from a normalised set with room for count + 1 ranges. Returns the number of ranges left. */
size_t spry_code_ranges_drop_surrogates(spry_code_range *ranges, size_t count);

/* A run of code points whose spellings are all combinations of one byte from each range. */
typedef struct spry_utf8_product {
    unsigned size;
    unsigned char first[4], last[4];
} spry_utf8_product;

enum { SPRY_UTF8_PRODUCTS_MAX = 24 }; /* maximum for one range */

/* The spellings of a range without surrogates, ascending. Returns their number. */
size_t spry_utf8_products(spry_utf8_product out[SPRY_UTF8_PRODUCTS_MAX], spry_code_range range);

#endif
