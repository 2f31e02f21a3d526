/* store_thread.h - a store that a thread of this process serves: for commands whose workers are started by hand. */
#ifndef LAUNCH_STORE_THREAD_H
#define LAUNCH_STORE_THREAD_H

#include "gradmesh.h"

struct launch_store_thread;

/* Serves the store of this job (job_id, secret_file and insecure of the options) at host:port until it is stopped. GM_OK, or
 * as gmi_store_server_create and gmi_secret_load. */
gm_status launch_store_start(struct launch_store_thread **store, const char *host, int port, const gm_comm_options *options,
                             gm_error *error);
void      launch_store_stop(struct launch_store_thread *store); /* NULL is fine */

#endif
