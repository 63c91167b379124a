/* list.c: a linked list in a region; list.h says how it is laid out, and how clients work on it. */
#define OB_MODULE list
#include "list/list.h"

enum { MAGIC = 0, HEAD = 8, END = 16, FRESH = 24, FREE = 32, COUNT = 40 };
enum { NEXT = 0, KEY = 8, VALUE_LEN = 16, VALUE = 24 };

/* A place in a list. */
struct position {
    uint64_t link, node, hops; /* offset of the word that leads to the node; the node, or 0 */
};

static void check_list(uint64_t root)
{
    if (ob_get64(root + MAGIC) != LIST_MAGIC)
        OB_FAIL(LIST_E_NO_LIST, "there is no list at this offset: call list's init first");
}

/* Walks so many nodes, or to the end. */
static struct position walk(uint64_t root, uint64_t hops)
{
    struct position at = {root + HEAD, ob_get64(root + HEAD), 0};
    for (; at.node != 0 && at.hops < hops; at.hops++) {
        at.link = at.node + NEXT;
        at.node = ob_get64(at.link);
    }
    return at;
}

/* Walks to the first node with a key, or to the end. */
static struct position search(uint64_t root, uint64_t key)
{
    struct position at = {root + HEAD, ob_get64(root + HEAD), 0};
    for (; at.node != 0 && ob_get64(at.node + KEY) != key; at.hops++) {
        at.link = at.node + NEXT;
        at.node = ob_get64(at.link);
    }
    return at;
}

static uint64_t take_node(uint64_t root)
{
    uint64_t node = ob_get64(root + FREE);
    if (node != 0) {
        ob_put64(root + FREE, ob_get64(node + NEXT) & ~(uint64_t)LIST_REMOVED);
        return node;
    }
    uint64_t fresh = ob_get64(root + FRESH);
    if (fresh > ob_get64(root + END) - LIST_NODE_LEN)
        OB_FAIL(LIST_E_FULL, "the list has no room for a node");
    ob_put64(root + FRESH, fresh + LIST_NODE_LEN);
    return fresh;
}

static int64_t answer(struct position at)
{
    struct list_get_result *result = ob_out_of(sizeof *result + LIST_VALUE_MAX);
    *result = (struct list_get_result){at.node != 0, at.hops, at.node, 0};
    if (at.node == 0)
        return sizeof *result;
    struct list_node node;
    ob_get(at.node, &node, sizeof node);
    result->key = node.key;
    uint64_t len = node.value_len <= LIST_VALUE_MAX ? node.value_len : LIST_VALUE_MAX;
    memcpy(result + 1, node.value, (size_t)len);
    return (int64_t)(sizeof *result + len);
}

static int64_t number(uint64_t value) { return ob_result(&value, sizeof value); }

OB_ENTRY(init)
{
    const struct list_init_args *args = OB_ARGS(struct list_init_args);
    uint64_t root = args->root;
    if (root % 64 != 0 || args->len < LIST_HEADER_LEN + LIST_NODE_LEN
        || !ob_is_inside(root, args->len))
        OB_FAIL(LIST_E_RANGE, "a list's place must be a multiple of 64, inside the region, with "
                              "room for a node");
    uint64_t header[8] = {LIST_MAGIC, 0, root + args->len, root + LIST_HEADER_LEN, 0, 0, 0, 0};
    ob_put(root, header, sizeof header);
    return 0;
}

OB_ENTRY(put)
{
    const struct list_put_args *args = OB_ARGS(struct list_put_args);
    uint64_t len = ob_args_len() - sizeof *args;
    check_list(args->root);
    if (len > LIST_VALUE_MAX)
        OB_FAIL(LIST_E_VALUE, "a value has at most 40 bytes");
    struct position at = walk(args->root, args->hops);
    struct list_node node = {.next = at.node, .key = args->key, .value_len = len};
    memcpy(node.value, args + 1, (size_t)len);
    uint64_t offset = take_node(args->root);
    ob_put(offset, &node, sizeof node);
    /* A peer that links a node here meanwhile makes this execution run again. */
    ob_name64(at.link, at.node);
    ob_put64(at.link, offset);
    ob_put64(args->root + COUNT, ob_get64(args->root + COUNT) + 1);
    return number(offset);
}

OB_ENTRY(get)
{
    const struct list_get_args *args = OB_ARGS(struct list_get_args);
    check_list(args->root);
    return answer(search(args->root, args->key));
}

OB_ENTRY(at)
{
    const struct list_at_args *args = OB_ARGS(struct list_at_args);
    check_list(args->root);
    return answer(walk(args->root, args->hops));
}

OB_ENTRY(remove)
{
    const struct list_remove_args *args = OB_ARGS(struct list_remove_args);
    check_list(args->root);
    struct position at = search(args->root, args->key);
    if (at.node == 0)
        return number(0);
    uint64_t next = ob_get64(at.node + NEXT);
    ob_name64(at.link, at.node);
    ob_name64(at.node + NEXT, next);
    ob_put64(at.link, next);
    ob_put64(at.node + NEXT, ob_get64(args->root + FREE) | LIST_REMOVED);
    ob_put64(args->root + FREE, at.node);
    ob_put64(args->root + COUNT, ob_get64(args->root + COUNT) - 1);
    return number(1);
}

OB_ENTRY(count)
{
    uint64_t root = *OB_ARGS(uint64_t);
    check_list(root);
    return number(walk(root, LIST_END).hops);
}

OB_ENTRY(take)
{
    const struct list_take_args *args = OB_ARGS(struct list_take_args);
    check_list(args->root);
    if (args->number > 256)
        OB_FAIL(OB_E_ARGS, "at most 256 nodes at once");
    uint64_t *nodes = ob_out_of(args->number * sizeof *nodes);
    for (uint64_t i = 0; i < args->number; i++)
        nodes[i] = take_node(args->root);
    return (int64_t)(args->number * sizeof *nodes);
}
