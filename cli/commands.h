/* commands.h - the subcommands: one function each, in cmd_NAME.c, and one row in main.c.
 *
 * argv[0] is the subcommand's name. The value is the exit status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

int cli_cmd_run(int argc, char **argv);
int cli_cmd_train(int argc, char **argv);
int cli_cmd_eval(int argc, char **argv);
int cli_cmd_predict(int argc, char **argv);
int cli_cmd_parity(int argc, char **argv);
int cli_cmd_verify(int argc, char **argv);
int cli_cmd_check(int argc, char **argv);
int cli_cmd_status(int argc, char **argv);
int cli_cmd_bench(int argc, char **argv);
int cli_cmd_scaling(int argc, char **argv);
int cli_cmd_report(int argc, char **argv);
int cli_cmd_plan(int argc, char **argv);

#endif
