/* topk.c: scan with a predicate and a heap; topk.h says how it is called. */
#define OB_MODULE topk
#include "topk/topk.h"

/* The k best so far: a heap with the worst of them on top. */
struct heap {
    struct topk_record *at;
    uint32_t count, k;
};

static bool is_worse(const struct topk_record *left, const struct topk_record *right)
{
    if (left->value != right->value)
        return left->value < right->value;
    return left->index > right->index;
}

static void swap(struct topk_record *left, struct topk_record *right)
{
    struct topk_record old = *left;
    *left = *right;
    *right = old;
}

static void sift_down(struct topk_record *at, uint32_t count)
{
    uint32_t parent = 0;
    for (;;) {
        uint32_t child = 2 * parent + 1;
        if (child >= count)
            return;
        if (child + 1 < count && is_worse(&at[child + 1], &at[child]))
            child++;
        if (!is_worse(&at[child], &at[parent]))
            return;
        swap(&at[child], &at[parent]);
        parent = child;
    }
}

static void sift_up(struct topk_record *at, uint32_t child)
{
    while (child > 0 && is_worse(&at[child], &at[(child - 1) / 2])) {
        swap(&at[child], &at[(child - 1) / 2]);
        child = (child - 1) / 2;
    }
}

/* Offers a record that is not worse than the heap's worst by its value. */
static __attribute__((noinline)) void offer(struct heap *heap, struct topk_record record)
{
    if (heap->count < heap->k) {
        heap->at[heap->count] = record;
        sift_up(heap->at, heap->count++);
    } else if (is_worse(&heap->at[0], &record)) {
        heap->at[0] = record;
        sift_down(heap->at, heap->count);
    }
}

/* The values of the k best that a new record must exceed. */
OB_INLINE uint64_t bar(const struct heap *heap)
{
    return heap->count < heap->k ? 0 : heap->at[0].value + 1;
}

/* Each turn of a loop counts fuel or looks at the time: four records a turn. */
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll_count(4)")
#else
#define UNROLLED
#endif

/* One loop for each predicate, so that none is chosen for each record. Returns the selected. */
#define SCAN(condition)                                                                          \
    UNROLLED                                                                                     \
    for (; at < end; at += step) {                                                               \
        uint64_t key = at[0], value = at[1];                                                     \
        (void)key;                                                                               \
        if (!(condition))                                                                        \
            continue;                                                                            \
        selected++;                                                                              \
        if (OB_RARELY(value >= least)) {                                                         \
            uint64_t index = (uint64_t)(at - start) / step;                                      \
            offer(heap, (struct topk_record){key, value, index});                                \
            if (OB_RARELY((least = bar(heap)) == 0 && heap->count == heap->k))                   \
                least = UINT64_MAX;                                                              \
        }                                                                                        \
    }

OB_INLINE uint64_t scan(const uint64_t *start, const uint64_t *end, uint32_t step,
                        const struct topk_args *args, struct heap *heap)
{
    const uint64_t *at = start;
    uint64_t selected = 0, least = 0, a = args->a, b = args->b;
    switch (args->predicate) {
    case TOPK_KEY_RANGE:
        SCAN(key - a <= b - a);
        break;
    case TOPK_VALUE_BELOW:
        SCAN(value < a);
        break;
    case TOPK_KEY_MASK:
        SCAN((key & a) == b);
        break;
    default:
        SCAN(true);
    }
    return selected;
}

/* The same with the record's length known to the compiler, for the usual ones. */
static uint64_t scan_all(const uint64_t *start, const struct topk_args *args, struct heap *heap)
{
    uint32_t step = args->record_len / 8;
    const uint64_t *end = start + args->number * step;
    if (step == 2)
        return scan(start, end, 2, args, heap);
    return scan(start, end, step, args, heap);
}

/* Puts the best first: the worst goes to the end, again and again. */
static void sort(struct heap *heap)
{
    for (uint32_t count = heap->count; count > 1; count--) {
        swap(&heap->at[0], &heap->at[count - 1]);
        sift_down(heap->at, count - 1);
    }
}

static bool is_in_range(const struct topk_args *args)
{
    return args->record_len >= 16 && args->record_len <= 64 && args->record_len % 8 == 0
           && args->k >= 1 && args->k <= TOPK_K_MAX && args->predicate <= TOPK_KEY_MASK
           && args->offset % 8 == 0 && args->number <= UINT32_MAX
           && (args->predicate != TOPK_KEY_RANGE || args->a <= args->b);
}

OB_ENTRY(top)
{
    const struct topk_args *args = OB_ARGS(struct topk_args);
    if (!is_in_range(args))
        OB_FAIL(TOPK_E_ARGS, "records have 16 to 64 bytes, a multiple of 8; k is 1 to 1000");
    const uint64_t *start = ob_ptr(args->offset, args->number * args->record_len);
    struct topk_result *result =
        ob_out_of(sizeof *result + args->k * (uint64_t)sizeof(struct topk_record));
    struct heap heap = {(struct topk_record *)(result + 1), 0, args->k};
    result->selected = scan_all(start, args, &heap);
    result->count = heap.count;
    sort(&heap);
    return (int64_t)(sizeof *result + heap.count * sizeof(struct topk_record));
}
