/* What the files of the interactive chat share. */
#ifndef SPRY_CHAT_CHAT_LOOP_H
#define SPRY_CHAT_CHAT_LOOP_H

#include "chat/chat.h"
#include "cli/line_editor.h"
#include "mcp/mcp.h"
#include "run/answer.h"

/* One session is used throughout: every message passes the whole conversation, and the session computes only the part
 * it does not hold yet. Ctrl-C ends an answer; the partial answer stays in the conversation. */
typedef struct spry_chat_loop {
    spry_chat_job job;
    spry_conversation *conversation;
    spry_line_editor *editor;
    spry_tokens ids; /* tokens of the last prompt */
    spry_answer answer;
    spry_constraint constraint; /* constraint for every answer */
    spry_buffer shape;          /* text of the constraint */
    spry_arena texts;           /* values of /set */
    uint64_t seed;              /* seed of the last answer */
    size_t n_answers;
    size_t n_before;    /* answers in earlier sessions, so that the sequence of seeds continues */
    size_t n_left_out;  /* first turns that no longer fit the context */
    spry_energy *meter; /* NULL: not measured */
    bool leave;
    spry_buffer pictures; /* lines of pictures that wait for the next message: spry_image_line */
    struct {
        spry_mcp *mcp;   /* NULL: none */
        json_t *allowed; /* names of tools that may be called without asking */
    } tools;
} spry_chat_loop;

/* Adds a message and answers it. */
void spry_chat_say(spry_chat_loop *c, spry_view text);

/* Answers the last message again, with the next seed. */
void spry_chat_retry(spry_chat_loop *c);

/* Prints one dimmed line. */
void spry_chat_note(const char *format, ...) SPRY_PRINTF(1, 2);

/* Runs a command; `line` starts after the slash, and is changed. */
void spry_chat_command(spry_chat_loop *c, char *line);

/* Completes commands, their arguments, and names of files; `user` is the spry_chat_loop. */
size_t spry_chat_complete(void *user, spry_buffer *out, spry_view text);

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

/* Encodes a picture file, which is then part of the next message. False: it cannot be, and the user knows why. */
bool spry_chat_picture_add(spry_chat_loop *c, const char *path);

/* Drops the pictures that wait for a message. */
void spry_chat_pictures_drop(spry_chat_loop *c);

/* Makes a message of the waiting pictures and `text`. Paths of pictures in it, as terminals paste them, become pictures
 * as well, and names. False: there is no text besides, so the pictures wait for it; or one of them was refused. */
bool spry_chat_pictures_message(spry_chat_loop *c, spry_buffer *message, spry_view text);

/* ---- tools ------------------------------------------------------------------------------------------------------- */

/* Starts the MCP servers of --mcp and declares their tools to the answers. */
spry_status spry_chat_tools_open(spry_chat_loop *c, spry_error *error);
void spry_chat_tools_close(spry_chat_loop *c);

/* Makes the calls of the last answer that the user allows, and adds them and their results to the prompt. False: the
 * answer has none, or too many rounds of them. */
bool spry_chat_tools_call(spry_chat_loop *c, size_t round);

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* Opens a model with its drafter and a session, fills these fields of the job, and describes it in the record. */
spry_status spry_chat_open_model(spry_chat_job *job, spry_chat *record, const char *model, spry_error *error);
void spry_chat_close_model(spry_chat_job *job);

/* ---- storing ----------------------------------------------------------------------------------------------------- */

/* Opens the store chosen by the flags, unless storing is off. Takes ownership of the strings of `chat`: a record to
 * continue, or with id 0 a new record without title. */
void spry_chat_saver_init(spry_chat_saver *saver, const spry_chat_flags *flags, spry_chat *chat);
void spry_chat_saver_deinit(spry_chat_saver *saver);

/* Call after another change of a chat; has no effect when it is not stored yet. */
void spry_chat_saver_update(spry_chat_saver *saver, const spry_conversation *conversation);

/* Turns from number `count` on were removed. */
void spry_chat_saver_cut(spry_chat_saver *saver, size_t count);

/* The conversation was replaced: the record stays, and the next answer begins a new one. */
void spry_chat_saver_restart(spry_chat_saver *saver);

/* False: memory is short. */
bool spry_chat_saver_title(spry_chat_saver *saver, const spry_conversation *conversation, const char *title);

/* Deletes the record and stops storing. True when there was one and it was deleted. */
bool spry_chat_saver_forget(spry_chat_saver *saver);

#endif
