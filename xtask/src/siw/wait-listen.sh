#!/bin/sh
# wait-listen PORT: returns once a socket listens on that TCP port, fails after ten seconds.
socket=$(printf ':%04X 0*:0000 0A' "$1")
for turn in $(seq 200); do
    grep -q "$socket" /proc/net/tcp /proc/net/tcp6 && exit 0
    usleep 50000
done
echo "nothing listens on port $1"
exit 1
