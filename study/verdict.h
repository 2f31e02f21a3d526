/* verdict.h - what a study says, in plain words. */
#ifndef STUDY_VERDICT_H
#define STUDY_VERDICT_H

#include <stdio.h>

#include "study/study.h"

enum study_eater { STUDY_EATEN_BY_NOTHING, STUDY_EATEN_BY_HARDWARE, STUDY_EATEN_BY_EXCHANGE, STUDY_EATEN_BY_WAITING };

/* What most of the difference between a row and a perfect speed-up goes to: cores that are shared (also without any
 * exchange it would not be faster), the exchange, or waiting for ranks that come late. */
enum study_eater study_eater_of(const struct study_row *row);

/* The rows of one setting are those with the base and point->network, wire, overlap, transport of `row`. The one of them
 * with the shortest step; `row` itself if it is alone. */
const struct study_row *study_best_of(const struct study *study, const struct study_row *row);

void study_print_table(FILE *file, const struct study *study);
void study_print_beside(FILE *file, const struct study *study); /* nothing if nothing was measured beside */
void study_print_verdict(FILE *file, const struct study *study);

#endif
