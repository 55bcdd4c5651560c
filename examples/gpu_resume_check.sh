#!/usr/bin/env bash
# On a machine with a GPU: trains the demo's model twice, once without and once with an interruption, and compares the
# hashes of the final weights. Needs torch and numpy, and no daemon.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../src CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
train=("${PYTHON:-python3}" "$here/spot-training/train.py" "${STEPS:-4000}" "$here/../README.md" "$here/../ARCHITECTURE.md")

WINDFALL_CHECKPOINT_DIR=$place/one "${train[@]}" | tee "$place/one.log" | sed 's/^/uninterrupted: /'

export WINDFALL_CHECKPOINT_DIR=$place/two
for stop in 1 2; do
  "${train[@]}" > "$place/two-$stop.log" &
  trainer=$!
  until grep -q 'step [1-9]00 loss' "$place/two-$stop.log" 2>/dev/null; do sleep 0.05; done
  kill -TERM "$trainer"
  code=0; wait "$trainer" || code=$?
  echo "interrupted: exit code $code after: $(tail -1 "$place/two-$stop.log")"
done
"${train[@]}" | tee "$place/two.log" | sed 's/^/resumed: /'

if [[ $(grep sha256 "$place/one.log") == $(grep sha256 "$place/two.log") ]]; then
  echo "the same bits"
else
  echo "DIFFERENT weights"; exit 1
fi
