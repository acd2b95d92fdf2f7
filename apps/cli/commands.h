/* The commands: each takes the arguments after `spry`, its own name first, and returns the exit code. */
#ifndef SPRY_APPS_COMMANDS_H
#define SPRY_APPS_COMMANDS_H

int spry_cmd_run(int argc, char **argv);
int spry_cmd_chats(int argc, char **argv);
int spry_cmd_voice(int argc, char **argv);
int spry_cmd_serve(int argc, char **argv);
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

#endif
