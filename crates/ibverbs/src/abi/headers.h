/* What `cargo xtask bindings` reads: every header with entries of ours. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
