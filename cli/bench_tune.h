/* bench_tune.h - `gradmesh bench tune`: measures all algorithms, and makes a profile by which "auto" chooses. */
#ifndef CLI_BENCH_TUNE_H
#define CLI_BENCH_TUNE_H

/* The exit status. argv[0] is "tune". */
int cli_bench_tune(int argc, char **argv);

#endif
