/* Checks that end the program with the place and errno. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...) \
	do { \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__); \
		fprintf(stderr, " (errno %d, %s)\n", errno, strerror(errno)); \
		exit(1); \
	} while (0)

/* The condition must hold. */
#define MUST(condition) \
	do { \
		errno = 0; \
		if (!(condition)) \
			FAIL("not so: %s", #condition); \
	} while (0)

/* The call must return 0. */
#define ZERO(call) MUST((call) == 0)

/* The call must report that this is not supported: by its result, or by NULL or -1 and errno. */
#define UNSUPPORTED(call) \
	do { \
		long result; \
		errno = 0; \
		result = (long)(call); \
		if (result != EOPNOTSUPP && result != ENOSYS && result != -EOPNOTSUPP && \
		    errno != EOPNOTSUPP && errno != ENOSYS) \
			FAIL("%s returned %ld and not that it is unsupported", #call, result); \
	} while (0)

#endif
