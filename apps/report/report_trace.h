/* A trace file, read line by line in bounded memory.
 *
 * It keeps sums and distributions over all requests, steps and ops, and the first requests in detail. A request's parts
 * are those in its lane since the previous request. Its first token is out when the first sampling ends. */
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
    SPRY_TURN_ENDS = 4,
};

/* What a spoken turn comes to, each a span of category "turn" since the end of speech. */
extern const char *const spry_turn_end_names[SPRY_TURN_ENDS];

typedef struct spry_report_request {
    double number, prompt_tokens, generated_tokens; /* NAN: not given */
    double first_ms, whole_ms;                      /* first_ms: NAN when there was no token */
    double parts_ms[SPRY_PART_COUNT];               /* until the first token, or all when there was none */
} spry_report_request;

typedef struct spry_report_op {
    char name[SPRY_REPORT_OP_NAME], kernel[SPRY_REPORT_OP_NAME];
    double ms, calls;
} spry_report_op;

typedef struct spry_report_trace {
    uint64_t events, requests, steps;
    bool is_cut;                        /* the last line is incomplete and was ignored */
    double covered_ms, whole_ms;        /* over all requests: the sum of the parts, and of the requests */
    spry_spread parts[SPRY_PART_COUNT]; /* ms per request with the part */
    spry_spread first_ms;               /* of requests */
    spry_spread between_ms;             /* between the tokens of two consecutive steps of an answer */
    spry_spread turns[SPRY_TURN_ENDS];  /* ms since the end of speech */
    double generated_tokens;            /* of all requests */
    double rows;                        /* of all steps */
    uint64_t device_steps;              /* steps of a device that is not the host, and of these: */
    double waits, ahead;                /* times the host waited; steps that were begun ahead */
    spry_report_request shown[SPRY_REPORT_SHOWN];
    size_t n_shown;
    spry_report_op ops[SPRY_REPORT_OPS]; /* longest first; the last one collects the rest when there are too many */
    size_t n_ops;
} spry_report_trace;

/* A part of a request by name; SPRY_PART_COUNT: unknown. */
size_t spry_report_part(const char *name);

/* Reads an open file to its end. Messages contain no file name. The caller destroys the result. */
spry_status spry_report_trace_read(spry_report_trace **out, FILE *file, spry_error *error);
void spry_report_trace_destroy(spry_report_trace *trace);

#endif
