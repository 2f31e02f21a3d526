/* blas_words.h - a warning of a processor that OpenBLAS does not know. */
#ifndef CLI_BLAS_WORDS_H
#define CLI_BLAS_WORDS_H

/* On standard error, unless OpenBLAS has what this processor needs or OPENBLAS_CORETYPE is set. */
void cli_say_blas(const char *command);

#endif
