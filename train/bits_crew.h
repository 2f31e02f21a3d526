/* bits_crew.h - threads that wait for work and do it together. */
#ifndef GMT_BITS_CREW_H
#define GMT_BITS_CREW_H

#include "gradmesh.h"

struct gmt_crew;

/* A crew of n_threads >= 1, of which the caller is one: n_threads - 1 are started. GM_ERR_NOMEM,
 * GM_ERR_SYSTEM. */
GM_MUST_USE gm_status gmt_crew_open(struct gmt_crew **crew, int n_threads, gm_error *error);
/* Ends the threads. NULL is fine. */
void gmt_crew_close(struct gmt_crew *crew);

/* Calls work(user, thread) for thread = 0 .. n_threads - 1, each in its own thread, 0 in the
 * caller's; returns when all have returned. One caller at a time. */
void gmt_crew_run(struct gmt_crew *crew, void (*work)(void *user, int thread), void *user);

#endif
