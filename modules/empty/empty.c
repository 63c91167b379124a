/* empty.c: a module that does nothing, to measure what an execution itself costs. */
#define OB_MODULE empty
#include "outboard.h"

/* No arguments, no result. Read-only. */
OB_ENTRY(run) { return 0; }
