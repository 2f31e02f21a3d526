#include "net/host.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"

static uint64_t number_of(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *c = text; *c != '\0'; c++) h = (h ^ (uint8_t)*c) * UINT64_C(1099511628211);
    return gmi_rng_u64(h, 0) | 1; /* never 0 */
}

static int read_boot_id(char *text, size_t text_bytes)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, text_bytes - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n >= 36 ? 0 : -1; /* a UUID */
}

uint64_t gmi_host_id(const char *name)
{
    char        boot_id[64], text[160];
    struct stat net;
    if (name != NULL && name[0] != '\0') {
        snprintf(text, sizeof text, "name %.140s", name);
        return number_of(text);
    }
    if (read_boot_id(boot_id, sizeof boot_id) != 0 || stat("/proc/self/ns/net", &net) != 0)
        return 0;
    snprintf(text, sizeof text, "%s %llu %llu", boot_id, (unsigned long long)net.st_dev,
             (unsigned long long)net.st_ino);
    return number_of(text);
}

int gmi_host_own_cores(void)
{
    cpu_set_t mask;
    long      n_online = sysconf(_SC_NPROCESSORS_ONLN);
    int       n = n_online > 0 ? (int)n_online : 1;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return n; /* more than a mask of this size can tell */
    return CPU_COUNT(&mask) == 1 && n > 1 ? 0 : CPU_COUNT(&mask);
}
