/* offcode_bpf.h: what a body of code that runs in a network interface's receive path is written
 * with. It needs no other header: the few numbers of Linux that it takes are part of its ABI.
 *
 * Build:  clang --target=bpfel -mcpu=v3 -O2 -g -c body.c -o body.o
 *
 * A body is one object with one program, in section "xdp" or "xdp.frags" (OC_XDP), else in section
 * "classifier" (traffic control, ingress). What it shares with user space are maps of these names,
 * all optional:
 *
 *   oc_config    OC_CONFIG_BYTES bytes, set before the program sees a packet; never changed after.
 *   oc_counters  64-bit counters by number, one each per processor, read as sums. Number 0 is always
 *                "lost": records for which oc_out had no room. OC_COUNTERS declares all, by name.
 *   oc_out       records to user space: the messages of the body's channel. At most OC_RECORD_BYTES
 *                each. OC_OUT declares it; its size is a power of two and of whole pages.
 *   oc_state     64-bit words that are saved, and restored before the program sees a packet.
 *                OC_STATE declares it. All processors share it: add with __sync_fetch_and_add.
 *                "Every nth packet" is counted here, never in oc_counters, which would count to n
 *                on each processor by itself.
 *   oc_xsks      sockets (AF_XDP) by queue, for bpf_redirect_map.
 *
 * Maps of other names are the body's own. Nothing may be pinned: it would outlive its owner.
 * Everything is little-endian. Linux 5.18 or later.
 */
#ifndef OFFCODE_BPF_H
#define OFFCODE_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;

/* Limits; the same numbers stand in the loader. */
#define OC_CONFIG_BYTES 1024
#define OC_RECORD_BYTES 4096
#define OC_CAPTURE_BYTES 2048
#define OC_LOST 0

#define SEC(name) __attribute__((section(name), used))
#define OC_XDP SEC("xdp.frags")
#define OC_CLASSIFIER SEC("classifier")
#define OC_INLINE static inline __attribute__((always_inline, unused))
#define OC_LICENSE(text) char oc_license[] SEC("license") = text

#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value) *name

/* Map types, verdicts, helpers: numbers of Linux's ABI (include/uapi/linux/bpf.h). */
#define OC_MAP_ARRAY 2
#define OC_MAP_PERCPU_ARRAY 6
#define OC_MAP_XSKMAP 17
#define OC_MAP_RINGBUF 27

#define XDP_ABORTED 0
#define XDP_DROP 1
#define XDP_PASS 2
#define XDP_TX 3
#define XDP_REDIRECT 4

struct xdp_md {
    __u32 data;
    __u32 data_end;
    __u32 data_meta;
    __u32 ingress_ifindex;
    __u32 rx_queue_index;
    __u32 egress_ifindex;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
static long (*bpf_ringbuf_output)(void *ring, const void *data, __u64 size, __u64 flags) =
    (void *)130;
static __u64 (*bpf_xdp_get_buff_len)(struct xdp_md *context) = (void *)188;
static long (*bpf_xdp_load_bytes)(struct xdp_md *context, __u32 offset, void *to, __u32 length) =
    (void *)189;

/* Names of counters stand in a section that is never loaded, each followed by a zero. */
#define OC_COUNTERS(count, names)                                                                  \
    struct {                                                                                       \
        __uint(type, OC_MAP_PERCPU_ARRAY);                                                         \
        __uint(max_entries, count);                                                                \
        __type(key, __u32);                                                                        \
        __type(value, __u64);                                                                      \
    } oc_counters SEC(".maps");                                                                    \
    const char oc_counter_names[] SEC("oc_names") = names

#define OC_CONFIG                                                                                  \
    struct {                                                                                       \
        __uint(type, OC_MAP_ARRAY);                                                                \
        __uint(max_entries, 1);                                                                    \
        __type(key, __u32);                                                                        \
        __type(value, __u8[OC_CONFIG_BYTES]);                                                      \
    } oc_config SEC(".maps")

#define OC_STATE(words)                                                                            \
    struct {                                                                                       \
        __uint(type, OC_MAP_ARRAY);                                                                \
        __uint(max_entries, words);                                                                \
        __type(key, __u32);                                                                        \
        __type(value, __u64);                                                                      \
    } oc_state SEC(".maps")

#define OC_OUT(bytes)                                                                              \
    struct {                                                                                       \
        __uint(type, OC_MAP_RINGBUF);                                                              \
        __uint(max_entries, bytes);                                                                \
    } oc_out SEC(".maps")

#define OC_XSKS(queues)                                                                            \
    struct {                                                                                       \
        __uint(type, OC_MAP_XSKMAP);                                                               \
        __uint(max_entries, queues);                                                               \
        __uint(key_size, 4);                                                                       \
        __uint(value_size, 4);                                                                     \
    } oc_xsks SEC(".maps")

/* Adds to a counter of this processor. */
#define oc_count(number, amount)                                                                   \
    do {                                                                                           \
        __u32 oc_key = (number);                                                                   \
        __u64 *oc_value = bpf_map_lookup_elem(&oc_counters, &oc_key);                              \
        if (oc_value)                                                                              \
            *oc_value += (amount);                                                                 \
    } while (0)

/* The configuration, as a structure of at most OC_CONFIG_BYTES; null never happens. */
#define oc_configured(type)                                                                        \
    ({                                                                                             \
        __u32 oc_key = 0;                                                                          \
        (const type *)bpf_map_lookup_elem(&oc_config, &oc_key);                                    \
    })

/* Adds 1 to a word of the state and gives what it was before, on all processors together. */
#define oc_next(word)                                                                              \
    ({                                                                                             \
        __u32 oc_key = (word);                                                                     \
        __u64 *oc_value = bpf_map_lookup_elem(&oc_state, &oc_key);                                 \
        oc_value ? __sync_fetch_and_add(oc_value, 1) : 0;                                          \
    })

/* Sends a record to user space; 1, or 0 when it was lost, which is counted. */
#define oc_send(data, length)                                                                      \
    ({                                                                                             \
        int oc_sent = bpf_ringbuf_output(&oc_out, (data), (length), 0) == 0;                       \
        if (!oc_sent)                                                                              \
            oc_count(OC_LOST, 1);                                                                  \
        oc_sent;                                                                                   \
    })

/* A captured packet as a record: this head, then `captured` bytes from the Ethernet header on. */
struct oc_packet {
    __u64 number;   /* of this packet among those that matched, from 0 */
    __u32 length;   /* of the whole packet, bytes */
    __u32 captured; /* bytes that follow */
};

struct oc_capture {
    struct oc_packet head;
    __u8 bytes[OC_CAPTURE_BYTES];
};

/* Where a processor puts a record together. */
#define OC_CAPTURE                                                                                 \
    struct {                                                                                       \
        __uint(type, OC_MAP_PERCPU_ARRAY);                                                         \
        __uint(max_entries, 1);                                                                    \
        __type(key, __u32);                                                                        \
        __type(value, struct oc_capture);                                                          \
    } oc_capture SEC(".maps")

/* Fills a capture with the packet's first bytes; the record's length, 0 if that is impossible. */
OC_INLINE __u32 oc_fill(struct xdp_md *context, struct oc_capture *to, __u64 number, __u32 wanted)
{
    __u64 length = bpf_xdp_get_buff_len(context);
    __u64 captured = wanted < length ? wanted : length;
    if (captured > OC_CAPTURE_BYTES)
        captured = OC_CAPTURE_BYTES;
    /* The verifier must see the bounds of the value that is used. */
    asm volatile("" : "+r"(captured));
    if (captured > OC_CAPTURE_BYTES)
        return 0;
    to->head.number = number;
    to->head.length = (__u32)length;
    to->head.captured = (__u32)captured;
    if (captured && bpf_xdp_load_bytes(context, 0, to->bytes, (__u32)captured))
        return 0;
    return sizeof(struct oc_packet) + (__u32)captured;
}

/* Sends the first `wanted` bytes of the packet as a record; 1, or 0 when it was lost. */
#define oc_send_packet(context, number, wanted)                                                    \
    ({                                                                                             \
        __u32 oc_zero = 0;                                                                         \
        struct oc_capture *oc_to = bpf_map_lookup_elem(&oc_capture, &oc_zero);                     \
        __u32 oc_length = oc_to ? oc_fill((context), oc_to, (number), (wanted)) : 0;               \
        oc_length ? oc_send(oc_to, oc_length) : 0;                                                 \
    })

/* What a packet says of itself: Ethernet, up to two VLAN tags, IPv4 or IPv6, TCP, UDP or SCTP.
 * Fragments but the first, and what stands behind extension headers of IPv6, have no ports. */
struct oc_flow {
    __u16 ethertype;        /* host order; behind VLAN tags */
    __u8 family;            /* 4, 6, or 0: no IP */
    __u8 protocol;          /* of IP; for IPv6 that of the first header behind it */
    __u16 source_port;      /* host order; 0 if there is none */
    __u16 destination_port;
    __u32 source[4];        /* as on the wire; an IPv4 address is the first word */
    __u32 destination[4];
};

#define OC_SWAP16(value) __builtin_bswap16(value)

OC_INLINE void oc_ports(struct oc_flow *flow, const __u8 *at, const __u8 *end)
{
    if (flow->protocol != 6 && flow->protocol != 17 && flow->protocol != 132)
        return;
    if (at + 4 > end)
        return;
    flow->source_port = OC_SWAP16(*(const __u16 *)at);
    flow->destination_port = OC_SWAP16(*(const __u16 *)(at + 2));
}

OC_INLINE void oc_ipv4(struct oc_flow *flow, const __u8 *at, const __u8 *end)
{
    if (at + 20 > end || (at[0] >> 4) != 4)
        return;
    __u32 header = (at[0] & 15) * 4;
    if (header < 20)
        return;
    flow->family = 4;
    flow->protocol = at[9];
    flow->source[0] = *(const __u32 *)(at + 12);
    flow->destination[0] = *(const __u32 *)(at + 16);
    if ((OC_SWAP16(*(const __u16 *)(at + 6)) & 0x1fff) == 0)
        oc_ports(flow, at + header, end);
}

OC_INLINE void oc_ipv6(struct oc_flow *flow, const __u8 *at, const __u8 *end)
{
    if (at + 40 > end || (at[0] >> 4) != 6)
        return;
    flow->family = 6;
    flow->protocol = at[6];
    for (int word = 0; word < 4; word++) {
        flow->source[word] = *(const __u32 *)(at + 8 + 4 * word);
        flow->destination[word] = *(const __u32 *)(at + 24 + 4 * word);
    }
    oc_ports(flow, at + 40, end);
}

/* Reads the headers of a packet. What is cut off is left at 0. */
OC_INLINE void oc_parse(struct xdp_md *context, struct oc_flow *flow)
{
    const __u8 *at = (const __u8 *)(long)context->data;
    const __u8 *end = (const __u8 *)(long)context->data_end;
    *flow = (struct oc_flow){0};
    if (at + 14 > end)
        return;
    __u16 type = OC_SWAP16(*(const __u16 *)(at + 12));
    at += 14;
    for (int tags = 0; tags < 2; tags++) {
        if ((type != 0x8100 && type != 0x88a8) || at + 4 > end)
            break;
        type = OC_SWAP16(*(const __u16 *)(at + 2));
        at += 4;
    }
    flow->ethertype = type;
    if (type == 0x0800)
        oc_ipv4(flow, at, end);
    else if (type == 0x86dd)
        oc_ipv6(flow, at, end);
}

/* Which packets are meant. A zero means "any"; an address matches where its mask has ones. */
struct oc_rule {
    __u8 family;            /* 0, 4 or 6 */
    __u8 protocol;          /* 0, or IP's number: 6 TCP, 17 UDP */
    __u16 source_port;
    __u16 destination_port;
    __u16 verdict;          /* 0 pass, 1 drop */
    __u32 capture;          /* bytes of a matching packet that are sent; 0: nothing is sent */
    __u32 source[4];
    __u32 source_mask[4];
    __u32 destination[4];
    __u32 destination_mask[4];
};

OC_INLINE int oc_matches(const struct oc_rule *rule, const struct oc_flow *flow)
{
    if (!flow->family || (rule->family && rule->family != flow->family))
        return 0;
    if (rule->protocol && rule->protocol != flow->protocol)
        return 0;
    if (rule->source_port && rule->source_port != flow->source_port)
        return 0;
    if (rule->destination_port && rule->destination_port != flow->destination_port)
        return 0;
    __u32 differ = 0;
    for (int word = 0; word < 4; word++) {
        differ |= (flow->source[word] & rule->source_mask[word]) ^ rule->source[word];
        differ |= (flow->destination[word] & rule->destination_mask[word]) ^
                  rule->destination[word];
    }
    return !differ;
}

#endif
