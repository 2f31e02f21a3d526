/* A relay by hand: makes two TAP devices and carries frames between them until it is ended or SECONDS are over.
 *
 *     relay NAME_A NAME_B DELAY_MS [MBIT_PER_S [LOSS_PERCENT [SECONDS]]]        0 Mbit/s: as fast as it goes */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/relay.h"

int main(int argc, char **argv)
{
    struct relay_counts counts[2] = { 0 };
    if (argc < 4 || argc > 7) {
        fprintf(stderr, "usage: relay NAME_A NAME_B DELAY_MS [MBIT_PER_S [LOSS_PERCENT [SECONDS]]]\n");
        return 2;
    }
    struct relay_options options = { .delay_ns = (int64_t)(atof(argv[3]) * 1e6), .seed = 1 };
    if (argc > 4) options.bits_per_s = (uint64_t)(atof(argv[4]) * 1e6);
    if (argc > 5) options.loss = atof(argv[5]) / 100;
    options.limit_ns = (int64_t)((argc > 6 ? atof(argv[6]) : 600) * 1e9);
    int fd_a = relay_open(argv[1]), fd_b = relay_open(argv[2]);
    if (fd_a < 0 || fd_b < 0) {
        fprintf(stderr, "relay: cannot make a TAP device (is this root, and is there /dev/net/tun?)\n");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    relay_run(fd_a, fd_b, &options, counts);
    for (int i = 0; i < 2; i++) {
        printf("%s: %llu frames, %llu bytes; %llu lost, %llu cut\n", i == 0 ? "there" : "back", (unsigned long long)counts[i].n_frames,
               (unsigned long long)counts[i].n_bytes, (unsigned long long)counts[i].n_lost, (unsigned long long)counts[i].n_cut);
    }
    return 0;
}
