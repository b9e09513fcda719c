// commands.h: every command of the carat program, one file each (cli/<command>.c).
//
// A command gets its own arguments: argv[0] is the command's name. It returns the exit code: 0 success, 1 failure, 2 wrong usage.
// Results go to stdout, messages to stderr.

#ifndef CARAT_CLI_COMMANDS_H
#define CARAT_CLI_COMMANDS_H

int command_inspect(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_detokenize(int argc, char **argv);
int command_template(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_synth(int argc, char **argv);
int command_run(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_dump(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_transcribe(int argc, char **argv);

#endif
