/* host.c: the host of modules that are compiled for this machine: a fake region, a write set that
 * is applied or dropped, and the host calls with the same limits and traps as a node's.
 *
 * One execution at a time, no peers: named words (ob_expect64) can therefore never have changed.
 */
#define OB_MODULE host
#include "../include/outboard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* As the node has them: bytes of arguments and result together, written lines, named words. */
#define SCRATCH (900u << 10)
#define RESULT_MAX (256u << 10)
#define LINES_MAX ((4u << 20) / OB_LINE)
#define EXPECTED_MAX 4096u
#define LOG_MAX 4096u

struct line {
    uint64_t number; /* the offset divided by OB_LINE */
    uint64_t mask;   /* which bytes are written */
    unsigned char bytes[OB_LINE];
};

struct ob_call ob_native_call;

static unsigned char *region;
static struct line *lines;
static uint32_t *slots; /* open addressing: a line's number + 1 in `lines`, 0 is empty */
static uint32_t line_count, expected_count;
static uint64_t log_len;
static _Alignas(16) unsigned char scratch[SCRATCH];
static char text[1024];
static struct ob_native_outcome outcome;
static jmp_buf ended;

#define SLOTS (LINES_MAX * 2)

_Noreturn static void trap(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    outcome = (struct ob_native_outcome){OB_NATIVE_TRAPPED, 0, text, strlen(text)};
    longjmp(ended, 1);
}

static void check(uint64_t offset, uint64_t len)
{
    if (!ob_is_inside(offset, len))
        trap("a host call reaches %llu bytes at offset %llu of a region of %llu",
             (unsigned long long)len, (unsigned long long)offset,
             (unsigned long long)ob_native_call.region_len);
}

static void check_word(uint64_t offset)
{
    if (offset % 8 != 0)
        trap("a host call for a word at offset %llu, no multiple of 8",
             (unsigned long long)offset);
    check(offset, 8);
}

static struct line *find(uint64_t number, bool make)
{
    uint64_t at = number * 0x9e3779b97f4a7c15u >> 40;
    for (;; at++) {
        uint32_t *slot = &slots[at % SLOTS];
        if (*slot != 0 && lines[*slot - 1].number == number)
            return &lines[*slot - 1];
        if (*slot != 0)
            continue;
        if (!make)
            return NULL;
        if (line_count >= LINES_MAX)
            trap("the module writes more lines of %u bytes than an execution may", OB_LINE);
        struct line *line = &lines[line_count++];
        line->number = number, line->mask = 0;
        *slot = line_count;
        ob_native_call.written |= (uint64_t)1 << number % 64;
        return line;
    }
}

void ob_read(uint64_t offset, void *to, uint32_t len)
{
    check(offset, len);
    memcpy(to, region + offset, len);
    for (uint64_t i = 0; i < len;) {
        uint64_t at = (offset + i) % OB_LINE, part = OB_LINE - at;
        part = part < len - i ? part : len - i;
        const struct line *line = find((offset + i) / OB_LINE, false);
        for (uint64_t k = 0; line != NULL && k < part; k++)
            if (line->mask >> (at + k) & 1)
                ((unsigned char *)to)[i + k] = line->bytes[at + k];
        i += part;
    }
}

uint64_t ob_load64(uint64_t offset)
{
    uint64_t word;
    check_word(offset);
    ob_read(offset, &word, 8);
    return word;
}

void ob_write(uint64_t offset, const void *from, uint32_t len)
{
    check(offset, len);
    for (uint64_t i = 0; i < len; i++) {
        uint64_t at = (offset + i) % OB_LINE;
        struct line *line = find((offset + i) / OB_LINE, true);
        line->bytes[at] = ((const unsigned char *)from)[i];
        line->mask |= (uint64_t)1 << at;
    }
}

void ob_store64(uint64_t offset, uint64_t value)
{
    check_word(offset);
    ob_write(offset, &value, 8);
}

void ob_expect64(uint64_t offset, uint64_t value)
{
    (void)value;
    check_word(offset);
    if (expected_count++ >= EXPECTED_MAX)
        trap("the module expects more than %u words", EXPECTED_MAX);
}

uint64_t ob_cas64(uint64_t offset, uint64_t compare, uint64_t swap)
{
    uint64_t old = ob_load64(offset);
    ob_expect64(offset, old);
    if (old == compare)
        ob_store64(offset, swap);
    return old;
}

uint64_t ob_add64(uint64_t offset, uint64_t delta)
{
    uint64_t old = ob_load64(offset);
    ob_expect64(offset, old);
    ob_store64(offset, old + delta);
    return old;
}

_Noreturn void ob_fail(int32_t code, const void *words, uint32_t len)
{
    len = len < sizeof text ? len : (uint32_t)sizeof text;
    memcpy(text, words, len);
    outcome = (struct ob_native_outcome){OB_NATIVE_FAILED, code, text, len};
    longjmp(ended, 1);
}

void ob_log(const void *words, uint32_t len)
{
    uint64_t room = LOG_MAX - log_len;
    uint32_t part = len < room ? len : (uint32_t)room;
    fprintf(stderr, "log: %.*s\n", (int)part, (const char *)words);
    log_len += part;
}

bool ob_native_region(uint64_t len)
{
    free(region);
    if (lines == NULL)
        lines = malloc(sizeof *lines * LINES_MAX);
    if (slots == NULL)
        slots = malloc(sizeof *slots * SLOTS);
    region = calloc(1, len + OB_LINE);
    ob_native_call.region_base = (uint64_t)(uintptr_t)region;
    ob_native_call.region_len = len;
    return region != NULL && lines != NULL && slots != NULL;
}

unsigned char *ob_native_bytes(void) { return region; }

void ob_native_moment(uint64_t monotonic_ns, uint64_t wall_ns, uint64_t seed)
{
    ob_native_call.monotonic_ns = monotonic_ns;
    ob_native_call.wall_ns = wall_ns;
    ob_native_call.seed = seed;
}

uint64_t ob_native_checksum(void)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < ob_native_call.region_len; i++)
        hash = (hash ^ region[i]) * 0x100000001b3u;
    return hash;
}

static void begin(const void *args, uint64_t len)
{
    uint64_t out = (len + 15) & ~(uint64_t)15, left = SCRATCH - out;
    memcpy(scratch, args, len);
    memset(scratch + out, 0, left);
    memset(slots, 0, sizeof *slots * SLOTS);
    line_count = expected_count = 0, log_len = 0;
    ob_native_call.written = 0;
    ob_native_call.args = (uint64_t)(uintptr_t)scratch;
    ob_native_call.args_len = len;
    ob_native_call.out = (uint64_t)(uintptr_t)(scratch + out);
    ob_native_call.out_cap = left < RESULT_MAX ? left : RESULT_MAX;
}

static void apply(void)
{
    for (uint32_t i = 0; i < line_count; i++)
        for (uint64_t at = 0; at < OB_LINE; at++)
            if (lines[i].mask >> at & 1)
                region[lines[i].number * OB_LINE + at] = lines[i].bytes[at];
}

static void run(const struct ob_native_entry *entry)
{
    if (setjmp(ended) != 0)
        return;
    int64_t len = entry->run();
    if (len < 0) {
        outcome = (struct ob_native_outcome){OB_NATIVE_FAILED, len, "", 0};
        return;
    }
    if ((uint64_t)len > ob_native_call.out_cap)
        trap("the entry returned %lld as its result's length, and has room for %llu",
             (long long)len, (unsigned long long)ob_native_call.out_cap);
    outcome = (struct ob_native_outcome){
        OB_NATIVE_DONE, 0, (const void *)(uintptr_t)ob_native_call.out, (uint64_t)len};
}

extern const struct ob_native_entry __start_ob_entries[], __stop_ob_entries[];

struct ob_native_outcome ob_native_execute(const char *module, const char *entry, const void *args,
                                           uint64_t len)
{
    const struct ob_native_entry *found = __start_ob_entries;
    while (found < __stop_ob_entries
           && (strcmp(found->module, module) != 0 || strcmp(found->name, entry) != 0))
        found++;
    if (found == __stop_ob_entries || len > SCRATCH / 2)
        return (struct ob_native_outcome){OB_NATIVE_NO_ENTRY, 0, "", 0};
    begin(args, len);
    run(found);
    if (outcome.end == OB_NATIVE_DONE)
        apply();
    return outcome;
}
