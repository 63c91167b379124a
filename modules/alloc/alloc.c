/* alloc.c: an allocator inside a region; alloc.h says how it is laid out and used. */
#define OB_MODULE alloc
#define ALLOC_OWN
#include "alloc/alloc.h"

#define BLOCK_HEAD 16u

enum { MAGIC = 0, END = 8, NEXT = 16, BLOCKS = 24, BYTES = 32, FREE = 48 };

/* Tags: which of both, the class, and the block's place, mixed so that no other number is one. */
#define TAG_TAKEN 0x7461u
#define TAG_FREE 0x6672u

static uint64_t tag(uint64_t block, uint64_t state, uint32_t class)
{
    return (state << 48 | class) ^ (block * 0x9e3779b97f4a7c15u & 0xffffffffff00u);
}

/* Bytes of the blocks of a class, without their heads: 16, 32, 48, 64, then four steps for each
 * power of two. */
static uint64_t class_len(uint32_t class)
{
    if (class < 4)
        return 16 * (class + 1);
    return (uint64_t)(5 + (class - 4) % 4) << (4 + (class - 4) / 4);
}

/* The smallest class of blocks that hold so many bytes. */
static uint32_t class_of(uint64_t len)
{
    if (len <= 64)
        return len == 0 ? 0 : (uint32_t)((len - 1) / 16);
    uint32_t power = 63 - (uint32_t)__builtin_clzll(len - 1); /* 6 and more */
    uint32_t quarter = (uint32_t)((len - 1) >> (power - 2)) & 3;
    return 4 + (power - 6) * 4 + quarter;
}

static void check_heap(uint64_t heap)
{
    if (ob_get64(heap + MAGIC) != ALLOC_MAGIC)
        OB_FAIL(ALLOC_E_NO_HEAP, "there is no allocator at this offset: call alloc's init first");
}

/* The class of a taken block. */
static uint32_t check_block(uint64_t heap, uint64_t block)
{
    check_heap(heap);
    if (block % 16 != 0 || block < BLOCK_HEAD || block > ob_get64(heap + NEXT))
        OB_FAIL(ALLOC_E_NO_BLOCK, "there is no block at this offset");
    uint64_t found = ob_get64(block - BLOCK_HEAD);
    uint32_t class = found & 0xff;
    if (class < ALLOC_CLASSES && found == tag(block, TAG_FREE, class))
        OB_FAIL(ALLOC_E_FREE, "the block is free already");
    if (class >= ALLOC_CLASSES || found != tag(block, TAG_TAKEN, class))
        OB_FAIL(ALLOC_E_NO_BLOCK, "there is no block at this offset");
    return class;
}

void alloc_init(uint64_t heap, uint64_t start, uint64_t end)
{
    uint64_t first = (start + 15) & ~(uint64_t)15;
    bool apart = heap >= end || (heap <= UINT64_MAX - ALLOC_STATE_LEN
                                 && heap + ALLOC_STATE_LEN <= start);
    if (heap % 8 != 0 || start > end || first > end || !ob_is_inside(start, end - start) || !apart
        || !ob_is_inside(heap, ALLOC_STATE_LEN))
        OB_FAIL(ALLOC_E_RANGE, "the heap's state and range must lie apart, inside the region");
    unsigned char state[ALLOC_STATE_LEN];
    memset(state, 0, sizeof state);
    uint64_t head[3] = {ALLOC_MAGIC, end, first};
    memcpy(state, head, sizeof head);
    ob_put(heap, state, sizeof state);
}

static void count(uint64_t heap, uint64_t blocks, uint64_t bytes)
{
    ob_put64(heap + BLOCKS, ob_get64(heap + BLOCKS) + blocks);
    ob_put64(heap + BYTES, ob_get64(heap + BYTES) + bytes);
}

uint64_t alloc_take(uint64_t heap, uint64_t len)
{
    check_heap(heap);
    if (len > ALLOC_MAX)
        return 0;
    uint32_t class = class_of(len);
    uint64_t list = heap + FREE + 8 * (uint64_t)class, size = BLOCK_HEAD + class_len(class);
    uint64_t block = ob_get64(list);
    if (block != 0) {
        if (ob_get64(block - BLOCK_HEAD) != tag(block, TAG_FREE, class))
            OB_FAIL(ALLOC_E_NO_BLOCK, "the allocator's list was overwritten");
        ob_put64(list, ob_get64(block - 8));
    } else {
        uint64_t next = ob_get64(heap + NEXT), end = ob_get64(heap + END);
        if (next > end || size > end - next)
            return 0;
        block = next + BLOCK_HEAD;
        ob_put64(heap + NEXT, next + size);
    }
    ob_put64(block - BLOCK_HEAD, tag(block, TAG_TAKEN, class));
    count(heap, 1, size);
    return block;
}

void alloc_give(uint64_t heap, uint64_t block)
{
    uint32_t class = check_block(heap, block);
    uint64_t list = heap + FREE + 8 * (uint64_t)class;
    ob_put64(block - BLOCK_HEAD, tag(block, TAG_FREE, class));
    ob_put64(block - 8, ob_get64(list));
    ob_put64(list, block);
    count(heap, (uint64_t)-1, (uint64_t)0 - BLOCK_HEAD - class_len(class));
}

uint64_t alloc_len(uint64_t heap, uint64_t block) { return class_len(check_block(heap, block)); }

OB_ENTRY(init)
{
    const struct alloc_init_args *args = OB_ARGS(struct alloc_init_args);
    alloc_init(args->heap, args->start, args->end);
    return 0;
}

OB_ENTRY(take)
{
    const struct alloc_take_args *args = OB_ARGS(struct alloc_take_args);
    uint64_t block = alloc_take(args->heap, args->len);
    if (block == 0)
        OB_FAIL(ALLOC_E_FULL, "no room for a block of this size");
    return ob_result(&block, sizeof block);
}

OB_ENTRY(give)
{
    const struct alloc_give_args *args = OB_ARGS(struct alloc_give_args);
    alloc_give(args->heap, args->block);
    return 0;
}

OB_ENTRY(stats)
{
    uint64_t heap = *OB_ARGS(uint64_t);
    check_heap(heap);
    struct alloc_stats stats = {ob_get64(heap + BLOCKS), ob_get64(heap + BYTES),
                                ob_get64(heap + END) - ob_get64(heap + NEXT)};
    return ob_result(&stats, sizeof stats);
}
