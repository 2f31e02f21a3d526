/* train_print.h - what `gradmesh train` shows to people: how it starts, how it goes, and the
 * verdict.
 *
 * Only rank 0 prints. On a terminal the last row of the table is redrawn in place; elsewhere a
 * few rows per epoch are printed. Rows are whole lines in either case, since a launcher passes
 * on nothing else. */
#ifndef CLI_TRAIN_PRINT_H
#define CLI_TRAIN_PRINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "train/compare.h"
#include "train/trainer.h"

struct cli_train_printer {
    FILE                    *file;
    bool                     is_live;
    int                      world_size;
    const struct gmt_recipe *recipe;
    uint64_t                 n_batches; /* of an epoch */
    struct gmt_report        last;      /* what the row shows */
    bool                     has_row;   /* a row that may be redrawn stands in the last line */
    uint64_t                 next_row_step;
    int64_t                  drawn_ns;
};

/* How the run is set up: data, network, batch and shares, rate, machine. `exchange`: how gradients
 * are, a clause; "" where there is nobody to exchange with. */
void cli_print_start(struct cli_train_printer *printer, const struct gmt_data *data,
                     const char *exchange, int n_threads, uint64_t first_step);

/* Rows of the table. */
void cli_print_report(struct cli_train_printer *printer, const struct gmt_report *report);
void cli_print_epoch(struct cli_train_printer *printer, const struct gmt_epoch_report *report);
/* After a step: redraws the live row now and then. */
void cli_print_step(struct cli_train_printer *printer, uint64_t step);

/* Bits, precision (if `difference` is there: after compare_steps steps), traffic, time; the last
 * line is the accuracy. */
void cli_print_verdict(struct cli_train_printer *printer, const struct gmt_end *end,
                       const struct gmt_difference *difference, uint64_t compare_steps);

/* 1234567 as "1,234,567". Returns text. */
#define CLI_GROUPED_BYTES 28
char *cli_grouped(uint64_t number, char text[CLI_GROUPED_BYTES]);

#endif
