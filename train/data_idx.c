/* data_idx.c - reads a pair of IDX files: pictures and their labels, plain or gzip.
 *
 *     bytes 0, 1   zero
 *     byte 2       type of the elements; 8, unsigned bytes, is the only one that we take
 *     byte 3       number of dimensions: 3 for pictures (samples, rows, columns), 1 for labels
 *     then         the dimensions, 32 bits each, big-endian
 *     then         the elements, the last dimension running fastest
 *
 * A file is believed in this order, and each doubt ends in one sentence:
 * 1. It is a regular file. It is opened without waiting, so that a pipe cannot hold us up.
 * 2. Its first bytes are those of the kind that is wanted; for what people have there by mistake (a
 *    web page, an archive, the other file of the pair) we say what it is.
 * 3. The sizes in its header are sensible and make up the size of the file, before memory is taken.
 *    What is behind gzip has no size that could be trusted, so there memory grows with the bytes
 *    that really come, up to the size in the header.
 * 4. Not a byte is missing, and none is left over. For gzip, its own checksum is right.
 *
 * Numbers are put together from bytes, so the machine's byte order does not matter. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"
#include "train/data.h"

#define MAX_SIDE           4096
#define INPUT_BYTES        16384
#define FIRST_GROWTH_BYTES ((size_t)1 << 20)
#define DEFLATE_MAX_RATIO  1032 /* 258 bytes from 2 bits */

#define MAGIC_LABELS 0x00000801u
#define MAGIC_IMAGES 0x00000803u

/* ---- a file whose bytes are read in order, through gzip if need be -------------------------- */

struct source {
    char name[160]; /* of the file, for sentences; its end if it is long */
    int fd;         /* -1 when closed */
    uint64_t file_bytes;
    bool is_gzip;
    bool is_member_done; /* gzip: between two members, where the data may end */
    z_stream inflater;
    uint8_t input[INPUT_BYTES];
};

static void name_source(struct source *source, const char *path)
{
    size_t length = strlen(path), room = sizeof source->name - 4;
    if (length <= room) {
        snprintf(source->name, sizeof source->name, "%s", path);
    } else {
        snprintf(source->name, sizeof source->name, "...%s", path + length - room);
    }
}

static void close_source(struct source *source)
{
    if (source->is_gzip) inflateEnd(&source->inflater);
    source->is_gzip = false;
    if (source->fd >= 0) close(source->fd);
    source->fd = -1;
}

/* Reads `want` bytes of the file, less only at its end. */
static gm_status read_file(struct source *source, uint8_t *buffer, size_t want, size_t *got,
                           gm_error *error)
{
    *got = 0;
    while (*got < want) {
        size_t some = gmi_min_size(want - *got, (size_t)1 << 30);
        ssize_t n = read(source->fd, buffer + *got, some);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gmi_error_set_errno(error, errno, "%s cannot be read", source->name);
        if (n == 0) break;
        *got += (size_t)n;
    }
    return GM_OK;
}

static gm_status damaged(struct source *source, gm_error *error)
{
    const char *reason = source->inflater.msg ? source->inflater.msg : "a dictionary is wanted";
    return gmi_error_set(error, GM_ERR_ARG,
                         "%s is damaged: its gzip data is not right (%s); fetch the file again",
                         source->name, reason);
}

/* One step of unpacking into next_out; more input is fetched when there is none. *is_end: the data
 * has ended where it may. */
static gm_status inflate_some(struct source *source, bool *is_end, gm_error *error)
{
    z_stream *z = &source->inflater;
    if (z->avail_in == 0) {
        size_t got;
        gm_status status = read_file(source, source->input, INPUT_BYTES, &got, error);
        if (status != GM_OK) return status;
        *is_end = got == 0 && source->is_member_done;
        if (*is_end) return GM_OK;
        if (got == 0) {
            return gmi_error_set(
                error, GM_ERR_ARG,
                "%s is cut off: its gzip data ends in the middle, after %llu bytes; "
                "fetch the file again",
                source->name, (unsigned long long)source->file_bytes);
        }
        z->next_in = source->input;
        z->avail_in = (uInt)got;
    }
    if (source->is_member_done) { /* gzip files may be joined */
        if (z->next_in[0] != 0x1f) {
            return gmi_error_set(error, GM_ERR_ARG,
                                 "%s has bytes left over after its gzip data; fetch the file again",
                                 source->name);
        }
        inflateReset(z);
        source->is_member_done = false;
    }
    int result = inflate(z, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory to unpack %s", source->name);
    if (result == Z_STREAM_END) source->is_member_done = true;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        return damaged(source, error);
    return GM_OK;
}

static gm_status read_gzip(struct source *source, uint8_t *buffer, size_t want, size_t *got,
                           gm_error *error)
{
    z_stream *z = &source->inflater;
    bool is_end = false;

    *got = 0;
    while (*got < want && !is_end) {
        size_t some = gmi_min_size(want - *got, (size_t)1 << 30);
        z->next_out = buffer + *got;
        z->avail_out = (uInt)some;
        gm_status status = inflate_some(source, &is_end, error);
        if (status != GM_OK) return status;
        *got += some - z->avail_out;
    }
    return GM_OK;
}

/* Reads `want` bytes of what the file holds; *got is less only at the end. */
static gm_status read_data(struct source *source, uint8_t *buffer, size_t want, size_t *got,
                           gm_error *error)
{
    return source->is_gzip ? read_gzip(source, buffer, want, got, error)
                           : read_file(source, buffer, want, got, error);
}

static gm_status check_kind_of_file(struct source *source, gm_error *error)
{
    struct stat info;
    if (fstat(source->fd, &info) != 0) {
        return gmi_error_set_errno(error, errno, "%s cannot be examined", source->name);
    }
    if (S_ISDIR(info.st_mode)) {
        return gmi_error_set(error, GM_ERR_ARG, "%s is a directory, and an IDX file was expected",
                             source->name);
    }
    if (!S_ISREG(info.st_mode)) {
        return gmi_error_set(error, GM_ERR_ARG,
                             "%s is a %s, and a regular file was expected: save the data to a file",
                             source->name, S_ISFIFO(info.st_mode) ? "pipe" : "device or socket");
    }
    if (info.st_size == 0) {
        return gmi_error_set(error, GM_ERR_ARG,
                             "%s is empty (0 bytes), and an IDX file was expected: fetch it again",
                             source->name);
    }
    source->file_bytes = (uint64_t)info.st_size;
    return GM_OK;
}

static gm_status detect_gzip(struct source *source, gm_error *error)
{
    uint8_t first[2] = { 0, 0 };
    if (pread(source->fd, first, 2, 0) < 0) {
        return gmi_error_set_errno(error, errno, "%s cannot be read", source->name);
    }
    if (first[0] != 0x1f || first[1] != 0x8b) return GM_OK;
    if (inflateInit2(&source->inflater, 15 + 16) != Z_OK) {
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory to unpack %s", source->name);
    }
    source->is_gzip = true;
    return GM_OK;
}

static gm_status open_source(struct source *source, const char *path, gm_error *error)
{
    gm_status status;

    memset(source, 0, sizeof *source);
    name_source(source, path);
    source->fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (source->fd < 0)
        return gmi_error_set_errno(error, errno, "%s cannot be opened", source->name);
    status = check_kind_of_file(source, error);
    if (status == GM_OK) status = detect_gzip(source, error);
    if (status != GM_OK) close_source(source);
    return status;
}

/* ---- the header ----------------------------------------------------------------------------- */

struct kind {
    uint32_t magic;
    int n_dims;
    const char *plural; /* "pictures" */
};
static const struct kind kind_images = { MAGIC_IMAGES, 3, "pictures" };
static const struct kind kind_labels = { MAGIC_LABELS, 1, "labels" };

/* What people have under the name of an IDX file by mistake, known by its first bytes. */
struct mistake {
    const char *bytes;
    int n_bytes;
    const char *what, *advice;
};
static const struct mistake mistakes[] = {
    { "\x1f\x8b", 2, "compressed by gzip twice", "unpack it once with gunzip" },
    { "PK\x03\x04", 4, "a zip archive", "unpack it with unzip" },
    { "BZh", 3, "compressed by bzip2", "unpack it with bunzip2" },
    { "\xfd"
      "7zX",
      4, "compressed by xz", "unpack it with unxz" },
    { "\x28\xb5\x2f\xfd", 4, "compressed by zstd", "unpack it with unzstd" },
    { "\x93NUM", 4, "a NumPy array", "convert it to IDX" },
    { "\x03\x08\0\0", 4, "little-endian", "write the header's numbers big-endian" },
    { "\x01\x08\0\0", 4, "little-endian", "write the header's numbers big-endian" },
    { "vers", 4, "a pointer of Git LFS and not the data", "fetch the data with git lfs pull" },
};

/* A web page begins with '<', perhaps after blanks or a byte order mark. */
static bool looks_like_markup(const uint8_t *magic)
{
    int i = memcmp(magic, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < 3 && strchr(" \t\r\n", magic[i]) != NULL && magic[i] != 0) i++;
    return magic[i] == '<';
}

static gm_status refuse_magic(const struct source *source, const struct kind *kind,
                              const uint8_t *magic, gm_error *error)
{
    const struct kind *other = kind == &kind_images ? &kind_labels : &kind_images;
    uint32_t found =
        (uint32_t)magic[0] << 24 | (uint32_t)magic[1] << 16 | (uint32_t)magic[2] << 8 | magic[3];

    if (found == other->magic) {
        return gmi_error_set(error, GM_ERR_ARG,
                             "%s holds %s (magic %u), and %s (magic %u) were expected: are the two "
                             "files swapped?",
                             source->name, other->plural, found, kind->plural, kind->magic);
    }
    if (looks_like_markup(magic)) {
        return gmi_error_set(
            error, GM_ERR_ARG,
            "%s begins with '<' and not with the magic %u of %s: it looks like a web page "
            "that was saved under this name; fetch the file again",
            source->name, kind->magic, kind->plural);
    }
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const struct mistake *m = &mistakes[i];
        if (memcmp(magic, m->bytes, (size_t)m->n_bytes) != 0) continue;
        return gmi_error_set(
            error, GM_ERR_ARG,
            "%s is %s (it begins with 0x%08x and not with the magic 0x%08x of %s): %s",
            source->name, m->what, found, kind->magic, kind->plural, m->advice);
    }
    if (magic[0] == 0 && magic[1] == 0 && magic[2] >= 0x08 && magic[2] <= 0x0e) {
        return gmi_error_set(
            error, GM_ERR_ARG,
            "%s is an IDX file of type 0x%02x with %d dimensions, and %s of type 0x08 "
            "(unsigned bytes) with %d dimensions were expected: convert it",
            source->name, magic[2], magic[3], kind->plural, kind->n_dims);
    }
    return gmi_error_set(error, GM_ERR_ARG,
                         "%s begins with 0x%08x and not with the magic 0x%08x of %s: it is no IDX "
                         "file",
                         source->name, found, kind->magic, kind->plural);
}

static gm_status refuse_short_header(const struct source *source, const struct kind *kind,
                                     size_t found, gm_error *error)
{
    return gmi_error_set(
        error, GM_ERR_ARG,
        "%s is cut off: it holds %zu bytes, and the header of %s alone has %d; fetch "
        "the file again",
        source->name, found, kind->plural, 4 + 4 * kind->n_dims);
}

/* Reads the dimensions into `dims`, (n_dims). */
static gm_status read_header(struct source *source, const struct kind *kind, uint32_t *dims,
                             gm_error *error)
{
    uint8_t bytes[4 + 4 * 3];
    size_t got, got_dims;
    gm_status status = read_data(source, bytes, 4, &got, error);

    if (status != GM_OK) return status;
    if (got < 4) return refuse_short_header(source, kind, got, error);
    uint32_t magic =
        (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    if (magic != kind->magic) return refuse_magic(source, kind, bytes, error);

    status = read_data(source, bytes + 4, 4 * (size_t)kind->n_dims, &got_dims, error);
    if (status != GM_OK) return status;
    if (got_dims < 4 * (size_t)kind->n_dims) {
        return refuse_short_header(source, kind, got + got_dims, error);
    }
    for (int i = 0; i < kind->n_dims; i++) {
        const uint8_t *p = bytes + 4 + 4 * i;
        dims[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    return GM_OK;
}

/* ---- the elements --------------------------------------------------------------------------- */

/* Compares the size that the header speaks of with the file's, as far as that is possible without
 * reading on. */
static gm_status check_size(const struct source *source, const struct kind *kind,
                            uint64_t body_bytes, gm_error *error)
{
    uint64_t expected = 4 + 4 * (uint64_t)kind->n_dims + body_bytes;
    if (source->is_gzip) {
        if (expected / (DEFLATE_MAX_RATIO + 1) <= source->file_bytes) return GM_OK;
        return gmi_error_set(
            error, GM_ERR_ARG,
            "%s cannot hold what its header says: %llu bytes of %s do not come out of %llu "
            "compressed bytes; fetch the file again",
            source->name, (unsigned long long)body_bytes, kind->plural,
            (unsigned long long)source->file_bytes);
    }
    if (source->file_bytes == expected) return GM_OK;
    return gmi_error_set(
        error, GM_ERR_ARG,
        "%s %s: it has %llu bytes, and its header speaks of %llu; fetch the file again",
        source->name, source->file_bytes < expected ? "is cut off" : "has bytes left over",
        (unsigned long long)source->file_bytes, (unsigned long long)expected);
}

/* Makes room for the next bytes: all at once when the file's size has vouched for them, else
 * double. */
static uint8_t *grow(uint8_t *body, size_t used_bytes, size_t room_bytes)
{
    uint8_t *larger = gmi_alloc(room_bytes, 1);
    if (larger != NULL && body != NULL) memcpy(larger, body, used_bytes);
    gmi_free(body);
    return larger;
}

static gm_status read_to_end(struct source *source, const struct kind *kind, size_t body_bytes,
                             uint8_t **body, gm_error *error)
{
    size_t room = source->is_gzip ? gmi_min_size(body_bytes, FIRST_GROWTH_BYTES) : body_bytes;
    size_t used = 0, got;

    for (;;) {
        *body = grow(*body, used, room);
        if (*body == NULL) {
            return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %zu bytes of %s", room,
                                 source->name);
        }
        gm_status status = read_data(source, *body + used, room - used, &got, error);
        if (status != GM_OK) return status;
        used += got;
        if (used < room) {
            return gmi_error_set(
                error, GM_ERR_ARG,
                "%s is cut off: it holds %zu bytes of %s, and its header speaks of "
                "%zu; fetch the file again",
                source->name, used, kind->plural, body_bytes);
        }
        if (used == body_bytes) break;
        room = body_bytes - used > used ? 2 * used : body_bytes;
    }
    /* One byte more must not be there; the attempt also makes gzip compare its checksum. */
    uint8_t extra;
    gm_status status = read_data(source, &extra, 1, &got, error);
    if (status == GM_OK && got > 0) {
        return gmi_error_set(
            error, GM_ERR_ARG,
            "%s has bytes left over after the %zu bytes of %s that its header speaks of; "
            "fetch the file again",
            source->name, body_bytes, kind->plural);
    }
    return status;
}

/* Reads the rest of an opened file, once its header has been found good. */
static gm_status read_body(struct source *source, const struct kind *kind, uint64_t body_bytes,
                           uint8_t **body, gm_error *error)
{
    gm_status status = check_size(source, kind, body_bytes, error);
    if (status != GM_OK) return status;
    if (body_bytes > SIZE_MAX / 2) {
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %llu bytes of %s",
                             (unsigned long long)body_bytes, source->name);
    }
    return read_to_end(source, kind, (size_t)body_bytes, body, error);
}

static gm_status check_dims(const struct source *images, const uint32_t *dims,
                            const struct source *labels, uint32_t n_labels, gm_error *error)
{
    if (dims[0] == 0) {
        return gmi_error_set(error, GM_ERR_ARG,
                             "%s says that it holds 0 pictures, and at least 1 is needed",
                             images->name);
    }
    if (dims[1] == 0 || dims[2] == 0 || dims[1] > MAX_SIDE || dims[2] > MAX_SIDE) {
        return gmi_error_set(
            error, GM_ERR_ARG,
            "%s says that its pictures have %u rows and %u columns, and 1 to %d of each "
            "can be read",
            images->name, dims[1], dims[2], MAX_SIDE);
    }
    if (dims[0] != n_labels) {
        return gmi_error_set(
            error, GM_ERR_ARG,
            "%s holds %u pictures, but %s holds %u labels: the files do not belong together",
            images->name, dims[0], labels->name, n_labels);
    }
    return GM_OK;
}

/* Both headers are read and compared before either body. */
static gm_status read_pair(struct gmt_dataset *dataset, struct source *images,
                           struct source *labels, gm_error *error)
{
    uint32_t dims[3], n_labels;
    gm_status status;

    if ((status = read_header(images, &kind_images, dims, error)) != GM_OK) return status;
    if ((status = read_header(labels, &kind_labels, &n_labels, error)) != GM_OK) return status;
    if ((status = check_dims(images, dims, labels, n_labels, error)) != GM_OK) return status;

    /* At most 2^32 x 2^12 x 2^12, so it cannot overflow. */
    uint64_t image_bytes = (uint64_t)dims[0] * dims[1] * dims[2];
    status = read_body(labels, &kind_labels, n_labels, &dataset->labels, error);
    if (status != GM_OK) return status;
    status = read_body(images, &kind_images, image_bytes, &dataset->pixels, error);
    if (status != GM_OK) return status;

    dataset->n_samples = dims[0];
    dataset->n_rows = (int)dims[1];
    dataset->n_cols = (int)dims[2];
    dataset->n_features = dataset->n_rows * dataset->n_cols;
    return GM_OK;
}

static int count_classes(const struct gmt_dataset *dataset)
{
    int highest = 1;
    for (size_t i = 0; i < dataset->n_samples; i++) {
        if (dataset->labels[i] > highest) highest = dataset->labels[i];
    }
    return highest + 1;
}

gm_status gmt_idx_read(struct gmt_dataset *dataset, const char *images_path,
                       const char *labels_path, gm_error *error)
{
    struct source images, labels;
    gm_status status;

    gmi_error_clear(error);
    memset(dataset, 0, sizeof *dataset);
    if ((status = open_source(&images, images_path, error)) != GM_OK) return status;
    if ((status = open_source(&labels, labels_path, error)) == GM_OK) {
        status = read_pair(dataset, &images, &labels, error);
        close_source(&labels);
    }
    close_source(&images);
    if (status != GM_OK) {
        gmt_dataset_free(dataset);
        return status;
    }
    dataset->n_classes = count_classes(dataset);
    snprintf(dataset->source, sizeof dataset->source, "%s", images_path);
    return GM_OK;
}
