#!/bin/sh
# Writes packets as lines of hexadecimal digits: in each of ROUNDS rounds, three UDP packets to port
# 53 (two from 10.0.0.1, one from 10.0.0.2; every fifth round's from 2001:db8::1 instead), and one
# to port 80, which the filter drops.
#
#     sh packets.sh ROUNDS > packets.txt
rounds=${1:-100}

ether=020000000002020000000001
udp4() { # the source's last byte, the port
    printf '%s08004500001c0000000040110000%s%s%s%s00080000\n' \
        "$ether" "0a0000$1" 0a0000fe 3039 "$2"
}
udp6() { # the port
    printf '%s86dd60000000000811%s%s%s%s%s00080000\n' \
        "$ether" 40 20010db8000000000000000000000001 20010db8000000000000000000000002 3039 "$1"
}

round=1
while [ "$round" -le "$rounds" ]; do
    udp4 01 0035
    udp4 01 0035
    if [ $((round % 5)) -eq 0 ]; then udp6 0035; else udp4 02 0035; fi
    udp4 03 0050
    round=$((round + 1))
done
