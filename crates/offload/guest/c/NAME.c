/* NAME: counts the messages that pass from `in` to `out`; replace that by what you need.
 *
 * offcode.h says how an offcode works, offcode.toml what this one is.
 */
#include "offcode.h"

/* Places in offcode.toml. */
enum { PORT_IN, PORT_OUT };
/* Methods, in the order of wit/NAME.wit. */
enum { METHOD_COUNT, METHOD_RESET };

static uint64_t count;
/* A message that has found its channel full. */
static uint8_t waiting[OFFCODE_BUFFER_LEN];
static size_t waiting_len;

int32_t oc_start(void)
{
    OFFCODE_LOG(OFFCODE_INFO, "NAME has started");
    return 0;
}

void oc_message(int32_t port, const uint8_t *ptr, size_t len)
{
    if (port != PORT_IN)
        return;
    count++;
    if (offcode_send(PORT_OUT, ptr, len) != OFFCODE_FULL)
        return;
    if (len > sizeof waiting)
        OFFCODE_FAIL("a message is longer than NAME can keep");
    memcpy(waiting, ptr, len);
    waiting_len = len;
    offcode_hold(PORT_IN);
}

void oc_writable(int32_t port)
{
    if (port != PORT_OUT)
        return;
    if (offcode_send(PORT_OUT, waiting, waiting_len) != OFFCODE_FULL)
        offcode_release(PORT_IN);
}

void oc_call(int32_t interface, int32_t method, int64_t call, const uint8_t *ptr, size_t len)
{
    uint8_t results[10];
    (void)interface, (void)ptr, (void)len;
    switch (method) {
    case METHOD_COUNT:
        offcode_answer(call, results, offcode_put_varint(results, count));
        break;
    case METHOD_RESET:
        count = 0;
        offcode_answer(call, results, 0);
        break;
    default:
        OFFCODE_REFUSE(call, "there is no such method");
    }
}

/* An update to other code takes the count along. A device that moves this code as it is needs
 * neither of these. */
int64_t oc_save(void)
{
    return offcode_state(&count, sizeof count);
}

int32_t oc_restore(const uint8_t *ptr, size_t len)
{
    if (len != sizeof count)
        return 1;
    memcpy(&count, ptr, len);
    return 0;
}
