/* main.c - one target under clang's libFuzzer: FUZZ_TARGET=name fuzz [libFuzzer's arguments]; with FUZZ_SEEDS=DIR it
 * only writes the target's seeds there. See make fuzz. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static const struct fuzz_target *target;

struct folder {
    const char *path;
    int         n_files;
};

static void write_seed(void *user, const uint8_t *bytes, size_t n_bytes)
{
    struct folder *folder = user;
    char           path[4096];
    snprintf(path, sizeof path, "%s/seed-%02d", folder->path, folder->n_files++);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, n_bytes, file) != n_bytes || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char   *name = getenv("FUZZ_TARGET");
    struct folder folder = { getenv("FUZZ_SEEDS"), 0 };
    target = fuzz_target_find(name != NULL ? name : "");
    if (target == NULL) {
        for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++) printf("%-12s %s\n", t->name, t->what);
        fprintf(stderr, "FUZZ_TARGET must be one of these\n");
        exit(2);
    }
    if (folder.path == NULL) return 0;
    target->seed(write_seed, &folder);
    exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    target->run(bytes, n_bytes);
    return 0;
}
