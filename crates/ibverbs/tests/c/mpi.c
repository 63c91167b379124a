/* An MPI program that checks what it receives: messages of many sizes both ways at once, from
 * unknown senders, and collective operations. Any number of ranks from 2. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (4 << 20)

static int rank, ranks;

static void check(int good, const char *what, long detail)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: %s is wrong (%ld)\n", rank, what, detail);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte(unsigned int from, unsigned int size, unsigned int at)
{
	return (unsigned char)(from * 31 + size * 7 + at);
}

/* Each rank sends to the next and receives from the one before, at the same time. */
static void ring(unsigned char *out, unsigned char *in)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

	for (unsigned int size = 1; size <= MOST; size *= 4) {
		for (unsigned int at = 0; at < size; at++)
			out[at] = byte(rank, size, at);
		memset(in, 0, size);
		MPI_Request requests[2];
		MPI_Irecv(in, size, MPI_BYTE, before, size, MPI_COMM_WORLD, &requests[0]);
		MPI_Isend(out, size, MPI_BYTE, next, size, MPI_COMM_WORLD, &requests[1]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		for (unsigned int at = 0; at < size; at++)
			check(in[at] == byte(before, size, at), "a byte of the ring", at);
	}
}

/* Rank 0 takes messages as they come; the others do not wait for it. */
static void from_anybody(void)
{
	enum { EACH = 200 };

	if (rank != 0) {
		for (int message = 0; message < EACH; message++)
			MPI_Send(&message, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
		return;
	}
	int *expected = calloc(ranks, sizeof *expected);
	for (int left = EACH * (ranks - 1); left > 0; left--) {
		int message;
		MPI_Status status;
		MPI_Recv(&message, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
		check(message == expected[status.MPI_SOURCE]++, "the order of messages", message);
	}
	free(expected);
}

static void together(void)
{
	long mine = rank + 1, sum = 0;
	MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	check(sum == (long)ranks * (ranks + 1) / 2, "the sum", sum);

	int *all = malloc(ranks * sizeof *all), *row = malloc(ranks * sizeof *row);
	for (int to = 0; to < ranks; to++)
		row[to] = rank * 1000 + to;
	MPI_Alltoall(row, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		check(all[from] == from * 1000 + rank, "an exchange", from);
	free(all);
	free(row);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	check(ranks >= 2, "the number of ranks", ranks);
	unsigned char *out = malloc(MOST), *in = malloc(MOST);
	check(out && in, "memory", MOST);
	ring(out, in);
	from_anybody();
	together();
	free(out);
	free(in);
	if (rank == 0)
		printf("%d ranks agree\n", ranks);
	MPI_Finalize();
	return 0;
}
