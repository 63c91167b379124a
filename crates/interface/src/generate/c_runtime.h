/* Values as bytes, in postcard's format, without a C library. Nothing here reads beyond its input
 * or writes beyond its output, whatever the bytes are. Strings and bytes that are read stay where
 * they are in the input; lists are put into an arena. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef OUTBOARD_OFFCODE_RUNTIME
#define OUTBOARD_OFFCODE_RUNTIME

#if defined(__wasm__)
#define OC_IMPORT(name) __attribute__((import_module("offcode"), import_name(name)))
#else
#define OC_IMPORT(name)
#endif

OC_IMPORT("call")
extern int64_t offcode_call(int32_t import, int32_t method, const void *ptr, size_t len,
                            int32_t deadline_ms);
OC_IMPORT("answer")
extern int32_t offcode_answer(int64_t call, const void *ptr, size_t len);
OC_IMPORT("refuse")
extern int32_t offcode_refuse(int64_t call, const void *ptr, size_t len);

/* Memory that is handed out from the front; whoever made it starts it again for each entry. */
typedef struct { unsigned char *at; size_t left; } oc_arena;
typedef struct { const uint8_t *at; const uint8_t *end; oc_arena *arena; } oc_reader;
/* `full` says that something did not fit: what was written is then worth nothing. */
typedef struct { uint8_t *at; uint8_t *end; bool full; } oc_writer;
/* UTF-8, without a zero at its end. */
typedef struct { const char *ptr; size_t len; } oc_string;
typedef struct { const uint8_t *ptr; size_t len; } oc_bytes;

static inline void *oc_alloc(oc_arena *arena, size_t size, size_t count) {
    size_t pad = (size_t)(-(uintptr_t)arena->at & 7u);
    void *place;
    if (pad > arena->left || (size != 0 && count > (arena->left - pad) / size)) {
        return NULL;
    }
    place = arena->at + pad;
    arena->at += pad + size * count;
    arena->left -= pad + size * count;
    return place;
}

static inline void oc_put_raw(oc_writer *out, const void *ptr, size_t len) {
    const uint8_t *from = (const uint8_t *)ptr;
    size_t i;
    if (out->full || len > (size_t)(out->end - out->at)) {
        out->full = true;
        return;
    }
    for (i = 0; i < len; i++) {
        out->at[i] = from[i];
    }
    out->at += len;
}

static inline void oc_put_u8(oc_writer *out, uint8_t v) { oc_put_raw(out, &v, 1); }
static inline void oc_put_s8(oc_writer *out, int8_t v) { oc_put_u8(out, (uint8_t)v); }
static inline void oc_put_bool(oc_writer *out, bool v) { oc_put_u8(out, v ? 1 : 0); }

static inline void oc_put_u64(oc_writer *out, uint64_t v) {
    while (v > 0x7f) {
        oc_put_u8(out, (uint8_t)(v | 0x80));
        v >>= 7;
    }
    oc_put_u8(out, (uint8_t)v);
}

static inline void oc_put_s64(oc_writer *out, int64_t v) {
    uint64_t bits = (uint64_t)v;
    oc_put_u64(out, (bits << 1) ^ (v < 0 ? ~(uint64_t)0 : 0));
}

static inline void oc_put_u16(oc_writer *out, uint16_t v) { oc_put_u64(out, v); }
static inline void oc_put_u32(oc_writer *out, uint32_t v) { oc_put_u64(out, v); }
static inline void oc_put_s16(oc_writer *out, int16_t v) { oc_put_s64(out, v); }
static inline void oc_put_s32(oc_writer *out, int32_t v) { oc_put_s64(out, v); }

static inline void oc_put_fixed(oc_writer *out, uint64_t bits, size_t len) {
    size_t i;
    for (i = 0; i < len; i++) {
        oc_put_u8(out, (uint8_t)(bits >> (8 * i)));
    }
}

static inline void oc_put_f32(oc_writer *out, float v) {
    union { float value; uint32_t bits; } as;
    as.value = v;
    oc_put_fixed(out, as.bits, 4);
}

static inline void oc_put_f64(oc_writer *out, double v) {
    union { double value; uint64_t bits; } as;
    as.value = v;
    oc_put_fixed(out, as.bits, 8);
}

static inline void oc_put_bytes(oc_writer *out, oc_bytes v) {
    oc_put_u64(out, v.len);
    oc_put_raw(out, v.ptr, v.len);
}

static inline void oc_put_string(oc_writer *out, oc_string v) {
    oc_put_u64(out, v.len);
    oc_put_raw(out, v.ptr, v.len);
}

static inline void oc_put_char(oc_writer *out, uint32_t v) {
    uint8_t bytes[4];
    size_t len = v < 0x80 ? 1 : v < 0x800 ? 2 : v < 0x10000 ? 3 : 4, i;
    for (i = len - 1; i > 0; i--) {
        bytes[i] = (uint8_t)(0x80 | (v & 0x3f));
        v >>= 6;
    }
    bytes[0] = (uint8_t)(len == 1 ? v : (0xf00u >> len) | v);
    oc_put_u8(out, (uint8_t)len);
    oc_put_raw(out, bytes, len);
}

static inline bool oc_take_u8(oc_reader *in, uint8_t *v) {
    if (in->at == in->end) {
        return false;
    }
    *v = *in->at++;
    return true;
}

static inline bool oc_take_s8(oc_reader *in, int8_t *v) {
    uint8_t byte;
    if (!oc_take_u8(in, &byte)) {
        return false;
    }
    *v = (int8_t)byte;
    return true;
}

static inline bool oc_take_bool(oc_reader *in, bool *v) {
    uint8_t byte;
    if (!oc_take_u8(in, &byte) || byte > 1) {
        return false;
    }
    *v = byte == 1;
    return true;
}

static inline bool oc_take_varint(oc_reader *in, unsigned bits, uint64_t *v) {
    unsigned shift;
    uint8_t byte;
    *v = 0;
    for (shift = 0; shift < bits; shift += 7) {
        if (!oc_take_u8(in, &byte)) {
            return false;
        }
        if (bits - shift < 7 && ((unsigned)byte & 0x7f) >> (bits - shift) != 0) {
            return false;
        }
        *v |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return true;
        }
    }
    return false;
}

static inline bool oc_take_zigzag(oc_reader *in, unsigned bits, int64_t *v) {
    uint64_t found;
    if (!oc_take_varint(in, bits, &found)) {
        return false;
    }
    *v = (int64_t)(found >> 1);
    if ((found & 1) != 0) {
        *v = -*v - 1;
    }
    return true;
}

#define OC_TAKE(name, type, wide, take, bits) \
    static inline bool name(oc_reader *in, type *v) { \
        wide found; \
        if (!take(in, bits, &found)) { \
            return false; \
        } \
        *v = (type)found; \
        return true; \
    }
OC_TAKE(oc_take_u16, uint16_t, uint64_t, oc_take_varint, 16)
OC_TAKE(oc_take_u32, uint32_t, uint64_t, oc_take_varint, 32)
OC_TAKE(oc_take_u64, uint64_t, uint64_t, oc_take_varint, 64)
OC_TAKE(oc_take_s16, int16_t, int64_t, oc_take_zigzag, 16)
OC_TAKE(oc_take_s32, int32_t, int64_t, oc_take_zigzag, 32)
OC_TAKE(oc_take_s64, int64_t, int64_t, oc_take_zigzag, 64)

static inline bool oc_take_fixed(oc_reader *in, size_t len, uint64_t *bits) {
    size_t i;
    *bits = 0;
    if (len > (size_t)(in->end - in->at)) {
        return false;
    }
    for (i = 0; i < len; i++) {
        *bits |= (uint64_t)*in->at++ << (8 * i);
    }
    return true;
}

static inline bool oc_take_f32(oc_reader *in, float *v) {
    union { float value; uint32_t bits; } as;
    uint64_t bits;
    if (!oc_take_fixed(in, 4, &bits)) {
        return false;
    }
    as.bits = (uint32_t)bits;
    *v = as.value;
    return true;
}

static inline bool oc_take_f64(oc_reader *in, double *v) {
    union { double value; uint64_t bits; } as;
    if (!oc_take_fixed(in, 8, &as.bits)) {
        return false;
    }
    *v = as.value;
    return true;
}

/* The length of a list whose items take at least `item_len_min` bytes each. */
static inline bool oc_take_len(oc_reader *in, size_t item_len_min, size_t *len) {
    uint64_t found;
    if (!oc_take_varint(in, 32, &found)) {
        return false;
    }
    if (found > (uint64_t)(size_t)(in->end - in->at) / item_len_min) {
        return false;
    }
    *len = (size_t)found;
    return true;
}

static inline bool oc_take_bytes(oc_reader *in, oc_bytes *v) {
    if (!oc_take_len(in, 1, &v->len)) {
        return false;
    }
    v->ptr = in->at;
    in->at += v->len;
    return true;
}

/* One character of UTF-8 (RFC 3629): neither longer than it must be, nor a surrogate. */
static inline bool oc_take_utf8(oc_reader *in, uint32_t *v) {
    uint8_t byte;
    unsigned more;
    uint32_t least;
    if (!oc_take_u8(in, &byte)) {
        return false;
    }
    *v = byte;
    if (byte < 0x80) {
        return true;
    }
    if (byte < 0xc0 || byte > 0xf4) {
        return false;
    }
    more = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    least = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
    *v &= 0x3fu >> more;
    while (more-- > 0) {
        if (!oc_take_u8(in, &byte) || (byte & 0xc0) != 0x80) {
            return false;
        }
        *v = (*v << 6) | (byte & 0x3f);
    }
    return *v >= least && *v <= 0x10ffff && (*v < 0xd800 || *v > 0xdfff);
}

static inline bool oc_take_string(oc_reader *in, oc_string *v) {
    oc_bytes bytes;
    oc_reader text;
    uint32_t character;
    if (!oc_take_bytes(in, &bytes)) {
        return false;
    }
    text.at = bytes.ptr;
    text.end = bytes.ptr + bytes.len;
    text.arena = NULL;
    while (text.at != text.end) {
        if (!oc_take_utf8(&text, &character)) {
            return false;
        }
    }
    v->ptr = (const char *)bytes.ptr;
    v->len = bytes.len;
    return true;
}

static inline bool oc_take_char(oc_reader *in, uint32_t *v) {
    oc_bytes bytes;
    oc_reader text;
    if (!oc_take_bytes(in, &bytes)) {
        return false;
    }
    text.at = bytes.ptr;
    text.end = bytes.ptr + bytes.len;
    text.arena = NULL;
    return oc_take_utf8(&text, v) && text.at == text.end;
}

static inline bool oc_finish(const oc_reader *in) { return in->at == in->end; }

static inline int32_t oc_refuse(int64_t call, const char *reason) {
    size_t len = 0;
    while (reason[len] != 0) {
        len++;
    }
    return offcode_refuse(call, reason, len);
}
#endif
