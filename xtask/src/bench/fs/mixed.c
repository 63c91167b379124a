/*
 * Mixed work on a directory, as programs do it: files are made, looked at, read, renamed, listed
 * and removed. Ten operations a turn.
 *
 *   mixed DIRECTORY SECONDS      prints operations and seconds
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, FILES = 16 };

static char bytes[BYTES];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void put(const char *name)
{
    int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (file < 0 || write(file, bytes, BYTES) != BYTES || close(file) != 0)
        fail(name);
}

static void get(const char *name)
{
    int file = open(name, O_RDONLY);
    if (file < 0 || read(file, bytes, BYTES) != BYTES || close(file) != 0)
        fail(name);
}

static void look(const char *name)
{
    struct stat found;
    if (stat(name, &found) != 0 || found.st_size != BYTES)
        fail(name);
}

static void list(void)
{
    DIR *all = opendir(".");
    int names = 0;
    while (all != NULL && readdir(all) != NULL)
        names++;
    if (all == NULL || names < 3 || closedir(all) != 0)
        fail("a list");
}

/* Two made, two looked at, three read, one listed, one renamed, one removed. */
static void turn(unsigned long number)
{
    char one[32], two[32], other[32];
    snprintf(one, sizeof one, "file%lu", number % FILES);
    snprintf(two, sizeof two, "file%lu", (number + FILES / 2) % FILES);
    snprintf(other, sizeof other, "moved%lu", number % FILES);
    put(one);
    put(two);
    look(one);
    look(two);
    get(one);
    get(two);
    get(one);
    list();
    if (rename(one, other) != 0)
        fail(one);
    if (unlink(other) != 0)
        fail(other);
}

int main(int count, char **words)
{
    if (count != 3 || chdir(words[1]) != 0)
        fail("mixed DIRECTORY SECONDS");
    double begun = now(), end = begun + atof(words[2]);
    unsigned long turns = 0;
    while (now() < end)
        turn(turns++);
    printf("%lu %.3f\n", turns * 10, now() - begun);
    return 0;
}
