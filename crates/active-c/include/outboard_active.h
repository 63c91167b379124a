/* outboard_active.h: a client of active code.
 *
 * A node of Outboard has regions of memory. A client executes entries of WebAssembly modules next
 * to them, all or nothing each, and reads, writes and compares-and-swaps the same memory by plain
 * one-sided operations. C99, or C++98 and later. Link with -loutboard_active.
 *
 * Statuses. Every function that returns int returns an outboard_active_status; 0 is success.
 *     outboard_active_message() then says in words who is at fault, what was expected and found,
 *     and what to do. UNKNOWN means that what was asked may have been done or not; with every
 *     other status but OK, TRUNCATED and CLOSED nothing has changed at the node.
 * Arguments. A pointer that must not be NULL and is, text that is no UTF-8, and a client that is
 *     closed are errors, never the end of the process. A pointer to too little memory cannot be
 *     told. Text ends with a zero byte. Nothing that is passed in is kept after the call, except
 *     for memory that outboard_active_expose() was given.
 * Ownership. The library allocates nothing that the program frees, except for clients, which
 *     outboard_active_close() ends.
 * Threads. All functions may be called from any thread. Inside one client there is one thread at a
 *     time: others wait until its call is over. Threads that shall not wait for each other have a
 *     client each. outboard_active_close() waits for nobody's call: it ends it.
 *     A thread is not cancelled (pthread_cancel) inside the library.
 * Signals. Calls go on after a signal (EINTR is not seen). No SIGPIPE is raised. The library
 *     handles no signal, with two exceptions, which pass on what is not theirs: exposed memory
 *     (SIGSEGV, SIGBUS), and execution at the client (SIGSEGV, SIGILL, SIGFPE, SIGBUS). They are
 *     set up when first used. A client has a thread of its own, which takes no signals.
 * fork. A child process does not have its parent's clients (status FORKED) and may open its own.
 *     The parent's go on. All descriptors are closed by exec.
 */
#ifndef OUTBOARD_ACTIVE_H
#define OUTBOARD_ACTIVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call came to. Numbers never change their meaning; later versions may add some. */
enum outboard_active_status {
    OUTBOARD_ACTIVE_OK = 0,

    /* What became of an execution. */
    OUTBOARD_ACTIVE_FAILED = 1,     /* the module says so: outcome.module_code, and its words */
    OUTBOARD_ACTIVE_TRAP = 2,       /* the module did something wrong: the message says where */
    OUTBOARD_ACTIVE_TIME_LIMIT = 3, /* it took longer than limit_us, or than the node allows */
    OUTBOARD_ACTIVE_KILLED = 4,     /* somebody has ended it */
    OUTBOARD_ACTIVE_CONFLICT = 5,   /* others changed the region each time: try again */
    OUTBOARD_ACTIVE_BUSY = 6,       /* too much of this user's is under way: try again later */
    OUTBOARD_ACTIVE_REFUSED = 7,    /* the node refuses; also for other calls than executions */
    OUTBOARD_ACTIVE_NO_MODULE = 8,  /* neither the node nor this client has the module */
    OUTBOARD_ACTIVE_NO_ENTRY = 9,   /* the module has no such entry */
    OUTBOARD_ACTIVE_UNKNOWN = 10,   /* it may have been done, once, or not; or still be */
    OUTBOARD_ACTIVE_NODE = 11,      /* the node's machine is at fault */
    OUTBOARD_ACTIVE_TRUNCATED = 12, /* executed, but outcome.result_size is above the capacity */

    /* Why a call has no outcome. */
    OUTBOARD_ACTIVE_AGAIN = 32,       /* no execution is over yet */
    OUTBOARD_ACTIVE_ARGUMENT = 33,    /* the program's mistake, which the message names */
    OUTBOARD_ACTIVE_CLOSED = 34,      /* no client, or closed; or closed while the call waited,
                                         and then it is not known what came of it */
    OUTBOARD_ACTIVE_FORKED = 35,      /* the client belongs to the parent process */
    OUTBOARD_ACTIVE_UNREACHABLE = 36, /* the node was not reached in time; nothing was sent */
    OUTBOARD_ACTIVE_TIMED_OUT = 37,   /* the node did not answer in time; nothing has changed */
    OUTBOARD_ACTIVE_NOT_LOADED = 38,  /* the module is not good, or lacks one that it imports */
    OUTBOARD_ACTIVE_FULL = 39,        /* too many calls are under way: poll first */
    OUTBOARD_ACTIVE_OUTSIDE = 40,     /* not inside the region, or the exposed memory */
    OUTBOARD_ACTIVE_FILE = 41,        /* a file cannot be read */
    OUTBOARD_ACTIVE_KEY = 42,         /* there is no usable key */
    OUTBOARD_ACTIVE_MACHINE = 43,     /* this machine: memory, descriptors, threads */
    OUTBOARD_ACTIVE_BUG = 44          /* a fault of the library: close the client, report it */
};

/* Where an execution is made. */
enum outboard_active_where {
    OUTBOARD_ACTIVE_REMOTE = 0, /* at the node */
    OUTBOARD_ACTIVE_LOCAL = 1,  /* at the client, if the entry only reads and the client knows the
                                   module; otherwise at the node */
    OUTBOARD_ACTIVE_AUTO = 2    /* where it took less time of late */
};

/* What a thread does while it waits for an answer. */
enum outboard_active_wait {
    OUTBOARD_ACTIVE_ADAPTIVE = 0, /* spins for some 50 microseconds while answers come soon */
    OUTBOARD_ACTIVE_BLOCK = 1,    /* sleeps at once: costs no processor time */
    OUTBOARD_ACTIVE_SPIN = 2      /* spins: the lowest latency, for a whole processor */
};

enum outboard_active_limits {
    OUTBOARD_ACTIVE_INLINE_MAX = 49152, /* bytes of arguments, and of a result without a buffer */
    OUTBOARD_ACTIVE_NAME_MAX = 255,     /* bytes of a name, without the zero byte */
    OUTBOARD_ACTIVE_HASH_SIZE = 32,     /* bytes of a hash */
    OUTBOARD_ACTIVE_HASH_TEXT = 65      /* bytes of a hash as text, with the zero byte */
};

/* A client: one connection to one node, made again by itself when it is lost. What was submitted
 * when it was lost is asked again, and executed once at most. */
typedef struct outboard_active outboard_active;

/* Which module: the BLAKE3 hash of its bytes. */
typedef struct outboard_active_hash {
    uint8_t bytes[32];
} outboard_active_hash;

/* How to open a client. Begin with OUTBOARD_ACTIVE_OPTIONS_INIT, which has the defaults. */
typedef struct outboard_active_options {
    size_t size;         /* sizeof(outboard_active_options) */
    const char *key;     /* path of the cluster's key; NULL: as the command `outboard` finds it
                            ($OUTBOARD_KEY, else ~/.config/outboard/key) */
    uint32_t timeout_ms; /* how long any call may take, connecting again included; 0: 10,000 */
    uint32_t in_flight;  /* calls submitted whose outcome is not taken, at most; 0: 1,024 */
    uint32_t wait;       /* an outboard_active_wait */
    uint32_t reserved;   /* 0 */
} outboard_active_options;
#define OUTBOARD_ACTIVE_OPTIONS_INIT { sizeof(outboard_active_options), NULL, 0, 0, 0, 0 }

/* What to execute. Begin with OUTBOARD_ACTIVE_CALL_INIT; region, module and entry must be set. */
typedef struct outboard_active_call {
    size_t size;          /* sizeof(outboard_active_call) */
    const outboard_active_hash *module;
    const char *entry;    /* the entry's name */
    const void *args;     /* its arguments, at most OUTBOARD_ACTIVE_INLINE_MAX bytes */
    size_t args_size;
    uint32_t region;      /* of outboard_active_attach() */
    uint32_t where;       /* an outboard_active_where; submit() takes REMOTE only */
    uint32_t limit_us;    /* microseconds that it may take at the node; 0: what the node allows */
    uint32_t buffer;      /* of outboard_active_expose(): where the result goes; 0: with the outcome */
    size_t buffer_offset; /* bytes of the exposed memory before the result's place ... */
    size_t buffer_size;   /* ... and in it */
} outboard_active_call;
#define OUTBOARD_ACTIVE_CALL_INIT \
    { sizeof(outboard_active_call), NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0 }

/* What became of an execution. */
typedef struct outboard_active_outcome {
    uint64_t ticket;      /* which of the submitted calls; 0: of outboard_active_execute() */
    void *user;           /* what was given to outboard_active_submit() */
    uint64_t result_size; /* bytes of the result, in `result` or in the exposed memory */
    int32_t status;       /* OK, or one of FAILED to TRUNCATED */
    int32_t module_code;  /* with FAILED: the module's number */
    uint32_t where;       /* where it was executed: REMOTE or LOCAL */
    uint32_t reserved;
} outboard_active_outcome;

/* --- A client ---------------------------------------------------------------------------------- */

/* Opens a client of a node, "HOST" or "HOST:PORT", and connects. `options` may be NULL. Reads the
 * environment, as the command `outboard` does, and the user's key and identity.
 * ARGUMENT, KEY, UNREACHABLE, MACHINE; then *client is NULL. */
int outboard_active_open(const char *node, const outboard_active_options *options,
                         outboard_active **client);

/* Closes a client, at any moment. Of calls without an outcome it is not known whether they were
 * executed. A call of another thread's that waits in this client ends with CLOSED; this waits for
 * that, some 50 ms, or seconds while that thread connects. Afterwards nothing reaches exposed
 * memory any more. CLOSED if it was closed already. */
int outboard_active_close(outboard_active *client);

/* A descriptor for poll(2), epoll(7) and their like: readable when outboard_active_poll() has
 * something to do, once that has returned AGAIN. It stays the same, belongs to the client, and must
 * not be read, written or closed. */
int outboard_active_descriptor(outboard_active *client, int *descriptor);

/* What was wrong with this thread's latest call that did not return OK or AGAIN; with an execution,
 * what the module or the node says. Valid until this thread's next call; never NULL. */
const char *outboard_active_message(void);

/* A status's name, such as "TRAP"; never NULL. */
const char *outboard_active_status_name(int status);

/* --- Regions ----------------------------------------------------------------------------------- */

/* Has the node expose a region, by its name, to this client; *region is its number here, never 0.
 * REFUSED (there is none, or not for this user), UNREACHABLE, TIMED_OUT. */
int outboard_active_attach(outboard_active *client, const char *name, uint32_t *region);

/* Gives a region up. Calls on it that were sent and have no outcome get UNKNOWN. */
int outboard_active_detach(outboard_active *client, uint32_t region);

/* A region's bytes, and 1 if this user may write into it, else 0. Either pointer may be NULL. */
int outboard_active_region(outboard_active *client, uint32_t region, uint64_t *size, int *may_write);

/* Reads `size` bytes at `at`: one RDMA Read, which no code at the node takes part in.
 * OUTSIDE, UNREACHABLE, TIMED_OUT. */
int outboard_active_read(outboard_active *client, uint32_t region, uint64_t at, void *into,
                         size_t size);

/* Writes: one RDMA Write. What this client asks for later finds the bytes.
 * OUTSIDE, REFUSED (the user may only read), UNREACHABLE, UNKNOWN (they may be there, or not). */
int outboard_active_write(outboard_active *client, uint32_t region, uint64_t at, const void *bytes,
                          size_t size);

/* Replaces the 8 bytes at `at`, a multiple of 8, by `swap` if they are `compare` (the node's byte
 * order). *found, if not NULL, is what was there: it was replaced if that equals `compare`.
 * As outboard_active_write(). */
int outboard_active_compare_swap(outboard_active *client, uint32_t region, uint64_t at,
                                 uint64_t compare, uint64_t swap, uint64_t *found);

/* Adds to the 8 bytes at `at`, a multiple of 8. *found, if not NULL, is what was there before.
 * As outboard_active_write(). */
int outboard_active_fetch_add(outboard_active *client, uint32_t region, uint64_t at, uint64_t add,
                              uint64_t *found);

/* Has the node write a region to its file, if it has one. REFUSED, TIMED_OUT, UNREACHABLE. */
int outboard_active_flush(outboard_active *client, uint32_t region);

/* --- Modules ----------------------------------------------------------------------------------- */

/* Makes the client know a module, so that it is loaded when an execution, or another module, needs
 * it and the node does not have it. Asks the node nothing. `name` is for people. */
int outboard_active_know(outboard_active *client, const char *name, const void *bytes, size_t size,
                         outboard_active_hash *module);

/* As outboard_active_know(), the module in a file; also those beside it (*.wasm), which it may
 * import. FILE. */
int outboard_active_know_file(outboard_active *client, const char *path,
                              outboard_active_hash *module);

/* Loads a known module now rather than when it is needed. NOT_LOADED, ARGUMENT (it is not known),
 * UNREACHABLE, TIMED_OUT. */
int outboard_active_load(outboard_active *client, const outboard_active_hash *module);

/* Drops a module that this user has loaded at the node, and forgets it. REFUSED. */
int outboard_active_drop(outboard_active *client, const outboard_active_hash *module);

/* A hash as its 64 hexadecimal digits, and back. */
int outboard_active_hash_parse(const char *text, outboard_active_hash *module);
int outboard_active_hash_format(const outboard_active_hash *module,
                                char text[OUTBOARD_ACTIVE_HASH_TEXT]);

/* --- Executions -------------------------------------------------------------------------------- */

/* Executes and waits for the outcome, `timeout_ms` at most (0: the client's), and returns its
 * status; `outcome` may be NULL. Of the result `capacity` bytes at most are copied to `result`,
 * which may be NULL if that is 0. UNKNOWN also if there was no answer in time: it may still be
 * executed. With LOCAL and AUTO, outboard_active_close() waits for an execution at the client. */
int outboard_active_execute(outboard_active *client, const outboard_active_call *call,
                            uint32_t timeout_ms, void *result, size_t capacity,
                            outboard_active_outcome *outcome);

/* Begins an execution. Its outcome, with `user`, comes from outboard_active_poll(); *ticket, if
 * `ticket` is not NULL, names it until then. Calls that are submitted one after the other travel
 * together with the next poll, and may be executed in another order. FULL, ARGUMENT, OUTSIDE. */
int outboard_active_submit(outboard_active *client, const outboard_active_call *call, void *user,
                           uint64_t *ticket);

/* Takes one outcome of a submitted call and returns OK, whatever its status: see outcome->status,
 * and outboard_active_message() if that is not OK. Without one, waits `timeout_ms` (0: not at all;
 * negative: for ever, if a call is under way) and returns AGAIN. The result is copied as in
 * outboard_active_execute(). Every submitted call has an outcome within the client's timeout. When
 * the connection is lost this makes it again, which may take seconds even if `timeout_ms` is 0. */
int outboard_active_poll(outboard_active *client, int timeout_ms, void *result, size_t capacity,
                         outboard_active_outcome *outcome);

/* Ends the execution of a submitted call, whose outcome is then KILLED. REFUSED if it is not under
 * way any more. */
int outboard_active_kill(outboard_active *client, uint64_t ticket);

/* Lets the node write results into `size` bytes of the program's memory, by RDMA Write; *buffer is
 * their number, never 0. The memory must stay until outboard_active_withdraw() or
 * outboard_active_close() has returned. What it has is right once the call's outcome says so. */
int outboard_active_expose(outboard_active *client, void *memory, size_t size, uint32_t *buffer);

/* Takes exposed memory back. Once this has returned the node does not reach it any more; calls that
 * are under way and whose results go there do not succeed. */
int outboard_active_withdraw(outboard_active *client, uint32_t buffer);

#ifdef __cplusplus
}
#endif

#endif
