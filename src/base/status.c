/* status.c - names and one-line meanings of the status codes, one row each. */
#include "gradmesh.h"

static const struct {
    const char *name, *text;
} rows[] = {
    [GM_OK] = { "GM_OK", "done" },
    [GM_AGAIN] = { "GM_AGAIN", "nothing can move just now" },
    [GM_ERR_ARG] = { "GM_ERR_ARG", "an argument is wrong; nothing was started" },
    [GM_ERR_STATE] = { "GM_ERR_STATE", "the call is not allowed now; nothing was started" },
    [GM_ERR_UNSUPPORTED] = { "GM_ERR_UNSUPPORTED", "this combination is not offered; nothing was started" },
    [GM_ERR_MISMATCH] = { "GM_ERR_MISMATCH", "ranks called different things, or were set up differently" },
    [GM_ERR_REFUSED] = { "GM_ERR_REFUSED", "this process was turned away" },
    [GM_ERR_PEER_LOST] = { "GM_ERR_PEER_LOST", "a rank is gone" },
    [GM_ERR_TIMEOUT] = { "GM_ERR_TIMEOUT", "a time limit passed" },
    [GM_ERR_ABORTED] = { "GM_ERR_ABORTED", "a rank aborted the communicator" },
    [GM_ERR_PROTOCOL] = { "GM_ERR_PROTOCOL", "bytes arrived that cannot be right" },
    [GM_ERR_VERSION] = { "GM_ERR_VERSION", "the peer speaks another version of the protocol" },
    [GM_ERR_SYSTEM] = { "GM_ERR_SYSTEM", "the machine refused something" },
    [GM_ERR_NOMEM] = { "GM_ERR_NOMEM", "no memory" },
    [GM_ERR_CORRUPT] = { "GM_ERR_CORRUPT", "bytes arrived changed" },
};

static int is_known(gm_status status) { return (unsigned)status < sizeof rows / sizeof rows[0]; }

const char *gm_status_name(gm_status status) { return is_known(status) ? rows[status].name : "?"; }
const char *gm_status_text(gm_status status) { return is_known(status) ? rows[status].text : "?"; }

const char *gm_version(void) { return GM_VERSION_STRING; }
