#!/bin/sh
# Two jobs on parts of one GPU at once, through a daemon and its agent: what each sees, who serves them, and that nothing
# is left behind. Run as root from the repository root on a machine with a GPU; PYTHON needs Windfall's dependencies and torch.
#
#     PYTHON=python3 PYTHONPATH=$PWD/src sh bench/gpu_shares.sh
set -u
python=${PYTHON:-python3}
place=$(mktemp -d)
chmod 755 "$place"
export WINDFALL_DATA="$place/data"
"$python" -c "from bench.gpu_devices import CLIENT; print(CLIENT)" > "$place/client.py"
"$python" -m windfall.cli up --port 0 > "$place/up.txt" 2>&1 &
for _ in $(seq 300); do
    grep -q listening "$place/up.txt" && break
    sleep 0.1
done
cat "$place/up.txt"
windfall() { "$python" -m windfall.cli "$@"; }
trap 'windfall down --kill; rm -r "$place"' EXIT
trap 'exit 1' INT TERM
if windfall gpus | grep -q '^no GPUs'; then
    exit 1
fi
for share in 0.5 0.25; do
    windfall run --gpus 1 --gpu-share "$share" -- "$python" "$place/client.py" > "$place/share-$share.txt" 2>&1 &
    jobs="${jobs:-} $!"
done
sleep 4
windfall gpus
ps -eo pid,ppid,user,args | grep '[n]vidia-cuda-mps'
for job in $jobs; do
    wait "$job"
    echo "exit code $?"
done
cat "$place"/share-*.txt
windfall down --kill
trap 'rm -r "$place"' EXIT
sleep 2
echo "left behind:"
ps -eo pid,ppid,user,args | grep '[n]vidia-cuda-mps'
tail -n 20 "$WINDFALL_DATA/agent/agent.log"
