/*
 * The time to register a file's pages as a memory region: the paper's Table 1. For each size one
 * line with the medians, in microseconds: open_mmap, create_mmap, memcpy. The argument is
 * a directory on tmpfs.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 101, COLUMNS = 3 };

static const size_t kib[] = { 16, 64, 256, 512, 1024, 2048 };
static struct ibv_pd *pd;
static char path[4096];

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* Maps and registers the file, undoes both, and returns the time of the former since `began`. */
static double registered(int fd, size_t size, double began)
{
	void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct ibv_mr *mr;
	double took;

	if (start == MAP_FAILED)
		err(1, "cannot map %zu bytes", size);
	mr = ibv_reg_mr(pd, start, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ);
	if (!mr)
		err(1, "cannot register %zu bytes", size);
	took = now_us() - began;
	ibv_dereg_mr(mr);
	munmap(start, size);
	close(fd);
	return took;
}

static double open_mmap(size_t size)
{
	double began = now_us();
	int fd = open(path, O_RDWR);

	if (fd < 0)
		err(1, "cannot open %s", path);
	return registered(fd, size, began);
}

static double create_mmap(size_t size)
{
	double began;
	int fd;

	unlink(path);
	began = now_us();
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, size))
		err(1, "cannot make %s", path);
	return registered(fd, size, began);
}

static double copied(void *to, const void *from, size_t size)
{
	double began = now_us();

	memcpy(to, from, size);
	__asm__ volatile("" : : "r"(to) : "memory");
	return now_us() - began;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(size_t size)
{
	static double took[COLUMNS][ROUNDS];
	void *from = malloc(size), *to = malloc(size);
	int fd, round, column;

	if (!from || !to)
		errx(1, "no memory");
	memset(from, 7, size);
	memset(to, 1, size);
	for (round = 0; round < ROUNDS; round++) {
		took[1][round] = create_mmap(size);
		/* The file that is opened is full of data, as a preprocessed source is. */
		fd = open(path, O_WRONLY);
		if (fd < 0 || write(fd, from, size) != (ssize_t)size)
			err(1, "cannot write %s", path);
		close(fd);
		took[0][round] = open_mmap(size);
		took[2][round] = copied(to, from, size);
	}
	printf("%zu", size / 1024);
	for (column = 0; column < COLUMNS; column++) {
		qsort(took[column], ROUNDS, sizeof(double), ascending);
		printf(" %.2f", took[column][ROUNDS / 2]);
	}
	printf("\n");
	free(from);
	free(to);
}

int main(int count, char **words)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;
	size_t index;

	if (count != 2 || !devices || !devices[0] || !(context = ibv_open_device(devices[0])))
		errx(1, "needs a directory, and an RDMA device");
	pd = ibv_alloc_pd(context);
	if (!pd)
		err(1, "no protection domain");
	snprintf(path, sizeof(path), "%s/region", words[1]);
	for (index = 0; index < sizeof(kib) / sizeof(kib[0]); index++)
		measure(kib[index] * 1024);
	unlink(path);
	return 0;
}
