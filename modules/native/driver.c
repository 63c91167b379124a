/* driver.c: executes entries of modules that are compiled for this machine, as lines of standard
 * input say, and prints what comes of each: for tests that compare with a model or with a node.
 *
 *   region LEN                  a new region of zero bytes       -> ok
 *   time MONOTONIC WALL SEED    the moment of what follows, ns   -> ok
 *   MODULE.ENTRY [HEX]          execute, with these arguments    -> done HEX | failed CODE TEXT
 *                                                                   | trap TEXT | no entry
 *   write OFFSET HEX            as a peer's one-sided Write      -> ok
 *   read OFFSET LEN                                              -> done HEX
 *   sum                         checksum of the region           -> sum HEX
 *   dump FILE                   the region's bytes               -> ok
 *
 * One line of output for each line of input. A line that is none of these ends the program with 2.
 */
#define OB_MODULE driver
#include "../include/outboard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static char line[2u << 20];
static unsigned char bytes[1u << 20];

_Noreturn static void wrong(const char *why)
{
    fprintf(stderr, "driver: %s in the line: %.80s\n", why, line);
    exit(2);
}

static uint64_t number(char **at)
{
    char *end;
    uint64_t value = strtoull(*at, &end, 0);
    if (end == *at)
        wrong("a number is missing");
    *at = end;
    return value;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static uint64_t hex(const char *at)
{
    uint64_t len = 0;
    while (*at == ' ')
        at++;
    for (; digit(at[0]) >= 0 && digit(at[1]) >= 0; at += 2)
        bytes[len++] = (unsigned char)(digit(at[0]) << 4 | digit(at[1]));
    if (*at != 0)
        wrong("no hexadecimal digits");
    return len;
}

static void print_hex(const char *word, const unsigned char *from, uint64_t len)
{
    fputs(word, stdout);
    for (uint64_t i = 0; i < len; i++) {
        putchar("0123456789abcdef"[from[i] >> 4]);
        putchar("0123456789abcdef"[from[i] & 15]);
    }
    putchar('\n');
}

static unsigned char *place(uint64_t offset, uint64_t len)
{
    if (!ob_is_inside(offset, len))
        wrong("bytes outside the region");
    return ob_native_bytes() + offset;
}

static void execute(char *name, char *rest)
{
    char *entry = strchr(name, '.');
    if (entry == NULL)
        wrong("no such command");
    *entry++ = 0;
    uint64_t len = hex(rest);
    struct ob_native_outcome outcome = ob_native_execute(name, entry, bytes, len);
    switch (outcome.end) {
    case OB_NATIVE_DONE:
        print_hex("done ", outcome.result, outcome.len);
        break;
    case OB_NATIVE_FAILED:
        printf("failed %" PRId64 " %.*s\n", outcome.code, (int)outcome.len,
               (const char *)outcome.result);
        break;
    case OB_NATIVE_TRAPPED:
        printf("trap %.*s\n", (int)outcome.len, (const char *)outcome.result);
        break;
    case OB_NATIVE_NO_ENTRY:
        puts("no entry");
        break;
    }
}

static void dump(const char *name)
{
    FILE *file = fopen(name, "wb");
    uint64_t len = ob_region_len();
    if (file == NULL || fwrite(ob_native_bytes(), 1, len, file) != len || fclose(file) != 0)
        wrong("the file cannot be written");
}

/* The commands that answer "ok"; false if it is none of them. */
static bool settle(const char *word, char *rest)
{
    if (strcmp(word, "region") == 0) {
        if (!ob_native_region(number(&rest)))
            wrong("not enough memory");
    } else if (strcmp(word, "time") == 0) {
        uint64_t monotonic = number(&rest), wall = number(&rest);
        ob_native_moment(monotonic, wall, number(&rest));
    } else if (strcmp(word, "write") == 0) {
        uint64_t offset = number(&rest), len = hex(rest);
        memcpy(place(offset, len), bytes, len);
    } else if (strcmp(word, "dump") == 0) {
        dump(rest);
    } else {
        return false;
    }
    puts("ok");
    return true;
}

int main(void)
{
    if (!ob_native_region(1u << 20))
        return 1;
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *rest = line + strcspn(line, " \n");
        line[strcspn(line, "\n")] = 0;
        if (*rest != 0)
            *rest++ = 0;
        if (strcmp(line, "read") == 0) {
            uint64_t offset = number(&rest), len = number(&rest);
            print_hex("done ", place(offset, len), len);
        } else if (strcmp(line, "sum") == 0) {
            printf("sum %016" PRIx64 "\n", ob_native_checksum());
        } else if (!settle(line, rest)) {
            execute(line, rest);
        }
        fflush(stdout);
    }
    return 0;
}
