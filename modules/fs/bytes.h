/* bytes.h: a part of fs.c, which includes it once: where files' bytes are. Blocks are reserved,
 * mapped, read, shared and given back; their bytes are not touched. */

/* Lines that one change of a file writes, about. */
#define CHANGE_LINES 32768u
/* Blocks that one execution reserves. */
#define TAKE_MAX 65536u
#define FILE_BLOCKS (FS_SIZE_MAX / INODE_BLOCK_LEN)

static uint64_t blocks_of(uint64_t bytes)
{
    return bytes / INODE_BLOCK_LEN + (bytes % INODE_BLOCK_LEN != 0);
}

/* ---- Reserving ---------------------------------------------------------------------------- */

OB_ENTRY(take)
{
    const struct fs_take_args *args = OB_ARGS(struct fs_take_args);
    struct tree tree = the_tree();
    struct blocks_run *out = ob_out();
    uint64_t room = ob_out_cap() / sizeof *out, count = 0, goal = args->goal;
    uint64_t left = args->want < TAKE_MAX ? args->want : TAKE_MAX;
    if (blocks_free(tree.blocks) == 0)
        reap(&tree);
    while (left > 0 && count < room) {
        struct blocks_run run = {0, 0};
        run.len = blocks_reserve(tree.blocks, goal, left, &run.start);
        if (run.len == 0)
            break;
        out[count++] = run;
        left -= run.len, goal = run.start + run.len;
    }
    return (int64_t)(count * sizeof *out);
}

OB_ENTRY(give)
{
    const struct blocks_run *run = ob_args();
    struct tree tree = the_tree();
    if (ob_args_len() % sizeof *run != 0)
        FAIL(E_INVAL, "the arguments are no runs of blocks");
    for (uint64_t count = ob_args_len() / sizeof *run; count > 0; count--, run++)
        blocks_drop(tree.blocks, run->start, run->len);
    return 0;
}

OB_ENTRY(sweep)
{
    const struct fs_sweep_args *args = OB_ARGS(struct fs_sweep_args);
    struct tree tree = the_tree();
    uint64_t next = blocks_sweep(tree.blocks, args->from, args->most);
    return ob_result(&next, sizeof next);
}

/* ---- Reading ------------------------------------------------------------------------------ */

/* What a file has in [first, last), no more than that; how many there are, at most `room`. */
static uint64_t put_extents(const struct inode *record, uint64_t first, uint64_t last,
                            struct inode_extent *out, uint64_t room)
{
    uint64_t count = 0;
    struct inode_extent extent;
    while (count < room && first < last && inode_extent(record, first, &extent)
           && extent.file < last) {
        uint64_t before = extent.file < first ? first - extent.file : 0;
        uint64_t end = extent.file + extent.len < last ? extent.file + extent.len : last;
        first = extent.file + before;
        out[count++] = (struct inode_extent){first, extent.block + before, end - first};
        first = end;
    }
    return count;
}

/* A file, and where its bytes [offset, offset + len) are. */
static int64_t answer_extents(const struct fs_answer *node, uint64_t offset, uint64_t len)
{
    uint64_t size = node->record.size, rest = offset < size ? size - offset : 0, count = 0;
    struct fs_answer *out = ob_out_of(sizeof *out);
    uint64_t room = (ob_out_cap() - sizeof *out) / sizeof(struct inode_extent);
    *out = *node;
    if (len > rest)
        len = rest;
    if (len > 0)
        count = put_extents(&node->record, offset / INODE_BLOCK_LEN, blocks_of(offset + len),
                            (struct inode_extent *)(out + 1), room);
    return (int64_t)(sizeof *out + count * sizeof(struct inode_extent));
}

OB_ENTRY(read)
{
    const struct fs_read_args *args = OB_ARGS(struct fs_read_args);
    struct tree tree = the_tree();
    struct fs_answer node;
    load_file(&tree, args->inode, &node);
    must_read(user_of(&tree, &args->who), &node.record);
    return answer_extents(&node, args->offset, args->len);
}

OB_ENTRY(open)
{
    const struct fs_open_args *args = OB_ARGS(struct fs_open_args);
    struct tree tree = the_tree();
    struct fs_answer node;
    load_file(&tree, args->inode, &node);
    must_open(user_of(&tree, &args->who), &node.record, args->want);
    return answer_extents(&node, 0, args->len);
}

/* The first block at `block` or behind it that is no longer mapped. */
static uint64_t end_of_data(const struct inode *record, uint64_t block)
{
    struct inode_extent extent;
    while (inode_extent(record, block, &extent) && extent.file <= block)
        block = extent.file + extent.len;
    return block;
}

OB_ENTRY(seek)
{
    const struct fs_seek_args *args = OB_ARGS(struct fs_seek_args);
    struct tree tree = the_tree();
    struct fs_answer node;
    load_file(&tree, args->inode, &node);
    must_read(user_of(&tree, &args->who), &node.record);
    uint64_t size = node.record.size, block = args->offset / INODE_BLOCK_LEN, place;
    struct inode_extent extent;
    if (args->which != FS_SEEK_DATA && args->which != FS_SEEK_HOLE)
        FAIL(E_INVAL, "one seeks data or holes");
    if (args->offset >= size)
        FAIL(E_NXIO, "the file ends before this place");
    if (args->which == FS_SEEK_HOLE)
        place = end_of_data(&node.record, block) * INODE_BLOCK_LEN;
    else if (inode_extent(&node.record, block, &extent))
        place = extent.file * INODE_BLOCK_LEN;
    else
        place = size;
    if (place < args->offset)
        place = args->offset;
    if (place >= size && args->which == FS_SEEK_DATA)
        FAIL(E_NXIO, "the file has no blocks behind this place");
    if (place > size)
        place = size;
    return ob_result(&place, sizeof place);
}

/* ---- Changing ----------------------------------------------------------------------------- */

_Noreturn static void too_much(void)
{
    FAIL(E_2BIG, "these are too many extents for one change: do it in halves");
}

static void spend(uint64_t *lines, uint64_t needed)
{
    if (*lines < needed)
        too_much();
    *lines -= needed;
}

/* Takes from a file all that it has at a block and behind it, however much that is. What cannot be
 * given back here and now belongs to an inode without names from now on. */
static void cut_tail(const struct tree *tree, struct inode *record, uint64_t block)
{
    struct inode_extent extent;
    struct inode rest, dying;
    uint64_t lines = REAP_LINES;
    if (!inode_extent(record, block, &extent))
        return;
    memset(&rest, 0, sizeof rest);
    inode_split(tree->inodes, record, block, &rest);
    if (inode_cut(tree->inodes, &rest, 0, UINT64_MAX, &lines))
        return;
    uint64_t number = inode_new(tree->inodes, (uint32_t)FILE << 12, &dying);
    rest.generation = dying.generation;
    rest.version = dying.version;
    rest.mode = dying.mode;
    rest.parent = ob_get64(FS_ROOT + DYING);
    inode_put(tree->inodes, number, &rest);
    ob_put64(FS_ROOT + DYING, number);
}

static void cut(const struct tree *tree, struct inode *record, uint64_t file, uint64_t len,
                uint64_t *lines)
{
    if (file >= FILE_BLOCKS || len >= FILE_BLOCKS - file)
        cut_tail(tree, record, file);
    else if (!inode_cut(tree->inodes, record, file, len, lines))
        too_much();
}

static void map(const struct tree *tree, struct inode *record, const struct inode_extent *extent,
                uint64_t *lines)
{
    if (extent->len == 0 || extent->len > INODE_EXTENT_MAX)
        FAIL(E_INVAL, "an extent has from 1 to 4096 blocks");
    if (extent->file > FILE_BLOCKS || extent->len > FILE_BLOCKS - extent->file)
        FAIL(E_FBIG, "a file has at most 2^43 bytes");
    if (!inode_cut(tree->inodes, record, extent->file, extent->len, lines))
        too_much();
    spend(lines, INODE_MAP_LINES(extent->len));
    inode_map(tree->inodes, record, extent);
}

static void set_size(const struct tree *tree, struct inode *record,
                     const struct fs_change_args *args)
{
    uint32_t sizes = args->which & (FS_GROW | FS_RESIZE);
    if (sizes == 0)
        return;
    if (args->size > FS_SIZE_MAX)
        FAIL(E_FBIG, "a file has at most 2^43 bytes");
    if (sizes == FS_RESIZE)
        cut_tail(tree, record, blocks_of(args->size));
    if (sizes == FS_RESIZE || args->size > record->size)
        record->size = args->size;
}

/* What it means for a file that somebody has changed its bytes. */
static void bytes_changed(struct user who, struct inode *record)
{
    if (who.uid != 0)
        record->mode &= ~(SETUID | (record->mode & 0010 ? SETGID : 0));
}

static void check_change(const struct fs_change_args *args, const struct inode *record)
{
    uint32_t which = args->which, sizes = FS_GROW | FS_RESIZE;
    uint64_t rest = ob_args_len() - sizeof *args;
    uint64_t set = which & FS_SET ? sizeof(struct fs_attr_args) : 0;
    uint64_t room = rest < set ? 0 : (rest - set) / sizeof(struct inode_extent);
    if (rest < set || (which & ~(sizes | FS_KEEP_TIMES | FS_SET)) || (which & sizes) == sizes || args->count > room)
        FAIL(E_INVAL, "flags that are none or exclude each other, or fewer extents than it says");
    if (args->version != 0 && args->version != record->version)
        FAIL(E_AGAIN, "the inode has changed meanwhile");
}

OB_ENTRY(change)
{
    const struct fs_change_args *args = OB_ARGS(struct fs_change_args);
    const struct inode_extent *extent = (const struct inode_extent *)(args + 1);
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer node;
    uint64_t lines = CHANGE_LINES;
    load_file(&tree, args->inode, &node);
    must_write(who, &node.record);
    check_change(args, &node.record);
    uint64_t before = node.record.blocks;
    cut(&tree, &node.record, args->cut, args->cut_len, &lines);
    for (uint32_t count = args->count; count > 0; count--, extent++)
        map(&tree, &node.record, extent, &lines);
    set_size(&tree, &node.record, args);
    charge(node.record.tenant, (int64_t)(node.record.blocks - before), 0);
    bytes_changed(who, &node.record);
    if (!(args->which & FS_KEEP_TIMES) || args->which & FS_SET)
        changed(&node);
    if (!(args->which & FS_KEEP_TIMES))
        node.record.mtime_ns = node.record.ctime_ns;
    if (args->which & FS_SET)
        set_attributes(who, (const struct fs_attr_args *)extent, &node.record);
    put(&tree, &node);
    return answer(&node);
}

static void check_share(const struct fs_share_args *args)
{
    uint64_t from = args->from_block, to = args->to_block;
    if (args->len > FILE_BLOCKS || to > FILE_BLOCKS - args->len || from > FILE_BLOCKS - args->len)
        FAIL(E_FBIG, "a file has at most 2^43 bytes");
    if (args->from.number == args->to.number && from < to + args->len && to < from + args->len)
        FAIL(E_INVAL, "a file's blocks are shared with itself elsewhere only");
}

OB_ENTRY(share)
{
    const struct fs_share_args *args = OB_ARGS(struct fs_share_args);
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer node, other;
    struct inode_run run = {args->from_block, args->len, args->to_block};
    uint64_t lines = CHANGE_LINES;
    load_file(&tree, args->from, &other);
    load_file(&tree, args->to, &node);
    must_read(who, &other.record);
    must_write(who, &node.record);
    check_share(args);
    uint64_t before = node.record.blocks;
    const struct inode *from = args->from.number == args->to.number ? &node.record : &other.record;
    if (!inode_cut(tree.inodes, &node.record, run.to, run.len, &lines)
        || !inode_share(tree.inodes, from, &run, &node.record, &lines))
        too_much();
    charge(node.record.tenant, (int64_t)(node.record.blocks - before), 0);
    bytes_changed(who, &node.record);
    changed(&node);
    node.record.mtime_ns = node.record.ctime_ns;
    put(&tree, &node);
    return answer(&node);
}
