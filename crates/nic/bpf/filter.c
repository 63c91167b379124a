/* filter: passes or drops packets by rules, and sends the first bytes of those that match.
 *
 * Configuration: `struct filter` below. The first rule that matches decides; an IP packet that none
 * matches is treated as `otherwise` says; what is no IP (ARP) always passes. State: word 0 is the
 * number of matching packets so far, which is the next record's `number`. */
#include "offcode_bpf.h"

#define RULES 12

struct filter {
    __u32 rules;
    __u32 otherwise; /* 0 pass, 1 drop */
    struct oc_rule rule[RULES];
};

enum { PACKETS = 1, BYTES, MATCHED, DROPPED, SENT, COUNTERS };

OC_LICENSE("Dual MIT/GPL");
OC_CONFIG;
OC_STATE(1);
OC_OUT(1 << 20);
OC_CAPTURE;
OC_COUNTERS(COUNTERS, "lost\0packets\0bytes\0matched\0dropped\0sent");

OC_INLINE int matched(struct xdp_md *context, const struct oc_rule *rule)
{
    __u64 number = oc_next(0);
    oc_count(MATCHED, 1);
    if (rule->capture && oc_send_packet(context, number, rule->capture))
        oc_count(SENT, 1);
    return rule->verdict;
}

OC_INLINE int decide(struct xdp_md *context)
{
    struct oc_flow flow;
    const struct filter *filter = oc_configured(struct filter);
    oc_parse(context, &flow);
    if (!filter || !flow.family)
        return 0;
    for (__u32 i = 0; i < RULES && i < filter->rules; i++)
        if (oc_matches(&filter->rule[i], &flow))
            return matched(context, &filter->rule[i]);
    return filter->otherwise;
}

OC_XDP int filter(struct xdp_md *context)
{
    oc_count(PACKETS, 1);
    oc_count(BYTES, bpf_xdp_get_buff_len(context));
    if (!decide(context))
        return XDP_PASS;
    oc_count(DROPPED, 1);
    return XDP_DROP;
}
