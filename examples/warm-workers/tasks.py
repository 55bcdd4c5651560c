"""Work in small pieces: what is slow to load is loaded once per worker, each piece is a child of an array job.

Submitted with the tag `windfall:worker=tasks:blur`; docs/warm-workers.md says how.
"""

import os
import time

import numpy as np

# Once per worker, not once per child: here a model would be loaded, or the GPU made ready.
KERNEL = np.outer(np.hanning(9), np.hanning(9))
KERNEL /= KERNEL.sum()


def blur(index: int) -> None:
    """Blur one picture of noise."""
    begin = time.monotonic()
    picture = np.random.default_rng(index).random((256, 256))
    spectrum = np.fft.rfft2(picture) * np.fft.rfft2(KERNEL, picture.shape)
    blurred = np.fft.irfft2(spectrum, picture.shape)
    child = os.environ["AWS_BATCH_JOB_ID"]
    print(
        f"{child}: deviation {picture.std():.4f} -> {blurred.std():.4f}, {1000 * (time.monotonic() - begin):.1f} ms"
    )
