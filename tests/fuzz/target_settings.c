/* What a user or a launcher hands over as text: one byte that chooses, then
 *     0   lines NAME=VALUE: the environment of a worker, N being the number of a known name
 *     1   "host:port"     2   an address that another rank has published
 *     3   a choice of interfaces     4   two fingerprints, a zero byte between them */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/fingerprint.h"
#include "net/interface.h"
#include "tests/fuzz/targets.h"

static const char *const names[] = {
    "GRADMESH_RANK", "GRADMESH_WORLD_SIZE", "GRADMESH_STORE", "GRADMESH_JOB_ID", "GRADMESH_SOCKET_IFNAME", "GRADMESH_TRANSPORT",
    "GRADMESH_HOST_ID", "GRADMESH_ALGO", "GRADMESH_WIRE", "GRADMESH_TIMEOUT_MS", "GRADMESH_SPIN_US", "GRADMESH_LOG", "MASTER_ADDR",
    "MASTER_PORT", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID",
    "SLURM_NTASKS", "JOB_COMPLETION_INDEX", "GRADMESH_CHECKSUM", "GRADMESH_INSECURE", "GRADMESH_ENCRYPT", "GRADMESH_SECRET_FILE",
    "GRADMESH_PROFILE",
};
enum { N_NAMES = sizeof names / sizeof names[0], LINE_BYTES = 128, ENTRY_BYTES = LINE_BYTES + 32 };

static char entries[N_NAMES][ENTRY_BYTES]; /* putenv keeps the memory; setenv would let it grow */

static void clear_environment(void)
{
    for (int i = 0; i < N_NAMES; i++) unsetenv(names[i]);
}

static void read_environment(struct fuzz_input *in)
{
    char            line[LINE_BYTES];
    gm_comm_options options;
    gm_error        error;
    gm_comm        *comm;
    clear_environment();
    while (fuzz_line(in, line, sizeof line)) {
        int   i = (uint8_t)line[0] % N_NAMES;
        char *value = line[0] != '\0' ? line + 1 : line;
        snprintf(entries[i], ENTRY_BYTES, "%s=%s", names[i], value);
        putenv(entries[i]);
    }
    gm_comm_options_default(&options);
    gm_status status = gm_comm_options_from_env(&options, &error);
    if (status != GM_OK) fuzz_check(status == GM_ERR_ARG && error.text[0] != '\0');
    if (status == GM_OK && options.world_size == 1) {
        if (gm_comm_create(&comm, &options, &error) == GM_OK) {
            gm_comm_destroy(comm);
        } else {
            fuzz_check(error.text[0] != '\0');
        }
    }
    clear_environment();
}

static void split_host_and_port(struct fuzz_input *in)
{
    char     text[300], host[64];
    int      port = -1;
    gm_error error;
    if (!fuzz_line(in, text, sizeof text)) return;
    gmi_error_clear(&error);
    if (gmi_host_port_split(text, host, sizeof host, &port, &error) == GM_OK) {
        fuzz_check(port >= 0 && port <= 65535 && strlen(host) < sizeof host);
    }
}

static void parse_address(struct fuzz_input *in)
{
    char               text[300], again[GMI_ADDRESS_TEXT_BYTES];
    struct gmi_address address, same;
    if (!fuzz_line(in, text, sizeof text)) return;
    if (gmi_address_parse_numeric(&address, text, NULL) != GM_OK) return;
    gmi_address_format(&address, again);
    if (!gmi_address_is_link_local(&address)) { /* whose scope may be of no interface */
        fuzz_check(gmi_address_parse_numeric(&same, again, NULL) == GM_OK && gmi_address_equal(&address, &same));
    }
}

static void choose_interface(struct fuzz_input *in)
{
    char                list[300];
    struct sockaddr_in  v4[3] = { { .sin_family = AF_INET }, { .sin_family = AF_INET }, { .sin_family = AF_INET } };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_scope_id = 3 };
    char                name[4][8] = { "lo", "eth0", "eth0.7", "veth0" };
    struct ifaddrs      all[4] = { { .ifa_name = name[0], .ifa_addr = (struct sockaddr *)&v4[0], .ifa_flags = IFF_UP | IFF_LOOPBACK },
                                   { .ifa_name = name[1], .ifa_addr = (struct sockaddr *)&v4[1], .ifa_flags = IFF_UP },
                                   { .ifa_name = name[2], .ifa_addr = (struct sockaddr *)&v4[2], .ifa_flags = IFF_UP },
                                   { .ifa_name = name[3], .ifa_addr = (struct sockaddr *)&v6, .ifa_flags = IFF_UP } };
    struct gmi_interface_choice choice;
    inet_pton(AF_INET, "127.0.0.1", &v4[0].sin_addr);
    inet_pton(AF_INET, "10.1.2.3", &v4[1].sin_addr);
    inet_pton(AF_INET, "192.168.7.1", &v4[2].sin_addr);
    inet_pton(AF_INET6, "fe80::1", &v6.sin6_addr);
    for (int i = 0; i < 3; i++) all[i].ifa_next = &all[i + 1];
    int family = fuzz_u8(in) % 2 ? AF_INET : AF_INET6;
    if (!fuzz_line(in, list, sizeof list)) return;
    gm_error error;
    gmi_error_clear(&error);
    if (gmi_interface_pick(&choice, all, list, family, &error) != GM_OK) fuzz_check(error.text[0] != '\0');
}

static void compare_fingerprints(struct fuzz_input *in)
{
    char   ours[512], text[64];
    size_t n_theirs, used = 0;
    for (char c; in->left_bytes > 0 && (c = (char)fuzz_u8(in)) != '\0';) {
        if (used + 1 < sizeof ours) ours[used++] = c;
    }
    ours[used] = '\0';
    const char *theirs = (const char *)fuzz_take(in, in->left_bytes, &n_theirs);
    text[0] = '\0';
    if (gmi_fingerprint_differs(ours, 0, theirs, n_theirs, 1, text, sizeof text)) fuzz_check(text[0] != '\0');
    fuzz_check(!gmi_fingerprint_differs(ours, 0, ours, used, 1, text, sizeof text));
}

void fuzz_settings(const uint8_t *bytes, size_t n_bytes)
{
    static void (*const entrances[])(struct fuzz_input *) = { read_environment, split_host_and_port, parse_address,
                                                              choose_interface, compare_fingerprints };
    struct fuzz_input in = { bytes, n_bytes };
    entrances[fuzz_u8(&in) % 5](&in);
}

void fuzz_settings_seed(fuzz_keep_fn keep, void *user)
{
#define SEED(text) { text, sizeof(text) - 1 }
    static const struct {
        const char *bytes;
        size_t      n_bytes;
    } seeds[] = {
        SEED("\0\x38" "0\n\x39" "1\n\x43" "warn\n\x4f" "crc32c\n\x50" "1\n"), /* 0x38 % N_NAMES is GRADMESH_RANK, and so on */
        SEED("\0\x38" "0\n\x39" "4\n\x3a" "[::1]:29500\n\x3c" "=eth0,10.0.0.0/8\n\x3d" "shm\n\x41" "5000\n"),
        SEED("\0\x46" "3\n\x47" "4\n\x44" "127.0.0.1\n\x45" "29500\n"),
        SEED("\1localhost:29500"), SEED("\1[fe80::1%eth0]:1"), SEED("\1:0"), SEED("\1host"), SEED("\1[::1:5"),
        SEED("\2" "127.0.0.1:5"), SEED("\2[::1]:65535"), SEED("\2[fe80::1%3]:4"), SEED("\2" "1.2.3.4:99999"),
        SEED("\3\1eth"), SEED("\3\1=eth0"), SEED("\3\0^docker,lo"), SEED("\3\1" "10.0.0.0/8,fd00::/8"), SEED("\3\0fe80::/10"),
        SEED("\3\1" "1.2.3.4/33"), SEED("\4lr=1\nbatch=2\n"), SEED("\4lr=1\n\0lr=2\nx=y\n"),
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) keep(user, (const uint8_t *)seeds[i].bytes, seeds[i].n_bytes);
}
