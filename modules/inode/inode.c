/* inode.c: inodes and where their bytes are; inode.h says how they are laid out. */
#define OB_MODULE inode
#define INODE_OWN
#include "inode/inode.h"
#include "alloc/alloc.h"
#include "blocks/blocks.h"

enum { MAGIC = 0, HEAP = 8, BLOCKS = 16, NEXT = 24, FREE = 32, COUNT = 40, SEGMENTS = 64 };

/* Records in segment 0: two to the power of this. */
#define FIRST_POWER 6u
#define RECORD_LEN sizeof(struct inode)
#define NODE_HEAD 16u
#define NODE_LEN (NODE_HEAD + INODE_NODE_ENTRIES * sizeof(struct inode_entry))
/* No file has a block here: files end at 2^63 bytes. */
#define FILE_END ((uint64_t)1 << 51)
#define NOWHERE UINT64_MAX

static void check_store(uint64_t root)
{
    if (ob_get64(root + MAGIC) != INODE_MAGIC)
        OB_FAIL(INODE_E_NO_STORE, "there are no inodes at this offset: call inode's init first");
}

/* ---- Records ------------------------------------------------------------------------------ */

/* Where a number's record is: in which segment, and which one of it. */
struct place {
    uint64_t segment, index, len; /* len: records of the segment */
};

static struct place place_of(uint64_t number)
{
    if (number >> FIRST_POWER == 0)
        return (struct place){0, number, (uint64_t)1 << FIRST_POWER};
    uint64_t power = 63 - (uint64_t)__builtin_clzll(number);
    return (struct place){power - FIRST_POWER + 1, number - ((uint64_t)1 << power),
                          (uint64_t)1 << power};
}

static uint64_t offset_of(uint64_t root, uint64_t number)
{
    check_store(root);
    if (number == 0 || number >= ob_get64(root + NEXT))
        OB_FAIL(INODE_E_NONE, "no inode has this number");
    struct place place = place_of(number);
    return ob_get64(root + SEGMENTS + 8 * place.segment) + place.index * RECORD_LEN;
}

void inode_init(uint64_t root, uint64_t heap, uint64_t blocks)
{
    uint64_t header[INODE_HEADER_LEN / 8] = {INODE_MAGIC, heap, blocks, 1};
    ob_put(root, header, sizeof header);
}

static uint64_t take(uint64_t root, uint64_t len)
{
    uint64_t block = alloc_take(ob_get64(root + HEAP), len);
    if (block == 0)
        OB_FAIL(INODE_E_FULL, "the region has no room for more inodes or extents");
    return block;
}

/* A number that was never used. */
static uint64_t fresh_number(uint64_t root)
{
    uint64_t number = ob_get64(root + NEXT);
    struct place place = place_of(number);
    uint64_t segment = root + SEGMENTS + 8 * place.segment;
    if (place.segment >= INODE_SEGMENTS)
        OB_FAIL(INODE_E_FULL, "there are as many inodes as there can be");
    if (ob_get64(segment) == 0)
        ob_put64(segment, take(root, place.len * RECORD_LEN));
    ob_put64(root + NEXT, number + 1);
    return number;
}

uint64_t inode_new(uint64_t root, uint32_t mode, struct inode *inode)
{
    check_store(root);
    uint64_t number = ob_get64(root + FREE);
    struct inode before = {.generation = 0};
    if (number != 0) {
        ob_get(offset_of(root, number), &before, sizeof before);
        ob_put64(root + FREE, before.parent);
    } else {
        number = fresh_number(root);
    }
    memset(inode, 0, sizeof *inode);
    inode->generation = before.generation + 1;
    inode->version = before.version;
    inode->mode = mode;
    ob_put64(root + COUNT, ob_get64(root + COUNT) + 1);
    return number;
}

bool inode_find(uint64_t root, uint64_t number, struct inode *inode)
{
    check_store(root);
    if (number == 0 || number >= ob_get64(root + NEXT))
        return false;
    ob_get(offset_of(root, number), inode, sizeof *inode);
    return inode->mode != 0;
}

void inode_get(uint64_t root, uint64_t number, struct inode *inode)
{
    if (!inode_find(root, number, inode))
        OB_FAIL(INODE_E_NONE, "no inode has this number");
}

void inode_put(uint64_t root, uint64_t number, struct inode *inode)
{
    inode->version++;
    inode->check = ob_hash(INODE_MAGIC, &inode->generation, sizeof *inode - 8);
    ob_put(offset_of(root, number), inode, sizeof *inode);
}

void inode_drop(uint64_t root, uint64_t number, struct inode *inode)
{
    if (inode->blocks != 0 || inode->entries != 0)
        OB_FAIL(INODE_E_MAPPED, "an inode that has blocks is not dropped");
    struct inode gone = {.generation = inode->generation, .version = inode->version};
    gone.parent = ob_get64(root + FREE);
    inode_put(root, number, &gone);
    ob_put64(root + FREE, number);
    ob_put64(root + COUNT, ob_get64(root + COUNT) - 1);
}

uint64_t inode_room(uint64_t root)
{
    check_store(root);
    uint64_t next = ob_get64(root + NEXT), count = ob_get64(root + COUNT), behind = 0;
    struct place place = place_of(next);
    if (ob_get64(root + SEGMENTS + 8 * place.segment) != 0)
        behind = place.len - place.index;
    return behind + (next - 1 - count);
}

/* ---- The tree of extents ------------------------------------------------------------------ */

/* A node as it is in the region from `level` on, with room for one entry too many. */
struct node {
    uint64_t at; /* 0: the record's own entries */
    uint32_t cap, unused;
    uint32_t level, count;
    uint64_t zero;
    struct inode_entry entry[INODE_NODE_ENTRIES + 1];
};

/* The way from the root to a leaf: each node, and the entry that was taken there; in the leaf, how
 * many entries are not behind the key. */
struct path {
    uint32_t depth;
    uint64_t at[INODE_LEVELS_MAX];
    uint32_t index[INODE_LEVELS_MAX];
    uint64_t bound; /* first key of the next leaf, NOWHERE if there is none */
};

_Noreturn static void broken(void)
{
    OB_FAIL(INODE_E_BROKEN, "a tree of extents that this code has not written");
}

static void load_root(const struct inode *inode, struct node *node)
{
    if (inode->entries > INODE_ROOT_ENTRIES || inode->level >= INODE_LEVELS_MAX)
        broken();
    node->at = 0;
    node->cap = INODE_ROOT_ENTRIES;
    node->level = inode->level;
    node->count = inode->entries;
    memcpy(node->entry, inode->entry, sizeof inode->entry);
}

static void load(const struct inode *inode, uint64_t at, struct node *node)
{
    if (at == 0) {
        load_root(inode, node);
        return;
    }
    ob_get(at, &node->level, NODE_HEAD);
    if (node->count == 0 || node->count > INODE_NODE_ENTRIES)
        broken();
    ob_get(at + NODE_HEAD, node->entry, node->count * sizeof node->entry[0]);
    node->at = at;
    node->cap = INODE_NODE_ENTRIES;
}

static void save(struct inode *inode, struct node *node)
{
    if (node->at == 0) {
        inode->level = (uint16_t)node->level;
        inode->entries = node->count;
        memcpy(inode->entry, node->entry, node->count * sizeof node->entry[0]);
        return;
    }
    node->zero = 0;
    ob_put(node->at, &node->level, NODE_HEAD + node->count * sizeof node->entry[0]);
}

/* How many entries are not behind the key. */
static uint32_t count_until(const struct node *node, uint64_t key)
{
    uint32_t low = 0, high = node->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (node->entry[middle].key <= key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The leaf where a key is, or would be. */
static void descend(const struct inode *inode, uint64_t key, struct path *path, struct node *leaf)
{
    path->bound = NOWHERE;
    load_root(inode, leaf);
    for (path->depth = 0;; path->depth++) {
        uint32_t count = count_until(leaf, key), level = leaf->level;
        path->at[path->depth] = leaf->at;
        path->index[path->depth] = count;
        if (level == 0)
            return;
        uint32_t index = path->index[path->depth] = count == 0 ? 0 : count - 1;
        if (index + 1 < leaf->count)
            path->bound = leaf->entry[index + 1].key;
        if (leaf->count == 0 || path->depth + 1 == INODE_LEVELS_MAX)
            broken();
        load(inode, leaf->entry[index].value, leaf);
        if (leaf->at == 0 || leaf->level + 1 != level)
            broken();
    }
}

/* Puts the further half of a node that is too full into a new one, and returns its entry for the
 * node above. Where entries are appended, the node stays full. */
static struct inode_entry split(uint64_t root, struct inode *inode, struct node *node,
                                uint32_t index)
{
    struct node right = {.at = take(root, NODE_LEN), .level = node->level};
    uint32_t stays = index + 1 == node->count ? index : node->count / 2;
    right.count = node->count - stays;
    memcpy(right.entry, node->entry + stays, right.count * sizeof right.entry[0]);
    node->count = stays;
    save(inode, node);
    save(inode, &right);
    return (struct inode_entry){right.entry[0].key, right.at};
}

/* Puts the entries of a root that is too full one level down. */
static void grow(uint64_t root, struct inode *inode, struct node *node)
{
    node->at = take(root, NODE_LEN);
    save(inode, node);
    if (node->level + 1 == INODE_LEVELS_MAX)
        OB_FAIL(INODE_E_FULL, "the file is in more pieces than its tree can have");
    inode->level = (uint16_t)(node->level + 1);
    inode->entries = 1;
    inode->entry[0] = (struct inode_entry){node->entry[0].key, node->at};
}

static void insert(uint64_t root, struct inode *inode, struct inode_entry entry)
{
    struct path path;
    struct node node;
    descend(inode, entry.key, &path, &node);
    uint32_t index = path.index[path.depth];
    for (;;) {
        for (uint32_t at = node.count; at > index; at--)
            node.entry[at] = node.entry[at - 1];
        node.entry[index] = entry;
        if (++node.count <= node.cap) {
            save(inode, &node);
            return;
        }
        if (node.at == 0) {
            grow(root, inode, &node);
            return;
        }
        entry = split(root, inode, &node, index);
        uint64_t first = node.entry[0].key;
        path.depth--;
        load(inode, path.at[path.depth], &node);
        index = path.index[path.depth];
        /* A first node may have come to hold what is before its key: keys must stay in order. */
        if (first < node.entry[index].key)
            node.entry[index].key = first;
        index++;
    }
}

/* While the root has nothing but one node that fits into the record, takes its entries up. */
static void shrink(uint64_t root, struct inode *inode)
{
    struct node node;
    while (inode->level > 0 && inode->entries == 1) {
        uint64_t at = inode->entry[0].value;
        load(inode, at, &node);
        if (node.count > INODE_ROOT_ENTRIES)
            return;
        alloc_give(ob_get64(root + HEAP), at);
        node.at = 0;
        save(inode, &node);
    }
    if (inode->entries == 0)
        inode->level = 0;
}

/* Has the entries for a node say its first key, after that has become another one. Else an extent
 * of the node before it could come to lie across that key, and not be found from there on. */
static void tell_above(struct inode *inode, const struct path *path, uint32_t depth, uint64_t key)
{
    struct node node;
    while (depth-- > 0) {
        load(inode, path->at[depth], &node);
        node.entry[path->index[depth]].key = key;
        save(inode, &node);
        if (path->index[depth] > 0)
            return;
    }
}

/* Removes the last entry of a leaf that is not behind the key for which it was found. */
static void remove_entry(uint64_t root, struct inode *inode, struct path *path, struct node *node)
{
    uint32_t index = path->index[path->depth] - 1;
    for (;;) {
        node->count--;
        for (uint32_t at = index; at < node->count; at++)
            node->entry[at] = node->entry[at + 1];
        if (node->at == 0 || node->count > 0)
            break;
        alloc_give(ob_get64(root + HEAP), node->at);
        path->depth--;
        load(inode, path->at[path->depth], node);
        index = path->index[path->depth];
    }
    save(inode, node);
    if (node->at == 0)
        shrink(root, inode);
    else if (index == 0)
        tell_above(inode, path, path->depth, node->entry[0].key);
}

/* ---- Extents ------------------------------------------------------------------------------ */

static struct inode_entry entry_of(const struct inode_extent *extent)
{
    return (struct inode_entry){extent->file, extent->block << 28 | extent->len};
}

static struct inode_extent extent_of(struct inode_entry entry)
{
    return (struct inode_extent){entry.key, entry.value >> 28, entry.value & 0xfffffff};
}

bool inode_extent(const struct inode *inode, uint64_t file, struct inode_extent *extent)
{
    struct path path;
    struct node leaf;
    descend(inode, file, &path, &leaf);
    uint32_t count = path.index[path.depth];
    if (count > 0) {
        *extent = extent_of(leaf.entry[count - 1]);
        if (file - extent->file < extent->len)
            return true;
    }
    if (count == leaf.count) {
        if (path.bound == NOWHERE)
            return false;
        descend(inode, path.bound, &path, &leaf);
        count = 0;
    }
    *extent = extent_of(leaf.entry[count]);
    return true;
}

/* Makes the extent in front longer by this one, if it goes on there; whether it does. */
static bool join(struct inode *inode, const struct inode_extent *extent)
{
    struct path path;
    struct node leaf;
    descend(inode, extent->file, &path, &leaf);
    uint32_t count = path.index[path.depth];
    if (count == 0)
        return false;
    struct inode_extent before = extent_of(leaf.entry[count - 1]);
    if (before.file + before.len != extent->file || before.block + before.len != extent->block
        || before.len + extent->len > INODE_EXTENT_MAX)
        return false;
    before.len += extent->len;
    leaf.entry[count - 1] = entry_of(&before);
    save(inode, &leaf);
    return true;
}

/* Has a file an extent that is its own by now. */
static void put_extent(uint64_t root, struct inode *inode, const struct inode_extent *extent)
{
    struct inode_extent next;
    if (extent->len == 0 || extent->len > INODE_EXTENT_MAX || extent->block >= BLOCKS_MAX
        || extent->file >= FILE_END - extent->len)
        OB_FAIL(INODE_E_RANGE, "a file cannot have such blocks");
    if (inode_extent(inode, extent->file, &next) && next.file < extent->file + extent->len)
        OB_FAIL(INODE_E_MAPPED, "the file has blocks there already");
    if (!join(inode, extent))
        insert(root, inode, entry_of(extent));
    inode->blocks += extent->len;
}

void inode_map(uint64_t root, struct inode *inode, const struct inode_extent *extent)
{
    put_extent(root, inode, extent);
    blocks_use(ob_get64(root + BLOCKS), extent->block, extent->len);
}

/* Leaves of an extent what is not in [from, to). */
static void cut_extent(uint64_t root, struct inode *inode, const struct inode_extent *extent,
                       uint64_t from, uint64_t to)
{
    struct path path;
    struct node leaf;
    descend(inode, extent->file, &path, &leaf);
    struct inode_extent left = {extent->file, extent->block, from - extent->file};
    struct inode_extent right = {to, extent->block + (to - extent->file),
                                 extent->file + extent->len - to};
    if (left.len > 0) {
        leaf.entry[path.index[path.depth] - 1] = entry_of(&left);
        save(inode, &leaf);
    } else {
        remove_entry(root, inode, &path, &leaf);
    }
    if (right.len > 0)
        insert(root, inode, entry_of(&right));
    inode->blocks -= to - from;
}

static uint64_t end_of(uint64_t file, uint64_t len)
{
    return len > UINT64_MAX - file ? UINT64_MAX : file + len;
}

/* Whether there are lines left for something; then they are taken. */
static bool spend(uint64_t *lines, uint64_t needed)
{
    if (*lines < needed)
        return false;
    *lines -= needed;
    return true;
}

bool inode_cut(uint64_t root, struct inode *inode, uint64_t file, uint64_t len, uint64_t *lines)
{
    uint64_t blocks = ob_get64(root + BLOCKS), end = end_of(file, len);
    struct inode_extent extent;
    while (inode_extent(inode, file, &extent) && extent.file < end) {
        uint64_t from = extent.file < file ? file : extent.file, last = extent.file + extent.len;
        uint64_t to = last < end ? last : end;
        if (!spend(lines, INODE_CUT_LINES(to - from)))
            return false;
        cut_extent(root, inode, &extent, from, to);
        blocks_give(blocks, extent.block + (from - extent.file), to - from);
    }
    return true;
}

bool inode_share(uint64_t root, const struct inode *from, const struct inode_run *run,
                 struct inode *to, uint64_t *lines)
{
    uint64_t blocks = ob_get64(root + BLOCKS), file = run->file, end = end_of(file, run->len);
    struct inode_extent extent;
    if (run->to > FILE_END)
        OB_FAIL(INODE_E_RANGE, "a file cannot have such blocks");
    while (file < end && inode_extent(from, file, &extent) && extent.file < end) {
        uint64_t before = file > extent.file ? file - extent.file : 0;
        uint64_t last = extent.file + extent.len < end ? extent.file + extent.len : end;
        file = extent.file + before;
        struct inode_extent part = {run->to + (file - run->file), extent.block + before,
                                    last - file};
        if (!spend(lines, INODE_MAP_LINES(part.len)))
            return false;
        blocks_share(blocks, part.block, part.len);
        put_extent(root, to, &part);
        file = last;
    }
    return true;
}

/* ---- Splitting ---------------------------------------------------------------------------- */

/* Has an extent that lies across a block end there, and another one begin. */
static void part_extent(uint64_t root, struct inode *inode, uint64_t file)
{
    struct path path;
    struct node leaf;
    descend(inode, file, &path, &leaf);
    uint32_t count = path.index[path.depth];
    if (count == 0)
        return;
    struct inode_extent left = extent_of(leaf.entry[count - 1]);
    uint64_t before = file - left.file;
    if (before == 0 || before >= left.len)
        return;
    struct inode_extent right = {file, left.block + before, left.len - before};
    left.len = before;
    leaf.entry[count - 1] = entry_of(&left);
    save(inode, &leaf);
    insert(root, inode, entry_of(&right));
}

/* Blocks of all extents of a tree: reads each node once. */
static uint64_t count_blocks(const struct inode *inode)
{
    struct node way[INODE_LEVELS_MAX];
    uint32_t next[INODE_LEVELS_MAX], depth = 0;
    uint64_t blocks = 0;
    load_root(inode, &way[0]);
    next[0] = 0;
    for (;;) {
        struct node *node = &way[depth];
        for (; node->level == 0 && next[depth] < node->count; next[depth]++)
            blocks += extent_of(node->entry[next[depth]]).len;
        if (next[depth] < node->count) {
            uint32_t level = node->level;
            if (++depth == INODE_LEVELS_MAX)
                broken();
            load(inode, node->entry[next[depth - 1]++].value, &way[depth]);
            if (way[depth].at == 0 || way[depth].level + 1 != level)
                broken();
            next[depth] = 0;
        } else if (depth-- == 0) {
            return blocks;
        }
    }
}

/* Moves a node's entries from `index` on into a new node, which has `first` before them, if that is
 * one. The new node's entry for the node above; its value is 0 if it would have nothing. */
static struct inode_entry move_right(uint64_t root, struct inode *rest, const struct node *node,
                                     uint32_t index, struct inode_entry first)
{
    struct node right = {.level = node->level, .cap = node->cap};
    if (first.value != 0)
        right.entry[right.count++] = first;
    for (; index < node->count; index++)
        right.entry[right.count++] = node->entry[index];
    if (right.count == 0)
        return (struct inode_entry){0, 0};
    right.at = node->at == 0 ? 0 : take(root, NODE_LEN);
    save(rest, &right);
    return (struct inode_entry){right.entry[0].key, right.at};
}

/* The tree's nodes on a path, from the leaf up: each keeps what is before the place, the other tree
 * gets nodes with what is behind. */
static void part_path(uint64_t root, struct inode *inode, const struct path *path,
                      struct inode *rest)
{
    struct inode_entry right = {0, 0};
    bool is_kept = true; /* the node below, on the left side */
    for (uint32_t depth = path->depth + 1; depth-- > 0;) {
        struct node node;
        load(inode, path->at[depth], &node);
        bool is_leaf = depth == path->depth;
        uint32_t index = path->index[depth];
        right = move_right(root, rest, &node, is_leaf ? index : index + 1, right);
        node.count = is_leaf ? index : index + is_kept;
        is_kept = node.count > 0;
        if (is_kept || node.at == 0)
            save(inode, &node);
        else
            alloc_give(ob_get64(root + HEAP), node.at);
    }
}

void inode_split(uint64_t root, struct inode *inode, uint64_t file, struct inode *rest)
{
    struct path path;
    struct node leaf;
    uint64_t blocks = inode->blocks;
    if (rest->blocks != 0 || rest->entries != 0)
        OB_FAIL(INODE_E_MAPPED, "an inode that has blocks gets no others'");
    part_extent(root, inode, file);
    descend(inode, file, &path, &leaf);
    /* What begins at the place itself goes. */
    uint32_t index = path.index[path.depth];
    path.index[path.depth] -= index > 0 && leaf.entry[index - 1].key == file;
    part_path(root, inode, &path, rest);
    shrink(root, inode);
    shrink(root, rest);
    /* Of the tree that is less high, or has fewer entries at its root, as that is faster. */
    bool is_less = inode->level < rest->level
        || (inode->level == rest->level && inode->entries < rest->entries);
    uint64_t counted = count_blocks(is_less ? inode : rest);
    inode->blocks = is_less ? counted : blocks - counted;
    rest->blocks = blocks - inode->blocks;
}

/* ---- Entries ------------------------------------------------------------------------------ */

OB_ENTRY(init)
{
    const struct inode_init_args *args = OB_ARGS(struct inode_init_args);
    inode_init(args->root, args->heap, args->blocks);
    return 0;
}

OB_ENTRY(new)
{
    const struct inode_new_args *args = OB_ARGS(struct inode_new_args);
    struct inode inode;
    uint64_t number = inode_new(args->root, (uint32_t)args->mode, &inode);
    inode_put(args->root, number, &inode);
    return ob_result(&number, sizeof number);
}

OB_ENTRY(get)
{
    const struct inode_args *args = OB_ARGS(struct inode_args);
    struct inode inode;
    inode_get(args->root, args->number, &inode);
    return ob_result(&inode, sizeof inode);
}

/* As far as an execution can. */
static void cut_all(uint64_t root, struct inode *inode, uint64_t file, uint64_t len)
{
    uint64_t lines = UINT64_MAX;
    inode_cut(root, inode, file, len, &lines);
}

OB_ENTRY(drop)
{
    const struct inode_args *args = OB_ARGS(struct inode_args);
    struct inode inode;
    inode_get(args->root, args->number, &inode);
    cut_all(args->root, &inode, 0, FILE_END);
    inode_drop(args->root, args->number, &inode);
    return 0;
}

OB_ENTRY(map)
{
    const struct inode_range_args *args = OB_ARGS(struct inode_range_args);
    uint64_t blocks, file = args->file, left = args->len, goal = BLOCKS_ANYWHERE;
    struct inode inode;
    inode_get(args->root, args->number, &inode);
    blocks = ob_get64(args->root + BLOCKS);
    cut_all(args->root, &inode, file, left);
    while (left > 0) {
        struct inode_extent extent = {.file = file};
        extent.len = blocks_reserve(blocks, goal, left, &extent.block);
        if (extent.len == 0)
            OB_FAIL(BLOCKS_E_FULL, "no block is free");
        inode_map(args->root, &inode, &extent);
        file += extent.len, left -= extent.len, goal = extent.block + extent.len;
    }
    inode_put(args->root, args->number, &inode);
    return 0;
}

OB_ENTRY(cut)
{
    const struct inode_range_args *args = OB_ARGS(struct inode_range_args);
    struct inode inode;
    inode_get(args->root, args->number, &inode);
    cut_all(args->root, &inode, args->file, args->len);
    inode_put(args->root, args->number, &inode);
    return 0;
}

OB_ENTRY(share)
{
    const struct inode_share_args *args = OB_ARGS(struct inode_share_args);
    struct inode from, to;
    inode_get(args->root, args->number, &from);
    inode_get(args->root, args->to, &to);
    struct inode_run run = {args->file, args->len, args->file};
    uint64_t lines = UINT64_MAX;
    cut_all(args->root, &to, args->file, args->len);
    inode_share(args->root, &from, &run, &to, &lines);
    inode_put(args->root, args->to, &to);
    return 0;
}

OB_ENTRY(split)
{
    const struct inode_split_args *args = OB_ARGS(struct inode_split_args);
    struct inode from, to;
    inode_get(args->root, args->number, &from);
    inode_get(args->root, args->to, &to);
    inode_split(args->root, &from, args->file, &to);
    inode_put(args->root, args->number, &from);
    inode_put(args->root, args->to, &to);
    return 0;
}

OB_ENTRY(extents)
{
    const struct inode_range_args *args = OB_ARGS(struct inode_range_args);
    struct inode_extent *out = ob_out();
    uint64_t room = ob_out_cap() / sizeof *out, count = 0, file = args->file;
    uint64_t end = end_of(file, args->len);
    struct inode inode;
    inode_get(args->root, args->number, &inode);
    while (count < room && file < end && inode_extent(&inode, file, &out[count])
           && out[count].file < end) {
        file = out[count].file + out[count].len;
        count++;
    }
    return (int64_t)(count * sizeof *out);
}
