/* outboard_native.h: the module interface on this machine, without a node (OB_NATIVE).
 *
 * Included by outboard.h only. A module that is compiled with -DOB_NATIVE -DOB_MODULE=name and
 * linked with native/host.c is an ordinary program: the region is a fake one, the write set a list
 * of lines in plain C. Works with gcc and clang on ELF systems of 64 bits. It is not what a node
 * runs and protects nothing: stray pointers are this process's.
 */
#ifndef OUTBOARD_NATIVE_H
#define OUTBOARD_NATIVE_H

/* The call of the execution under way. */
extern struct ob_call ob_native_call;
#define OB_CALL ((const struct ob_call *)&ob_native_call)

/* Entries are found by the linker: all of them stand in one section. */
struct ob_native_entry {
    const char *module, *name;
    int64_t (*run)(void);
};

#define OB_STRING_OF(text) #text
#define OB_STRING(text) OB_STRING_OF(text)
#define OB_JOIN_OF(a, b) ob_entry_##a##_##b
#define OB_JOIN(a, b) OB_JOIN_OF(a, b)

#define OB_ENTRY(name)                                                                           \
    static int64_t OB_JOIN(OB_MODULE, name)(void);                                               \
    static const struct ob_native_entry OB_JOIN(OB_MODULE, name##_entry)                         \
        __attribute__((used, section("ob_entries"), aligned(8))) = {                             \
            OB_STRING(OB_MODULE), #name, OB_JOIN(OB_MODULE, name)};                              \
    static int64_t OB_JOIN(OB_MODULE, name)(void)

#define OB_EXPORT(name)
#define OB_IMPORT(module, name)

void ob_read(uint64_t offset, void *to, uint32_t len);
uint64_t ob_load64(uint64_t offset);
void ob_write(uint64_t offset, const void *from, uint32_t len);
void ob_store64(uint64_t offset, uint64_t value);
void ob_expect64(uint64_t offset, uint64_t value);
uint64_t ob_cas64(uint64_t offset, uint64_t compare, uint64_t swap);
uint64_t ob_add64(uint64_t offset, uint64_t delta);
_Noreturn void ob_fail(int32_t code, const void *text, uint32_t len);
void ob_log(const void *text, uint32_t len);

/* ---- For programs that run modules: the driver, tests, benchmarks ------------------------- */

/* How an execution ended. */
enum ob_native_end { OB_NATIVE_DONE, OB_NATIVE_FAILED, OB_NATIVE_TRAPPED, OB_NATIVE_NO_ENTRY };

/* What came of one. */
struct ob_native_outcome {
    enum ob_native_end end;
    int64_t code;       /* of OB_NATIVE_FAILED */
    const void *result; /* bytes of OB_NATIVE_DONE, or the text of the other ends */
    uint64_t len;
};

/* A region of zero bytes, in place of the one before; false without memory. */
bool ob_native_region(uint64_t len);
/* Its bytes. */
unsigned char *ob_native_bytes(void);
/* What time it is for executions from now on. */
void ob_native_moment(uint64_t monotonic_ns, uint64_t wall_ns, uint64_t seed);
/* Executes an entry, and applies what it wrote if it succeeded. The result is valid until the next
 * execution. */
struct ob_native_outcome ob_native_execute(const char *module, const char *entry, const void *args,
                                           uint64_t len);
/* A checksum of the region's bytes: FNV-1a, 64 bits. */
uint64_t ob_native_checksum(void);

#endif
