#!/usr/bin/env bash
# On a machine with a GPU: the README's first hour as an ordinary user types it, with the training on the GPU.
# Runs it once without and once with an interruption; both must end with the same weights. Then tries wrong input.
# Needs windfall, torch and numpy in the active virtual environment; leaves nothing behind.
set -euo pipefail
readme=$(cd "$(dirname "$0")" && pwd)/../README.md
place=$(mktemp -d "${PLACE:-/var/tmp}/windfall-first-hour.XXXXXX")
export WINDFALL_DATA=$place/data COLUMNS=${COLUMNS:-80} CUBLAS_WORKSPACE_CONFIG=:4096:8
cd "$place"

finish() {
  windfall down --kill || true
  rm -rf "$place"
}
trap finish EXIT

# The README's program, on the GPU, with its random numbers fixed so that two runs can be compared.
python - "$readme" > train.py <<'PY'
import re, sys
program = re.search(r"```python\n(.*?)```", open(sys.argv[1]).read(), re.S)[1]
program = program.replace("import torch\n", "import torch\ntorch.manual_seed(1)\n", 1)
program = program.replace("torch.nn.Linear(16, 1)", "torch.nn.Linear(16, 1).cuda()")
program = program.replace("model(batch), target", "model(batch.cuda()), target.cuda()")
program = program.replace('"model.pt"', '__import__("os").environ["RESULT"]')
print(program)
PY

windfall up --gpus auto > up.log 2>&1 &
for _ in $(seq 100); do windfall status > /dev/null 2>&1 && break; sleep 0.2; done
cat up.log
windfall gpus
windfall run --gpus 1 -- python -c 'import torch; print("on", torch.cuda.get_device_name(0), torch.cuda.device_count())'

echo "--- without an interruption"
windfall run --gpus 1 --env RESULT=whole.pt --name whole --spot --checkpoint -- python train.py

echo "--- with one"
windfall run --gpus 1 --env RESULT=interrupted.pt --spot --checkpoint -- python train.py > run.log 2>&1 &
run=$!
until windfall describe train 2>/dev/null | grep -q 'step [1-9]'; do sleep 0.5; done
windfall top --once
windfall exec train -- nvidia-smi -L
windfall exec train -- python -c 'import os, torch; print("inside", os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.mem_get_info())'
windfall interrupt train --notice 30
wait "$run" || { cat run.log; exit 1; }
cat run.log
python - <<'PY'
import torch
whole, interrupted = torch.load("whole.pt"), torch.load("interrupted.pt")
assert all(torch.equal(whole[name], interrupted[name]) for name in whole), "DIFFERENT weights"
print("the same bits,", next(iter(whole.values())).device)
PY
windfall checkpoints train
windfall get train
windfall why train
windfall advise train || true
windfall cost

echo "--- wrong input"
for wrong in '--gpus 9 -- true' '--gpu-model H999 -- true' '--gpu-memory-gib 9999 -- true' '--gpus 0 --gpu-share 0.5 -- true'; do
  # shellcheck disable=SC2086 (several words are meant)
  job=$(windfall run --detach $wrong 2> said) && sleep 1 && windfall why "$job" && windfall kill "$job" || cat said
done
