#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"

#define FORMAT_NAME "gradmesh-checkpoint"
#define FILE_PREFIX "step-"
#define FILE_SUFFIX ".safetensors"
#define TEMPORARY_MARK ".safetensors.tmp-"
#define SETTING_PREFIX "config." /* so that no setting can be taken for something of the format */
#define SETTING_BYTES 64
#define LOCK_WAIT_MS 1000
#define NAME_BYTES 64       /* of a file: the longest step has 20 digits */
#define TEMPORARY_BYTES 128 /* of its temporary */

/* ---- names in the directory ------------------------------------------------------------------ */

static void file_name(char name[NAME_BYTES], uint64_t step)
{
    snprintf(name, NAME_BYTES, FILE_PREFIX "%09" PRIu64 FILE_SUFFIX, step);
}

/* Whether it is the name of a finished checkpoint, exactly as file_name writes it, and of which
 * step. */
static bool is_file_name(const char *name, uint64_t *step)
{
    size_t prefix = strlen(FILE_PREFIX);
    if (strncmp(name, FILE_PREFIX, prefix) != 0) return false;
    if (name[prefix] < '0' || name[prefix] > '9') return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(name + prefix, &end, 10);
    if (errno != 0) return false;
    char canonical[NAME_BYTES];
    file_name(canonical, number);
    *step = number;
    return strcmp(canonical, name) == 0;
}

static bool is_temporary_name(const char *name)
{
    return strncmp(name, "." FILE_PREFIX, 1 + strlen(FILE_PREFIX)) == 0 &&
           strstr(name, TEMPORARY_MARK) != NULL;
}

static int newer_first(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? 1 : left > right ? -1 : 0;
}

gm_status gmt_checkpoint_steps(const char *dir_path, uint64_t **steps, size_t *n_steps,
                               gm_error *error)
{
    *steps = NULL;
    *n_steps = 0;
    DIR *listing = opendir(dir_path);
    if (listing == NULL && errno == ENOENT) return GM_OK;
    if (listing == NULL)
        return gmi_error_set_errno(error, errno, "cannot read the checkpoint directory %s",
                                   dir_path);
    size_t         capacity = 0;
    struct dirent *entry;
    while ((entry = readdir(listing)) != NULL) {
        uint64_t step;
        if (!is_file_name(entry->d_name, &step)) continue;
        if (*n_steps == capacity) {
            capacity = capacity == 0 ? 16 : 2 * capacity;
            uint64_t *larger = realloc(*steps, capacity * sizeof **steps);
            if (larger == NULL) {
                free(*steps);
                *steps = NULL;
                *n_steps = 0;
                closedir(listing);
                return gmi_error_set(error, GM_ERR_NOMEM, "no memory to list the directory %s",
                                     dir_path);
            }
            *steps = larger;
        }
        (*steps)[(*n_steps)++] = step;
    }
    closedir(listing);
    if (*n_steps > 1) qsort(*steps, *n_steps, sizeof **steps, newer_first);
    return GM_OK;
}

bool gmt_checkpoint_dir_last(const char *path, uint64_t *step)
{
    uint64_t *steps;
    size_t    n_steps;
    if (gmt_checkpoint_steps(path, &steps, &n_steps, NULL) != GM_OK || n_steps == 0) return false;
    *step = steps[0];
    free(steps);
    return true;
}

/* ---- the two checksums ----------------------------------------------------------------------- */

static const char header_sum_key[] = "\"header_sha256\":\"";

/* The place of the 64 digits of header_sha256 in a header's bytes (length in front included);
 * NULL unless it is there exactly once. */
static char *header_sum_place(uint8_t *header, size_t header_bytes)
{
    size_t   key_bytes = sizeof header_sum_key - 1;
    uint8_t *key = memmem(header, header_bytes, header_sum_key, key_bytes);
    if (key == NULL) return NULL;
    uint8_t *digits = key + key_bytes;
    size_t   left_bytes = header_bytes - (size_t)(digits - header);
    if (left_bytes < 65 || digits[64] != '"') return NULL;
    if (memmem(digits, left_bytes, header_sum_key, key_bytes) != NULL) return NULL;
    return (char *)digits;
}

/* The checksum of a header in which the 64 digits at `place` count as zeros. */
static gm_status header_sum(const uint8_t *header, size_t header_bytes, const char *place,
                            char hex[GMT_HASH_HEX_BYTES], gm_error *error)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    size_t            before_bytes = (size_t)(place - (const char *)header);
    struct gmt_sha256 sha;
    gmt_sha256_begin(&sha);
    gmt_sha256_add(&sha, header, before_bytes);
    gmt_sha256_add(&sha, zeros, 64);
    gmt_sha256_add(&sha, header + before_bytes + 64, header_bytes - before_bytes - 64);
    return gmt_sha256_end(&sha, hex, error);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads exactly size_bytes; a file that ends before is one that another process is cutting. */
static gm_status read_all(int fd, uint8_t *bytes, size_t size_bytes, const char *path,
                          gm_error *error)
{
    for (size_t done = 0; done < size_bytes;) {
        ssize_t got = read(fd, bytes + done, size_bytes - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return gmi_error_set_errno(error, errno, "checkpoint %s cannot be read", path);
        if (got == 0)
            return gmi_error_set(error, GM_ERR_ARG,
                                 "checkpoint %s: it became shorter while it was read", path);
        done += (size_t)got;
    }
    return GM_OK;
}

static gm_status open_regular_file(const char *path, int *fd, uint64_t *file_bytes, gm_error *error)
{
    /* Non-blocking, so that a pipe of that name does not hold us up. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return gmi_error_set_errno(error, errno, "checkpoint %s cannot be opened", path);
    struct stat info;
    if (fstat(*fd, &info) != 0)
        return gmi_error_set_errno(error, errno, "checkpoint %s cannot be read", path);
    if (!S_ISREG(info.st_mode))
        return gmi_error_set(error, GM_ERR_ARG, "checkpoint %s is %s, not a file", path,
                             S_ISDIR(info.st_mode) ? "a directory" : "something special");
    *file_bytes = (uint64_t)info.st_size;
    return GM_OK;
}

/* Reads length and header into *header (freed with gmi_free). */
static gm_status read_header(int fd, uint64_t file_bytes, uint8_t **header, size_t *header_bytes,
                             const char *path, gm_error *error)
{
    uint8_t length[8];
    if (file_bytes < sizeof length)
        return gmi_error_set(error, GM_ERR_ARG, "checkpoint %s: it has only %" PRIu64 " bytes",
                             path, file_bytes);
    gm_status status = read_all(fd, length, sizeof length, path, error);
    if (status != GM_OK) return status;
    uint64_t text_bytes = gmi_get_u64(length);
    if (text_bytes > file_bytes - sizeof length || text_bytes > GMT_ST_HEADER_MAX_BYTES)
        return gmi_error_set(error, GM_ERR_ARG,
                             "checkpoint %s: a header of %" PRIu64 " bytes does not fit: the file has "
                             "%" PRIu64 ", and up to %" PRIu64 " are read; it is damaged, cut short, or "
                             "something else",
                             path, text_bytes, file_bytes, GMT_ST_HEADER_MAX_BYTES);
    *header_bytes = sizeof length + (size_t)text_bytes;
    *header = gmi_alloc(*header_bytes, 1);
    if (*header == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM,
                             "checkpoint %s: no memory for its header of %zu bytes", path,
                             *header_bytes);
    memcpy(*header, length, sizeof length);
    return read_all(fd, *header + sizeof length, (size_t)text_bytes, path, error);
}

/* A whole number from the metadata. */
static gm_status read_number(const struct gmt_checkpoint *checkpoint, const char *key,
                             uint64_t *number, gm_error *error)
{
    const char *text = gmt_st_metadata(&checkpoint->header, key);
    char       *end = NULL;
    errno = 0;
    if (text != NULL && *text >= '0' && *text <= '9') *number = strtoull(text, &end, 10);
    if (end == NULL || *end != '\0' || errno != 0)
        return gmi_error_set(error, GM_ERR_ARG, "checkpoint %s: its metadata has no number '%s'",
                             checkpoint->path, key);
    return GM_OK;
}

/* Format, version, checksum of the header, and the numbers that every checkpoint has. */
static gm_status check_header(struct gmt_checkpoint *checkpoint, uint8_t *header,
                              size_t header_bytes, gm_error *error)
{
    const char *path = checkpoint->path;
    const char *format = gmt_st_metadata(&checkpoint->header, "format");
    if (format == NULL || strcmp(format, FORMAT_NAME) != 0)
        return gmi_error_set(error, GM_ERR_ARG,
                             "checkpoint %s: it is a safetensors file, but not one saved by gradmesh",
                             path);
    uint64_t  version;
    gm_status status = read_number(checkpoint, "format_version", &version, error);
    if (status != GM_OK) return status;
    if (version != GMT_CHECKPOINT_VERSION)
        return gmi_error_set(error, GM_ERR_ARG,
                             "checkpoint %s: it has format version %" PRIu64 ", this program reads "
                             "version %d: use the gradmesh that wrote it",
                             path, version, GMT_CHECKPOINT_VERSION);
    const char *place = header_sum_place(header, header_bytes);
    char        hex[GMT_HASH_HEX_BYTES];
    if (place != NULL && (status = header_sum(header, header_bytes, place, hex, error)) != GM_OK)
        return status;
    if (place == NULL || memcmp(place, hex, 64) != 0)
        return gmi_error_set(error, GM_ERR_ARG,
                             "checkpoint %s: its header does not match its checksum: it is damaged",
                             path);
    if ((status = read_number(checkpoint, "step", &checkpoint->step, error)) != GM_OK)
        return status;
    if ((status = read_number(checkpoint, "epoch", &checkpoint->epoch, error)) != GM_OK)
        return status;
    return read_number(checkpoint, "batch_cursor", &checkpoint->batch, error);
}

/* Reads the data part and compares its checksum. */
static gm_status read_data(struct gmt_checkpoint *checkpoint, int fd, gm_error *error)
{
    checkpoint->data = gmi_alloc(checkpoint->data_bytes, 1);
    if (checkpoint->data == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM,
                             "checkpoint %s: no memory for its %zu bytes of data", checkpoint->path,
                             checkpoint->data_bytes);
    gm_status status =
        read_all(fd, checkpoint->data, checkpoint->data_bytes, checkpoint->path, error);
    if (status != GM_OK) return status;
    struct gmt_sha256 sha;
    gmt_sha256_begin(&sha);
    gmt_sha256_add(&sha, checkpoint->data, checkpoint->data_bytes);
    status = gmt_sha256_end(&sha, checkpoint->state_hash, error);
    if (status != GM_OK) return status;
    const char *saved = gmt_st_metadata(&checkpoint->header, "data_sha256");
    if (saved == NULL || strcmp(saved, checkpoint->state_hash) != 0)
        return gmi_error_set(error, GM_ERR_ARG,
                             "checkpoint %s: its data do not match their checksum: it is damaged",
                             checkpoint->path);
    return GM_OK;
}

static gm_status read_checkpoint(struct gmt_checkpoint *checkpoint, int fd, uint64_t file_bytes,
                                 uint8_t **header, gm_error *error)
{
    size_t    header_bytes = 0;
    gm_status status = read_header(fd, file_bytes, header, &header_bytes, checkpoint->path, error);
    if (status != GM_OK) return status;
    uint64_t data_bytes = file_bytes - header_bytes;
    if (data_bytes > SIZE_MAX / 2)
        return gmi_error_set(error, GM_ERR_NOMEM, "checkpoint %s is larger than memory",
                             checkpoint->path);
    checkpoint->data_bytes = (size_t)data_bytes;
    status = gmt_st_parse(&checkpoint->header, (const char *)*header + 8, header_bytes - 8,
                          data_bytes, checkpoint->path, error);
    if (status == GM_OK) status = check_header(checkpoint, *header, header_bytes, error);
    if (status == GM_OK) status = read_data(checkpoint, fd, error);
    return status;
}

gm_status gmt_checkpoint_open(struct gmt_checkpoint *checkpoint, const char *file_path,
                              gm_error *error)
{
    memset(checkpoint, 0, sizeof *checkpoint);
    checkpoint->path = gmi_strdup(file_path);
    if (checkpoint->path == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory to read the checkpoint %s", file_path);
    int       fd;
    uint64_t  file_bytes = 0;
    uint8_t  *header = NULL;
    gm_status status = open_regular_file(file_path, &fd, &file_bytes, error);
    if (status == GM_OK) status = read_checkpoint(checkpoint, fd, file_bytes, &header, error);
    gmi_free(header);
    if (fd >= 0) close(fd);
    if (status != GM_OK) gmt_checkpoint_close(checkpoint);
    return status;
}

void gmt_checkpoint_close(struct gmt_checkpoint *checkpoint)
{
    gmt_st_free(&checkpoint->header);
    gmi_free(checkpoint->data);
    gmi_free(checkpoint->path);
    memset(checkpoint, 0, sizeof *checkpoint);
}

const char *gmt_checkpoint_setting(const struct gmt_checkpoint *checkpoint, const char *key)
{
    char name[SETTING_BYTES];
    snprintf(name, sizeof name, SETTING_PREFIX "%s", key);
    return gmt_st_metadata(&checkpoint->header, name);
}

static bool is_same_tensor(const struct gmt_st_tensor *saved, const struct gmt_state_tensor *wanted)
{
    return strcmp(saved->name, wanted->name) == 0 && strcmp(saved->dtype, "F32") == 0 &&
           saved->n_dims == (size_t)wanted->n_dims && saved->shape[0] == wanted->n_rows &&
           (wanted->n_dims == 1 || saved->shape[1] == wanted->n_cols);
}

gm_status gmt_checkpoint_restore_params(const struct gmt_checkpoint *checkpoint,
                                        const struct gmt_state *params, gm_error *error)
{
    const struct gmt_st_header *header = &checkpoint->header;
    for (size_t i = 0; i < params->n_tensors; i++) {
        const struct gmt_state_tensor *wanted = &params->tensors[i];
        if (i >= header->n_tensors)
            return gmi_error_set(error, GM_ERR_ARG,
                                 "checkpoint %s: it has %zu tensors, here '%s' is needed too: it is of "
                                 "another model or optimizer",
                                 checkpoint->path, header->n_tensors, wanted->name);
        const struct gmt_st_tensor *saved = &header->tensors[i];
        if (!is_same_tensor(saved, wanted))
            return gmi_error_set(
                error, GM_ERR_ARG,
                "checkpoint %s: tensor %zu is '%.64s' (%.8s, %" PRIu64 " bytes), here "
                "'%s' (F32, %zu bytes) of %zu x %zu is needed: it is of another model "
                "or optimizer",
                checkpoint->path, i, saved->name, saved->dtype, saved->end - saved->begin,
                wanted->name, 4 * wanted->n_elems, wanted->n_rows, wanted->n_cols);
    }
    for (size_t i = 0; i < params->n_tensors; i++)
        gmt_floats_from_bytes(params->tensors[i].values,
                              checkpoint->data + header->tensors[i].begin,
                              params->tensors[i].n_elems);
    return GM_OK;
}

gm_status gmt_checkpoint_restore(const struct gmt_checkpoint *checkpoint,
                                 const struct gmt_state *state, gm_error *error)
{
    if (checkpoint->header.n_tensors > state->n_tensors)
        return gmi_error_set(error, GM_ERR_ARG,
                             "checkpoint %s: it has %zu tensors, here %zu are needed: it is of another "
                             "model or optimizer",
                             checkpoint->path, checkpoint->header.n_tensors, state->n_tensors);
    return gmt_checkpoint_restore_params(checkpoint, state, error);
}

gm_status gmt_checkpoint_open_step(struct gmt_checkpoint *checkpoint, const char *dir_path,
                                   uint64_t step, const struct gmt_checkpoint_filter *filter,
                                   gm_error *error)
{
    char name[NAME_BYTES], path[PATH_MAX];
    file_name(name, step);
    if (snprintf(path, sizeof path, "%s/%s", dir_path, name) >= (int)sizeof path)
        return gmi_error_set(error, GM_ERR_ARG, "the name of the directory %.100s... is too long",
                             dir_path);
    gm_status status = gmt_checkpoint_open(checkpoint, path, error);
    if (status == GM_OK && checkpoint->step != step)
        status = gmi_error_set(error, GM_ERR_ARG,
                               "checkpoint %s: it is of step %" PRIu64 ", not of the step in its name",
                               path, checkpoint->step);
    if (status == GM_OK && filter != NULL && filter->accepts != NULL)
        status = filter->accepts(filter->user, checkpoint, error);
    if (status != GM_OK) gmt_checkpoint_close(checkpoint);
    return status;
}

gm_status gmt_checkpoint_newest(struct gmt_checkpoint *checkpoint, bool *was_found,
                                const char *dir_path, const struct gmt_checkpoint_filter *filter,
                                gm_error *error)
{
    memset(checkpoint, 0, sizeof *checkpoint);
    *was_found = false;
    uint64_t *steps;
    size_t    n_steps;
    gm_status status = gmt_checkpoint_steps(dir_path, &steps, &n_steps, error);
    if (status != GM_OK) return status;
    for (size_t i = 0; i < n_steps && !*was_found; i++) {
        gm_error reason;
        gmi_error_clear(&reason);
        gm_status outcome =
            gmt_checkpoint_open_step(checkpoint, dir_path, steps[i], filter, &reason);
        *was_found = outcome == GM_OK;
        if (*was_found) break;
        if (i == 0) status = gmi_error_set(error, outcome, "%s", reason.text);
        if (i + 1 < n_steps && filter != NULL && filter->warn != NULL)
            filter->warn(filter->user, reason.text);
    }
    free(steps);
    if (!*was_found) return status;
    gmi_error_clear(error);
    return GM_OK;
}

/* ---- the directory, for the one who saves ---------------------------------------------------- */

/* mkdir -p. */
static int make_directories(const char *path)
{
    char partial[PATH_MAX];
    if (snprintf(partial, sizeof partial, "%s", path) >= (int)sizeof partial) return ENAMETOOLONG;
    for (char *slash = partial; (slash = strchr(slash + 1, '/')) != NULL; *slash = '/') {
        *slash = '\0';
        if (mkdir(partial, 0777) != 0 && errno != EEXIST) return errno;
    }
    return mkdir(partial, 0777) == 0 || errno == EEXIST ? 0 : errno;
}

/* Removes the temporaries of dead writers: those whose lock can be had. Failures do not matter;
 * the next save tries again. */
static void clear_temporaries(int dir_fd)
{
    int listing_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (listing_fd < 0) return;
    DIR *listing = fdopendir(listing_fd);
    if (listing == NULL) {
        close(listing_fd);
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(listing)) != NULL) {
        if (!is_temporary_name(entry->d_name)) continue;
        int fd = openat(dir_fd, entry->d_name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dir_fd, entry->d_name, 0);
        close(fd);
    }
    closedir(listing);
}

/* Takes the directory's lock; false when another process keeps it. One that was just killed may
 * still be dying, so it is asked for some time. */
static bool lock_directory(int fd)
{
    int64_t deadline_ns = gmi_deadline_after_ms(LOCK_WAIT_MS);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        /* Where a directory cannot be locked at all (some network file systems), go on without. */
        if (errno != EWOULDBLOCK && errno != EINTR) return true;
        if (gmi_deadline_passed(deadline_ns)) return false;
        nanosleep(&(struct timespec){ .tv_nsec = 20 * GMI_NS_PER_MS }, NULL);
    }
    return true;
}

gm_status gmt_checkpoint_dir_open(struct gmt_checkpoint_dir *dir, const char *path, int keep,
                                  gm_error *error)
{
    *dir = (struct gmt_checkpoint_dir){ .fd = -1, .keep = keep };
    int problem = make_directories(path);
    if (problem != 0)
        return gmi_error_set_errno(error, problem, "cannot make the checkpoint directory %s", path);
    dir->path = gmi_strdup(path);
    if (dir->path == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory");
    gm_status status = GM_OK;
    dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd < 0)
        status = gmi_error_set_errno(error, errno, "cannot open the checkpoint directory %s", path);
    else if (access(path, W_OK | X_OK) != 0)
        status =
            gmi_error_set_errno(error, errno, "cannot save in the checkpoint directory %s", path);
    else if (!lock_directory(dir->fd))
        status = gmi_error_set(error, GM_ERR_STATE,
                               "another job saves its checkpoints in %s: give this one a directory of "
                               "its own by --checkpoint, or wait until that one has ended",
                               path);
    if (status != GM_OK) {
        gmt_checkpoint_dir_close(dir);
        return status;
    }
    clear_temporaries(dir->fd);
    return GM_OK;
}

void gmt_checkpoint_dir_close(struct gmt_checkpoint_dir *dir)
{
    if (dir->path != NULL && dir->fd >= 0) close(dir->fd);
    gmi_free(dir->path);
    *dir = (struct gmt_checkpoint_dir){ .fd = -1 };
}

static void remove_oldest(const struct gmt_checkpoint_dir *dir, uint64_t step)
{
    uint64_t *steps;
    size_t    n_steps;
    if (dir->keep < 1 || gmt_checkpoint_steps(dir->path, &steps, &n_steps, NULL) != GM_OK) return;
    int kept = 0;
    for (size_t i = 0; i < n_steps; i++) {
        /* Files of later steps are another history's, which this run went back from. */
        if (steps[i] > step || kept++ < dir->keep) continue;
        char name[NAME_BYTES];
        file_name(name, steps[i]);
        unlinkat(dir->fd, name, 0);
    }
    free(steps);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The header's bytes, checksums filled in; freed with gmi_free. */
static gm_status make_header(uint8_t **header, size_t *header_bytes, const struct gmt_state *state,
                             const struct gmt_checkpoint_info *info, gm_error *error)
{
    struct gmt_st_tensor tensors[GMT_STATE_MAX_TENSORS];
    for (size_t i = 0; i < state->n_tensors; i++) {
        const struct gmt_state_tensor *tensor = &state->tensors[i];
        tensors[i] = (struct gmt_st_tensor){ .name = tensor->name,
                                             .n_dims = (size_t)tensor->n_dims,
                                             .shape = { tensor->n_rows, tensor->n_cols } };
    }
    char      hash[GMT_HASH_HEX_BYTES], zeros[GMT_HASH_HEX_BYTES];
    char      version[24], step[24], epoch[24], batch[24];
    gm_status status = gmt_state_hash(state, hash, error);
    if (status != GM_OK) return status;
    memset(zeros, '0', 64);
    zeros[64] = '\0';
    snprintf(version, sizeof version, "%d", GMT_CHECKPOINT_VERSION);
    snprintf(step, sizeof step, "%" PRIu64, info->step);
    snprintf(epoch, sizeof epoch, "%" PRIu64, info->epoch);
    snprintf(batch, sizeof batch, "%" PRIu64, info->batch);
    struct gmt_st_pair pairs[GMT_CHECKPOINT_MAX_SETTINGS + 8] = {
        { "format", FORMAT_NAME }, { "format_version", version }, { "header_sha256", zeros },
        { "data_sha256", hash },   { "state_hash", hash },        { "step", step },
        { "epoch", epoch },        { "batch_cursor", batch },
    };
    size_t n_pairs = 8;
    if (info->n_settings > GMT_CHECKPOINT_MAX_SETTINGS)
        return gmi_error_set(error, GM_ERR_ARG, "a checkpoint keeps up to %d settings, not %zu",
                             GMT_CHECKPOINT_MAX_SETTINGS, info->n_settings);
    char names[GMT_CHECKPOINT_MAX_SETTINGS][SETTING_BYTES];
    for (size_t i = 0; i < info->n_settings; i++) {
        snprintf(names[i], sizeof names[i], SETTING_PREFIX "%s", info->settings[i].key);
        pairs[n_pairs++] = (struct gmt_st_pair){ names[i], info->settings[i].value };
    }
    status = gmt_st_format(header, header_bytes, tensors, state->n_tensors, pairs, n_pairs, error);
    if (status != GM_OK) return status;
    char sum[GMT_HASH_HEX_BYTES], *place = header_sum_place(*header, *header_bytes);
    GMI_CHECK(place != NULL); /* it was just written, and settings have a prefix */
    status = header_sum(*header, *header_bytes, place, sum, error);
    if (status == GM_OK) {
        memcpy(place, sum, 64);
    } else {
        gmi_free(*header);
        *header = NULL;
    }
    return status;
}

/* errno of the first failure, or 0. */
static int write_all(int fd, const uint8_t *bytes, size_t size_bytes)
{
    for (size_t done = 0; done < size_bytes;) {
        ssize_t put = write(fd, bytes + done, gmi_min_size(size_bytes - done, (size_t)1 << 30));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        done += (size_t)put;
    }
    return 0;
}

static int write_state(int fd, const struct gmt_state *state)
{
    uint8_t block[65536];
    for (size_t i = 0; i < state->n_tensors; i++) {
        const struct gmt_state_tensor *tensor = &state->tensors[i];
        for (size_t done = 0; done < tensor->n_elems;) {
            size_t count = gmi_min_size(tensor->n_elems - done, sizeof block / 4);
            gmt_floats_to_bytes(block, tensor->values + done, count);
            int problem = write_all(fd, block, 4 * count);
            if (problem != 0) return problem;
            done += count;
        }
    }
    return 0;
}

/* Makes a temporary file that this process has the lock of; its descriptor, or -1 with errno.
 * Between making and locking, another process that clears away may take it for a dead one's:
 * then once more. */
static int make_temporary(int dir_fd, const char *final_name, char name[TEMPORARY_BYTES])
{
    for (uint64_t attempt = 0; attempt < 16; attempt++) {
        uint64_t unique = gmi_mix64((uint64_t)gmi_now_ns() ^ (attempt << 56) ^ (uint64_t)getpid());
        snprintf(name, TEMPORARY_BYTES, ".%s.tmp-%ld-%08" PRIx32, final_name, (long)getpid(),
                 (uint32_t)unique);
        int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return -1;
        bool        is_locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        struct stat info;
        if (is_locked && fstat(fd, &info) == 0 && info.st_nlink == 1) return fd;
        unlinkat(dir_fd, name, 0);
        close(fd);
    }
    errno = EBUSY;
    return -1;
}

/* errno, or 0. An empty directory of that name, which would be in the way for ever, holds
 * nothing to lose. */
static int put_in_place(int dir_fd, const char *temporary, const char *name)
{
    if (renameat(dir_fd, temporary, dir_fd, name) == 0) return 0;
    if (errno != EISDIR || unlinkat(dir_fd, name, AT_REMOVEDIR) != 0)
        return errno == ENOTEMPTY ? EISDIR : errno;
    return renameat(dir_fd, temporary, dir_fd, name) == 0 ? 0 : errno;
}

static int sync_directory(int dir_fd)
{
    /* Some file systems know no fsync of a directory; there is nothing better then. */
    return fsync(dir_fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

static gm_status write_file(const struct gmt_checkpoint_dir *dir, const char *name,
                            const uint8_t *header, size_t header_bytes,
                            const struct gmt_state *state, gm_error *error)
{
    char temporary[TEMPORARY_BYTES];
    int  fd = make_temporary(dir->fd, name, temporary);
    if (fd < 0)
        return gmi_error_set_errno(error, errno, "cannot save the checkpoint %s/%s", dir->path,
                                   name);
    int problem = write_all(fd, header, header_bytes);
    if (problem == 0) problem = write_state(fd, state);
    if (problem == 0 && fsync(fd) != 0) problem = errno;
    if (problem == 0) problem = put_in_place(dir->fd, temporary, name);
    if (problem != 0) unlinkat(dir->fd, temporary, 0);
    if (problem == 0) problem = sync_directory(dir->fd);
    if (close(fd) != 0 && problem == 0 && errno != EINTR) problem = errno;
    if (problem != 0)
        return gmi_error_set_errno(error, problem,
                                   "cannot save the checkpoint %s/%s (those before it are untouched)",
                                   dir->path, name);
    return GM_OK;
}

gm_status gmt_checkpoint_save(const struct gmt_checkpoint_dir *dir, const struct gmt_state *state,
                              const struct gmt_checkpoint_info *info, gm_error *error)
{
    clear_temporaries(dir->fd);
    uint8_t  *header;
    size_t    header_bytes;
    gm_status status = make_header(&header, &header_bytes, state, info, error);
    if (status != GM_OK) return status;
    char name[NAME_BYTES];
    file_name(name, info->step);
    status = write_file(dir, name, header, header_bytes, state, error);
    gmi_free(header);
    if (status == GM_OK) remove_oldest(dir, info->step);
    return status;
}
