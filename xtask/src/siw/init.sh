#!/bin/sh
# The guest's first process: modules, network, siw0, then /script, then off.
/bin/busybox mkdir -p /bin /usr/bin
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in $(cat /modules/order); do
    insmod "/modules/$module.ko" || echo "INIT FAILED to load $module"
done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
rdma link add siw0 type siw netdev eth0 || echo "INIT FAILED to add siw0"
# Kernel messages from here on belong to the script; they are shown if it fails.
dmesg -c > /dev/null
sh /script
code=$?
[ $code -eq 0 ] || dmesg
echo "SCRIPT EXIT $code"
poweroff -f
