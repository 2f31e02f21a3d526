#include <string.h>

#include "tests/fuzz/targets.h"

#define ROW(name, what) { #name, what, fuzz_##name, fuzz_##name##_seed }

const struct fuzz_target fuzz_targets[] = {
    ROW(handshake, "hellos, proofs and verdicts, on both sides"),
    ROW(store, "requests to the store, and its replies"),
    ROW(frames, "descriptors, piece headers and payload on data links, into every algorithm"),
    ROW(control, "messages on control connections, at rank 0 and at others"),
    ROW(memory, "offers of memory, segments, and a peer that writes anything into one"),
    ROW(checkpoint, "safetensors headers (JSON) and checkpoint files"),
    ROW(digits, "IDX files, plain and gzip"),
    ROW(settings, "the environment, addresses, interface lists, fingerprints"),
    ROW(checked, "blocks with checksums, on data links"),
    ROW(tls, "records on encrypted connections"),
    ROW(profiles, "what is known of a machine and its links (JSON, lines)"),
    ROW(records, "records, logs and traces, read back by report and verify (JSON)"),
    ROW(status, "what ranks answer to gradmesh status"),
    ROW(live, "requests to the page of --live (HTTP)"),
    ROW(arguments, "the command line, amounts with units"),
    { NULL, NULL, NULL, NULL },
};

const struct fuzz_target *fuzz_target_find(const char *name)
{
    const struct fuzz_target *t = fuzz_targets;
    while (t->name != NULL && strcmp(t->name, name) != 0) t++;
    return t->name != NULL ? t : NULL;
}
