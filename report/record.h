/* record.h - what commands have recorded, read back: which kind of file it is, and whether it can be used.
 *
 * A kind is seen from the fields, never from the file's name. What is read is checked for the fields
 * that the page counts on; anything else in a record goes through untouched. */
#ifndef REPORT_RECORD_H
#define REPORT_RECORD_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "gradmesh.h"

enum gmr_kind {
    GMR_TRAIN,   /* the log of a training, JSON lines */
    GMR_SCALING, /* points of the scaling study, JSON lines */
    GMR_PLAN,    /* what the planner predicted, and perhaps measured */
    GMR_BENCH,   /* collectives by size */
    GMR_LIMITS,  /* what the machine could carry */
    GMR_PEERS,   /* collectives by size, of several systems, JSON lines */
    GMR_TRACE,   /* spans of all ranks, Chrome's trace format */
    GMR_N_KINDS,
};

/* "training log", and the same with its command: how a newcomer gets such a file. */
const char *gmr_kind_name(enum gmr_kind kind);  /* for people: "training log" */
const char *gmr_kind_key(enum gmr_kind kind);   /* in the page's data: "train" */
const char *gmr_kind_source(enum gmr_kind kind); /* "gradmesh train --log FILE" */

struct gmr_record {
    enum gmr_kind kind;
    char         *name;      /* the file's, without its folders */
    cJSON        *data;      /* an array of records, or one object */
    size_t        n_records; /* lines, points, results, or events */
    bool          is_cut;    /* the last line was not whole, and was left out: somebody still writes */
};

/* Reads a file whole. `error` says what is wrong with it, and where. */
gm_status gmr_record_read(struct gmr_record *record, const char *path, gm_error *error);

/* The same from memory; `name` is for the sentences. */
gm_status gmr_record_parse(struct gmr_record *record, const char *name, const char *text,
                           size_t size_bytes, gm_error *error);

void gmr_record_fini(struct gmr_record *record);

#endif
