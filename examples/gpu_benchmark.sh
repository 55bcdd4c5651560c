#!/usr/bin/env bash
# On a machine with a GPU and a Python that has numpy and torch, cupy or jax: starts a daemon of its own, measures CPU and
# GPU through Batch jobs, compares ways to run small tasks, and leaves the raw figures in a directory.
#   examples/gpu_benchmark.sh DIRECTORY [OPTIONS of `windfall bench gpu`]
# PYTHON runs Windfall (python3), PACK is the number of small tasks (32), JOB_USER whom the jobs run as (nobody, for root).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mkdir -p "${1:?name a directory for the results}" && cd "$1" && pwd); shift
# Absolute, because the agent runs in a directory of its own.
export PYTHONPATH=$here/../src${PYTHONPATH:+:$(realpath -q ${PYTHONPATH//:/ } | paste -sd:)}
windfall=("${PYTHON:-python3}" -m windfall.cli)
place=$(mktemp -d)
chmod 755 "$place"
export WINDFALL_DATA=$place/data
"${windfall[@]}" up --port 0 --runtime process ${JOB_USER:+--job-user "$JOB_USER"} > "$out/daemon.txt" 2>&1 &
daemon=$!
trap '"${windfall[@]}" down --kill > /dev/null 2>&1 || kill "$daemon"; wait "$daemon" || true; rm -rf "$place"' EXIT
until grep -q 'windfall is listening' "$out/daemon.txt"; do
  kill -0 "$daemon" 2>/dev/null || { cat "$out/daemon.txt"; exit 1; }
  sleep 0.1
done

"${windfall[@]}" bench gpu --json "$out/gpu.json" --plot "$out/gpu.svg" "$@" 2> >(tee "$out/gpu-progress.txt" >&2) | tee "$out/gpu.txt"
"${windfall[@]}" bench gpu --pack "${PACK:-32}" --json "$out/pack.json" "$@" 2> >(tee "$out/pack-progress.txt" >&2) | tee "$out/pack.txt"
