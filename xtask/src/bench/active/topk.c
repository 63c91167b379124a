/*
 * The module topk as an ordinary program: the same scan of the same 100 MB, compiled for this
 * machine. Linked with modules/topk/topk.c and modules/native/host.c.
 *
 *     topk MILLISECONDS
 *
 * Prints one line of JSON: the middle time of a scan in microseconds, and the result.
 */
#define OB_MODULE bench
#include "topk/topk.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROOT 4096u
#define BYTES 100000000u
#define RECORD 16u
#define BEST 10u
#define SCANS_MAX 100000u

static double times[SCANS_MAX];

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int by_size(const void *one, const void *other)
{
	const double a = *(const double *)one, b = *(const double *)other;
	return (a > b) - (a < b);
}

/* The records that active_load makes. */
static void fill(void)
{
	uint64_t state = 88172645463325252u, *at = (uint64_t *)(ob_native_bytes() + ROOT);
	for (uint64_t word = 0; word < BYTES / 8; word++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		at[word] = state;
	}
}

int main(int count, char **words)
{
	const struct topk_args args = {
		.offset = ROOT, .number = BYTES / RECORD, .record_len = RECORD, .k = BEST,
		.predicate = TOPK_KEY_RANGE, .a = 0, .b = UINT64_MAX / 2,
	};
	const double until = now() + (count == 2 ? strtod(words[1], NULL) : 0) * 1000;
	struct ob_native_outcome outcome = { .end = OB_NATIVE_NO_ENTRY };
	size_t scans = 0;

	if (!ob_native_region(ROOT + BYTES))
		errx(1, "no memory for the region");
	fill();
	while (scans == 0 || (now() < until && scans < SCANS_MAX)) {
		const double start = now();
		outcome = ob_native_execute("topk", "top", &args, sizeof args);
		times[scans++] = now() - start;
	}
	if (outcome.end != OB_NATIVE_DONE)
		errx(1, "the scan failed");
	qsort(times, scans, sizeof *times, by_size);
	printf("{\"p50_us\": %.1f, \"result\": \"", times[scans / 2]);
	for (uint64_t at = 0; at < outcome.len; at++)
		printf("%02x", ((const unsigned char *)outcome.result)[at]);
	puts("\"}");
	return 0;
}
