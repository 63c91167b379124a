/* sample: sends the first bytes of every nth packet that matches. Every packet passes.
 *
 * Configuration: `struct sample` below; the rule's verdict is not looked at. State: word 0 is the
 * number of matching packets so far, on all processors together: with `every` = 4, those with the
 * numbers 3, 7, 11 are sent, however many processors receive. */
#include "offcode_bpf.h"

struct sample {
    __u32 every; /* 0: none */
    __u32 reserved;
    struct oc_rule rule;
};

enum { PACKETS = 1, MATCHED, SENT, COUNTERS };

OC_LICENSE("Dual MIT/GPL");
OC_CONFIG;
OC_STATE(1);
OC_OUT(1 << 20);
OC_CAPTURE;
OC_COUNTERS(COUNTERS, "lost\0packets\0matched\0sent");

OC_XDP int sample(struct xdp_md *context)
{
    struct oc_flow flow;
    const struct sample *sample = oc_configured(struct sample);
    oc_count(PACKETS, 1);
    oc_parse(context, &flow);
    if (!sample || !oc_matches(&sample->rule, &flow))
        return XDP_PASS;
    oc_count(MATCHED, 1);
    __u64 number = oc_next(0);
    if (sample->every && (number + 1) % sample->every == 0)
        if (oc_send_packet(context, number, sample->rule.capture))
            oc_count(SENT, 1);
    return XDP_PASS;
}
