/* targets.h - the functions of the table in targets.c. What an input is: at the top of target_x.c. */
#ifndef TESTS_FUZZ_TARGETS_H
#define TESTS_FUZZ_TARGETS_H

#include "tests/fuzz/fuzz.h"

#define FUZZ_TARGET(name)                                                                          \
    void fuzz_##name(const uint8_t *bytes, size_t n_bytes);                                        \
    void fuzz_##name##_seed(fuzz_keep_fn keep, void *user)

FUZZ_TARGET(handshake);
FUZZ_TARGET(store);
FUZZ_TARGET(control);
FUZZ_TARGET(frames);
FUZZ_TARGET(memory);
FUZZ_TARGET(digits);
FUZZ_TARGET(checkpoint);
FUZZ_TARGET(settings);
FUZZ_TARGET(checked);
FUZZ_TARGET(tls);
FUZZ_TARGET(profiles);
FUZZ_TARGET(records);
FUZZ_TARGET(status);
FUZZ_TARGET(live);
FUZZ_TARGET(arguments);

#endif
