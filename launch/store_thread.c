#include "launch/store_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "rendezvous/store_server.h"

enum { TICK_MS = 100 };

struct launch_store_thread {
    struct gmi_store_server *server;
    pthread_t                thread;
    atomic_bool              is_stopping;
    struct gmi_secret        secret;
};

static void *serve(void *user)
{
    struct launch_store_thread *store = user;
    struct gmi_poller           poller;
    gmi_poller_init(&poller);
    while (!atomic_load(&store->is_stopping)) {
        gmi_poller_clear(&poller);
        gmi_store_server_watch(store->server, &poller);
        gmi_poller_wait(&poller, gmi_deadline_after_ms(TICK_MS));
        gmi_store_server_step(store->server);
    }
    gmi_poller_fini(&poller);
    return NULL;
}

gm_status launch_store_start(struct launch_store_thread **out, const char *host, int port, const gm_comm_options *options,
                             gm_error *error)
{
    struct launch_store_thread *store = gmi_alloc(1, sizeof *store);
    *out = NULL;
    if (store == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for a store");
    gm_status status = GM_OK;
    store->secret.lets_anybody_in = options->insecure;
    if (options->secret_file != NULL) status = gmi_secret_load(&store->secret, options->secret_file, error);
    if (status == GM_OK) {
        status = gmi_store_server_create(&store->server, host, port, options->job_id != NULL ? options->job_id : "",
                                         &store->secret, NULL, error);
    }
    int       code = status == GM_OK ? pthread_create(&store->thread, NULL, serve, store) : 0;
    if (code != 0) status = gmi_error_set_errno(error, code, "cannot start a thread for the store");
    if (status != GM_OK) {
        if (store->server != NULL) gmi_store_server_destroy(store->server);
        gmi_free(store);
        return status;
    }
    *out = store;
    return GM_OK;
}

void launch_store_stop(struct launch_store_thread *store)
{
    if (store == NULL) return;
    atomic_store(&store->is_stopping, true);
    pthread_join(store->thread, NULL);
    gmi_store_server_destroy(store->server);
    gmi_free(store);
}
