#!/bin/sh
# Builds a guest by Debian's compiler, in this directory: ./build.sh EXAMPLE OUTPUT.wasm
# apt-get install rustc libstd-rust-dev-wasm32 lld
set -eu
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
options="--edition 2021 --target wasm32-unknown-unknown -C opt-level=3 -C panic=abort
    -C codegen-units=1 -C strip=debuginfo -C target-feature=+mutable-globals -C linker=wasm-ld
    --remap-path-prefix $PWD=modules/rust"
# The word splitting is wanted.
# shellcheck disable=SC2086
/usr/bin/rustc $options --crate-type rlib --crate-name outboard_guest \
    outboard-guest/src/lib.rs -o "$out/liboutboard_guest.rlib"
# rustc puts the stack first, and data behind it: at 0x11000, behind the call block. What is mutable
# is exported, so that the node can put it back between calls.
# shellcheck disable=SC2086
/usr/bin/rustc $options --crate-type cdylib --crate-name "$1" \
    --extern outboard_guest="$out/liboutboard_guest.rlib" \
    -C link-arg=--import-memory -C link-arg=-zstack-size=69632 \
    -C link-arg=--export=__heap_base -C link-arg=--export=__stack_pointer \
    "examples/$1/src/lib.rs" -o "$out/guest.wasm"
# The stack begins in front of the call block, at 0x10000: the first value of the one mutable i32
# global with the value 0x11000 becomes that. Both numbers have three bytes.
was='\x7f\x01\x41\x80\xa0\x04\x0b' is='\x7f\x01\x41\x80\x80\x04\x0b'
if [ "$(LC_ALL=C grep -aoP "$was" "$out/guest.wasm" | wc -l)" != 1 ]; then
    echo "build.sh: wasm-ld has not made the stack that was asked for" >&2
    exit 1
fi
LC_ALL=C sed "s/$was/$is/" "$out/guest.wasm" >"$2"
