/* safetensors_oracle.h - the rules that every accepted safetensors file must keep, checked without
 * the reader's own code; for the tests and for the fuzzer. */
#ifndef GRADUS_TEST_SAFETENSORS_ORACLE_H
#define GRADUS_TEST_SAFETENSORS_ORACLE_H

#include "files/safetensors.h"

#include <stdlib.h>
#include <string.h>

/* Bits of an element; 0: no dtype of the format. */
static inline int oracle_bits(const char *dtype)
{
    static const char *const of_bits[][2] = {
        {"8", " BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ "},
        {"16", " I16 U16 F16 BF16 "},
        {"32", " I32 U32 F32 "},
        {"64", " I64 U64 F64 C64 "},
        {"4", " F4 "},
        {"6", " F6_E2M3 F6_E3M2 "}};
    char word[32];
    snprintf(word, sizeof word, " %.20s ", dtype);
    for (size_t i = 0; i < sizeof of_bits / sizeof *of_bits; i++) {
        if (strlen(dtype) <= 20 && strstr(of_bits[i][1], word)) return atoi(of_bits[i][0]);
    }
    return 0;
}

/* Well-formed UTF-8 as RFC 3629 has it: shortest forms, no surrogates, up to U+10FFFF. */
static inline bool oracle_utf8(const unsigned char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        unsigned char c = text[i++];
        int more = c < 0x80 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        if ((c >= 0x80 && c < 0xc2) || c > 0xf4 || (size_t)more > length - i) return false;
        uint32_t code = more == 0 ? c : c & (0x3fu >> more);
        for (int k = 0; k < more; k++, i++) {
            if ((text[i] & 0xc0) != 0x80) return false;
            code = code << 6 | (text[i] & 0x3f);
        }
        if ((more == 2 && code < 0x800) || (more == 3 && code < 0x10000)) return false;
        if ((code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return false;
    }
    return true;
}

/* The first rule that an entry breaks; it must begin at *end, and moves *end on. */
static inline const char *oracle_entry(const gd_safetensors *file, const gd_safetensors_entry *e,
                                       const unsigned char **end)
{
    int bits = oracle_bits(e->format_dtype);
    if (!bits) return "an unknown dtype";
    size_t total = (size_t)bits;
    bool empty = false;
    for (int i = 0; i < e->ndim; i++) {
        if (e->shape[i] < 0) return "a negative dimension";
        if (e->shape[i] == 0) empty = true;
        if (!empty && __builtin_mul_overflow(total, (size_t)e->shape[i], &total)) {
            return "a product that overflows";
        }
    }
    if (empty) total = 0;
    if (total % 8 || total / 8 != e->bytes) return "bytes that are not those of the shape";
    if ((const unsigned char *)e->data != *end) return "a hole or an overlap";
    *end += e->bytes;
    if (gd_safetensors_find(file, e->name) != e) return "a name that occurs twice, or not found";
    if (!oracle_utf8((const unsigned char *)e->name, strlen(e->name))) return "a name not in UTF-8";
    return NULL;
}

static inline const char *oracle_rules(const gd_safetensors *file, const unsigned char *bytes,
                                       size_t size)
{
    uint64_t length = 0;
    if (size < 8) return "no length";
    for (int i = 0; i < 8; i++) length |= (uint64_t)bytes[i] << (8 * i);
    if (length > 100000000 || length > size - 8 || length < 2) return "a wrong length";
    if (bytes[8] != '{' || !oracle_utf8(bytes + 8, (size_t)length)) return "a wrong header";
    const unsigned char *end = bytes + 8 + length;
    for (int64_t i = 0; i < gd_safetensors_count(file); i++) {
        const char *fault = oracle_entry(file, gd_safetensors_at(file, i), &end);
        if (fault) return fault;
    }
    if (end != bytes + size) return "bytes that belong to no tensor";
    if (gd_safetensors_at(file, gd_safetensors_count(file))) return "one tensor too many";
    return NULL;
}

/* ---- Written and read again --------------------------------------------------------------- */

static inline const char *oracle_equal(const gd_safetensors *file, const gd_named_tensor *tensors,
                                       int64_t tensor_count, const gd_named_text *metadata,
                                       int64_t metadata_count)
{
    if (gd_safetensors_count(file) != tensor_count) return "another number of tensors came back";
    for (int64_t i = 0; i < tensor_count; i++) {
        const gd_safetensors_entry *e = gd_safetensors_find(file, tensors[i].name);
        const gd_tensor *t = tensors[i].tensor;
        size_t bytes = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
        if (!e || e->dtype != gd_tensor_dtype(t) || e->ndim != gd_tensor_ndim(t)) {
            return "another tensor came back";
        }
        for (int k = 0; k < e->ndim; k++) {
            if (e->shape[k] != gd_tensor_dim(t, k)) return "another shape came back";
        }
        char *host = malloc(2 * bytes + 1);
        bool same = host && !gd_tensor_read(t, host, bytes) && e->bytes == bytes &&
                    !gd_safetensors_read_bytes(file, e, 0, host + bytes, bytes) &&
                    !memcmp(host, host + bytes, bytes);
        free(host);
        if (!same) return "other elements came back";
    }
    for (int64_t i = 0; i < metadata_count; i++) {
        const char *text = gd_safetensors_metadata(file, metadata[i].name);
        if (!text || strcmp(text, metadata[i].text) != 0) return "other metadata came back";
    }
    return gd_safetensors_metadata_at(file, metadata_count) ? "more metadata came back" : NULL;
}

/* The bytes that gd_safetensors_write would write, for packed tensors all of one width. */
static inline unsigned char *oracle_print(gd_context *ctx, const gd_named_tensor *tensors,
                                          int64_t tensor_count, const gd_named_text *metadata,
                                          int64_t metadata_count, size_t *size)
{
    size_t data = 0, begin;
    for (int64_t i = 0; i < tensor_count; i++) {
        const gd_tensor *t = tensors[i].tensor;
        data += (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    }
    char *header = gd_safetensors_print(
        ctx, (gd_file_contents){tensors, tensor_count, metadata, metadata_count}, &begin);
    unsigned char *bytes = header ? malloc(begin + data) : NULL;
    if (bytes) memcpy(bytes, header, begin);
    free(header);
    *size = begin;
    for (int64_t i = 0; bytes && i < tensor_count; i++) {
        const gd_tensor *t = tensors[i].tensor;
        size_t own = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
        gd_tensor_read(t, bytes + *size, own);
        *size += own;
    }
    return bytes;
}

/* Takes every tensor out of an accepted file and writes them to a new one, which must be accepted,
 * keep every rule, and give the same back. */
static inline const char *oracle_round_trip(gd_context *ctx, const gd_safetensors *file)
{
    enum { MOST = 64 };
    gd_named_tensor tensors[MOST];
    gd_named_text metadata[MOST];
    int64_t count = 0, texts = 0;
    const gd_safetensors_entry *e;
    const gd_named_text *text;
    for (int64_t i = 0; (e = gd_safetensors_at(file, i)); i++) {
        bool ours = e->dtype != GD_DTYPE_COUNT && e->ndim <= GD_MAX_DIMS;
        if (!ours || count == MOST) continue;
        gd_tensor *t = gd_safetensors_tensor(file, e->name);
        if (!t) return "a tensor that cannot be made";
        tensors[count++] = (gd_named_tensor){e->name, t};
    }
    for (; texts < MOST && (text = gd_safetensors_metadata_at(file, texts)); texts++) {
        metadata[texts] = *text;
    }
    size_t size = 0;
    unsigned char *bytes = oracle_print(ctx, tensors, count, metadata, texts, &size);
    gd_safetensors *again = bytes ? gd_safetensors_wrap(ctx, bytes, size) : NULL;
    const char *fault = "what was written is not accepted";
    if (again) fault = oracle_rules(again, bytes, size);
    if (!fault) fault = oracle_equal(again, tensors, count, metadata, texts);
    gd_safetensors_close(again);
    free(bytes);
    for (int64_t i = 0; i < count; i++) gd_tensor_free((gd_tensor *)(uintptr_t)tensors[i].tensor);
    return fault;
}

#endif
