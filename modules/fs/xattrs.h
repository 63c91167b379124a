/* xattrs.h: a part of fs.c, which includes it once: extended attributes. All that an inode has are
 * in one piece of memory, which is made anew when one of them changes. */

#define XATTRS_HEAD 8u
#define XATTR_HEAD 8u

/* An attribute in memory: where, and what it is said to have. */
struct xattr {
    uint64_t at;
    uint32_t name_len, value_len;
};

static uint64_t xattr_len(const struct xattr *xattr)
{
    return XATTR_HEAD + ((uint64_t)xattr->name_len + xattr->value_len + 7) / 8 * 8;
}

static uint64_t xattr_value(const struct xattr *xattr)
{
    return xattr->at + XATTR_HEAD + xattr->name_len;
}

/* The first place behind an inode's attributes; `at` is the first one's. */
static uint64_t xattrs_of(const struct inode *record, uint64_t *at)
{
    *at = record->xattrs + XATTRS_HEAD;
    return record->xattrs == 0 ? *at : *at + ob_get64(record->xattrs);
}

static void load_xattr(uint64_t at, struct xattr *xattr)
{
    uint64_t head = ob_get64(at);
    *xattr = (struct xattr){at, (uint32_t)head, (uint32_t)(head >> 32)};
}

static bool find_xattr(const struct inode *record, struct name name, struct xattr *xattr)
{
    uint64_t at, end = xattrs_of(record, &at);
    for (; at < end; at += xattr_len(xattr)) {
        load_xattr(at, xattr);
        if (xattr->name_len == name.len && ob_equals(at + XATTR_HEAD, name.at, name.len))
            return true;
    }
    return false;
}

/* ---- Names and rights --------------------------------------------------------------------- */

/* For whom a name is, by what it begins with. */
enum space { USER_SPACE, TRUSTED_SPACE, SECURITY_SPACE };

static bool begins(struct name name, const char *with, uint64_t len)
{
    return name.len >= len && memcmp(name.at, with, (size_t)len) == 0;
}

static enum space space_of(struct name name)
{
    static const struct {
        char text[10];
        uint8_t len;
    } spaces[] = {{"user.", 5}, {"trusted.", 8}, {"security.", 9}};
    for (uint32_t at = 0; at < 3; at++) {
        if (!begins(name, spaces[at].text, spaces[at].len))
            continue;
        if (name.len == spaces[at].len)
            FAIL(E_INVAL, "an attribute's name goes on behind the dot");
        return (enum space)at;
    }
    FAIL(E_OPNOTSUPP, "an attribute's name begins with user., trusted. or security.");
}

static void must_change_xattr(struct user who, const struct inode *record, enum space space)
{
    if (space != USER_SPACE) {
        if (who.uid != 0)
            FAIL(E_PERM, "only user 0 sets such attributes");
        return;
    }
    if (!is_directory(record) && kind_of(record) != FILE)
        FAIL(E_PERM, "only files and directories have such attributes");
    if (is_directory(record) && (record->mode & STICKY) && !owns(who, record))
        FAIL(E_PERM, "in this directory only the owner may");
    must(who, record, MAY_WRITE);
}

static void must_read_xattr(struct user who, const struct inode *record, enum space space)
{
    if (space == TRUSTED_SPACE && who.uid != 0)
        FAIL(E_NODATA, "there is no such attribute");
    if (space != USER_SPACE)
        return;
    if (!is_directory(record) && kind_of(record) != FILE)
        FAIL(E_NODATA, "only files and directories have such attributes");
    must(who, record, MAY_READ);
}

/* What the arguments name: the inode, the attribute, its name and its value. */
struct xattr_call {
    struct tree tree;
    struct user who;
    struct fs_answer node;
    struct name name, value;
    enum space space;
};

static const struct fs_xattr_args *begin_xattr(struct xattr_call *call)
{
    const struct fs_xattr_args *args = OB_ARGS(struct fs_xattr_args);
    uint64_t rest = ob_args_len() - sizeof *args;
    const unsigned char *name = (const unsigned char *)(args + 1);
    call->tree = the_tree();
    call->who = user_of(&call->tree, &args->who);
    load(&call->tree, args->inode, &call->node);
    if (args->name_len > rest || args->value_len > rest - args->name_len)
        FAIL(E_INVAL, "the arguments are shorter than they say");
    call->name = (struct name){name, args->name_len};
    call->value = (struct name){name + args->name_len, args->value_len};
    return args;
}

/* The same, for entries that take a name. */
static const struct fs_xattr_args *begin_named(struct xattr_call *call)
{
    const struct fs_xattr_args *args = begin_xattr(call);
    if (call->name.len == 0 || call->name.len > FS_XATTR_NAME_MAX)
        FAIL(E_RANGE, "an attribute's name has from 1 to 255 bytes");
    for (uint64_t at = 0; at < call->name.len; at++)
        if (call->name.at[at] == 0)
            FAIL(E_INVAL, "an attribute's name has no byte of 0");
    call->space = space_of(call->name);
    return args;
}

/* ---- Changing ----------------------------------------------------------------------------- */

/* Copies bytes of the region to elsewhere in it. */
static void move_bytes(uint64_t to, uint64_t from, uint64_t len)
{
    unsigned char piece[512];
    for (uint64_t part; len > 0; to += part, from += part, len -= part) {
        part = len < sizeof piece ? len : sizeof piece;
        ob_get(from, piece, part);
        ob_put(to, piece, part);
    }
}

/* Puts an attribute, filled up with zeroes. */
static void put_xattr(uint64_t at, struct name name, struct name value)
{
    struct xattr xattr = {at, (uint32_t)name.len, (uint32_t)value.len};
    uint64_t last = at + xattr_len(&xattr) - 8;
    if (name.len + value.len > 0)
        ob_put64(last, 0);
    ob_put64(at, (uint64_t)xattr.value_len << 32 | xattr.name_len);
    ob_put(at + XATTR_HEAD, name.at, name.len);
    ob_put(xattr_value(&xattr), value.at, value.len);
}

/* Makes an inode's attributes anew: without the one in the middle, with `more` bytes behind them.
 * The place of these. */
static uint64_t renew(const struct tree *tree, struct inode *record, const struct xattr *without,
                      uint64_t more)
{
    uint64_t first, end = xattrs_of(record, &first), before = record->xattrs, block = 0;
    uint64_t head = without == NULL ? end - first : without->at - first;
    uint64_t tail = without == NULL ? 0 : end - without->at - xattr_len(without);
    uint64_t len = head + tail + more;
    if (len > FS_XATTRS_MAX)
        FAIL(E_NOSPC, "an inode's attributes have at most 64 KiB");
    if (len > 0) {
        block = take_memory(tree, XATTRS_HEAD + len);
        ob_put64(block, len);
        move_bytes(block + XATTRS_HEAD, first, head);
        move_bytes(block + XATTRS_HEAD + head, end - tail, tail);
    }
    if (before != 0)
        alloc_give(heap_of(tree), before);
    record->xattrs = block;
    return block + XATTRS_HEAD + head + tail;
}

OB_ENTRY(set_xattr)
{
    struct xattr_call call;
    struct xattr xattr;
    const struct fs_xattr_args *args = begin_named(&call);
    struct inode *record = &call.node.record;
    must_change_xattr(call.who, record, call.space);
    if (args->flags & ~(FS_XATTR_CREATE | FS_XATTR_REPLACE))
        FAIL(E_INVAL, "there is no such flag");
    if (args->value_len > FS_XATTR_VALUE_MAX)
        FAIL(E_2BIG, "an attribute's value has at most 64 KiB");
    bool is_there = find_xattr(record, call.name, &xattr);
    if (is_there && (args->flags & FS_XATTR_CREATE))
        FAIL(E_EXIST, "there is such an attribute already");
    if (!is_there && (args->flags & FS_XATTR_REPLACE))
        FAIL(E_NODATA, "there is no such attribute");
    struct xattr made = {0, args->name_len, args->value_len};
    uint64_t at = renew(&call.tree, record, is_there ? &xattr : NULL, xattr_len(&made));
    put_xattr(at, call.name, call.value);
    changed(&call.node);
    put(&call.tree, &call.node);
    return 0;
}

OB_ENTRY(remove_xattr)
{
    struct xattr_call call;
    struct xattr xattr;
    begin_named(&call);
    must_change_xattr(call.who, &call.node.record, call.space);
    if (!find_xattr(&call.node.record, call.name, &xattr))
        FAIL(E_NODATA, "there is no such attribute");
    renew(&call.tree, &call.node.record, &xattr, 0);
    changed(&call.node);
    put(&call.tree, &call.node);
    return 0;
}

/* ---- Looking ------------------------------------------------------------------------------ */

OB_ENTRY(get_xattr)
{
    struct xattr_call call;
    struct xattr xattr;
    begin_named(&call);
    must_read_xattr(call.who, &call.node.record, call.space);
    if (!find_xattr(&call.node.record, call.name, &xattr))
        FAIL(E_NODATA, "there is no such attribute");
    ob_get(xattr_value(&xattr), ob_out_of(xattr.value_len), xattr.value_len);
    return xattr.value_len;
}

OB_ENTRY(list_xattr)
{
    struct xattr_call call;
    struct xattr xattr;
    begin_xattr(&call);
    uint64_t at, end = xattrs_of(&call.node.record, &at), len = 0;
    for (; at < end; at += xattr_len(&xattr)) {
        load_xattr(at, &xattr);
        unsigned char *out = (unsigned char *)ob_out_of(len + xattr.name_len + 1) + len;
        ob_get(at + XATTR_HEAD, out, xattr.name_len);
        struct name name = {out, xattr.name_len};
        if (begins(name, "trusted.", 8) && call.who.uid != 0)
            continue;
        out[xattr.name_len] = 0;
        len += xattr.name_len + 1;
    }
    return (int64_t)len;
}
