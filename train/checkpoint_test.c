/* Checkpoints: what is saved comes back, what is damaged is refused, and a kill leaves a good
 * file. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/rng.h"

/* A small model with momentum, and an empty directory. */
struct fixture {
    struct gmt_params    params;
    struct gmt_optimizer optimizer;
    struct gmt_state     state;
    char                 dir_path[64];
    char                 path[4096];
};

static const struct gmt_st_pair settings[] = { { "layers", "5,3,2" }, { "batch", "64" } };

static void fill(struct fixture *f, uint64_t seed)
{
    struct gmi_rng rng = { seed, 0 };
    for (size_t i = 0; i < f->state.n_tensors; i++)
        for (size_t j = 0; j < f->state.tensors[i].n_elems; j++) {
            /* Any bits at all: NaN, infinities, denormals. */
            uint32_t bits = (uint32_t)gmi_rng_next(&rng);
            memcpy(&f->state.tensors[i].values[j], &bits, 4);
        }
}

static int set_up(void **state)
{
    struct fixture   *f = calloc(1, sizeof *f);
    struct gmt_layers layers;
    assert_int_equal(gmt_layers_parse(&layers, "5,3,2", NULL), GM_OK);
    assert_int_equal(gmt_params_init(&f->params, &layers, 7, NULL), GM_OK);
    struct gmt_optimizer_options options;
    gmt_optimizer_options_default(&options, GMT_MOMENTUM);
    assert_int_equal(gmt_optimizer_init(&f->optimizer, &options, f->params.n_elems, NULL), GM_OK);
    gmt_state_list(&f->state, &f->params, &f->optimizer);
    fill(f, 1);
    strcpy(f->dir_path, "/tmp/gradmesh_checkpoint_XXXXXX");
    assert_non_null(mkdtemp(f->dir_path));
    *state = f;
    return 0;
}

static void remove_tree(const char *path)
{
    DIR *listing = opendir(path);
    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        char child[4096];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (unlink(child) != 0) remove_tree(child);
    }
    if (listing != NULL) closedir(listing);
    rmdir(path);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    remove_tree(f->dir_path);
    gmt_params_fini(&f->params);
    gmt_optimizer_fini(&f->optimizer);
    free(f);
    return 0;
}

static const char *step_path(struct fixture *f, unsigned step)
{
    snprintf(f->path, sizeof f->path, "%s/step-%09u.safetensors", f->dir_path, step);
    return f->path;
}

static void save_keeping(struct fixture *f, unsigned step, int keep)
{
    struct gmt_checkpoint_dir  dir;
    gm_error                   error;
    struct gmt_checkpoint_info info = { step, step / 10, step % 10, settings, 2 };
    gmi_error_clear(&error);
    if (gmt_checkpoint_dir_open(&dir, f->dir_path, keep, &error) != GM_OK ||
        gmt_checkpoint_save(&dir, &f->state, &info, &error) != GM_OK)
        fail_msg("%s", error.text);
    gmt_checkpoint_dir_close(&dir);
}

static void save(struct fixture *f, unsigned step) { save_keeping(f, step, 100); }

/* The bytes of all tensors one after another. */
static uint8_t *state_bytes(const struct gmt_state *state)
{
    uint8_t *bytes = malloc(4 * state->n_elems), *p = bytes;
    for (size_t i = 0; i < state->n_tensors; p += 4 * state->tensors[i++].n_elems)
        memcpy(p, state->tensors[i].values, 4 * state->tensors[i].n_elems);
    return bytes;
}

static uint8_t *read_file(const char *path, size_t *size_bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *bytes = malloc(1 << 16);
    *size_bytes = fread(bytes, 1, 1 << 16, file);
    assert_true(*size_bytes < 1 << 16);
    fclose(file);
    return bytes;
}

static void write_file(const char *path, const void *bytes, size_t size_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size_bytes, file), size_bytes);
    fclose(file);
}

/* The file is refused with a sentence that names it and contains `reason`. */
static void assert_refused(const char *path, const char *reason)
{
    struct gmt_checkpoint checkpoint;
    gm_error              error;
    gmi_error_clear(&error);
    assert_int_not_equal(gmt_checkpoint_open(&checkpoint, path, &error), GM_OK);
    assert_int_equal(error.status == GM_OK, 0);
    if (strstr(error.text, path) == NULL || strstr(error.text, reason) == NULL)
        fail_msg("'%s' lacks '%s' or '%s'", error.text, path, reason);
    assert_null(checkpoint.data);
}

static int count_files(const char *dir_path, const char *part)
{
    DIR *listing = opendir(dir_path);
    int  count = 0;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        count += entry->d_name[0] != '\0' && strstr(entry->d_name, part) != NULL;
    closedir(listing);
    return count;
}

/* ---- round trip ---- */

static void what_is_saved_comes_back_bit_for_bit(void **state)
{
    struct fixture       *f = *state;
    struct gmt_checkpoint checkpoint;
    char                  hash[GMT_HASH_HEX_BYTES];
    uint8_t              *before = state_bytes(&f->state);
    assert_int_equal(gmt_state_hash(&f->state, hash, NULL), GM_OK);
    save(f, 123);
    fill(f, 2);
    assert_int_equal(gmt_checkpoint_open(&checkpoint, step_path(f, 123), NULL), GM_OK);
    assert_int_equal(checkpoint.step, 123);
    assert_int_equal(checkpoint.epoch, 12);
    assert_int_equal(checkpoint.batch, 3);
    assert_string_equal(gmt_checkpoint_setting(&checkpoint, "layers"), "5,3,2");
    assert_null(gmt_checkpoint_setting(&checkpoint, "nothing"));
    assert_string_equal(checkpoint.state_hash, hash);
    assert_string_equal(gmt_checkpoint_setting(&checkpoint, "batch"), "64");
    assert_string_equal(gmt_st_metadata(&checkpoint.header, "state_hash"), hash);
    assert_int_equal(gmt_checkpoint_restore(&checkpoint, &f->state, NULL), GM_OK);
    uint8_t *after = state_bytes(&f->state);
    assert_memory_equal(before, after, 4 * f->state.n_elems);
    gmt_checkpoint_close(&checkpoint);
    free(before);
    free(after);
}

static void the_same_state_gives_the_same_bytes(void **state)
{
    struct fixture *f = *state;
    size_t          first_bytes, second_bytes;
    save(f, 5);
    uint8_t *first = read_file(step_path(f, 5), &first_bytes);
    save(f, 5);
    uint8_t *second = read_file(step_path(f, 5), &second_bytes);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    free(first);
    free(second);
}

static void the_hash_is_the_sha256_of_the_little_endian_values(void **state)
{
    (void)state;
    float            values[1] = { 1.0f }; /* 00 00 80 3f */
    struct gmt_state one = { .n_tensors = 1, .n_elems = 1 };
    char             hash[GMT_HASH_HEX_BYTES];
    one.tensors[0] = (struct gmt_state_tensor){ "x", 1, 1, 1, 1, values };
    assert_int_equal(gmt_state_hash(&one, hash, NULL), GM_OK);
    assert_string_equal(hash, "e00e5eb9444182f352323374ef4e08ebcb784725fdd4fd612d7730540b3e0c8c");
}

/* ---- damage ---- */

static void every_flipped_bit_is_noticed(void **state)
{
    struct fixture *f = *state;
    size_t          size_bytes;
    save(f, 1);
    uint8_t *good = read_file(step_path(f, 1), &size_bytes);
    int      fd = open(f->path, O_RDWR);
    assert_true(fd >= 0);
    for (size_t bit = 0; bit < 8 * size_bytes; bit++) {
        uint8_t flipped = good[bit / 8] ^ (uint8_t)(1 << bit % 8);
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
        struct gmt_checkpoint checkpoint;
        if (gmt_checkpoint_open(&checkpoint, f->path, NULL) == GM_OK)
            fail_msg("bit %zu of byte %zu flipped unseen", bit % 8, bit / 8);
        assert_int_equal(pwrite(fd, &good[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    struct gmt_checkpoint checkpoint;
    assert_int_equal(gmt_checkpoint_open(&checkpoint, f->path, NULL), GM_OK);
    gmt_checkpoint_close(&checkpoint);
    close(fd);
    free(good);
}

static void every_other_length_is_refused(void **state)
{
    struct fixture *f = *state;
    size_t          size_bytes;
    save(f, 1);
    uint8_t *good = read_file(step_path(f, 1), &size_bytes);
    for (size_t cut = 0; cut < size_bytes; cut++) {
        write_file(f->path, good, cut);
        assert_refused(f->path, "");
    }
    good[size_bytes] = 0;
    write_file(f->path, good, size_bytes + 1);
    assert_refused(f->path, "appended");
    write_file(f->path, good, 0);
    assert_refused(f->path, "only 0 bytes");
    free(good);
}

static void damage_is_named(void **state)
{
    struct fixture *f = *state;
    size_t          size_bytes;
    save(f, 1);
    uint8_t *good = read_file(step_path(f, 1), &size_bytes);
    good[size_bytes - 1] ^= 1;
    write_file(f->path, good, size_bytes);
    assert_refused(f->path, "its data do not match their checksum");
    good[size_bytes - 1] ^= 1;
    char *batch = memmem(good, size_bytes, "\"64\"", 4);
    assert_non_null(batch);
    batch[1] = '9';
    write_file(f->path, good, size_bytes);
    assert_refused(f->path, "its header does not match its checksum");
    free(good);
}

static void a_huge_header_length_takes_no_memory(void **state)
{
    struct fixture *f = *state;
    uint8_t         bytes[64] = { 0 };
    static const uint64_t lengths[] = { 57, 100000001, UINT64_C(1) << 40, UINT64_MAX,
                                        UINT64_MAX - 7 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        gmi_put_u64(bytes, lengths[i]);
        write_file(step_path(f, 1), bytes, sizeof bytes);
        uint64_t calls = gmi_alloc_calls();
        assert_refused(f->path, "does not fit");
        assert_int_equal(gmi_alloc_calls() - calls, 1); /* the path's copy */
    }
    /* A sparse file that is large enough for its header. */
    gmi_put_u64(bytes, 100000001);
    write_file(f->path, bytes, sizeof bytes);
    assert_int_equal(truncate(f->path, 200000000), 0);
    assert_refused(f->path, "does not fit");
}

/* Replaces one text in the header by another of the same length and makes the checksum right
 * again. */
static void forge(struct fixture *f, const char *from, const char *to)
{
    size_t   size_bytes;
    uint8_t *bytes = read_file(f->path, &size_bytes);
    uint8_t *place = memmem(bytes, size_bytes, from, strlen(from));
    assert_non_null(place);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(place, to, strlen(to));
    size_t   header_bytes = 8 + (size_t)gmi_get_u64(bytes);
    uint8_t *sum = memmem(bytes, size_bytes, "\"header_sha256\":\"", 17);
    assert_non_null(sum);
    memset(sum + 17, '0', 64);
    struct gmt_sha256 sha;
    char              hex[GMT_HASH_HEX_BYTES];
    gmt_sha256_begin(&sha);
    gmt_sha256_add(&sha, bytes, header_bytes);
    assert_int_equal(gmt_sha256_end(&sha, hex, NULL), GM_OK);
    memcpy(sum + 17, hex, 64);
    write_file(f->path, bytes, size_bytes);
    free(bytes);
}

static void another_version_or_format_is_refused_by_name(void **state)
{
    struct fixture *f = *state;
    save(f, 1);
    step_path(f, 1);
    forge(f, "\"format_version\":\"1\"", "\"format_version\":\"2\"");
    assert_refused(f->path, "format version 2");
    save(f, 1);
    forge(f, "gradmesh-checkpoint", "another-checkpoint!");
    assert_refused(f->path, "not one saved by gradmesh");
    save(f, 1);
    forge(f, "\"step\":\"1\"", "\"step\":\"x\"");
    assert_refused(f->path, "no number 'step'");
}

static void what_is_no_file_is_refused_at_once(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(mkdir(step_path(f, 1), 0777), 0);
    assert_refused(f->path, "a directory");
    assert_int_equal(mkfifo(step_path(f, 2), 0666), 0);
    assert_refused(f->path, "something special");
    assert_int_equal(symlink(step_path(f, 3), f->path), 0);
    assert_refused(f->path, "cannot be opened");
    assert_refused(step_path(f, 4), "No such file");
    if (geteuid() != 0) { /* for root everything is readable */
        save(f, 5);
        assert_int_equal(chmod(step_path(f, 5), 0), 0);
        assert_refused(f->path, "Permission denied");
    }
}

static void other_shapes_are_refused_and_nothing_is_changed(void **state)
{
    struct fixture       *f = *state;
    struct gmt_checkpoint checkpoint;
    uint8_t              *before = state_bytes(&f->state);
    save(f, 1);
    assert_int_equal(gmt_checkpoint_open(&checkpoint, step_path(f, 1), NULL), GM_OK);
    struct gmt_state wanted = f->state;
    gm_error         error;

    wanted.tensors[3].n_rows++;
    gmi_error_clear(&error);
    assert_int_equal(gmt_checkpoint_restore(&checkpoint, &wanted, &error), GM_ERR_ARG);
    assert_non_null(strstr(error.text, "layers.1.bias"));
    wanted = f->state;
    strcpy(wanted.tensors[wanted.n_tensors - 1].name, "other");
    assert_int_equal(gmt_checkpoint_restore(&checkpoint, &wanted, NULL), GM_ERR_ARG);
    wanted = f->state;
    wanted.tensors[0].n_dims = 1;
    assert_int_equal(gmt_checkpoint_restore(&checkpoint, &wanted, NULL), GM_ERR_ARG);
    /* sgd has no moments: too many here; adamw has one more: too few. */
    gmt_state_list(&wanted, &f->params, NULL);
    assert_int_equal(gmt_checkpoint_restore(&checkpoint, &wanted, NULL), GM_ERR_ARG);
    assert_int_equal(gmt_checkpoint_restore_params(&checkpoint, &wanted, NULL), GM_OK);
    wanted = f->state;
    wanted.tensors[wanted.n_tensors++] = f->state.tensors[0];
    assert_int_equal(gmt_checkpoint_restore(&checkpoint, &wanted, NULL), GM_ERR_ARG);

    uint8_t *after = state_bytes(&f->state);
    assert_memory_equal(before, after, 4 * f->state.n_elems);
    gmt_checkpoint_close(&checkpoint);
    free(before);
    free(after);
}

static void no_memory_is_an_error_and_leaks_nothing(void **state)
{
    struct fixture *f = *state;
    save(f, 1);
    step_path(f, 1);
    bool was_good = false;
    int  n_failures = 0;
    for (uint64_t nth = 1; !was_good; nth++) {
        struct gmt_checkpoint checkpoint;
        gmi_alloc_fail_at(nth);
        gm_status status = gmt_checkpoint_open(&checkpoint, f->path, NULL);
        gmi_alloc_fail_at(0);
        was_good = status == GM_OK;
        if (!was_good) assert_int_equal(status, GM_ERR_NOMEM);
        n_failures += !was_good;
        gmt_checkpoint_close(&checkpoint);
    }
    assert_true(n_failures >= 5);
    struct gmt_checkpoint_dir  dir;
    struct gmt_checkpoint_info info = { 2, 0, 0, settings, 2 };
    assert_int_equal(gmt_checkpoint_dir_open(&dir, f->dir_path, 3, NULL), GM_OK);
    gmi_alloc_fail_at(1);
    assert_int_equal(gmt_checkpoint_save(&dir, &f->state, &info, NULL), GM_ERR_NOMEM);
    gmi_alloc_fail_at(0);
    gmt_checkpoint_dir_close(&dir);
    assert_int_equal(count_files(f->dir_path, "safetensors"), 1);
}

/* ---- headers that lie ---- */

static void a_header_must_describe_the_data_exactly(void **state)
{
    (void)state;
#define A(begin, end)                                                                              \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" #begin "," #end "]}"
#define B(begin, end)                                                                              \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" #begin "," #end "]}"
    static const struct {
        const char *text, *reason; /* no reason: it is good */
    } cases[] = {
        { "{" A(0, 8) "," B(8, 16) "}", NULL },
        { "{" B(8, 16) "," A(0, 8) "}   ", NULL },
        { "{\"__metadata__\":{\"k\":\"v\"}," A(0, 8) "," B(8, 16) "}", NULL },
        { "{" A(0, 8) "," A(8, 16) "}", "'a' is there twice" },
        { "{" A(0, 8) "," B(0, 8) "}", "inside the tensor before it" },
        { "{" A(0, 8) "," B(4, 12) "}", "inside the tensor before it" },
        { "{" A(0, 8) "}", "cut short or something is appended" },
        { "{" B(8, 16) "}", "after a hole" },
        { "{}", "cut short or something is appended" },
        { "{" A(0, 8) "," B(8, 24) "}", "do not lie in the data part" },
        { "{" A(0, 8) "," B(16, 8) "}", "do not lie in the data part" },
        { "{" A(0, 8) "," B(-8, 0) "}", "do not lie in the data part" },
        { "{" A(0, 8) "," B(8, 1e99) "}", "do not lie in the data part" },
        { "{" A(0, 8) "," B(8.5, 16.5) "}", "do not lie in the data part" },
        { "{" A(0, 4) "," B(4, 16) "}", "its shape needs 8" },
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,16]}}",
          "its shape needs 4" },
        { "{\"a\":{\"dtype\":\"F31\",\"shape\":[4],\"data_offsets\":[0,16]}}",
          "unknown dtype 'F31'" },
        { "{\"a\":{\"dtype\":32,\"shape\":[4],\"data_offsets\":[0,16]}}", "not made of" },
        { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
          "not made of" },
        { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4]}}", "not made of" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", "not made of" },
        { "{\"a\":[\"F32\",[4],[0,16]]}", "not made of" },
        { "{\"a\":7}", "not made of" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", "possible sizes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[\"4\"],\"data_offsets\":[0,16]}}",
          "possible sizes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,16]}}",
          "possible sizes" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,16],\"data_offsets\":[0,16]}}",
          "more than 8 dimensions" },
        { "{\"__metadata__\":{\"k\":1}}", "'k' is not a string" },
        { "{\"__metadata__\":{\"k\":\"v\",\"k\":\"v\"}}", "'k' is there twice" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", "__metadata__ is there twice" },
        { "{\"__metadata__\":[]}", "__metadata__ is not an object" },
        { "", "not a JSON object" },
        { "[]", "not a JSON object" },
        { " {}", "not a JSON object" },
        { "{", "not JSON" },
        { "{\"a", "not JSON" },
        { "{}x", "not JSON" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}} {}", "not JSON" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gmt_st_header header;
        gm_error             error;
        gmi_error_clear(&error);
        gm_status status =
            gmt_st_parse(&header, cases[i].text, strlen(cases[i].text), 16, "F", &error);
        if (cases[i].reason == NULL) {
            assert_int_equal(status, GM_OK);
            assert_int_equal(header.n_tensors, 2);
            assert_string_equal(header.tensors[0].name, "a");
        } else if (status == GM_OK || strstr(error.text, cases[i].reason) == NULL) {
            fail_msg("%s: '%s' instead of '%s'", cases[i].text, error.text, cases[i].reason);
        }
        gmt_st_free(&header);
    }
    /* Deep nesting and a zero byte inside. */
    char deep[5000];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    struct gmt_st_header header;
    assert_int_equal(gmt_st_parse(&header, deep, sizeof deep, 16, "F", NULL), GM_ERR_ARG);
    assert_int_equal(gmt_st_parse(&header, "{\"a\0b\":1}", 9, 16, "F", NULL), GM_ERR_ARG);
}

/* ---- the directory ---- */

struct heard {
    int  n_warnings;
    char last[512];
};

static void hear(void *user, const char *sentence)
{
    struct heard *heard = user;
    heard->n_warnings++;
    snprintf(heard->last, sizeof heard->last, "%s", sentence);
}

static uint64_t newest_step(struct fixture *f, struct heard *heard)
{
    struct gmt_checkpoint        checkpoint;
    struct gmt_checkpoint_filter filter = { NULL, hear, heard };
    bool                         was_found;
    gm_error                     error;
    gmi_error_clear(&error);
    *heard = (struct heard){ 0 };
    if (gmt_checkpoint_newest(&checkpoint, &was_found, f->dir_path, &filter, &error) != GM_OK) {
        snprintf(heard->last, sizeof heard->last, "%s", error.text);
        return UINT64_MAX;
    }
    uint64_t step = was_found ? checkpoint.step : 0;
    if (was_found) gmt_checkpoint_close(&checkpoint);
    return step;
}

static void the_newest_good_one_is_found(void **state)
{
    struct fixture *f = *state;
    struct heard    heard;
    size_t          size_bytes;
    assert_int_equal(newest_step(f, &heard), 0);
    save(f, 8);
    save(f, 30);
    save(f, 100);
    assert_int_equal(newest_step(f, &heard), 100);
    assert_int_equal(heard.n_warnings, 0);

    uint8_t *good = read_file(step_path(f, 100), &size_bytes);
    write_file(f->path, good, size_bytes / 2);
    free(good);
    assert_int_equal(newest_step(f, &heard), 30);
    assert_int_equal(heard.n_warnings, 1);
    assert_non_null(strstr(heard.last, "step-000000100"));

    assert_int_equal(unlink(step_path(f, 30)), 0);
    assert_int_equal(mkdir(f->path, 0777), 0);
    assert_int_equal(newest_step(f, &heard), 8);
    assert_int_equal(heard.n_warnings, 2);

    write_file(step_path(f, 8), "", 0);
    assert_int_equal(newest_step(f, &heard), UINT64_MAX);
    assert_non_null(strstr(heard.last, "step-000000100"));
}

static void a_file_under_a_false_name_is_passed_over(void **state)
{
    struct fixture *f = *state;
    struct heard    heard;
    char            other[4096];
    save(f, 8);
    snprintf(other, sizeof other, "%s/step-000000009.safetensors", f->dir_path);
    assert_int_equal(link(step_path(f, 8), other), 0);
    assert_int_equal(newest_step(f, &heard), 8);
    assert_non_null(strstr(heard.last, "not of the step in its name"));
}

static gm_status accepts_below_ten(void *user, const struct gmt_checkpoint *checkpoint,
                                   gm_error *error)
{
    (void)user;
    if (checkpoint->step < 10) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "not wanted");
}

static void the_caller_can_pass_a_good_one_over(void **state)
{
    struct fixture              *f = *state;
    struct gmt_checkpoint_filter filter = { accepts_below_ten, NULL, NULL };
    struct gmt_checkpoint        checkpoint;
    bool                         was_found;
    gm_error                     error;
    save(f, 9);
    save(f, 10);
    assert_int_equal(gmt_checkpoint_newest(&checkpoint, &was_found, f->dir_path, &filter, NULL),
                     GM_OK);
    assert_true(was_found);
    assert_int_equal(checkpoint.step, 9);
    gmt_checkpoint_close(&checkpoint);
    assert_int_equal(unlink(step_path(f, 9)), 0);
    gmi_error_clear(&error);
    assert_int_equal(gmt_checkpoint_newest(&checkpoint, &was_found, f->dir_path, &filter, &error),
                     GM_ERR_ARG);
    assert_string_equal(error.text, "not wanted");
}

static void the_last_k_are_kept(void **state)
{
    struct fixture *f = *state;
    uint64_t        step;
    for (unsigned i = 1; i <= 6; i++) save_keeping(f, i, 3);
    assert_int_equal(count_files(f->dir_path, "safetensors"), 3);
    assert_int_equal(access(step_path(f, 4), F_OK), 0);
    /* Back to an older step: what is newer stays until it is overwritten, what was just saved
     * stays. */
    save_keeping(f, 2, 1);
    assert_int_equal(access(step_path(f, 2), F_OK), 0);
    assert_int_equal(count_files(f->dir_path, "safetensors"), 4);
    assert_true(gmt_checkpoint_dir_last(f->dir_path, &step));
    assert_int_equal(step, 6);
    save_keeping(f, 7, 1);
    assert_int_equal(count_files(f->dir_path, "safetensors"), 1);
}

static void only_dead_writers_temporaries_are_cleared(void **state)
{
    struct fixture *f = *state;
    struct heard    heard;
    char            dead[4096], living[4096];
    size_t          size_bytes;
    save(f, 1);
    uint8_t *good = read_file(step_path(f, 1), &size_bytes);
    snprintf(dead, sizeof dead, "%s/.step-000000009.safetensors.tmp-1-0a0b0c0d", f->dir_path);
    snprintf(living, sizeof living, "%s/.step-000000009.safetensors.tmp-2-0a0b0c0d", f->dir_path);
    write_file(dead, good, size_bytes);
    write_file(living, good, size_bytes);
    free(good);
    int fd = open(living, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(newest_step(f, &heard), 1); /* never chosen */
    save(f, 2);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(living, F_OK), 0);
    close(fd);
    save(f, 3);
    assert_int_equal(access(living, F_OK), -1);
}

static void a_second_writer_in_a_directory_is_told(void **state)
{
    struct fixture           *f = *state;
    struct gmt_checkpoint_dir first, second;
    gm_error                  error;
    assert_int_equal(gmt_checkpoint_dir_open(&first, f->dir_path, 3, NULL), GM_OK);
    gmi_error_clear(&error);
    assert_int_equal(gmt_checkpoint_dir_open(&second, f->dir_path, 3, &error), GM_ERR_STATE);
    assert_non_null(strstr(error.text, f->dir_path));
    gmt_checkpoint_dir_close(&first);
    assert_int_equal(gmt_checkpoint_dir_open(&second, f->dir_path, 3, NULL), GM_OK);
    gmt_checkpoint_dir_close(&second);
}

static void a_missing_directory_is_made(void **state)
{
    struct fixture           *f = *state;
    struct gmt_checkpoint_dir dir;
    gm_error                  error;
    char                      path[4096];
    snprintf(path, sizeof path, "%s/a/b/", f->dir_path);
    assert_int_equal(gmt_checkpoint_dir_open(&dir, path, 3, NULL), GM_OK);
    gmt_checkpoint_dir_close(&dir);
    snprintf(path, sizeof path, "%s/file", f->dir_path);
    write_file(path, "x", 1);
    gmi_error_clear(&error);
    assert_int_equal(gmt_checkpoint_dir_open(&dir, path, 3, &error), GM_ERR_SYSTEM);
    assert_non_null(strstr(error.text, path));
}

/* ---- trouble while saving ---- */

static void a_full_disk_leaves_what_was_there(void **state)
{
    struct fixture *f = *state;
    struct heard    heard;
    save(f, 1);
    pid_t child = fork();
    if (child == 0) {
        /* The nearest thing to a full disk that needs no privileges: no file above 600 bytes. */
        struct rlimit              limit = { 600, 600 };
        struct gmt_checkpoint_dir  dir;
        struct gmt_checkpoint_info info = { 2, 0, 2, settings, 2 };
        gm_error                   error;
        gmi_error_clear(&error);
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(10);
        if (gmt_checkpoint_dir_open(&dir, f->dir_path, 3, NULL) != GM_OK) _exit(11);
        if (gmt_checkpoint_save(&dir, &f->state, &info, &error) != GM_ERR_SYSTEM) _exit(12);
        _exit(strstr(error.text, "step-000000002") != NULL ? 0 : 13);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(count_files(f->dir_path, "step-"), 1);
    assert_int_equal(newest_step(f, &heard), 1);
}

/* Saves steps first, first + 1, ... for ever, each with its own values, and tells the parent of
 * each. */
static void save_for_ever(struct fixture *f, unsigned first, int tell_fd)
{
    struct gmt_checkpoint_dir dir;
    if (gmt_checkpoint_dir_open(&dir, f->dir_path, 2, NULL) != GM_OK) _exit(1);
    for (unsigned step = first;; step++) {
        struct gmt_checkpoint_info info = { step, 0, step, settings, 2 };
        fill(f, step);
        if (gmt_checkpoint_save(&dir, &f->state, &info, NULL) != GM_OK) _exit(2);
        if (write(tell_fd, "", 1) != 1) _exit(3);
    }
}

static void a_kill_while_saving_leaves_a_good_one(void **state)
{
    struct fixture *f = *state;
    struct heard    heard;
    uint64_t        step = 0;
    struct gmi_rng  rng = { 99, 0 };
    for (int round = 0; round < 40; round++) {
        int told[2];
        assert_int_equal(pipe(told), 0);
        pid_t child = fork();
        if (child == 0) {
            close(told[0]);
            save_for_ever(f, (unsigned)step + 1, told[1]);
        }
        close(told[1]);
        char byte;
        assert_int_equal(read(told[0], &byte, 1), 1);
        usleep((useconds_t)gmi_rng_next_below(&rng, 1500)); /* any moment will do */
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        uint64_t n_told = 1;
        while (read(told[0], &byte, 1) == 1) n_told++;
        close(told[0]);

        uint64_t newest = newest_step(f, &heard);
        assert_int_equal(heard.n_warnings, 0);
        if (newest < step + n_told || newest > step + n_told + 1)
            fail_msg("round %d: step %llu after %llu + %llu", round, (unsigned long long)newest,
                     (unsigned long long)step, (unsigned long long)n_told);
        struct gmt_checkpoint checkpoint;
        assert_int_equal(gmt_checkpoint_open(&checkpoint, step_path(f, (unsigned)newest), NULL),
                         GM_OK);
        char expected[GMT_HASH_HEX_BYTES];
        fill(f, newest);
        assert_int_equal(gmt_state_hash(&f->state, expected, NULL), GM_OK);
        assert_string_equal(checkpoint.state_hash, expected);
        gmt_checkpoint_close(&checkpoint);
        assert_true(count_files(f->dir_path, ".tmp-") <= 1);
        step = newest;
    }
    save(f, (unsigned)step + 1);
    assert_int_equal(count_files(f->dir_path, ".tmp-"), 0);
}

static void a_reader_never_sees_half_a_file(void **state)
{
    struct fixture *f = *state;
    int             told[2];
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        struct gmt_checkpoint_dir dir;
        if (gmt_checkpoint_dir_open(&dir, f->dir_path, 2, NULL) != GM_OK) _exit(1);
        for (unsigned i = 0;; i++) { /* the same name over and over */
            struct gmt_checkpoint_info info = { 1, 0, 0, settings, 2 };
            fill(f, i);
            if (gmt_checkpoint_save(&dir, &f->state, &info, NULL) != GM_OK) _exit(2);
            if (i == 0 && write(told[1], "", 1) != 1) _exit(3);
        }
    }
    close(told[1]);
    char byte;
    assert_int_equal(read(told[0], &byte, 1), 1);
    close(told[0]);
    for (int i = 0; i < 300; i++) {
        struct gmt_checkpoint checkpoint;
        gm_error              error;
        gmi_error_clear(&error);
        if (gmt_checkpoint_open(&checkpoint, step_path(f, 1), &error) != GM_OK)
            fail_msg("read %d: %s", i, error.text);
        gmt_checkpoint_close(&checkpoint);
    }
    int status;
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_saved_comes_back_bit_for_bit),
        TEST(the_same_state_gives_the_same_bytes),
        TEST(the_hash_is_the_sha256_of_the_little_endian_values),
        TEST(every_flipped_bit_is_noticed),
        TEST(every_other_length_is_refused),
        TEST(damage_is_named),
        TEST(a_huge_header_length_takes_no_memory),
        TEST(another_version_or_format_is_refused_by_name),
        TEST(what_is_no_file_is_refused_at_once),
        TEST(other_shapes_are_refused_and_nothing_is_changed),
        TEST(no_memory_is_an_error_and_leaks_nothing),
        TEST(a_header_must_describe_the_data_exactly),
        TEST(the_newest_good_one_is_found),
        TEST(a_file_under_a_false_name_is_passed_over),
        TEST(the_caller_can_pass_a_good_one_over),
        TEST(the_last_k_are_kept),
        TEST(only_dead_writers_temporaries_are_cleared),
        TEST(a_second_writer_in_a_directory_is_told),
        TEST(a_missing_directory_is_made),
        TEST(a_full_disk_leaves_what_was_there),
        TEST(a_kill_while_saving_leaves_a_good_one),
        TEST(a_reader_never_sees_half_a_file),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
