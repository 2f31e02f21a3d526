/* relay.h - a long or bad cable between two networks: frames wait in a program, not in the kernel, which may lack netem.
 *
 *     network A:  TAP device  <-- fd -->  relay_run: line (rate, room) -> way (delay) <-- fd -->  TAP device  :network B
 *
 * Either device may be moved to another network namespace while the relay runs. Frames come and go as the kernel has them,
 * up to 64 KiB in one (they are cut up only by a real card): so it carries several Gbit/s, and what is lost is lost in
 * such lumps; `gso_max_segs 1` on the devices that send makes a frame a packet. */
#ifndef TESTS_SUPPORT_RELAY_H
#define TESTS_SUPPORT_RELAY_H

#include <stdint.h>

struct relay_options {
    int64_t  delay_ns;     /* of each way */
    uint64_t bits_per_s;   /* 0: as fast as it goes */
    int64_t  room_ns;      /* so long a queue in front of a line of limited rate; longer ones are cut. 0: 50 ms */
    double   loss;         /* share of the frames, 0 to 1 */
    uint64_t seed;         /* of which ones */
    int64_t  limit_ns;     /* then it ends. 0: 60 s */
};

/* What was carried, one way. */
struct relay_counts {
    uint64_t n_frames, n_bytes, n_lost, n_cut;
};

/* Makes a TAP device of that name here and leaves it down. Returns its descriptor; -1: not allowed here. */
int relay_open(const char *name);

/* Carries frames between the two until the time is over, or a device is gone. counts[0] is from a to b. */
void relay_run(int fd_a, int fd_b, const struct relay_options *options, struct relay_counts counts[2]);

#endif
