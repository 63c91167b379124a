/* outboard.h: everything that a module of Outboard's active code needs, in C.
 *
 * A module is code that is executed next to a region, the memory of a node that clients reach by
 * RDMA. This header is the whole interface: there is no C library. The same source compiles for the
 * node (clang --target=wasm32-unknown-emscripten) and, with OB_NATIVE defined, for this machine,
 * so that a module can be tested and debugged as an ordinary program (see outboard_native.h).
 *
 *     #include "outboard.h"
 *
 *     struct add_args { uint64_t offset, delta; };
 *
 *     OB_ENTRY(add)
 *     {
 *         const struct add_args *args = OB_ARGS(struct add_args);
 *         uint64_t sum = ob_get64(args->offset) + args->delta;
 *         ob_put64(args->offset, sum);
 *         return ob_result(&sum, sizeof sum);
 *     }
 *
 * ENTRIES. An entry takes its arguments from ob_args() and returns how many bytes of result it has
 * put at ob_out(). A negative number, or OB_FAIL(code, "text"), is the application's own error: it
 * goes to the caller, and nothing that the execution wrote is kept.
 *
 * OFFSETS. The region's bytes are named by their offset from its start, 64 bits wide. Store offsets
 * in structures that live in the region, never addresses: the region may be mapped elsewhere next
 * time. Offset 0 is an ordinary place; most structures take it for "none" and begin behind it.
 *
 * ALL OR NOTHING. What an execution writes goes into its own write set, which it reads back like
 * memory. At its end the write set is applied as a whole, or, after a trap, a time-out, a kill or a
 * failure, not at all. Static data is as it was at first in each execution; a local variable that is
 * not initialised holds anything: only the region remembers.
 *
 * WHAT IS CHECKED AT COMMIT, and what is not.
 *   - Other executions: always. If another execution has committed since this one began, this one
 *     is run again from its start. Each one sees a state of the region between two commits.
 *   - Peers' one-sided Writes and atomics: only for words that the execution names, by
 *     ob_expect64(offset, value), ob_name64, ob_cas64 or ob_add64. If such a word holds something
 *     else at commit, the execution is run again. What peers write to all other bytes is NOT
 *     checked: an execution can see half of a peer's Write.
 *   - An execution that fails or traps is not checked against peers, only against executions. A
 *     finding that peers can falsify ("no such key") should be a result, not a failure.
 *   - After two conflicts others wait: executions 10 ms at most; peers' Writes 1 ms, if in the way.
 * So: memory that only executions change needs no care at all. Where peers write, let one 8-byte
 * word say whether the rest is valid, and name that word.
 *
 * READ-ONLY ENTRIES. An entry that cannot reach a writing call (ob_write, ob_store64, ob_cas64,
 * ob_add64 and what is made of them) through any chain of calls may also be executed at the client,
 * on pages that are fetched when they are touched. Keep functions that write out of paths that
 * only read, and call through no function pointers.
 *
 * TIME. One moment for a whole execution, the same when it is run again: ob_monotonic_ns() for
 * durations and ob_wall_ns() for the date, of the machine that executes it. There is no other clock.
 */
#ifndef OUTBOARD_H
#define OUTBOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- The call block ---------------------------------------------------------------------- */

/* What an execution is told of its call; little-endian, 120 bytes, read-only by convention. */
struct ob_call {
    uint64_t region_base;  /* address of the region's first byte; plain stores there trap */
    uint64_t region_len;   /* bytes */
    uint64_t args;         /* address of the arguments, a multiple of 16 */
    uint64_t args_len;     /* bytes */
    uint64_t out;          /* address for the result, a multiple of 16 */
    uint64_t out_cap;      /* bytes that the result may have */
    uint64_t monotonic_ns; /* nanoseconds of the machine's monotonic clock */
    uint64_t wall_ns;      /* nanoseconds since 1970 */
    uint64_t written;      /* bit (offset / 64) % 64 is set for each line that was written */
    uint8_t caller[32];    /* the identity of the client */
    uint64_t flags;        /* OB_AT_CLIENT */
    uint64_t seed;         /* random bits, the same when the execution is run again */
};
_Static_assert(sizeof(struct ob_call) == 120, "the layout that the node writes");

/* Flag: the entry is executed at the client, and cannot write. */
#define OB_AT_CLIENT 1u

/* Bytes of a line, the unit of write sets. */
#define OB_LINE 64u

/* ---- Host calls -------------------------------------------------------------------------- */

#ifdef OB_NATIVE
#include "outboard_native.h"
#else
#define OB_CALL ((const struct ob_call *)0x10000)
#define OB_HOST(name) __attribute__((import_module("ob"), import_name(#name)))

/* An entry: a function without parameters that a request can name. */
#define OB_ENTRY(name)                                                                           \
    __attribute__((export_name(#name), visibility("default"))) int64_t ob_entry_##name(void);    \
    int64_t ob_entry_##name(void)

/* A function for other modules, in front of its declaration. */
#define OB_EXPORT(name) __attribute__((export_name(#name), visibility("default")))

/* A function of another module, in front of its declaration. `module` is "NAME#HASH", as
 * hashes.h defines it for the shipped modules: OB_IMPORT(OB_MODULE_ALLOC, alloc_take). */
#define OB_IMPORT(module, name) __attribute__((import_module(module), import_name(#name)))

/* All calls below trap when bytes outside the region are named; ob_load64 and the following trap
 * when the offset is no multiple of 8. `to` and `from` are addresses of scratch memory. */

/* Copies out of the region, own writes included. */
OB_HOST(read) void ob_read(uint64_t offset, void *to, uint32_t len);
/* One aligned word, whole even while a peer changes it; own writes included. */
OB_HOST(load64) uint64_t ob_load64(uint64_t offset);
/* Puts bytes into the write set. WRITES. */
OB_HOST(write) void ob_write(uint64_t offset, const void *from, uint32_t len);
/* Puts one aligned word into the write set. WRITES. */
OB_HOST(store64) void ob_store64(uint64_t offset, uint64_t value);
/* Names a word: the region itself, without this execution's writes, must hold this value there at
 * commit. 4096 words at most. */
OB_HOST(expect64) void ob_expect64(uint64_t offset, uint64_t value);
/* Returns the word; if it is `compare`, stores `swap`. Names the word. WRITES. */
OB_HOST(cas64) uint64_t ob_cas64(uint64_t offset, uint64_t compare, uint64_t swap);
/* Returns the word and adds to it. Names the word. WRITES. */
OB_HOST(add64) uint64_t ob_add64(uint64_t offset, uint64_t delta);
/* Ends the execution as the application's error; up to 1024 bytes of text go to the caller. */
OB_HOST(fail) _Noreturn void ob_fail(int32_t code, const void *text, uint32_t len);
/* Adds a line to the execution's log, 4096 bytes in all; the local runner shows it. */
OB_HOST(log) void ob_log(const void *text, uint32_t len);
#endif

/* Ends the execution with a code of the module's own and a literal text. */
#define OB_FAIL(code, text) ob_fail((code), "" text, sizeof(text) - 1)
/* Logs a literal text. */
#define OB_LOG(text) ob_log("" text, sizeof(text) - 1)

/* Small functions of this header. A trap in one of them names the line that has called it. */
#ifdef OB_NATIVE
#define OB_INLINE static inline __attribute__((always_inline, unused))
#else
#define OB_INLINE static inline __attribute__((always_inline, unused, nodebug))
#endif
#define OB_RARELY(condition) __builtin_expect(!!(condition), 0)

/* The code of an execution whose arguments are shorter than its entry needs, or whose result is
 * longer than the caller takes. */
#define OB_E_ARGS 1
#define OB_E_RESULT 2

/* ---- Bytes of scratch memory ------------------------------------------------------------- */

/* The compiler may call these three itself, by these names. In a module of several source files,
 * all but one define OB_PART in front of this header. */
#ifdef OB_NATIVE
#include <string.h>
#elif defined OB_PART
void *memcpy(void *restrict to, const void *restrict from, size_t len);
void *memset(void *to, int byte, size_t len);
int memcmp(const void *left, const void *right, size_t len);
#else
#define OB_LIBC __attribute__((visibility("hidden")))
OB_LIBC void *memcpy(void *restrict to, const void *restrict from, size_t len)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    for (; len >= 8; t += 8, f += 8, len -= 8) {
        uint64_t word;
        __builtin_memcpy(&word, f, 8);
        __builtin_memcpy(t, &word, 8);
    }
    for (; len > 0; len--)
        *t++ = *f++;
    return to;
}

OB_LIBC void *memset(void *to, int byte, size_t len)
{
    unsigned char *t = to;
    uint64_t word = 0x0101010101010101u * (unsigned char)byte;
    for (; len >= 8; t += 8, len -= 8)
        __builtin_memcpy(t, &word, 8);
    for (; len > 0; len--)
        *t++ = (unsigned char)byte;
    return to;
}

OB_LIBC int memcmp(const void *left, const void *right, size_t len)
{
    const unsigned char *l = left, *r = right;
    for (; len >= 8; l += 8, r += 8, len -= 8) {
        uint64_t a, b;
        __builtin_memcpy(&a, l, 8);
        __builtin_memcpy(&b, r, 8);
        if (a != b)
            break;
    }
    for (; len > 0; l++, r++, len--)
        if (*l != *r)
            return *l < *r ? -1 : 1;
    return 0;
}
#endif

/* Up to 8 bytes as a little-endian number. */
OB_INLINE uint64_t ob_tail(const unsigned char *at, uint64_t len)
{
    uint64_t word = 0;
    for (uint64_t i = 0; i < len; i++)
        word |= (uint64_t)at[i] << (8 * i);
    return word;
}

/* One step of the hash below. */
OB_INLINE uint64_t ob_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 32);
}

/* A 64-bit hash of bytes, for tables and for noticing torn reads. Fast, the same on all machines,
 * no defence against keys that are chosen to collide. Little-endian words of 8 bytes, the last one
 * filled with zeroes, then the length. */
OB_INLINE uint64_t ob_hash(uint64_t seed, const void *bytes, uint64_t len)
{
    const unsigned char *at = bytes;
    uint64_t hash = seed;
    uint64_t left = len;
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t word;
        __builtin_memcpy(&word, at, 8);
        hash = ob_mix(hash, word);
    }
    if (left > 0)
        hash = ob_mix(hash, ob_tail(at, left));
    return ob_mix(hash, len);
}

/* ---- The call ---------------------------------------------------------------------------- */

/* The arguments, aligned to 16 bytes, and how many bytes they have. */
OB_INLINE const void *ob_args(void) { return (const void *)(uintptr_t)OB_CALL->args; }
OB_INLINE uint64_t ob_args_len(void) { return OB_CALL->args_len; }

/* The arguments as a structure of at least so many bytes; fails with OB_E_ARGS if they are
 * shorter. What follows the structure (keys, values) is at `(const char *)args + sizeof *args`. */
OB_INLINE const void *ob_args_of(uint64_t len)
{
    if (OB_RARELY(OB_CALL->args_len < len))
        OB_FAIL(OB_E_ARGS, "the arguments are shorter than this entry needs");
    return ob_args();
}
#define OB_ARGS(type) ((const type *)ob_args_of(sizeof(type)))

/* Where the result goes, and how many bytes it may have. */
OB_INLINE void *ob_out(void) { return (void *)(uintptr_t)OB_CALL->out; }
OB_INLINE uint64_t ob_out_cap(void) { return OB_CALL->out_cap; }

/* Room for a result of so many bytes; fails with OB_E_RESULT if the caller takes less. */
OB_INLINE void *ob_out_of(uint64_t len)
{
    if (OB_RARELY(OB_CALL->out_cap < len))
        OB_FAIL(OB_E_RESULT, "the caller has no room for the result");
    return ob_out();
}

/* Puts the result; what it returns is what the entry returns. */
OB_INLINE int64_t ob_result(const void *bytes, uint64_t len)
{
    memcpy(ob_out_of(len), bytes, (size_t)len);
    return (int64_t)len;
}

OB_INLINE uint64_t ob_monotonic_ns(void) { return OB_CALL->monotonic_ns; }
OB_INLINE uint64_t ob_wall_ns(void) { return OB_CALL->wall_ns; }
OB_INLINE uint64_t ob_seed(void) { return OB_CALL->seed; }
OB_INLINE uint64_t ob_region_len(void) { return OB_CALL->region_len; }

/* ---- Reading the region ------------------------------------------------------------------ */

/* Whether some of these bytes may have been written by this execution, so that the mapping does
 * not show them. Rarely true without need. */
OB_INLINE bool ob_is_written(uint64_t offset, uint64_t len)
{
    uint64_t written = OB_CALL->written;
    if (written == 0 || len == 0)
        return false;
    uint64_t first = offset / OB_LINE, lines = (offset + len - 1) / OB_LINE - first + 1;
    if (lines >= 64)
        return true;
    uint64_t bits = ((uint64_t)1 << lines) - 1, at = first % 64;
    return (written & (at ? bits << at | bits >> (64 - at) : bits)) != 0;
}

/* Whether these bytes lie in the region. */
OB_INLINE bool ob_is_inside(uint64_t offset, uint64_t len)
{
    uint64_t all = OB_CALL->region_len;
    return len <= all && offset <= all - len;
}

/* The address of bytes of the region, to read many of them fast. Traps if they are not all there.
 * Shows the region WITHOUT this execution's own writes: read before you write. */
OB_INLINE const void *ob_ptr(uint64_t offset, uint64_t len)
{
    if (OB_RARELY(!ob_is_inside(offset, len)))
        ob_read(offset, ob_out(), len > UINT32_MAX ? UINT32_MAX : (uint32_t)len); /* traps */
    return (const void *)(uintptr_t)(OB_CALL->region_base + offset);
}

/* One aligned word of the region, own writes included; never half of a peer's atomic. */
OB_INLINE uint64_t ob_get64(uint64_t offset)
{
    bool plain = (OB_CALL->written >> (offset / OB_LINE % 64) & 1) == 0;
    if (OB_RARELY(!plain || offset % 8 != 0 || !ob_is_inside(offset, 8)))
        return ob_load64(offset);
    return *(const volatile uint64_t *)(uintptr_t)(OB_CALL->region_base + offset);
}

/* Names a word that was read as `value`: peers must not have changed it at commit. As ob_expect64,
 * but right also when this execution itself may have written the word before it was read; then it
 * must have named it before it wrote. */
OB_INLINE void ob_name64(uint64_t offset, uint64_t value)
{
    if (OB_RARELY(OB_CALL->written >> (offset / OB_LINE % 64) & 1)) {
        uint64_t own = *(const volatile uint64_t *)ob_ptr(offset, 8);
        if (own != value && ob_load64(offset) == value)
            return;
    }
    ob_expect64(offset, value);
}

/* Copies bytes of the region, own writes included. */
OB_INLINE void ob_get(uint64_t offset, void *to, uint64_t len)
{
    if (OB_RARELY(!ob_is_inside(offset, len) || ob_is_written(offset, len)))
        ob_read(offset, to, len > UINT32_MAX ? UINT32_MAX : (uint32_t)len);
    else
        memcpy(to, (const void *)(uintptr_t)(OB_CALL->region_base + offset), (size_t)len);
}

/* Whether bytes of the region, own writes included, are these: without a copy if possible. */
OB_INLINE bool ob_equals(uint64_t offset, const void *bytes, uint64_t len)
{
    if (!OB_RARELY(!ob_is_inside(offset, len) || ob_is_written(offset, len)))
        return memcmp((const void *)(uintptr_t)(OB_CALL->region_base + offset), bytes,
                      (size_t)len) == 0;
    const unsigned char *at = bytes;
    while (len > 0) {
        unsigned char piece[256];
        uint32_t part = len < sizeof piece ? (uint32_t)len : (uint32_t)sizeof piece;
        ob_read(offset, piece, part);
        if (memcmp(piece, at, part) != 0)
            return false;
        offset += part, at += part, len -= part;
    }
    return true;
}

/* ---- Writing the region: all of these WRITE ---------------------------------------------- */

/* Puts one aligned word. */
OB_INLINE void ob_put64(uint64_t offset, uint64_t value) { ob_store64(offset, value); }
/* Puts bytes. */
OB_INLINE void ob_put(uint64_t offset, const void *from, uint64_t len)
{
    ob_write(offset, from, len > UINT32_MAX ? UINT32_MAX : (uint32_t)len);
}

#endif
