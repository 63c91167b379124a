/* offcode.h: all that an offcode's WebAssembly body needs, in C. There is no C library.
 *
 *     #include "offcode.h"
 *
 *     void oc_message(int32_t port, const uint8_t *ptr, size_t len)
 *     {
 *         offcode_send(1, ptr, len);
 *     }
 *
 * ENTRIES. The device calls the functions `oc_...` that the offcode defines, one at a time and
 * never from within another; all of them may be left out. What they are given lies at the place
 * that `oc_buffer` returned, until they return. Variables keep their values from one entry to the
 * next.
 *
 * NUMBERS. An interface, an import and a port are their places in offcode.toml, from 0. Parameters
 * and results of calls are in postcard, in order: `outboard offload` generates code for them.
 *
 * SEVERAL FILES. All but one define OFFCODE_PART in front of this header.
 *
 * BUFFER. This header defines `oc_buffer`, unless OFFCODE_OWN_BUFFER is defined: it has
 * OFFCODE_BUFFER_LEN bytes at first, and grows.
 */
#ifndef OFFCODE_H
#define OFFCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OFFCODE_ABI 1

/* ---- Entries: the device calls them --------------------------------------------------------- */

#define OC_ENTRY(name) __attribute__((export_name(name), visibility("default")))

/* A place of at least `len` bytes for the input of the next entry. */
OC_ENTRY("oc_buffer") void *oc_buffer(size_t len);
/* First phase: takes what the offcode itself needs. 0 if all is well. */
OC_ENTRY("oc_initialize") int32_t oc_initialize(void);
/* Second phase: all offcodes that belong together are initialised. 0 if all is well. */
OC_ENTRY("oc_start") int32_t oc_start(void);
/* The last entry. */
OC_ENTRY("oc_stop") void oc_stop(void);
/* A call. It is answered by offcode_answer or offcode_refuse, now or later. */
OC_ENTRY("oc_call")
void oc_call(int32_t interface, int32_t method, int64_t call, const uint8_t *ptr, size_t len);
/* The answer to a call of this offcode's own; `status` is an offcode_status. */
OC_ENTRY("oc_answer")
void oc_answer(int64_t call, int32_t status, const uint8_t *ptr, size_t len);
/* A message of a channel. */
OC_ENTRY("oc_message") void oc_message(int32_t port, const uint8_t *ptr, size_t len);
/* A channel that was full has room again. */
OC_ENTRY("oc_writable") void oc_writable(int32_t port);
/* A timer is due. */
OC_ENTRY("oc_timer") void oc_timer(int32_t timer);
/* An event; `kind` is an offcode_event. */
OC_ENTRY("oc_event") void oc_event(int32_t kind, const uint8_t *ptr, size_t len);
/* The offcode's state, as offcode_state() gives it, for an update to other code. */
OC_ENTRY("oc_save") int64_t oc_save(void);
/* The state that earlier code has saved, in place of oc_initialize. 0 if all is well. */
OC_ENTRY("oc_restore") int32_t oc_restore(const uint8_t *ptr, size_t len);

/* What an answer is. All but OFFCODE_RESULTS come with a text. */
enum offcode_status {
    OFFCODE_RESULTS = 0,
    OFFCODE_REFUSED = 1,  /* the callee said no */
    OFFCODE_TRAPPED = 2,  /* the callee broke */
    OFFCODE_GONE = 3,     /* the callee is not there any more */
    OFFCODE_LATE = 4,     /* the deadline has passed */
    OFFCODE_NO_METHOD = 5 /* there is no such method, or its types are others */
};

/* What happens beside channels. */
enum offcode_event {
    OFFCODE_TOLD = 1,         /* a message of the application */
    OFFCODE_CONNECTED = 2,    /* a port has a channel: its number, 4 bytes, little-endian */
    OFFCODE_DISCONNECTED = 3, /* the other end of a port is gone: its number, as above */
    OFFCODE_ATTRIBUTE = 4     /* an attribute was set: its name, a zero byte, its value */
};

/* ---- Imports: the offcode calls them --------------------------------------------------------- */

#ifndef OC_IMPORT
#define OC_IMPORT(name) __attribute__((import_module("offcode"), import_name(name)))
#endif

/* What offcode_send returns. */
enum offcode_sent {
    OFFCODE_SENT = 0,
    OFFCODE_FULL = 1, /* oc_writable comes when there is room again */
    OFFCODE_NO_PORT = -1,
    OFFCODE_TOO_LONG = -2,
    OFFCODE_NOT_CONNECTED = -3
};

/* Sends a message into a port's channel: an offcode_sent. */
OC_IMPORT("send") extern int32_t offcode_send(int32_t port, const void *ptr, size_t len);
/* Calls a method of an import. More than 0: the number that oc_answer will have; else an error.
 * A deadline of 0 is none. */
OC_IMPORT("call")
extern int64_t offcode_call(int32_t import, int32_t method, const void *ptr, size_t len,
                            int32_t deadline_ms);
/* Answers a call with its results: 0, or -1 if there is no such call. */
OC_IMPORT("answer") extern int32_t offcode_answer(int64_t call, const void *ptr, size_t len);
/* Refuses a call with a text: 0, or -1 if there is no such call. */
OC_IMPORT("refuse") extern int32_t offcode_refuse(int64_t call, const void *ptr, size_t len);
/* From now on no messages of a port come, and its sender is pushed back; then they come again. */
OC_IMPORT("hold") extern void offcode_hold(int32_t port);
OC_IMPORT("release") extern void offcode_release(int32_t port);
/* Logs a text; see offcode_level. */
OC_IMPORT("log") extern void offcode_log(int32_t level, const void *ptr, size_t len);
/* Ends the offcode, with a reason. */
OC_IMPORT("fail") extern _Noreturn void offcode_fail(const void *ptr, size_t len);
/* Sends a message to the application, beside all channels: 0 if it was taken. */
OC_IMPORT("tell") extern int32_t offcode_tell(const void *ptr, size_t len);
/* Copies an attribute's value, `cap` bytes at most: the bytes that it has, or -1 if it has none. */
OC_IMPORT("attribute")
extern int32_t offcode_attribute(const void *name, size_t name_len, void *out, size_t cap);
/* Nanoseconds of a clock that never goes back, and since 1970. Only with `clock = true` in
 * [needs]. */
OC_IMPORT("clock") extern int64_t offcode_clock(void);
OC_IMPORT("wall") extern int64_t offcode_wall(void);
/* Has oc_timer called after so many nanoseconds, once; replaces an earlier one of that number, 0 to
 * 63. Only with `timers = true` in [needs]. */
OC_IMPORT("timer") extern void offcode_timer(int32_t timer, int64_t after_ns);

enum offcode_level {
    OFFCODE_ERROR = 1,
    OFFCODE_WARN = 2,
    OFFCODE_INFO = 3,
    OFFCODE_DEBUG = 4,
    OFFCODE_TRACE = 5
};

/* The same for texts in quotes. */
#define OFFCODE_LOG(level, text) offcode_log(level, "" text, sizeof(text) - 1)
#define OFFCODE_FAIL(text) offcode_fail("" text, sizeof(text) - 1)
#define OFFCODE_TELL(text) offcode_tell("" text, sizeof(text) - 1)
#define OFFCODE_REFUSE(call, text) offcode_refuse(call, "" text, sizeof(text) - 1)
#define OFFCODE_ATTRIBUTE_OF(name, out, cap) offcode_attribute("" name, sizeof(name) - 1, out, cap)

/* ---- Bytes ----------------------------------------------------------------------------------- */

#define OC_INLINE static inline __attribute__((always_inline, unused, nodebug))

/* Numbers of the network's byte order, anywhere. */
OC_INLINE uint16_t offcode_be16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
OC_INLINE uint32_t offcode_be32(const uint8_t *at)
{
    return (uint32_t)offcode_be16(at) << 16 | offcode_be16(at + 2);
}

/* A number of postcard: 7 bits in each byte, the low ones first. Writes 10 bytes at most; returns
 * how many. Signed numbers are offcode_zigzag() before. */
OC_INLINE size_t offcode_put_varint(uint8_t *out, uint64_t value)
{
    size_t len = 0;
    for (; value > 0x7f; value >>= 7)
        out[len++] = (uint8_t)(value | 0x80);
    out[len++] = (uint8_t)value;
    return len;
}
OC_INLINE uint64_t offcode_zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

/* Reads one. Returns how many bytes it has; 0 if they are none. */
OC_INLINE size_t offcode_take_varint(const uint8_t *at, size_t len, uint64_t *value)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < len && i < 10; i++) {
        if (i == 9 && at[i] > 1)
            return 0;
        sum |= (uint64_t)(at[i] & 0x7f) << (7 * i);
        if (at[i] < 0x80) {
            *value = sum;
            return i + 1;
        }
    }
    return 0;
}

/* What oc_save returns. The bytes must stay where they are. */
OC_INLINE int64_t offcode_state(const void *ptr, size_t len)
{
    return (int64_t)((uint64_t)(uintptr_t)ptr << 32 | (uint64_t)len);
}

/* The compiler may call these four itself, by these names. */
#ifdef OFFCODE_PART
void *memcpy(void *restrict to, const void *restrict from, size_t len);
void *memmove(void *to, const void *from, size_t len);
void *memset(void *to, int byte, size_t len);
int memcmp(const void *left, const void *right, size_t len);
#else
#define OC_LIBC(...) __attribute__((visibility("hidden"), no_builtin(__VA_ARGS__)))

OC_LIBC("memcpy", "memmove") void *memmove(void *to, const void *from, size_t len)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    if ((uintptr_t)t - (uintptr_t)f >= len) {
        for (; len >= 8; t += 8, f += 8, len -= 8) {
            uint64_t word;
            __builtin_memcpy(&word, f, 8);
            __builtin_memcpy(t, &word, 8);
        }
        for (; len > 0; len--)
            *t++ = *f++;
        return to;
    }
    for (; len >= 8; len -= 8) {
        uint64_t word;
        __builtin_memcpy(&word, f + len - 8, 8);
        __builtin_memcpy(t + len - 8, &word, 8);
    }
    while (len-- > 0)
        t[len] = f[len];
    return to;
}

OC_LIBC("memcpy", "memmove")
void *memcpy(void *restrict to, const void *restrict from, size_t len)
{
    return memmove(to, from, len);
}

OC_LIBC("memset") void *memset(void *to, int byte, size_t len)
{
    unsigned char *t = to;
    uint64_t word = 0x0101010101010101u * (unsigned char)byte;
    for (; len >= 8; t += 8, len -= 8)
        __builtin_memcpy(t, &word, 8);
    for (; len > 0; len--)
        *t++ = (unsigned char)byte;
    return to;
}

OC_LIBC("memcmp", "bcmp") int memcmp(const void *left, const void *right, size_t len)
{
    const unsigned char *l = left, *r = right;
    for (; len > 0; len--, l++, r++)
        if (*l != *r)
            return *l < *r ? -1 : 1;
    return 0;
}

#ifndef OFFCODE_OWN_BUFFER
/* Bytes of input that an entry can have before memory grows: a message of a channel's default. */
#ifndef OFFCODE_BUFFER_LEN
#define OFFCODE_BUFFER_LEN 65536
#endif

void *oc_buffer(size_t len)
{
    static uint8_t first[OFFCODE_BUFFER_LEN] __attribute__((aligned(16)));
    static uint8_t *buffer = first;
    static size_t cap = sizeof first;
    if (len > cap) {
        /* At least twice as much: what is given up is less than what is used. */
        size_t pages = ((len > 2 * cap ? len : 2 * cap) + 65535) / 65536;
        size_t grown = __builtin_wasm_memory_grow(0, pages);
        if (grown == (size_t)-1)
            OFFCODE_FAIL("there is no memory for so long a message");
        buffer = (uint8_t *)(grown * 65536);
        cap = pages * 65536;
    }
    return buffer;
}
#endif
#endif

#endif
