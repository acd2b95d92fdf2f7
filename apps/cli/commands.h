/* The commands: each takes the arguments after `spry`, its own name first, and returns the exit code. */
#ifndef SPRY_APPS_COMMANDS_H
#define SPRY_APPS_COMMANDS_H

#include <stddef.h>

#include "cli/usage.h"

int spry_cmd_run(int argc, char **argv);
int spry_cmd_chats(int argc, char **argv);
int spry_cmd_voice(int argc, char **argv);
int spry_cmd_serve(int argc, char **argv);
int spry_cmd_launch(int argc, char **argv);
int spry_cmd_pull(int argc, char **argv);
int spry_cmd_models(int argc, char **argv);
int spry_cmd_batch(int argc, char **argv);
int spry_cmd_tokenize(int argc, char **argv);
int spry_cmd_logits(int argc, char **argv);
int spry_cmd_inspect(int argc, char **argv);
int spry_cmd_convert(int argc, char **argv);
int spry_cmd_eval(int argc, char **argv);
int spry_cmd_sample(int argc, char **argv);
int spry_cmd_grammar(int argc, char **argv);
int spry_cmd_bench(int argc, char **argv);
int spry_cmd_doctor(int argc, char **argv);
int spry_cmd_report(int argc, char **argv);
int spry_cmd_help(int argc, char **argv);
int spry_cmd_completions(int argc, char **argv);

typedef struct spry_command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} spry_command;

/* The last has no name. */
extern const spry_command spry_commands[];

/* Words of Ollama and others, and what they are here; the last has no name. */
extern const struct spry_command_alias {
    const char *name, *command, *argument;
} spry_command_aliases[];

/* NULL: there is no such command. */
const spry_command *spry_command_find(const char *name);

/* Says that there is no such command, and names the closest; returns the exit code. */
int spry_command_unknown(const char *name);

/* The page that `spry` and `spry help` show. */
int spry_commands_overview(void);

/* Calls `visit` with the page and the tables of every command and subcommand, or of one command. */
void spry_commands_each(spry_usage_visit visit, void *user);
void spry_command_visit(const spry_command *command, spry_usage_visit visit, void *user);

/* Names of models: bundled ones, those of the user's folder, and the catalogue's. */
void spry_complete_models(void (*offer_model)(void *user, const char *name, const char *about), void *user);

#endif
