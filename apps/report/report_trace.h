/* A trace file, read line by line: however long it is, what is kept of it is bounded.
 *
 * Kept are sums and spreads over all requests, steps and ops, and the first requests in detail. A request's parts are
 * those in its lane since the request before it. Its first token is out when the first sampling ends. */
#ifndef SPRY_REPORT_TRACE_H
#define SPRY_REPORT_TRACE_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "report/report_spread.h"

enum {
    SPRY_REPORT_SHOWN = 12, /* requests in detail */
    SPRY_REPORT_OPS = 64,
    SPRY_REPORT_OP_NAME = 40,
};

typedef struct spry_report_request {
    double number, prompt_tokens, generated_tokens; /* NAN: not said */
    double first_ms, whole_ms;                      /* first_ms: NAN where no token came */
    double parts_ms[SPRY_PART_COUNT];               /* until the first token, or all where none came */
} spry_report_request;

typedef struct spry_report_op {
    char name[SPRY_REPORT_OP_NAME], kernel[SPRY_REPORT_OP_NAME];
    double ms, calls;
} spry_report_op;

typedef struct spry_report_trace {
    uint64_t events, requests, steps;
    bool is_cut;                        /* the last line is not whole, and was left out */
    double covered_ms, whole_ms;        /* of all requests: their parts, and all of them */
    spry_spread parts[SPRY_PART_COUNT]; /* ms a request; requests without the part are not in it */
    spry_spread first_ms;               /* of requests */
    spry_spread between_ms;             /* from the tokens of one step to those of the next, in an answer */
    double generated_tokens;            /* of all requests */
    double rows;                        /* of all steps */
    spry_report_request shown[SPRY_REPORT_SHOWN];
    size_t n_shown;
    spry_report_op ops[SPRY_REPORT_OPS]; /* the longest first; the last one is all others where there are too many */
    size_t n_ops;
} spry_report_trace;

/* A part of a request by its name; SPRY_PART_COUNT: there is none of that name. */
size_t spry_report_part(const char *name);

/* From a file that was opened, up to its end. The sentence names no file. Destroy what is given. */
spry_status spry_report_trace_read(spry_report_trace **out, FILE *file, spry_error *error);
void spry_report_trace_destroy(spry_report_trace *trace);

#endif
