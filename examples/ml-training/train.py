"""A stand-in for a training script: reads its settings from the environment as the walkthrough's job gives them."""

import os
import shutil

epochs = int(os.environ.get("EPOCHS", "3"))
batch_size = int(os.environ.get("BATCH_SIZE", "32"))
rate = float(os.environ.get("LEARNING_RATE", "0.01"))
gpus = [gpu for gpu in os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if gpu and gpu != "void"]

print(f"training on {len(gpus)} GPUs: {', '.join(gpus)}")
print(f"shared memory: {shutil.disk_usage('/dev/shm').total // 2**20} MiB")
print(f"data from {os.environ.get('S3_DATA_PATH', '-')}, model to {os.environ.get('S3_OUTPUT_PATH', '-')}")

weight, target = 0.0, 1.0
for epoch in range(1, epochs + 1):
    for _ in range(batch_size):
        weight += rate * (target - weight)
    if epoch % 10 == 0 or epoch == epochs:
        print(f"epoch {epoch}/{epochs}: loss {(target - weight) ** 2:.6f}", flush=True)
