#!/bin/sh
# rping-once WORDS: rping(1) without one of its faults, which has nothing to do with the peer. In
# rdma-core 44 `main` destroys the event channel while `cm_thread` waits on its descriptor:
# sometimes that thread then reports EBADF and calls exit(3) with it, although all went well. Later
# versions stop the thread first ("rping: terminate CM event thread before exiting").
log=/log.$$
rping "$@" > "$log" 2>&1
code=$?
cat "$log"
[ $code -eq 0 ] && exit 0
grep -q 'rdma_get_cm_event: Bad file descriptor' "$log" && ! grep -q 'mismatch\|failed' "$log"
