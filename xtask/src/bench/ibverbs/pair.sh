# pair SIW LABEL WORDS...: with SIW as the module, runs WORDS as server and as client on this guest,
# and prints "FIGURE LABEL MiB/s". perftest's server listens a second time, sometimes later than its
# client connects: such a run is repeated.
port=19000
pair() {
    module=$1
    label=$2
    shift 2
    rdma link delete siw0
    rmmod siw
    insmod "/modules/$module.ko" || exit 1
    rdma link add siw0 type siw netdev eth0 || exit 1
    once "$@" || once "$@" || once "$@" || exit 1
    echo "FIGURE $label $(awk '$1 == 65536 { print $4 }' /tmp/client)"
}
once() {
    port=$((port + 1))
    timeout 30 "$@" -p $port > /tmp/server 2>&1 &
    wait-listen $port || return 1
    timeout 20 "$@" -p $port 10.0.2.15 > /tmp/client 2>&1
    code=$?
    [ $code -eq 0 ] || kill $!
    wait $!
    [ $code -eq 0 ] || cat /tmp/server /tmp/client
    return $code
}
