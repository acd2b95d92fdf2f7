/* Workloads of `spry bench --mix`: requests with prompts and answers of drawn lengths, or replayed from a file, which
 * several clients send one after another. The same requests go to a model in this process and to a server. */
#ifndef SPRY_APPS_BENCH_MIX_H
#define SPRY_APPS_BENCH_MIX_H

#include <jansson.h>

#include "base/error.h"
#include "base/options.h"
#include "bench/bench.h"

#define SPRY_MIX_FORMAT        "spry-mix-1"
#define SPRY_MIX_REPORT_FORMAT "spry-mix-report-1"

enum {
    SPRY_MIX_LENGTHS_MAX = 16, /* of one distribution */
    SPRY_MIX_SYSTEMS_MAX = 16, /* system prompts */
    SPRY_MIX_REQUESTS_MAX = 10000,
    SPRY_MIX_TOGETHER_MAX = 64, /* clients */
    SPRY_MIX_TOKENS_MAX = 1 << 20,
    SPRY_MIX_NAME = 48,
};

/* ---- mix_read.c: names and files --------------------------------------------------------------------------------- */

/* A length in tokens, and how often it is drawn relative to the others. */
typedef struct spry_mix_length {
    uint32_t tokens;
    double weight;
} spry_mix_length;

typedef struct spry_mix_lengths {
    spry_mix_length list[SPRY_MIX_LENGTHS_MAX];
    size_t count;
} spry_mix_lengths;

/* A system prompt, the same for every request that has it. */
typedef struct spry_mix_system {
    char name[SPRY_MIX_NAME];
    uint32_t tokens;
    double weight;
    const char *text; /* of a file with messages, borrowed from the line that had it first; NULL: made */
} spry_mix_system;

/* A line of a file. */
typedef struct spry_mix_line {
    json_t *messages; /* NULL: made of the lengths; owned */
    uint32_t prompt_tokens, answer_tokens;
    size_t system, number; /* number of the line in its file, from 1; system as in spry_mix_request */
} spry_mix_line;

typedef struct spry_mix {
    char name[SPRY_MIX_NAME];
    spry_mix_lengths prompts, answers; /* a prompt's tokens include those of its system prompt */
    spry_mix_system systems[SPRY_MIX_SYSTEMS_MAX];
    size_t n_systems;
    spry_mix_line *lines; /* NULL: lengths are drawn */
    size_t n_lines;
} spry_mix;

/* The names that need no file, for messages: "uniform, chat, ...". */
void spry_mix_names(char *out, size_t size);

/* A named mix, else a file: one JSON object with distributions, or JSON lines. Deinitialise also on failure. */
spry_status spry_mix_read(spry_mix *mix, const char *name_or_path, spry_error *error);
void spry_mix_deinit(spry_mix *mix);

/* ---- mix_plan.c: requests ---------------------------------------------------------------------------------------- */

enum { SPRY_MIX_NO_SYSTEM = SPRY_MIX_SYSTEMS_MAX };

typedef struct spry_mix_request {
    json_t *messages; /* owned */
    uint32_t prompt_tokens, answer_tokens;
    size_t system; /* index, or SPRY_MIX_NO_SYSTEM */
    size_t line;   /* of the file; 0: none */
} spry_mix_request;

typedef struct spry_mix_plan {
    const spry_mix *mix;
    spry_mix_request *list;
    size_t count;
    uint32_t longest; /* prompt and answer of the longest request made of lengths */
    double scale;
    uint64_t seed, run;
} spry_mix_plan;

/* Draws the lengths of `count` requests (0: as many as the file has, or 16), multiplied by `scale`. The same seed gives
 * the same lengths. Deinitialise also on failure. */
spry_status spry_mix_plan_init(spry_mix_plan *plan, const spry_mix *mix, size_t count, double scale, uint64_t seed,
                               spry_error *error);
void spry_mix_plan_deinit(spry_mix_plan *plan);

/* Writes the messages of all requests, with the engine's tokenizer and template, and checks that every request fits its
 * context. `run` makes the text differ from that of other runs, so that a server has none of it cached. */
spry_status spry_mix_plan_write(spry_mix_plan *plan, spry_engine *engine, uint64_t run, spry_error *error);

/* ---- mix_run.c: clients ------------------------------------------------------------------------------------------ */

/* One answer, as a client sees it. */
typedef struct spry_mix_answer {
    uint64_t began_ns, last_ns;
    double ttft_ms, total_ms; /* ttft_ms 0: no token came */
    size_t prompt_tokens, answer_tokens;
    size_t hit_tokens; /* of the prompt */
    bool hits_known;   /* a server need not tell */
    size_t events;     /* pieces of text */
    double *gaps_ms;   /* [n_gaps]: between two pieces; owned */
    size_t n_gaps, gap_room;
    bool failed; /* memory was short */
} spry_mix_answer;

/* Call when a piece of an answer arrives. */
void spry_mix_answer_event(spry_mix_answer *answer);

/* What answers requests: a model, or a server. `ask` is called by several threads at once. */
typedef struct spry_mix_target {
    void *self;
    spry_status (*ask)(void *self, spry_mix_answer *answer, const spry_mix_request *request, spry_error *error);
} spry_mix_target;

/* All answers of one target, in the order of the requests. */
typedef struct spry_mix_run {
    char where[256]; /* "here", or the address */
    char api[16];    /* of a server: "openai", "ollama" */
    char model[128];
    spry_mix_answer *answers; /* [count] */
    bool *done;               /* [count] */
    size_t count, n_done;
    double wall_ms;
    char why[SPRY_ERROR_MAX]; /* why it ended early; empty: it did not */
} spry_mix_run;

/* Sends every request of the plan from `together` clients. A request that fails ends the run: `why` says how, the
 * answers so far stay. Fails only for want of memory or threads. Deinitialise also on failure. */
spry_status spry_mix_run_all(spry_mix_run *run, const spry_mix_plan *plan, const spry_mix_target *target,
                             size_t together, spry_error *error);
void spry_mix_run_deinit(spry_mix_run *run);

/* The target that is an engine in this process. */
spry_mix_target spry_mix_engine(spry_engine *engine);

/* ---- mix_url.c: servers ------------------------------------------------------------------------------------------ */

typedef struct spry_mix_server spry_mix_server;

/* Asks the server at `url` which interface and which models it has. `model` NULL: its first. `key` NULL: none. */
spry_status spry_mix_server_open(spry_mix_server **out, const char *url, const char *model, const char *key,
                                 spry_error *error);
void spry_mix_server_close(spry_mix_server *server);

/* Writes where, api and model of the run. */
void spry_mix_server_describe(spry_mix_run *run, const spry_mix_server *server);
spry_mix_target spry_mix_server_target(spry_mix_server *server);

/* ---- mix_stream.c: what servers send ----------------------------------------------------------------------------- */

/* The body of a streamed answer, as it arrives: server-sent events, or JSON lines. */
typedef struct spry_mix_stream {
    spry_mix_answer *answer;
    spry_buffer line;  /* that is not complete */
    bool ended;        /* the last event has come */
    char refused[160]; /* an error in the stream; empty: none */
} spry_mix_stream;

void spry_mix_stream_init(spry_mix_stream *stream, spry_mix_answer *answer);
void spry_mix_stream_deinit(spry_mix_stream *stream);

/* False: it is not what a server should send; the transfer ends. */
bool spry_mix_stream_add(spry_mix_stream *stream, const char *data, size_t size);

/* ---- mix_report.c ------------------------------------------------------------------------------------------------ */

typedef struct spry_mix_report {
    const char *model;
    const spry_mix_plan *plan;
    uint32_t together;
    const spry_mix_run *runs; /* this process, and then the server */
    size_t n_runs;
} spry_mix_report;

void spry_mix_print_table(const spry_mix_report *report);
json_t *spry_mix_report_json(const spry_mix_report *report); /* NULL: memory is short */

/* ---- bench_mix.c: the command ------------------------------------------------------------------------------------ */

typedef struct spry_mix_flags {
    const char *mix; /* NULL: not what is measured */
    const char *url, *url_model, *url_key;
    uint32_t requests, together;
    uint64_t seed;
    float scale;
} spry_mix_flags;

void spry_mix_flags_default(spry_mix_flags *flags);
spry_option_table spry_mix_flags_table(spry_mix_flags *flags);

/* Measures, prints and saves. *passed false: a part of the workload could not be measured, and a sentence on standard
 * error says why. */
spry_status spry_bench_mix(bool *passed, const spry_mix_flags *flags, spry_bench_settings *settings, const char *name,
                           const spry_model_source *source, bool json, const char *save, spry_error *error);

#endif
