#!/bin/bash
# Measures what a brick's connections cost on its ring and with plain blocking sockets: see
# crates/world/examples/sockets.rs and docs/decisions/0015. Prints one table of medians; about 10 s for each turn.
#   TURNS=9       turns of each kind and load
set -eu
cd "$(dirname "$0")/../.."
cargo build --quiet --release --locked -p world --example sockets
echo "$(uname -r), $(nproc) cores"
exec timeout 300 "${CARGO_TARGET_DIR:-target}/release/examples/sockets" "${TURNS:-9}"
