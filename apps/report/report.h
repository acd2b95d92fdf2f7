/* spry report: measurements as a page. Inputs are loaded and validated before anything is written; sections rely on
 * every type and range, and omit what an input does not have. */
#ifndef SPRY_REPORT_H
#define SPRY_REPORT_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/error.h"
#include "bench/bench_gate.h"
#include "report/report_doc.h"
#include "report/report_trace.h"
#include "report/svg_rows.h"

enum { SPRY_REPORT_INPUTS = 16, SPRY_REPORT_NAME = 48, SPRY_REPORT_ROW = 160, SPRY_REPORT_WORDS = 61 };

typedef enum spry_report_kind { SPRY_REPORT_BENCH, SPRY_REPORT_TRACE, SPRY_REPORT_MACHINE } spry_report_kind;

typedef struct spry_report_input {
    const char *path;            /* borrowed */
    char name[SPRY_REPORT_NAME]; /* display name: the file name without extension; unique */
    spry_report_kind kind;
    json_t *json;             /* of a bench or a machine */
    spry_report_trace *trace; /* of a trace */
    size_t series;            /* its index among inputs of its kind */
} spry_report_input;

typedef struct spry_report {
    spry_report_input inputs[SPRY_REPORT_INPUTS];
    size_t count;
} spry_report;

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Recognises and validates each file. Deinitialise also on failure. */
spry_status spry_report_load(spry_report *report, const char *const *paths, size_t count, spry_error *error);
void spry_report_deinit(spry_report *report);

/* Validates every known key of a file of this kind; unknown keys are ignored. */
spry_status spry_report_check(const json_t *json, spry_report_kind kind, spry_error *error);

/* ---- looking at JSON that was checked ---------------------------------------------------------------------------- */

/* By a path of keys: "machine.read_gb_s". NULL or NAN: missing or null. */
const json_t *spry_report_at(const json_t *json, const char *path);
const char *spry_report_text(const json_t *json, const char *path);
double spry_report_number(const json_t *json, const char *path);

/* The next input of a kind from *at, which is moved past it; NULL when there is none. */
const spry_report_input *spry_report_next(const spry_report *report, spry_report_kind kind, size_t *at);
size_t spry_report_count(const spry_report *report, spry_report_kind kind);

/* ---- what points are compared ------------------------------------------------------------------------------------ */

/* Identifies a point of a bench: a prefill length, or the depth and batch of a decode. */
typedef struct spry_report_key {
    double tokens; /* NAN: a decode */
    double depth, batch;
} spry_report_key;

spry_report_key spry_report_key_of(const json_t *point);

enum { SPRY_REPORT_KEYS = SPRY_BENCH_POINTS_MAX };

/* All distinct points of all benches: prefills, then decodes, in file order, as far as there is room. */
size_t spry_report_keys(spry_report_key keys[SPRY_REPORT_KEYS], const spry_report *report);

/* Number of points without room. */
size_t spry_report_keys_left_out(const spry_report *report);

/* NULL: the bench has no such point. */
const json_t *spry_report_point(const json_t *bench, const spry_report_key *key);
const json_t *spry_report_prefill(const json_t *bench, double tokens);
const json_t *spry_report_decode(const json_t *bench, double depth, double batch);

/* The representative points of a bench: the longest prefill; the shallowest decode of one sequence, and of the largest
 * batch. NAN if there is none. */
double spry_report_main_prefill(const json_t *bench);
double spry_report_main_depth(const json_t *bench);
double spry_report_main_batch(const json_t *bench);

/* As much of a text as fits in `size` bytes, in whole characters; written to `out`, which is returned. */
const char *spry_report_cut(char *out, size_t size, const char *text);

/* "prefill of 512 tokens" */
const char *spry_report_point_name(char out[SPRY_REPORT_ROW], const json_t *point);

/* The name of a row, with its input's name if there are several of that kind. */
const char *spry_report_row_name(char out[SPRY_REPORT_ROW], const spry_report *report, const spry_report_input *input,
                                 const char *what);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The whole document. Check out->failed. */
void spry_report_write(spry_buffer *out, const spry_report *report, bool markdown);

/* Maximum rows of one table or drawing; the number of omitted rows is reported. */
enum { SPRY_REPORT_ROWS = SPRY_REPORT_KEYS };
void spry_report_say_left_out(spry_doc *doc, size_t count);

/* A legend of the inputs of a kind; nothing for a single one. */
void spry_report_legend(spry_doc *doc, const spry_report *report, spry_report_kind kind);

/* Each writes nothing when no input has its data. */
typedef void spry_report_section(spry_doc *doc, const spry_report *report);

spry_report_section spry_report_summary;
spry_report_section spry_report_first_token;
spry_report_section spry_report_requests;
spry_report_section spry_report_speed;
spry_report_section spry_report_between_tokens;
spry_report_section spry_report_roofline;
spry_report_section spry_report_residency;
spry_report_section spry_report_cache;
spry_report_section spry_report_memory;
spry_report_section spry_report_energy;
spry_report_section spry_report_policy;
spry_report_section spry_report_machine;

/* A bar with the parts of a request, and the legend for such bars: parts above 0. */
void spry_report_draw_parts(spry_rows *rows, const char *name, const char *sum, const double ms[SPRY_PART_COUNT]);
void spry_report_draw_part_names(spry_buffer *out, const double most[SPRY_PART_COUNT]);

/* Colours (c0 to c13) of the parts of a request and of ops; an unknown op has the last. */
size_t spry_report_part_colour(size_t part);
size_t spry_report_op_colour(const char *op);
/* Its position in a step; an unknown op has the last, SPRY_OP_COUNT. */
size_t spry_report_op_rank(const char *op);

#endif
