/* Checkpoints: one byte that chooses, then
 *     0   u16 bytes of the data part, then the text of a safetensors header (JSON)
 *     1   a whole file
 *     2   a whole file, whose checksums are made right first, so that what they guard is seen too */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "tests/fuzz/targets.h"
#include "train/checkpoint.h"

enum { HEX = 64, MAX_FILE_BYTES = 1 << 16 };

struct model {
    struct gmt_params    params;
    struct gmt_optimizer optimizer;
    struct gmt_state     state;
};

static struct model *the_model(void)
{
    static struct model m;
    struct gmt_layers            layers;
    struct gmt_optimizer_options options;
    if (m.state.n_tensors > 0) return &m;
    gmt_optimizer_options_default(&options, GMT_MOMENTUM);
    fuzz_check(gmt_layers_parse(&layers, "3,2", NULL) == GM_OK);
    fuzz_check(gmt_params_init(&m.params, &layers, 7, NULL) == GM_OK);
    fuzz_check(gmt_optimizer_init(&m.optimizer, &options, m.params.n_elems, NULL) == GM_OK);
    gmt_state_list(&m.state, &m.params, &m.optimizer);
    return &m;
}

/* ---- making checksums right ---------------------------------------------------------------------- */

static void put_sum(uint8_t *file, size_t header_bytes, const char *key, const void *bytes, size_t n_bytes)
{
    struct gmt_sha256 sha;
    char              hex[GMT_HASH_HEX_BYTES];
    uint8_t          *at = memmem(file, header_bytes, key, strlen(key));
    if (at == NULL || at + strlen(key) + HEX > file + header_bytes) return;
    at += strlen(key);
    if (bytes == file) memset(at, '0', HEX); /* the header's own counts as zeros */
    gmt_sha256_begin(&sha);
    gmt_sha256_add(&sha, bytes, n_bytes);
    if (gmt_sha256_end(&sha, hex, NULL) == GM_OK) memcpy(at, hex, HEX);
}

static void mend(uint8_t *file, size_t file_bytes)
{
    if (file_bytes < 8) return;
    uint64_t header_bytes = gmi_get_u64(file);
    if (header_bytes > file_bytes - 8) return;
    size_t data_at = 8 + (size_t)header_bytes;
    put_sum(file, data_at, "\"data_sha256\":\"", file + data_at, file_bytes - data_at);
    put_sum(file, data_at, "\"state_hash\":\"", file + data_at, file_bytes - data_at);
    put_sum(file, data_at, "\"header_sha256\":\"", file, data_at);
}

/* ---- the two entries ----------------------------------------------------------------------------- */

static void parse_header(struct fuzz_input *in)
{
    struct gmt_st_header header;
    size_t               n_bytes, data_bytes = fuzz_u16(in);
    const uint8_t       *text = fuzz_take(in, in->left_bytes, &n_bytes);
    if (gmt_st_parse(&header, (const char *)text, n_bytes, data_bytes, "the file", NULL) != GM_OK) return;
    for (size_t i = 0; i < header.n_tensors; i++) {
        fuzz_check(header.tensors[i].begin <= header.tensors[i].end && header.tensors[i].end <= data_bytes);
    }
    (void)gmt_st_metadata(&header, "step");
    gmt_st_free(&header);
}

static void open_file(const uint8_t *bytes, size_t n_bytes)
{
    struct gmt_checkpoint checkpoint;
    char                  path[FUZZ_PATH_BYTES];
    fuzz_file(0, bytes, n_bytes, path);
    if (gmt_checkpoint_open(&checkpoint, path, NULL) != GM_OK) return;
    (void)gmt_checkpoint_setting(&checkpoint, "layers");
    gm_status status = gmt_checkpoint_restore(&checkpoint, &the_model()->state, NULL);
    fuzz_check(status == GM_OK || status == GM_ERR_ARG);
    gmt_checkpoint_close(&checkpoint);
}

void fuzz_checkpoint(const uint8_t *bytes, size_t n_bytes)
{
    struct fuzz_input in = { bytes, n_bytes };
    uint8_t           choice = fuzz_u8(&in);
    if (choice % 3 == 0) {
        parse_header(&in);
    } else if (choice % 3 == 1 || in.left_bytes > MAX_FILE_BYTES) {
        open_file(in.bytes, in.left_bytes);
    } else {
        static uint8_t file[MAX_FILE_BYTES];
        memcpy(file, in.bytes, in.left_bytes);
        mend(file, in.left_bytes);
        open_file(file, in.left_bytes);
    }
}

/* ---- seeds --------------------------------------------------------------------------------------- */

static void keep_headers(fuzz_keep_fn keep, void *user)
{
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[24,25]}}",
        "{\"__metadata__\":{\"step\":\"7\"},\"x\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[0,0]}}  ",
        "{}",
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[1e3,18446744073709551615],\"data_offsets\":[0,-1]}}",
        "[[[[[[[[[[[[{\"\\ud800\\u0000\":null}]]]]",
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        uint8_t all[3 + 256] = { 0, 25 };
        size_t  n = strlen(headers[i]);
        memcpy(all + 3, headers[i], n);
        keep(user, all, 3 + n);
    }
}

void fuzz_checkpoint_seed(fuzz_keep_fn keep, void *user)
{
    static const struct gmt_st_pair settings[] = { { "layers", "3,2" }, { "batch", "64" } };
    const struct gmt_checkpoint_info info = { .step = 7, .settings = settings, .n_settings = 2 };
    struct gmt_checkpoint_dir        dir;
    char                             dir_path[] = "/tmp/gradmesh_fuzz_XXXXXX", path[128];
    uint8_t                          all[1 + 8192] = { 1 };
    keep_headers(keep, user);
    fuzz_check(mkdtemp(dir_path) != NULL && gmt_checkpoint_dir_open(&dir, dir_path, 1, NULL) == GM_OK);
    fuzz_check(gmt_checkpoint_save(&dir, &the_model()->state, &info, NULL) == GM_OK);
    gmt_checkpoint_dir_close(&dir);
    snprintf(path, sizeof path, "%s/step-000000007.safetensors", dir_path);
    FILE *file = fopen(path, "rb");
    fuzz_check(file != NULL);
    size_t n = fread(all + 1, 1, sizeof all - 1, file);
    fclose(file);
    unlink(path);
    rmdir(dir_path);
    keep(user, all, 1 + n);
    all[0] = 2;
    keep(user, all, 1 + n);
}
