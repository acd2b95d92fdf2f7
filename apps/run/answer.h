/* One answer of a session, from prompt ids to text on standard output; used by `spry run` and the chat. */
#ifndef SPRY_RUN_ANSWER_H
#define SPRY_RUN_ANSWER_H

#include <jansson.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/options.h"
#include "cli/common_options.h"
#include "cli/markdown_text.h"
#include "cli/terminal.h"
#include "platform/energy.h"
#include "platform/trace.h"
#include "spry_pictures.h"

/* ---- shown_text.c: an answer on a terminal ----------------------------------------------------------------------- */

/* An answer on standard output as it is generated. A terminal shows what is done before the first word, and Markdown
 * broken between words; files and pipes get the text as it is. */

typedef struct spry_shown_options {
    bool streamed; /* false: only what is done is shown, no text */
    bool plain;    /* Markdown is shown as it is written */
    bool rated;    /* show the speed below the text, in pieces per second */
    bool thoughts; /* show thoughts, dimmed; otherwise one line says how long they took */
} spry_shown_options;

typedef struct spry_shown_text {
    spry_shown_options how;
    spry_progress_line progress;
    bool terminal, styled;
    bool thinking, thought; /* now; before */
    uint64_t thinking_ns;   /* when the thought began */
    spry_word_wrap wrap;    /* for a terminal without styles, and for thoughts */
    spry_markdown markdown; /* for a terminal with styles */
    bool drawn;             /* the speed is below the text */
    size_t pieces;          /* written so far */
    uint64_t first_ns, drawn_ns;
} spry_shown_text;

/* The cursor must be at the beginning of a line of standard output. */
void spry_shown_text_init(spry_shown_text *shown, const spry_shown_options *how);

/* How much of the prompt is computed. */
void spry_shown_text_prompt(spry_shown_text *shown, size_t done, size_t total);

/* The next piece of a thought or of the answer, valid UTF-8; false once any write has failed. */
bool spry_shown_text_think(spry_shown_text *shown, spry_view text);
bool spry_shown_text_add(spry_shown_text *shown, spry_view text);

/* Writes the text that is held back and removes everything else. */
bool spry_shown_text_finish(spry_shown_text *shown);

/* ---- answer.c ---------------------------------------------------------------------------------------------------- */

/* A generated token with its probability and the most probable alternatives. */
typedef struct spry_answer_token {
    spry_logprob_entry token, top[SPRY_TOP_LOGPROBS_MAX];
    size_t n_top;
} spry_answer_token;

typedef struct spry_answer {
    spry_buffer text;        /* whole, valid UTF-8 */
    spry_buffer thoughts;    /* likewise */
    json_t *tools;           /* declared to the model, as chat completions have them; NULL: none */
    json_t *more;            /* messages that follow those of the conversation; NULL: none */
    json_t *calls;           /* calls of tools: [{"id", "name", "arguments": text}] */
    spry_chat_prompt prompt; /* the last prompt, without its ids: spans, pictures, constraint of calls */
    spry_answer_token *tokens;
    size_t n_tokens, capacity;
    spry_result result; /* its parts cover the whole request, from spry_answer_begin on */
    spry_laps laps;
    spry_energy *meter; /* NULL: not measured */
    spry_joules before, energy;
} spry_answer;

typedef struct spry_answer_job {
    const spry_engine *engine;
    spry_session *session;
    const spry_tokens *prompt;
    const spry_answer_flags *flags;
    size_t span_repair;
    spry_speculation speculation;
    spry_constraint constraint;
    const char *constraint_text;
    uint64_t seed;
    bool (*on_piece)(void *user, spry_view text); /* text as it is generated; false ends the answer. May be NULL */
    void *user;
    bool chat;         /* the prompt is a conversation: thoughts are told from the answer */
    bool slides;       /* a full context slides, also without --slide */
    bool stream;       /* to standard output as it is generated, */
    bool rated;        /* on a terminal with the tokens a second */
    bool keep_tokens;  /* fill answer->tokens */
    uint32_t logprobs; /* alternatives in answer->tokens */
} spry_answer_job;

void spry_answer_init(spry_answer *answer);
void spry_answer_deinit(spry_answer *answer);

/* Starts the clock, and the energy measurement if there is a meter. */
void spry_answer_begin(spry_answer *answer, const spry_engine *engine, spry_energy *meter);

/* Generates into an answer that was begun. Ctrl-C (see interrupt.h) and a failing standard output end it with
 * SPRY_FINISH_CANCELLED. A long prompt shows its progress. */
spry_status spry_answer_generate(spry_answer *answer, const spry_answer_job *job, spry_error *error);

/* The ids of a conversation in the model's template, for an answer that was begun; its spans and pictures stay in the
 * answer. `messages` as chat completions have them. */
spry_status spry_answer_prompt(spry_answer *answer, spry_tokens *out, const spry_engine *engine,
                               const spry_answer_flags *flags, json_t *messages, spry_error *error);

/* The same of plain messages. Lines `[image: PATH]` that a message of a user begins with (spry_image_line) are pictures
 * for a model that can see them. */
spry_status spry_answer_chat_ids(spry_answer *answer, spry_tokens *out, const spry_engine *engine,
                                 const spry_answer_flags *flags, const spry_message *messages, size_t n_messages,
                                 spry_error *error);

/* The ids of plain text, with the tokens that the tokenizer adds. */
spry_status spry_answer_text_ids(spry_tokens *out, const spry_engine *engine, spry_view text, bool special,
                                 spry_error *error);

/* {"prefill": 12.3, ...} of all parts with a time above 0. */
json_t *spry_parts_json(const double ms[SPRY_PART_COUNT]);

/* Time of the whole request, including the prompt's template and tokenizer. */
double spry_answer_ms(const spry_answer *answer);

/* Prints a summary to standard error. */
void spry_answer_print_stats(const spry_answer *answer, spry_engine *engine, const char *model, uint64_t seed);

/* Prints a message to standard error when the context ended the answer. */
void spry_answer_warn_context(const spry_answer *answer, const spry_engine *engine, const char *hint);

/* Everything about an answer as a JSON object; NULL when memory is short. */
json_t *spry_answer_to_json(const spry_answer *answer, spry_engine *engine, const char *model, uint64_t seed,
                            bool with_logprobs);

/* ---- the constraint ---------------------------------------------------------------------------------------------- */

/* The constraint and its text, read from a file if it names one. At most one of the flags may be given. */
spry_status spry_answer_shape(spry_constraint *constraint, spry_buffer *text, const spry_answer_flags *flags,
                              spry_error *error);

/* ---- fragments and pictures ---------------------------------------------------------------------------------------
 */

enum { SPRY_FRAGMENTS_MAX = 64, SPRY_IMAGES_MAX = 16 };

/* The ids of a conversation whose user message is the files, each a fragment, and the pictures, followed by `text`.
 * `system` may be NULL. */
spry_status spry_fragments_prompt(spry_answer *answer, spry_tokens *out, const spry_engine *engine,
                                  const spry_answer_flags *flags, const spry_option_list *files,
                                  const spry_option_list *images, const char *system, spry_view text,
                                  spry_error *error);

/* Appends a picture file to the parts of a message. */
spry_status spry_parts_add_image(json_t *parts, const char *path, spry_error *error);

/* Appends the line that stands for a picture file in a message of a chat. */
void spry_image_line(spry_buffer *out, const char *path);

/* The path in the line that `text` begins with, which is removed; false: it is no such line. */
bool spry_image_line_take(spry_buffer *path, spry_view *text);

/* Parses --span-repair: a number of tokens, or which: first:N, spread:N, auto, auto:NATS, all. */
spry_status spry_fragments_repair(size_t *repair, const char *text, spry_error *error);

/* ---- answer_inputs.c: the model that drafts ---------------------------------------------------------------------- */

/* The model given by --draft. */
typedef struct spry_drafter_model {
    spry_engine *engine; /* NULL: no draft model */
    spry_model_source source;
    spry_speculation how;
} spry_drafter_model;

/* Opens the drafter for the engine opened from `source`. "auto" selects the bundled drafter for the bundled model. */
spry_status spry_drafter_open(spry_drafter_model *drafter, spry_engine *engine, const spry_model_source *source,
                              const char *draft, const spry_model_flags *model_flags,
                              const spry_engine_flags *engine_flags, spry_error *error);

/* Call after the engine it drafts for is closed. */
void spry_drafter_close(spry_drafter_model *drafter);

#endif
