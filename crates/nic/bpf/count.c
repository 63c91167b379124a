/* count: packets and bytes by protocol and by port. Every packet passes; nothing is sent.
 *
 * Configuration: `struct ports` below. A packet counts for each port of the list that it comes from
 * or goes to, once: for the first one that fits. */
#include "offcode_bpf.h"

#define PORTS 16

struct ports {
    __u32 ports;
    __u16 port[PORTS];
};

enum {
    ALL = 1,
    IPV4 = 3,
    IPV6 = 5,
    ARP = 7,
    OTHER = 9,
    TCP = 11,
    UDP = 13,
    ICMP = 15,
    PORT = 17,
    COUNTERS = PORT + 2 * PORTS
};

#define NAMES(name) "\0" name ".packets\0" name ".bytes"

OC_LICENSE("Dual MIT/GPL");
OC_CONFIG;
OC_COUNTERS(COUNTERS, "lost"
    NAMES("all") NAMES("ipv4") NAMES("ipv6") NAMES("arp") NAMES("other")
    NAMES("tcp") NAMES("udp") NAMES("icmp")
    NAMES("port_0") NAMES("port_1") NAMES("port_2") NAMES("port_3")
    NAMES("port_4") NAMES("port_5") NAMES("port_6") NAMES("port_7")
    NAMES("port_8") NAMES("port_9") NAMES("port_10") NAMES("port_11")
    NAMES("port_12") NAMES("port_13") NAMES("port_14") NAMES("port_15"));

OC_INLINE void add(__u32 number, __u64 bytes)
{
    oc_count(number, 1);
    oc_count(number + 1, bytes);
}

OC_INLINE __u32 by_type(const struct oc_flow *flow)
{
    if (flow->family == 4)
        return IPV4;
    if (flow->family == 6)
        return IPV6;
    return flow->ethertype == 0x0806 ? ARP : OTHER;
}

OC_INLINE void by_protocol(const struct oc_flow *flow, __u64 bytes)
{
    if (flow->protocol == 6)
        add(TCP, bytes);
    else if (flow->protocol == 17)
        add(UDP, bytes);
    else if (flow->family && (flow->protocol == 1 || flow->protocol == 58))
        add(ICMP, bytes);
}

OC_INLINE void by_port(const struct oc_flow *flow, __u64 bytes)
{
    const struct ports *ports = oc_configured(struct ports);
    if (!ports || (!flow->source_port && !flow->destination_port))
        return;
    for (__u32 i = 0; i < PORTS && i < ports->ports; i++) {
        __u16 port = ports->port[i];
        if (port && (port == flow->source_port || port == flow->destination_port)) {
            add(PORT + 2 * i, bytes);
            return;
        }
    }
}

OC_XDP int count(struct xdp_md *context)
{
    struct oc_flow flow;
    __u64 bytes = bpf_xdp_get_buff_len(context);
    oc_parse(context, &flow);
    add(ALL, bytes);
    add(by_type(&flow), bytes);
    by_protocol(&flow, bytes);
    by_port(&flow, bytes);
    return XDP_PASS;
}
