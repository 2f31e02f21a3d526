#include "comm/placement.h"

#include <sched.h>

#define FIRST_PAUSE_NS INT64_C(1000000)
#define LONGEST_PAUSE_NS INT64_C(1000000000)

enum { CALM_CALLS = 1000 };

void gmi_placement_init(struct gmi_placement *p, int n_local_ranks, int n_cores)
{
    *p = (struct gmi_placement){ .has_core_each = n_local_ranks <= n_cores, .pause_ns = FIRST_PAUSE_NS };
}

bool gmi_placement_should_move(struct gmi_placement *p, bool is_in_conflict, int64_t now_ns)
{
    if (!p->has_core_each) return false;
    if (!is_in_conflict) {
        if (++p->n_calm == CALM_CALLS) p->pause_ns = FIRST_PAUSE_NS;
        return false;
    }
    p->n_calm = 0;
    if (now_ns < p->still_until_ns) return false;
    p->still_until_ns = now_ns + p->pause_ns;
    p->pause_ns = p->pause_ns * 2 < LONGEST_PAUSE_NS ? p->pause_ns * 2 : LONGEST_PAUSE_NS;
    return true;
}

#ifdef __linux__

int gmi_placement_cores(void)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return 1; /* more cores than a mask of this size can name */
    return CPU_COUNT(&mask);
}

uint16_t gmi_placement_core(void)
{
    int core = sched_getcpu();
    return core < 0 || core >= UINT16_MAX ? 0 : (uint16_t)(core + 1);
}

bool gmi_placement_move(void)
{
    cpu_set_t mask, others;
    int       core = sched_getcpu();
    if (core < 0 || sched_getaffinity(0, sizeof mask, &mask) != 0) return false;
    others = mask;
    CPU_CLR((size_t)core, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return false;
    return sched_setaffinity(0, sizeof mask, &mask) == 0;
}

#else

int      gmi_placement_cores(void) { return 1; }
uint16_t gmi_placement_core(void) { return 0; }
bool     gmi_placement_move(void) { return false; }

#endif
