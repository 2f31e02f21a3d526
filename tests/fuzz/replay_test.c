/* Every seed of every fuzz target, as it is, cut short at each length, and bent by many random changes; and every file
 * of corpus/NAME/, which holds what fuzzing has found. Without clang, and under whatever sanitizer the tests are built
 * with. The search for new inputs: make fuzz. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/fuzz/fuzz.h"

enum { BENDS = 300, MAX_BYTES = 1 << 16, MAX_CUTS = 400 };

struct replay {
    const struct fuzz_target *target;
    uint64_t                  n_seeds, n_runs;
};

/* In memory of its own exact size, so that reading past the end is seen. */
static void run(struct replay *r, const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    assert_non_null(copy);
    if (n_bytes > 0) memcpy(copy, bytes, n_bytes);
    r->target->run(copy, n_bytes);
    free(copy);
    r->n_runs++;
}

/* A few bytes changed, or a part cut out or doubled. */
static size_t bend(struct gmi_rng *rng, const uint8_t *from, size_t n_bytes, uint8_t *into)
{
    memcpy(into, from, n_bytes);
    if (n_bytes == 0) return 0;
    uint64_t n_changes = 1 + gmi_rng_next_below(rng, 4);
    for (uint64_t i = 0; i < n_changes; i++) {
        static const uint8_t telling[] = { 0, 1, 0x7f, 0x80, 0xff, '"', '{', '0', '-', '\n' };
        size_t at = gmi_rng_next_below(rng, n_bytes);
        bool   is_telling = gmi_rng_next_below(rng, 2) == 0;
        into[at] = is_telling ? telling[gmi_rng_next_below(rng, sizeof telling)] : (uint8_t)gmi_rng_next(rng);
    }
    size_t at = gmi_rng_next_below(rng, n_bytes), part = gmi_rng_next_below(rng, n_bytes - at + 1);
    switch (gmi_rng_next_below(rng, 4)) {
    case 0: /* cut out */
        memmove(into + at, into + at + part, n_bytes - at - part);
        return n_bytes - part;
    case 1: /* doubled */
        if (n_bytes + part > MAX_BYTES) return n_bytes;
        memmove(into + at + part, into + at, n_bytes - at);
        return n_bytes + part;
    default: return n_bytes;
    }
}

static void replay_seed(void *user, const uint8_t *bytes, size_t n_bytes)
{
    static uint8_t bent[2 * MAX_BYTES];
    struct replay *r = user;
    struct gmi_rng rng = { .key = gmi_rng_key(UINT64_C(0xf022), r->n_seeds++) };
    assert_true(n_bytes <= MAX_BYTES);
    run(r, bytes, n_bytes);
    for (size_t i = 0; i < n_bytes; i += 1 + n_bytes / MAX_CUTS) run(r, bytes, i);
    for (int i = 0; i < BENDS; i++) {
        size_t n = bend(&rng, bytes, n_bytes, bent);
        run(r, bent, n);
    }
}

static void replay_file(struct replay *r, const char *path)
{
    static uint8_t bytes[MAX_BYTES];
    FILE          *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    run(r, bytes, n);
}

static void replay_corpus(struct replay *r)
{
    char folder[256], path[600];
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", r->target->name);
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        replay_file(r, path);
    }
    if (listing != NULL) closedir(listing);
}

static void replay(void **state)
{
    struct replay r = { .target = *state };
    r.target->seed(replay_seed, &r);
    replay_corpus(&r);
    assert_true(r.n_seeds > 0);
}

int main(void)
{
    struct CMUnitTest tests[32];
    size_t            n = 0;
    for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++) {
        tests[n++] = (struct CMUnitTest){ t->name, replay, NULL, NULL, (void *)(uintptr_t)t };
    }
    return _cmocka_run_group_tests("fuzz replay", tests, n, NULL, NULL);
}
