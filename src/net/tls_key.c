#include "net/tls_key.h"

#include <openssl/crypto.h>
#include <string.h>

enum { KEY_BYTES = 16, LONGEST_LABEL = 16 };

/* HKDF-Expand-Label without a context, for what fits into one hash. */
static bool expand(const uint8_t secret[GMI_TLS_SECRET_BYTES], const char *label, uint8_t *out, size_t n_bytes)
{
    static const char prefix[] = "tls13 ";
    uint8_t           info[3 + sizeof prefix + LONGEST_LABEL + 2], hash[GMI_TLS_SECRET_BYTES];
    size_t            prefix_bytes = sizeof prefix - 1, label_bytes = strlen(label), n = 0, got = 0;
    info[n++] = 0;
    info[n++] = (uint8_t)n_bytes;
    info[n++] = (uint8_t)(prefix_bytes + label_bytes);
    memcpy(info + n, prefix, prefix_bytes);
    memcpy(info + n + prefix_bytes, label, label_bytes);
    n += prefix_bytes + label_bytes;
    info[n++] = 0; /* the context */
    info[n++] = 1; /* the first block of HKDF-Expand, and the only one */
    bool is_good = EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, secret, GMI_TLS_SECRET_BYTES, info, n, hash, sizeof hash,
                             &got) != NULL;
    if (is_good) memcpy(out, hash, n_bytes);
    OPENSSL_cleanse(hash, sizeof hash);
    return is_good;
}

/* Key and nonces of the secret that is there. */
static bool begin_secret(struct gmi_tls_key *k, const EVP_CIPHER *kind)
{
    uint8_t key[KEY_BYTES];
    bool    is_good = expand(k->secret, "key", key, sizeof key) && expand(k->secret, "iv", k->nonce, sizeof k->nonce) &&
                   EVP_CipherInit_ex(k->cipher, kind, NULL, key, NULL, k->is_sealing) == 1;
    OPENSSL_cleanse(key, sizeof key);
    k->n_records = 0;
    return is_good;
}

bool gmi_tls_key_init(struct gmi_tls_key *k, const uint8_t secret[GMI_TLS_SECRET_BYTES], bool is_sealing)
{
    EVP_CIPHER *kind = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    *k = (struct gmi_tls_key){ .cipher = EVP_CIPHER_CTX_new(), .is_sealing = is_sealing };
    memcpy(k->secret, secret, sizeof k->secret);
    bool is_good = kind != NULL && k->cipher != NULL && begin_secret(k, kind);
    EVP_CIPHER_free(kind); /* which the context keeps */
    return is_good;
}

bool gmi_tls_key_next(struct gmi_tls_key *k)
{
    return expand(k->secret, "traffic upd", k->secret, sizeof k->secret) && begin_secret(k, NULL);
}

void gmi_tls_key_fini(struct gmi_tls_key *k)
{
    EVP_CIPHER_CTX_free(k->cipher);
    OPENSSL_cleanse(k, sizeof *k);
    k->cipher = NULL;
}

/* ---- records ------------------------------------------------------------------------------------- */

static bool begin_record(struct gmi_tls_key *k, const uint8_t header[GMI_TLS_HEADER_BYTES])
{
    uint8_t  nonce[GMI_TLS_NONCE_BYTES];
    uint64_t number = k->n_records++;
    int      n;
    memcpy(nonce, k->nonce, sizeof nonce);
    for (int i = 0; i < 8; i++) nonce[GMI_TLS_NONCE_BYTES - 1 - i] ^= (uint8_t)(number >> (8 * i));
    return EVP_CipherInit_ex(k->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(k->cipher, NULL, &n, header, GMI_TLS_HEADER_BYTES) == 1;
}

static bool run(struct gmi_tls_key *k, uint8_t *out, const uint8_t *in, size_t n_bytes)
{
    int n;
    return n_bytes == 0 || EVP_CipherUpdate(k->cipher, out, &n, in, (int)n_bytes) == 1;
}

size_t gmi_tls_seal(struct gmi_tls_key *k, uint8_t type, const struct iovec *parts, int n_parts, uint8_t *record)
{
    size_t content_bytes = 0, at = GMI_TLS_HEADER_BYTES;
    int    n;
    for (int i = 0; i < n_parts; i++) content_bytes += parts[i].iov_len;
    size_t length = content_bytes + 1 + GMI_TLS_TAG_BYTES;
    record[0] = GMI_TLS_DATA; /* whatever the type: TLS 1.3 shows no other */
    record[1] = record[2] = 3;
    record[3] = (uint8_t)(length >> 8);
    record[4] = (uint8_t)length;
    bool is_good = begin_record(k, record);
    for (int i = 0; i < n_parts && is_good; i++) {
        is_good = run(k, record + at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    is_good = is_good && run(k, record + at, &type, 1) && EVP_CipherFinal_ex(k->cipher, record + at + 1, &n) == 1 &&
              EVP_CIPHER_CTX_ctrl(k->cipher, EVP_CTRL_AEAD_GET_TAG, GMI_TLS_TAG_BYTES, record + at + 1) == 1;
    return is_good ? content_bytes + GMI_TLS_ADDED_BYTES : 0;
}

size_t gmi_tls_record_bytes(const uint8_t *header)
{
    size_t length = (size_t)header[3] << 8 | header[4], added = 1 + GMI_TLS_TAG_BYTES;
    bool   is_good = header[0] == GMI_TLS_DATA && header[1] == 3 && header[2] == 3 && length >= added &&
                   length <= GMI_TLS_CONTENT_BYTES + added;
    return is_good ? length + GMI_TLS_HEADER_BYTES : 0;
}

bool gmi_tls_open(struct gmi_tls_key *k, const uint8_t *record, const struct iovec *parts, int n_parts, uint8_t *type)
{
    const uint8_t *from = record + GMI_TLS_HEADER_BYTES;
    uint8_t        rest[GMI_TLS_TAG_BYTES];
    int            n;
    bool           is_good = begin_record(k, record);
    for (int i = 0; i < n_parts && is_good; i++) {
        is_good = run(k, parts[i].iov_base, from, parts[i].iov_len);
        from += parts[i].iov_len;
    }
    return is_good && run(k, type, from, 1) &&
           EVP_CIPHER_CTX_ctrl(k->cipher, EVP_CTRL_AEAD_SET_TAG, GMI_TLS_TAG_BYTES, (void *)(uintptr_t)(from + 1)) == 1 &&
           EVP_CipherFinal_ex(k->cipher, rest, &n) == 1;
}
