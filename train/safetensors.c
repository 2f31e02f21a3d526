#include "train/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/error.h"

/* ---- reading --------------------------------------------------------------------------------- */

/* What a parse is about, so that the helpers can say a sentence. */
struct reading {
    const char *file;
    gm_error   *error;
};

#define BAD(reading, ...) bad_header(reading, __VA_ARGS__)

static gm_status bad_header(const struct reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static gm_status bad_header(const struct reading *reading, const char *format, ...)
{
    char    text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gmi_error_set(reading->error, GM_ERR_ARG, "checkpoint %s: %s", reading->file, text);
}

static size_t dtype_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        size_t      bytes;
    } table[] = { { "BOOL", 1 },    { "U8", 1 },      { "I8", 1 },  { "F8_E5M2", 1 },
                  { "F8_E4M3", 1 }, { "I16", 2 },     { "U16", 2 }, { "F16", 2 },
                  { "BF16", 2 },    { "I32", 4 },     { "U32", 4 }, { "F32", 4 },
                  { "F64", 8 },     { "I64", 8 },     { "U64", 8 }, { "C64", 8 } };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, dtype) == 0) return table[i].bytes;
    return 0;
}

/* A JSON number that is a whole number which a double holds exactly. */
static bool whole_number(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item)) return false;
    double number = item->valuedouble;
    if (!(number >= 0 && number <= 9007199254740992.0)) return false;
    *value = (uint64_t)number;
    return (double)*value == number;
}

/* The one member of that name; NULL if it is missing or there twice. cJSON itself keeps both of
 * a pair of equal keys and would hand out the first. */
static const cJSON *only_member(const cJSON *object, const char *name)
{
    const cJSON *found = NULL, *item;
    if (!cJSON_IsObject(object)) return NULL; /* the members of an array have no names */
    cJSON_ArrayForEach(item, object)
    {
        if (strcmp(item->string, name) != 0) continue;
        if (found != NULL) return NULL;
        found = item;
    }
    return found;
}

static gm_status read_shape(const struct reading *reading, struct gmt_st_tensor *tensor,
                            const cJSON *shape, size_t *size_bytes)
{
    *size_bytes = dtype_bytes(tensor->dtype);
    const cJSON *item;
    cJSON_ArrayForEach(item, shape)
    {
        if (tensor->n_dims == GMT_ST_MAX_DIMS)
            return BAD(reading, "tensor '%.64s' has more than %d dimensions", tensor->name,
                       GMT_ST_MAX_DIMS);
        uint64_t *dim = &tensor->shape[tensor->n_dims++];
        if (!whole_number(item, dim) || *dim > SIZE_MAX ||
            !gmi_mul_sizes(*size_bytes, (size_t)*dim, size_bytes))
            return BAD(reading, "the shape of tensor '%.64s' is not a list of possible sizes",
                       tensor->name);
    }
    return GM_OK;
}

static gm_status read_tensor(const struct reading *reading, struct gmt_st_tensor *tensor,
                             const cJSON *entry, uint64_t data_bytes)
{
    tensor->name = entry->string;
    tensor->dtype = cJSON_GetStringValue(only_member(entry, "dtype"));
    const cJSON *shape = only_member(entry, "shape");
    const cJSON *offsets = only_member(entry, "data_offsets");
    if (!cJSON_IsObject(entry) || cJSON_GetArraySize(entry) != 3 || tensor->dtype == NULL ||
        !cJSON_IsArray(shape) || !cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2)
        return BAD(reading,
                   "the entry of tensor '%.64s' is not made of one dtype, one shape and one pair of "
                   "data_offsets",
                   tensor->name);
    if (dtype_bytes(tensor->dtype) == 0)
        return BAD(reading, "tensor '%.64s' has the unknown dtype '%.16s'", tensor->name,
                   tensor->dtype);
    size_t    size_bytes;
    gm_status status = read_shape(reading, tensor, shape, &size_bytes);
    if (status != GM_OK) return status;
    if (!whole_number(cJSON_GetArrayItem(offsets, 0), &tensor->begin) ||
        !whole_number(cJSON_GetArrayItem(offsets, 1), &tensor->end) ||
        tensor->begin > tensor->end || tensor->end > data_bytes)
        return BAD(reading,
                   "the data_offsets of tensor '%.64s' do not lie in the data part of %" PRIu64
                   " bytes",
                   tensor->name, data_bytes);
    if (tensor->end - tensor->begin != size_bytes)
        return BAD(reading,
                   "tensor '%.64s' has %" PRIu64 " bytes of data, but its shape needs %zu",
                   tensor->name, tensor->end - tensor->begin, size_bytes);
    return GM_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct gmt_st_tensor *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static int by_place(const void *a, const void *b)
{
    const struct gmt_st_tensor *left = a, *right = b;
    if (left->begin != right->begin) return left->begin < right->begin ? -1 : 1;
    if (left->end != right->end) return left->end < right->end ? -1 : 1;
    return strcmp(left->name, right->name);
}

/* Each name once, and the data part filled from its first byte to its last. Leaves the tensors
 * in the order of the data part. */
static gm_status check_tensors(const struct reading *reading, struct gmt_st_header *header,
                               uint64_t data_bytes)
{
    struct gmt_st_tensor *tensors = header->tensors;
    size_t                n_tensors = header->n_tensors;
    qsort(tensors, n_tensors, sizeof *tensors, by_name);
    for (size_t i = 1; i < n_tensors; i++)
        if (strcmp(tensors[i - 1].name, tensors[i].name) == 0)
            return BAD(reading, "tensor '%.64s' is there twice", tensors[i].name);
    qsort(tensors, n_tensors, sizeof *tensors, by_place);
    uint64_t covered_bytes = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        if (tensors[i].begin != covered_bytes)
            return BAD(reading, "tensor '%.64s' begins at byte %" PRIu64 " of the data part, %s",
                       tensors[i].name, tensors[i].begin,
                       tensors[i].begin < covered_bytes ? "inside the tensor before it"
                                                        : "after a hole");
        covered_bytes = tensors[i].end;
    }
    if (covered_bytes != data_bytes)
        return BAD(reading,
                   "the tensors need %" PRIu64 " bytes of data, the file has %" PRIu64
                   ": it is cut short or something is appended",
                   covered_bytes, data_bytes);
    return GM_OK;
}

static gm_status read_metadata(const struct reading *reading, struct gmt_st_header *header,
                               const cJSON *object)
{
    if (!cJSON_IsObject(object)) return BAD(reading, "__metadata__ is not an object");
    size_t count = (size_t)cJSON_GetArraySize(object);
    if (header->metadata != NULL) return BAD(reading, "__metadata__ is there twice");
    if (count > 1024) return BAD(reading, "__metadata__ has %zu keys; up to 1024 are read", count);
    header->metadata = gmi_alloc(count, sizeof *header->metadata);
    if (header->metadata == NULL)
        return gmi_error_set(reading->error, GM_ERR_NOMEM, "no memory for %zu metadata keys",
                             count);
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        if (!cJSON_IsString(item))
            return BAD(reading, "the metadata key '%.64s' is not a string", item->string);
        if (gmt_st_metadata(header, item->string) != NULL)
            return BAD(reading, "the metadata key '%.64s' is there twice", item->string);
        header->metadata[header->n_metadata++] =
            (struct gmt_st_pair){ item->string, item->valuestring };
    }
    return GM_OK;
}

static gm_status read_entries(const struct reading *reading, struct gmt_st_header *header,
                              uint64_t data_bytes)
{
    const cJSON *json = header->json;
    if (!cJSON_IsObject(json)) return BAD(reading, "its header is not a JSON object");
    size_t count = (size_t)cJSON_GetArraySize(json);
    if (count > GMT_ST_MAX_TENSORS)
        return BAD(reading, "its header has %zu entries; up to %d are read", count,
                   GMT_ST_MAX_TENSORS);
    header->tensors = gmi_alloc(count, sizeof *header->tensors);
    if (header->tensors == NULL)
        return gmi_error_set(reading->error, GM_ERR_NOMEM, "no memory for a table of %zu tensors",
                             count);
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        gm_status status = strcmp(item->string, "__metadata__") == 0
                               ? read_metadata(reading, header, item)
                               : read_tensor(reading, &header->tensors[header->n_tensors++], item,
                                             data_bytes);
        if (status != GM_OK) return status;
    }
    return check_tensors(reading, header, data_bytes);
}

gm_status gmt_st_parse(struct gmt_st_header *header, const char *text, size_t text_bytes,
                       uint64_t data_bytes, const char *file, gm_error *error)
{
    struct reading reading = { file, error };
    memset(header, 0, sizeof *header);
    /* The format wants the brace first, and a zero byte would end cJSON's strings early. */
    if (text_bytes == 0 || text[0] != '{' || memchr(text, '\0', text_bytes) != NULL)
        return BAD(&reading, "its header is not a JSON object");
    /* A copy with a zero behind it: cJSON then cannot look past the end. */
    char *copy = gmi_alloc(text_bytes + 1, 1);
    if (copy == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM,
                             "checkpoint %s: no memory for its header of %zu bytes", file,
                             text_bytes);
    memcpy(copy, text, text_bytes);
    header->json = cJSON_ParseWithLengthOpts(copy, text_bytes + 1, NULL, true);
    gmi_free(copy);
    gm_status status = header->json == NULL
                           ? BAD(&reading, "its header is not JSON that can be read")
                           : read_entries(&reading, header, data_bytes);
    if (status != GM_OK) gmt_st_free(header);
    return status;
}

void gmt_st_free(struct gmt_st_header *header)
{
    gmi_free(header->tensors);
    gmi_free(header->metadata);
    cJSON_Delete(header->json);
    memset(header, 0, sizeof *header);
}

const char *gmt_st_metadata(const struct gmt_st_header *header, const char *key)
{
    for (size_t i = 0; i < header->n_metadata; i++)
        if (strcmp(header->metadata[i].key, key) == 0) return header->metadata[i].value;
    return NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* {"dtype":"F32","shape":[...],"data_offsets":[begin,end]}; NULL without memory. */
static cJSON *tensor_entry(const struct gmt_st_tensor *tensor, uint64_t begin, uint64_t end)
{
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddStringToObject(entry, "dtype", "F32");
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    bool   is_whole = shape != NULL;
    for (size_t d = 0; d < tensor->n_dims; d++)
        is_whole &= cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[d]));
    cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    is_whole &= cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin));
    is_whole &= cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)end));
    if (is_whole && cJSON_GetArraySize(entry) == 3) return entry;
    cJSON_Delete(entry);
    return NULL;
}

/* The header's text, freed with cJSON_free; NULL without memory. */
static char *format_text(const struct gmt_st_tensor *tensors, size_t n_tensors,
                         const struct gmt_st_pair *metadata, size_t n_metadata)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *object = cJSON_AddObjectToObject(json, "__metadata__");
    bool   is_whole = object != NULL;
    for (size_t i = 0; i < n_metadata && is_whole; i++)
        is_whole = cJSON_AddStringToObject(object, metadata[i].key, metadata[i].value) != NULL;
    uint64_t end = 0;
    for (size_t i = 0; i < n_tensors && is_whole; i++) {
        uint64_t begin = end, elems = 1;
        for (size_t d = 0; d < tensors[i].n_dims; d++) elems *= tensors[i].shape[d];
        end = begin + 4 * elems;
        is_whole =
            cJSON_AddItemToObject(json, tensors[i].name, tensor_entry(&tensors[i], begin, end));
    }
    char *text = is_whole ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return text;
}

gm_status gmt_st_format(uint8_t **bytes, size_t *size_bytes, const struct gmt_st_tensor *tensors,
                        size_t n_tensors, const struct gmt_st_pair *metadata, size_t n_metadata,
                        gm_error *error)
{
    *bytes = NULL;
    *size_bytes = 0;
    char    *text = format_text(tensors, n_tensors, metadata, n_metadata);
    size_t   text_bytes = text == NULL ? 0 : strlen(text);
    size_t   padded_bytes = (text_bytes + 7) / 8 * 8;
    uint8_t *out = text == NULL ? NULL : gmi_alloc(8 + padded_bytes, 1);
    if (out != NULL) {
        gmi_put_u64(out, padded_bytes);
        memset(out + 8, ' ', padded_bytes);
        memcpy(out + 8, text, text_bytes);
        *bytes = out;
        *size_bytes = 8 + padded_bytes;
    }
    cJSON_free(text);
    if (out == NULL)
        return gmi_error_set(error, GM_ERR_NOMEM, "no memory for a checkpoint's header");
    return GM_OK;
}
