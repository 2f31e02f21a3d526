#include "plan/machine.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "coll/profile.h"

#define DEFAULT_MEMORY_BPS 1e10
/* Of 1,514 bytes of a full Ethernet frame of 1,500: 14 of Ethernet, 20 of IP, 32 of TCP with time stamps. */
#define PAYLOAD_OF_LINE (1448.0 / 1514.0)

void plan_machine_init(struct plan_machine *machine)
{
    struct gmi_profile profile;
    gmi_profile_builtin(&profile);
    double reduce_ps = profile.kinds[GMI_KIND_LOOPBACK].reduce_ps;
    *machine = (struct plan_machine){ .n_cores = 1, .memory_Bps = DEFAULT_MEMORY_BPS, .reduce_Bps = 1e12 / reduce_ps,
                                      .codec_Bps = 1e12 / (2 * reduce_ps) };
}

const struct plan_crew *plan_machine_crew(const struct plan_machine *machine, int workers, int threads)
{
    for (int i = 0; i < machine->n_crews; i++)
        if (machine->crews[i].workers == workers && machine->crews[i].threads == threads) return &machine->crews[i];
    return NULL;
}

struct plan_crew *plan_machine_add_crew(struct plan_machine *machine, int workers, int threads)
{
    for (int i = 0; i < machine->n_crews; i++)
        if (machine->crews[i].workers == workers && machine->crews[i].threads == threads) return &machine->crews[i];
    if (machine->n_crews == PLAN_MAX_CREWS) return NULL;
    struct plan_crew *crew = &machine->crews[machine->n_crews++];
    *crew = (struct plan_crew){ .workers = workers, .threads = threads };
    return crew;
}

const struct plan_exchange *plan_crew_exchange(const struct plan_crew *crew, const char *transport, const char *wire)
{
    for (int i = 0; i < crew->n_exchanges; i++)
        if (strcmp(crew->exchanges[i].transport, transport) == 0 && strcmp(crew->exchanges[i].wire, wire) == 0)
            return &crew->exchanges[i];
    return NULL;
}

/* ---- amounts ------------------------------------------------------------------------------------ */

/* A positive number and what follows it, without blanks between. */
static bool read_amount(double *value, const char **unit, const char *text)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.') return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) return false;
    *value = strtod(text, &end);
    *unit = end + strspn(end, " ");
    return end != text && isfinite(*value) && *value > 0;
}

struct unit {
    const char *name;
    double      factor;
};

static bool scale(double *value, const char *unit, const struct unit *units)
{
    for (; units->name != NULL; units++) {
        if (strcasecmp(unit, units->name) != 0) continue;
        *value *= units->factor;
        return isfinite(*value) && *value > 0;
    }
    return false;
}

bool plan_read_flops(double *flops, const char *text)
{
    static const struct unit units[] = { { "", 1 }, { "M", 1e6 }, { "G", 1e9 }, { "T", 1e12 }, { "MFLOPS", 1e6 },
                                         { "GFLOPS", 1e9 }, { "TFLOPS", 1e12 }, { "MFLOP/s", 1e6 }, { "GFLOP/s", 1e9 },
                                         { "TFLOP/s", 1e12 }, { NULL, 0 } };
    const char *unit;
    return read_amount(flops, &unit, text) && scale(flops, unit, units);
}

bool plan_read_seconds_us(double *us, const char *text)
{
    static const struct unit units[] = { { "", 1 }, { "ns", 1e-3 }, { "us", 1 }, { "ms", 1e3 }, { "s", 1e6 }, { NULL, 0 } };
    const char *unit;
    return read_amount(us, &unit, text) && scale(us, unit, units);
}

bool plan_read_bandwidth(double *bytes_per_s, const char *text)
{
    static const struct unit units[] = { { "kbit", 125 * PAYLOAD_OF_LINE }, { "mbit", 125e3 * PAYLOAD_OF_LINE },
                                         { "gbit", 125e6 * PAYLOAD_OF_LINE }, { "", 1 }, { "K", 1e3 }, { "M", 1e6 },
                                         { "G", 1e9 }, { "KB", 1e3 }, { "MB", 1e6 }, { "GB", 1e9 }, { "KB/s", 1e3 },
                                         { "MB/s", 1e6 }, { "GB/s", 1e9 }, { NULL, 0 } };
    const char *unit;
    return read_amount(bytes_per_s, &unit, text) && scale(bytes_per_s, unit, units);
}
