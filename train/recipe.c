#include "train/recipe.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

/* How a setting is written and read back. */
enum kind { LAYERS, OPTIMIZER, SCHEDULE, REAL, COUNT, SIZE, BUCKET, WIRE, TEXT, HASH };

struct setting {
    const char *key;
    enum kind   kind;
    size_t      offset;       /* in struct gmt_recipe */
    unsigned    traits;
};

enum traits {
    FREE = 0,
    FIXED = 1, /* a resumed run must have the same */
    LATER = 2, /* missing in checkpoints of before it existed: 0 or empty then */
};

#define AT(member) offsetof(struct gmt_recipe, member)

static const struct setting settings[] = {
    { "layers", LAYERS, AT(layers), FIXED },
    { "optimizer", OPTIMIZER, AT(optimizer.kind), FIXED },
    { "lr", REAL, AT(learning_rate), FREE },
    { "momentum", REAL, AT(optimizer.momentum), FREE },
    { "weight_decay", REAL, AT(optimizer.weight_decay), FREE },
    { "beta1", REAL, AT(optimizer.beta1), FREE },
    { "beta2", REAL, AT(optimizer.beta2), FREE },
    { "epsilon", REAL, AT(optimizer.epsilon), FREE },
    { "schedule", SCHEDULE, AT(schedule), FREE },
    { "final_fraction", REAL, AT(final_fraction), FREE },
    { "warmup_steps", COUNT, AT(warmup_steps), FREE },
    { "schedule_steps", COUNT, AT(schedule_steps), FREE },
    { "steps", COUNT, AT(total_steps), FREE },
    { "batch", SIZE, AT(batch), FIXED },
    { "accumulate", SIZE, AT(accumulate), FREE },
    { "bucket_bytes", BUCKET, AT(bucket_bytes), FREE },
    { "shards", SIZE, AT(shards), FIXED | LATER },
    { "clip_norm", REAL, AT(clip_norm), LATER },
    { "wire", WIRE, AT(wire), LATER },
    { "seed", COUNT, AT(seed), FIXED },
    { "data", TEXT, AT(data), FREE },
    { "data_digest", HASH, AT(data_digest), FIXED },
    { "train_samples", COUNT, AT(train_samples), FIXED },
};

enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static void write_value(const struct setting *setting, const struct gmt_recipe *recipe, char *text)
{
    const void *at = (const char *)recipe + setting->offset;
    size_t      bytes = GMT_RECIPE_VALUE_BYTES;
    switch (setting->kind) {
    case LAYERS: gmt_layers_format(at, text, bytes); break;
    case OPTIMIZER:
        snprintf(text, bytes, "%s", gmt_optimizer_name(*(const enum gmt_optimizer_kind *)at));
        break;
    case SCHEDULE:
        snprintf(text, bytes, "%s", gmt_schedule_name(*(const enum gmt_schedule_kind *)at));
        break;
    case REAL: {
        /* The shortest text that reads back as the same number. */
        double value = *(const double *)at;
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, bytes, "%.*g", digits, value);
            if (strtod(text, NULL) == value) break;
        }
        break;
    }
    case COUNT: snprintf(text, bytes, "%" PRIu64, *(const uint64_t *)at); break;
    case BUCKET:
        if (*(const size_t *)at == GMT_BUCKET_BYTES_AUTO) {
            snprintf(text, bytes, "auto");
            break;
        }
        /* fall through */
    case SIZE: snprintf(text, bytes, "%zu", *(const size_t *)at); break;
    case WIRE: snprintf(text, bytes, "%s", recipe->wire[0] != '\0' ? recipe->wire : "f32"); break;
    case TEXT:
    case HASH: snprintf(text, bytes, "%s", (const char *)at); break;
    }
}

static bool read_count(const char *text, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static bool read_value(const struct setting *setting, struct gmt_recipe *recipe, const char *text)
{
    void    *at = (char *)recipe + setting->offset;
    uint64_t count;
    switch (setting->kind) {
    case LAYERS: return gmt_layers_parse(at, text, NULL) == GM_OK;
    case OPTIMIZER: return gmt_optimizer_parse(at, text, NULL) == GM_OK;
    case SCHEDULE: return gmt_schedule_parse(at, text, NULL) == GM_OK;
    case REAL: {
        char *end;
        *(double *)at = strtod(text, &end);
        return end != text && *end == '\0' && isfinite(*(double *)at);
    }
    case COUNT: return read_count(text, at);
    case BUCKET:
    case SIZE:
        if (!read_count(text, &count) || count > SIZE_MAX) return false;
        *(size_t *)at = (size_t)count;
        return true;
    case WIRE: return snprintf(at, sizeof recipe->wire, "%s", text) < (int)sizeof recipe->wire;
    case TEXT: return snprintf(at, sizeof recipe->data, "%s", text) < (int)sizeof recipe->data;
    case HASH: return snprintf(at, GMT_HASH_HEX_BYTES, "%s", text) == GMT_HASH_HEX_BYTES - 1;
    }
    return false;
}

void gmt_recipe_write(const struct gmt_recipe *recipe, struct gmt_recipe_text *text)
{
    GMI_CHECK(N_SETTINGS <= GMT_RECIPE_MAX_SETTINGS);
    text->n_settings = N_SETTINGS;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        write_value(&settings[i], recipe, text->values[i]);
        text->pairs[i] = (struct gmt_st_pair){ settings[i].key, text->values[i] };
    }
}

gm_status gmt_recipe_read(struct gmt_recipe *recipe, const struct gmt_checkpoint *checkpoint,
                          gm_error *error)
{
    memset(recipe, 0, sizeof *recipe);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const char *value = gmt_checkpoint_setting(checkpoint, settings[i].key);
        if (value == NULL && (settings[i].traits & LATER)) continue;
        if (value == NULL || !read_value(&settings[i], recipe, value))
            return gmi_error_set(error, GM_ERR_ARG, "checkpoint %s: its setting '%s' is %s%.64s",
                                 checkpoint->path, settings[i].key,
                                 value == NULL ? "missing" : "not possible: ",
                                 value == NULL ? "" : value);
    }
    return GM_OK;
}

gm_status gmt_recipe_check_resume(const struct gmt_recipe *recipe, const struct gmt_recipe *saved,
                                  const char *file, gm_error *error)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        char here[GMT_RECIPE_VALUE_BYTES], there[GMT_RECIPE_VALUE_BYTES];
        write_value(&settings[i], recipe, here);
        write_value(&settings[i], saved, there);
        if (!(settings[i].traits & FIXED) || strcmp(here, there) == 0) continue;
        if (settings[i].kind == HASH)
            return gmi_error_set(error, GM_ERR_ARG,
                                 "checkpoint %s was made with other training data (%s): these here (%s) "
                                 "have the digest %.12s..., those had %.12s...; give the same --data",
                                 file, saved->data, recipe->data, here, there);
        return gmi_error_set(error, GM_ERR_ARG,
                             "checkpoint %s was made with %s %s, this run has %s: give the same to "
                             "resume it",
                             file, settings[i].key, there, here);
    }
    return GM_OK;
}

void gmt_recipe_fingerprint(const struct gmt_recipe *recipe, const char *const *extra, char *text,
                            size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < N_SETTINGS; i++) {
        char value[GMT_RECIPE_VALUE_BYTES];
        /* The same data may have another path on another host; its digest is what counts. */
        if (settings[i].kind == TEXT) continue;
        write_value(&settings[i], recipe, value);
        int n = snprintf(text + used, text_bytes - used, "%s=%s\n", settings[i].key, value);
        used = gmi_min_size(used + (n > 0 ? (size_t)n : 0), text_bytes - 1);
    }
    for (; extra != NULL && extra[0] != NULL; extra += 2) {
        int n = snprintf(text + used, text_bytes - used, "%s=%s\n", extra[0], extra[1]);
        used = gmi_min_size(used + (n > 0 ? (size_t)n : 0), text_bytes - 1);
    }
}

gm_status gmt_data_digest(const struct gmt_dataset *dataset, char hex[GMT_HASH_HEX_BYTES],
                          gm_error *error)
{
    struct gmt_sha256 sha;
    char              sizes[96];
    snprintf(sizes, sizeof sizes, "%zu %d %d %d\n", dataset->n_samples, dataset->n_rows,
             dataset->n_cols, dataset->n_classes);
    gmt_sha256_begin(&sha);
    gmt_sha256_add(&sha, sizes, strlen(sizes));
    gmt_sha256_add(&sha, dataset->pixels, dataset->n_samples * (size_t)dataset->n_features);
    gmt_sha256_add(&sha, dataset->labels, dataset->n_samples);
    return gmt_sha256_end(&sha, hex, error);
}

gm_status gmt_recipe_check_data(const struct gmt_recipe *recipe, const struct gmt_dataset *dataset,
                                gm_error *error)
{
    const struct gmt_layers *layers = &recipe->layers;
    char                     text[256];
    gmt_layers_format(layers, text, sizeof text);
    size_t n_in = layers->sizes[0], n_classes = layers->sizes[layers->n_sizes - 1];
    if (n_in != (size_t)dataset->n_features)
        return gmi_error_set(error, GM_ERR_ARG,
                             "the network %s has %zu inputs, but the pictures of %s have %d x %d = %d "
                             "points: give --layers %d,...",
                             text, n_in, dataset->source, dataset->n_rows, dataset->n_cols,
                             dataset->n_features, dataset->n_features);
    if (n_classes < (size_t)dataset->n_classes)
        return gmi_error_set(error, GM_ERR_ARG,
                             "the network %s tells %zu classes apart, but %s has %d: give --layers "
                             "...,%d",
                             text, n_classes, dataset->source, dataset->n_classes,
                             dataset->n_classes);
    return GM_OK;
}
