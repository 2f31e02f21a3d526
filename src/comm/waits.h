/* waits.h - what rank 0 knows of who waits in which call for whom.
 *
 * A rank that has been still for a while tells rank 0, and again when that changes. Two things come
 * of it: two ranks that wait in calls of one number that differ, though no link between them would
 * have told; and who is to blame for a stall: the rank that somebody waits for and that itself does
 * not wait. A rank may wait in several calls at once, of several communicators or with messages.
 * Knows descriptors and ranks; no memory but its own, no connections. */
#ifndef GMI_WAITS_H
#define GMI_WAITS_H

#include "coll/descriptor.h"

enum { GMI_WAITS_PER_RANK = 4, GMI_CHAIN_SHOWN = 3 };

struct gmi_wait {
    bool                  is_known; /* else the rest means nothing */
    struct gmi_descriptor call;     /* its rank is who waits */
    int                   peer;     /* for whom; -1: for nobody in particular, or not any more */
    bool                  has_other_entered; /* that one has sent it the same descriptor */
    int64_t               since_ns; /* by the clock of who noted it */
};

struct gmi_waits {
    int              n_ranks;
    struct gmi_wait *all; /* GMI_WAITS_PER_RANK for each rank */
};

gm_status gmi_waits_init(struct gmi_waits *w, int n_ranks); /* GM_ERR_NOMEM */
void      gmi_waits_fini(struct gmi_waits *w);

/* Notes what a rank (of call->rank) tells. Another one that waits in the same call of the same
 * communicator and describes it otherwise; NULL: there is none. */
const struct gmi_wait *gmi_waits_note(struct gmi_waits *w, const struct gmi_descriptor *call,
                                      int peer, bool has_entered);

bool gmi_waits_is_waiting(const struct gmi_waits *w, int rank);

/* From the wait of call->rank in this call to who does not wait. */
struct gmi_chain {
    const struct gmi_wait *first[GMI_CHAIN_SHOWN]; /* the first waits of it */
    int                    n_waits;                /* 0: that rank does not wait */
    const struct gmi_wait *last;                   /* its peer does not wait */
    bool                   is_circle;              /* all of them wait; `last` is the first one */
};
struct gmi_chain gmi_waits_chain(const struct gmi_waits *w, const struct gmi_descriptor *call);

#endif
