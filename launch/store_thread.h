/* store_thread.h - a store that a thread of this process serves: for commands whose workers are started by hand. */
#ifndef LAUNCH_STORE_THREAD_H
#define LAUNCH_STORE_THREAD_H

#include "gradmesh.h"

struct launch_store_thread;

/* Serves the store of this job at host:port until it is stopped. GM_OK, or as gmi_store_server_create. */
gm_status launch_store_start(struct launch_store_thread **store, const char *host, int port, const char *job_id, gm_error *error);
void      launch_store_stop(struct launch_store_thread *store); /* NULL is fine */

#endif
