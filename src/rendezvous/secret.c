#include "rendezvous/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum { LEAST_BYTES = 16, MOST_BYTES = 4096, LABEL_BYTES = 24 };

/* ---- keys and proofs --------------------------------------------------------------------------- */

static bool hmac(const uint8_t key[GMI_SECRET_BYTES], const void *bytes, size_t n_bytes, uint8_t out[32])
{
    size_t got = 0;
    return EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, key, GMI_SECRET_BYTES, bytes, n_bytes, out, 32, &got) != NULL &&
           got == 32;
}

/* What is proven, or derived, from both hellos under a label of its own. */
static bool hmac_of_hellos(const struct gmi_secret *secret, const char *label, const struct gmi_hellos *hellos, uint8_t out[32])
{
    static const uint8_t nobodys[GMI_SECRET_BYTES];
    uint8_t all[LABEL_BYTES + sizeof *hellos] = { 0 };
    memcpy(all, label, strlen(label));
    memcpy(all + LABEL_BYTES, hellos->caller, GMI_HELLO_BYTES);
    memcpy(all + LABEL_BYTES + GMI_HELLO_BYTES, hellos->answerer, GMI_HELLO_BYTES);
    return hmac(secret != NULL && secret->is_set ? secret->key : nobodys, all, sizeof all, out);
}

bool gmi_secret_prove(const struct gmi_secret *secret, bool is_caller, const struct gmi_hellos *hellos,
                      uint8_t proof[GMI_PROOF_BYTES])
{
    return hmac_of_hellos(secret, is_caller ? "gradmesh proof caller" : "gradmesh proof answerer", hellos, proof);
}

bool gmi_secret_check(const struct gmi_secret *secret, bool is_caller, const struct gmi_hellos *hellos,
                      const uint8_t proof[GMI_PROOF_BYTES])
{
    uint8_t right[GMI_PROOF_BYTES];
    return gmi_secret_prove(secret, is_caller, hellos, right) && CRYPTO_memcmp(right, proof, sizeof right) == 0;
}

bool gmi_secret_link_key(const struct gmi_secret *secret, const struct gmi_hellos *hellos, uint8_t key[GMI_LINK_KEY_BYTES])
{
    return hmac_of_hellos(secret, "gradmesh link key", hellos, key);
}

/* ---- from where it comes ----------------------------------------------------------------------- */

gm_status gmi_secret_set(struct gmi_secret *secret, const void *bytes, size_t n_bytes)
{
    static const uint8_t label[GMI_SECRET_BYTES] = "gradmesh secret";
    secret->is_set = hmac(label, bytes, n_bytes, secret->key);
    return secret->is_set ? GM_OK : GM_ERR_NOMEM;
}

void gmi_secret_wipe(struct gmi_secret *secret)
{
    OPENSSL_cleanse(secret, sizeof *secret);
}

static gm_status check_file(const char *path, const struct stat *info, gm_error *error)
{
    if (!S_ISREG(info->st_mode)) {
        return gmi_error_set(error, GM_ERR_ARG, "the secret's file %.200s is no regular file", path);
    }
    if (info->st_mode & (S_IRWXG | S_IRWXO)) {
        return gmi_error_set(error, GM_ERR_ARG, "the secret's file %.200s may be used by others (its mode is %03o): chmod 600 it",
                             path, (unsigned)(info->st_mode & 0777));
    }
    return GM_OK;
}

/* An editor's newline at the end is no part of it. */
static size_t without_newline(const uint8_t *bytes, size_t n_bytes)
{
    while (n_bytes > 0 && (bytes[n_bytes - 1] == '\n' || bytes[n_bytes - 1] == '\r')) n_bytes--;
    return n_bytes;
}

static gm_status read_file(struct gmi_secret *secret, const char *path, int fd, gm_error *error)
{
    uint8_t bytes[MOST_BYTES + 1];
    size_t  used = 0;
    ssize_t got;
    while ((got = read(fd, bytes + used, sizeof bytes - used)) != 0 && used < sizeof bytes) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return gmi_error_set_errno(error, errno, "the secret's file %.200s cannot be read", path);
        used += (size_t)got;
    }
    size_t    n_bytes = without_newline(bytes, used);
    gm_status status;
    if (n_bytes < LEAST_BYTES || used > MOST_BYTES) {
        status = gmi_error_set(error, GM_ERR_ARG,
                               "the secret's file %.200s holds %s%zu bytes; it must be %d to %d (head -c 32 /dev/urandom makes one)",
                               path, used > MOST_BYTES ? "more than " : "", used > MOST_BYTES ? (size_t)MOST_BYTES : n_bytes,
                               LEAST_BYTES, MOST_BYTES);
    } else {
        status = gmi_secret_set(secret, bytes, n_bytes);
        if (status != GM_OK) gmi_error_set(error, status, "no memory for the secret");
    }
    OPENSSL_cleanse(bytes, sizeof bytes);
    return status;
}

/* A launcher names its memory so (launch/secret.h). Who does not see its process, in a container say, needs another way. */
static gm_status not_opened(const char *path, int sys_errno, gm_error *error)
{
    int pid = 0, fd = 0, end = 0;
    if (sscanf(path, "/proc/%d/fd/%d%n", &pid, &fd, &end) < 2 || path[end] != '\0') {
        return gmi_error_set_errno(error, sys_errno, "the secret's file %.200s cannot be opened", path);
    }
    return gmi_error_set_errno(error, sys_errno,
                               "the secret in the launcher's memory, %.200s, cannot be opened: process %d is gone, of another user, or "
                               "in a PID namespace that is not seen from here; for workers in namespaces of their own give gradmesh "
                               "run a file that they see too, by GRADMESH_SECRET_FILE (head -c 32 /dev/urandom >FILE; chmod 600 FILE)",
                               path, pid);
}

gm_status gmi_secret_load(struct gmi_secret *secret, const char *path, gm_error *error)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return not_opened(path, errno, error);
    gm_status status = fstat(fd, &info) == 0 ? check_file(path, &info, error)
                                             : gmi_error_set_errno(error, errno, "the secret's file %.200s", path);
    if (status == GM_OK) status = read_file(secret, path, fd, error);
    close(fd);
    return status;
}

gm_status gmi_secret_allows(const struct gmi_secret *secret, const struct gmi_address *address, gm_error *error)
{
    char text[GMI_ADDRESS_TEXT_BYTES];
    if (secret != NULL && (secret->is_set || secret->lets_anybody_in)) return GM_OK;
    if (gmi_address_is_loopback(address)) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG,
                         "%s can be reached from elsewhere, and this job has no secret: give all ranks the same "
                         "GRADMESH_SECRET_FILE (head -c 32 /dev/urandom >FILE; chmod 600 FILE), or let anybody in with "
                         "GRADMESH_INSECURE=1", gmi_address_format(address, text));
}
