#include "launch/stopped.h"

#include "base/clock.h"
#include "base/process.h"

void launch_stopped_look(struct launch_rank *ranks, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        struct gmi_process_facts facts;
        bool is_stopped = ranks[r].was_started && !ranks[r].has_ended &&
                          gmi_process_read((uint32_t)ranks[r].pid, &facts) &&
                          facts.state == GMI_PROCESS_STOPPED;
        if (!is_stopped) ranks[r].stopped_ns = 0;
        else if (ranks[r].stopped_ns == 0) ranks[r].stopped_ns = gmi_now_ns();
    }
}

int launch_stopped_find(const struct launch_rank *ranks, int n_ranks, int64_t for_ms)
{
    int found = -1;
    int64_t latest_ns = gmi_now_ns() - for_ms * GMI_NS_PER_MS;
    for (int r = 0; r < n_ranks; r++) {
        if (ranks[r].stopped_ns == 0 || ranks[r].stopped_ns > latest_ns) continue;
        if (found < 0 || ranks[r].stopped_ns < ranks[found].stopped_ns) found = r;
    }
    return found;
}
