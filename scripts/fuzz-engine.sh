#!/bin/sh
# fuzz-engine.sh: gives the engine packed strings and saved states that libFuzzer makes up, and the parser requests, SECONDS
# for each target of engine/fuzz, or for TARGET alone. Fails at the first input that breaks something, which it names.
#
# It needs a nightly compiler, because a stable one cannot report which branches an input takes, nor build with
# AddressSanitizer; cargo-tool.sh builds cargo-fuzz. The inputs begin with those in
# engine/fuzz/corpus and with the golden files. KEEP=yes keeps what is new there, without what adds nothing, and adds a line
# for each target to engine/fuzz/record.jsonl.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh build
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "dsync: there is no nightly compiler. Install one: rustup toolchain install nightly" >&2
    exit 1
fi
PATH=$PATH:$(sh scripts/cargo-tool.sh fuzz)

seconds=${SECONDS:-60}
work=$PWD/target/fuzz-engine
mkdir -p "$work"
python3 engine/fuzz/seeds.py "$work/corpus"
for target in ${TARGET:-changes saved requests}; do
    kept=$PWD/engine/fuzz/corpus/$target.tar.gz
    corpus=$work/corpus/$target
    if [ -f "$kept" ]; then
        tar -C "$corpus" -xzf "$kept"
    fi
    echo "dsync: $target, $seconds s, from $(find "$corpus" -type f | wc -l) inputs"
    log=$work/$target.log
    # An input is at most 16 KiB, and no allocation of one may take more than 256 MiB.
    if ! cargo +nightly fuzz run --fuzz-dir engine/fuzz --target-dir "$work/target" "$target" "$corpus" -- \
        -max_total_time="$seconds" -max_len=16384 -malloc_limit_mb=256 -rss_limit_mb=2048 \
        -artifact_prefix="$work/" -print_final_stats=1 >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        exit 1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    echo "dsync: $target: $runs inputs, $edges branches, nothing broken"
    if [ "${KEEP:-}" = yes ]; then
        cargo +nightly fuzz cmin --fuzz-dir engine/fuzz --target-dir "$work/target" "$target" "$corpus" >>"$log" 2>&1
        mkdir -p engine/fuzz/corpus
        tar -C "$corpus" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c . | gzip -9n >"$kept"
        printf '{"date": "%s", "commit": "%s", "target": "%s", "seconds": %s, "inputs": %s, "branches": %s}\n' \
            "$(date +%F)" "$(git rev-parse --short=12 HEAD)" "$target" "$seconds" "$runs" "$edges" \
            >>engine/fuzz/record.jsonl
    fi
done
