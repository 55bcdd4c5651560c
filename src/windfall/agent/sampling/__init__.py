"""What attempts, GPUs and the host really use, every second or two, kept in small files beside the logs."""
