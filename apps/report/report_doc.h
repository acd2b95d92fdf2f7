/* A document that is written once and output as HTML or Markdown: sections, sentences, tables. Drawings are in HTML
 * only; their data is also in a table.
 *
 * Text passed here may come from untrusted files: it is escaped. Check out->failed once at the end. */
#ifndef SPRY_REPORT_DOC_H
#define SPRY_REPORT_DOC_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/compiler.h"

enum { SPRY_DOC_COLUMNS = 40, SPRY_DOC_VALUE = 40 };

/* The format of a number. All: "–" for NAN. */
typedef enum spry_doc_unit {
    SPRY_DOC_COUNT, /* 1,024 */
    SPRY_DOC_SPEED, /* 1,234 or 12.3: three digits */
    SPRY_DOC_MS,    /* 45.6 µs, 12.3 ms, 1.20 s */
    SPRY_DOC_BYTES, /* 1.20 GB */
    SPRY_DOC_SHARE, /* 0.123 is 12.3 % */
    SPRY_DOC_GB_S,
    SPRY_DOC_PRODUCTS, /* 35.2 G/s */
    SPRY_DOC_JOULES,
    SPRY_DOC_WATTS,
    SPRY_DOC_TIMES, /* 1.25× */
} spry_doc_unit;

const char *spry_doc_print(char out[SPRY_DOC_VALUE], spry_doc_unit unit, double value);

/* "1 step", "1,024 steps" */
const char *spry_doc_plural(char out[SPRY_DOC_VALUE], double count, const char *what);

typedef struct spry_doc_column {
    const char *title;
    bool is_text; /* left, not right */
    bool wraps;   /* a sentence instead of a word */
} spry_doc_column;

typedef struct spry_doc {
    spry_buffer *out;
    bool markdown;
    spry_doc_column columns[SPRY_DOC_COLUMNS]; /* of the open table */
    size_t n_columns, at;                      /* the next cell */
    bool in_section, is_beside;
} spry_doc;

void spry_doc_begin(spry_doc *doc, spry_buffer *out, bool markdown, const char *title);
void spry_doc_end(spry_doc *doc, const char *footer);

void spry_doc_section(spry_doc *doc, const char *title);
void spry_doc_heading(spry_doc *doc, const char *format, ...) SPRY_PRINTF(2, 3);
void spry_doc_say(spry_doc *doc, const char *format, ...) SPRY_PRINTF(2, 3);
/* A highlighted sentence. */
void spry_doc_warn(spry_doc *doc, const char *format, ...) SPRY_PRINTF(2, 3);

/* At most SPRY_DOC_COLUMNS columns; cells follow, row by row. The last cell ends a row. */
void spry_doc_table(spry_doc *doc, const spry_doc_column *columns, size_t count);
void spry_doc_cell(spry_doc *doc, const char *format, ...) SPRY_PRINTF(2, 3);
void spry_doc_value(spry_doc *doc, spry_doc_unit unit, double value);
/* With the ratio to `first` if there is one; `better`: above 0 when more is better, below 0 when less is. */
void spry_doc_compared(spry_doc *doc, spry_doc_unit unit, double value, double first, int better);
void spry_doc_table_end(spry_doc *doc);

/* Places the following content beside the rest where there is room. */
void spry_doc_beside(spry_doc *doc);
void spry_doc_beside_end(spry_doc *doc);

/* The target of drawings; NULL when drawings are not supported. */
spry_buffer *spry_doc_drawing(spry_doc *doc);

#endif
