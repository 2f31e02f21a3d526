/* env.c - who am I, and where do the others meet: from the environment that launchers set.
 *
 * The only place of the library that reads the environment. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "gradmesh.h"

/* Pairs that name a rank and a world size, the first complete one counts. A pair of which only one half
 * is set (Slurm's inside an interactive allocation, say) is passed over; but of the first OWN_FAMILIES, which
 * are set by hand, it is a slip that would start as many worlds of one as there are workers. */
enum { OWN_FAMILIES = 2 };

static const struct {
    const char *rank, *size;
} families[] = {
    { "GRADMESH_RANK", "GRADMESH_WORLD_SIZE" },
    { "RANK", "WORLD_SIZE" },
    { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
    { "PMI_RANK", "PMI_SIZE" },
    { "SLURM_PROCID", "SLURM_NTASKS" },
    { "JOB_COMPLETION_INDEX", "WORLD_SIZE" },
};

static const char *get(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Takes a number if the variable is set. */
static gm_status take_number(const char *name, long least, long most, int *number, gm_error *error)
{
    const char *value = get(name);
    if (value == NULL) return GM_OK;
    char *end;
    long  n = strtol(value, &end, 10);
    bool  is_number = strchr("-0123456789", value[0]) != NULL && end != value; /* strtol takes " +7" too */
    if (!is_number || *end != '\0' || n < least || n > most) {
        return gmi_error_set(error, GM_ERR_ARG, "%s is '%.60s'; it must be a number from %ld to %ld", name, value, least, most);
    }
    *number = (int)n;
    return GM_OK;
}

static gm_status take_identity(gm_comm_options *options, gm_error *error)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (get(families[i].rank) == NULL || get(families[i].size) == NULL) continue;
        gm_status status = take_number(families[i].size, 1, 1 << 20, &options->world_size, error);
        if (status == GM_OK) status = take_number(families[i].rank, 0, (1 << 20) - 1, &options->rank, error);
        if (status == GM_OK && options->rank >= options->world_size) {
            status = gmi_error_set(error, GM_ERR_ARG, "%s is %d, but %s is %d: ranks are 0 to %d", families[i].rank,
                                   options->rank, families[i].size, options->world_size, options->world_size - 1);
        }
        return status;
    }
    for (int i = 0; i < OWN_FAMILIES; i++) {
        const char *rank = families[i].rank, *size = families[i].size;
        if (get(rank) == NULL && get(size) == NULL) continue;
        return gmi_error_set(error, GM_ERR_ARG, "%s is set, but %s is not: set both, or neither for a world of one",
                             get(rank) != NULL ? rank : size, get(rank) != NULL ? size : rank);
    }
    if (options->rank < 0 && options->world_size < 0) {
        options->rank = 0;
        options->world_size = 1;
    }
    return GM_OK;
}

static gm_status take_log_level(gm_comm_options *options, gm_error *error)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };
    const char *value = get("GRADMESH_LOG");
    if (value == NULL) return GM_OK;
    for (int i = 0; i < 4; i++) {
        if (strcmp(value, names[i]) == 0) {
            options->log_level = (gm_log_level)i;
            return GM_OK;
        }
    }
    return gmi_error_set(error, GM_ERR_ARG, "GRADMESH_LOG is '%.60s'; it must be error, warn, info or debug", value);
}

static void take_text(const char *name, const char **text)
{
    const char *value = get(name);
    if (value != NULL) *text = value;
}

gm_status gm_comm_options_from_env(gm_comm_options *options, gm_error *error)
{
    gmi_error_clear(error);
    gm_status status = take_identity(options, error);
    if (status == GM_OK) status = take_number("GRADMESH_TIMEOUT_MS", 0, 1 << 30, &options->stall_limit_ms, error);
    if (status == GM_OK) status = take_number("GRADMESH_SPIN_US", -1, 1000000, &options->spin_us, error);
    if (status == GM_OK) status = take_number("GRADMESH_INSECURE", 0, 1, &options->insecure, error);
    if (status == GM_OK) status = take_number("GRADMESH_ENCRYPT", 0, 1, &options->encrypt, error);
    if (status == GM_OK) status = take_number("MASTER_PORT", 1, 65535, &options->master_port, error);
    if (status == GM_OK) status = take_log_level(options, error);
    take_text("GRADMESH_STORE", &options->store);
    take_text("GRADMESH_JOB_ID", &options->job_id);
    take_text("GRADMESH_SECRET_FILE", &options->secret_file);
    take_text("GRADMESH_SOCKET_IFNAME", &options->interface_names);
    take_text("GRADMESH_TRANSPORT", &options->transport);
    take_text("GRADMESH_HOST_ID", &options->host_id);
    take_text("GRADMESH_ALGO", &options->algorithm);
    take_text("GRADMESH_PROFILE", &options->profile);
    take_text("GRADMESH_WIRE", &options->wire);
    take_text("GRADMESH_CHECKSUM", &options->checksum);
    take_text("MASTER_ADDR", &options->master_addr);
    return status;
}
