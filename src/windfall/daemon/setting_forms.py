"""The forms of settings: which are numbers and how large, and how those are written that are text.

Decides forms alone. What a value means, and whether what it names exists, is settings.py's.
"""

from __future__ import annotations

from pathlib import Path

from windfall.jobs.log_limits import LIMIT_FORM, LIMIT_PATTERN, NO_LIMIT

#: Settings that are not text.
KINDS: dict[str, type] = {
    "port": int,
    "vcpus": int,
    "memory_mib": int,
    "retention_days": float,
    "reserve_after_s": float,
    "idle_after_s": float,
    "changeover_s": float,
    "stop_grace_s": float,
    "lease_s": float,
    "data": Path,
    "s3": bool,
    "hosts_only": bool,
    "forget_directories": bool,
    "s3_port": int,
    "usher_port": int,
    "notice_s": float,
    "lost_after_s": float,
    "ray_trusts_network": bool,
    "sample_every_s": float,
    "link_local_metadata": bool,
    "simulated_boot_s": float,
    "simulated_mtbi_s": float,
    "simulated_notice_s": float,
    "simulated_speed": float,
    "usd_gpu_hour": float,
    "usd_vcpu_hour": float,
    "spot_factor": float,
}
#: What a number may be, both ends included.
RANGES: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "vcpus": (1, 1_000_000),
    "memory_mib": (4, 1_000_000_000),
    "retention_days": (0, 36_500),
    "reserve_after_s": (0, 86_400 * 365),
    "idle_after_s": (0, 86_400 * 365),
    "changeover_s": (1, 86_400),
    "stop_grace_s": (0, 86_400),
    "lease_s": (0.5, 3_600),
    "s3_port": (0, 65535),
    "usher_port": (0, 65535),
    "notice_s": (0, 86_400),
    "lost_after_s": (20, 86_400),
    "sample_every_s": (0, 3_600),
    "simulated_boot_s": (0, 86_400),
    "simulated_mtbi_s": (1, 86_400 * 365),
    "simulated_notice_s": (0, 86_400),
    "simulated_speed": (0.001, 100_000),
    "usd_gpu_hour": (0, 10_000),
    "usd_vcpu_hour": (0, 10_000),
    "spot_factor": (0, 1),
}
#: What a text may be, as an expression and in words.
PATTERNS: dict[str, tuple[str, str]] = {
    "gpus": (
        r"auto|none|simulated:[1-9][0-9]{0,3}|recorded:/.+",
        "auto, none, simulated:N or recorded:/PATH",
    ),
    "ec2_metadata": (r"auto|off|http://[A-Za-z0-9.:_-]+", "auto, off or http://HOST:PORT"),
    "runtime": (r"auto|process|container", "auto, process or container"),
    "container_socket": (
        r"none|(unix://)?/.+",
        "the path of a socket, such as /var/run/docker.sock, or none",
    ),
    "job_log_limit": (rf"{NO_LIMIT}|{LIMIT_PATTERN}", f"{NO_LIMIT} or {LIMIT_FORM}"),
    "account_id": (r"[0-9]{12}", "twelve digits"),
    "region": (r"[a-z0-9-]{1,40}", "a region such as us-east-1"),
    "store": (r"(sqlite:///|postgresql://|/).+", "sqlite:///PATH or postgresql://USER@HOST/DATABASE"),
    "host": (r"[A-Za-z0-9.:_-]+", "an address or host name"),
    "s3_listen": (
        r"(?!0\.|127\.)[0-9]{1,3}(\.[0-9]{1,3}){3}",
        "an IPv4 address of this host that other machines reach, such as 10.0.0.5",
    ),
    "advertise": (r"http://[A-Za-z0-9._-]+:[0-9]+", "http://HOST:PORT"),
    "ssh_config": (r"/.+", "an absolute path"),
    "page_hosts": (
        r"[A-Za-z0-9.-]+(,[A-Za-z0-9.-]+)*",
        "host names with commas between them, such as windfall.example.com",
    ),
    "job_user": (r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "a user name of this host"),
    "job_users": (r"none|[0-9]{1,10}-[0-9]{1,10}", "none, or FIRST-LAST such as 200000-200999"),
    "objects": (r"file:///.+|s3://[a-z0-9][a-z0-9.-]{2,62}(/.*)?", "file:///PATH or s3://BUCKET/PREFIX"),
    "job_role": (
        # SeaweedFS's own roles have no account.
        r"arn:[a-z-]+:iam::([0-9]*:)?role/[\w+=,.@/-]+",
        "the ARN of a role, such as arn:aws:iam::123456789012:role/jobs",
    ),
    "events_file": (r"/.*[^/]", "the absolute path of a file"),
    "events_webhook": (
        r"https?://[^\s@/?#]+([/?][^\s#]*)?",
        "http://HOST/PATH or https://HOST/PATH, without a user or password (events_webhook_token_file is for secrets)",
    ),
    "dead_letter_webhook": (
        r"https?://[^\s@/?#]+([/?][^\s#]*)?",
        "http://HOST/PATH or https://HOST/PATH, without a user or password",
    ),
    "events_webhook_token_file": (r"/.*[^/]", "the absolute path of a file"),
    "engine": (r"local|simulated|hosts|ray", "local, simulated, hosts or ray"),
    "training_engine": (r"local|simulated|hosts|ray", "local, simulated, hosts or ray"),
    "ray": (
        r"""[^-\s'"](?:[^'"]|'[^']*'|"[^"]*")*""",
        "local, or a command that runs a program on a node of the cluster, such as `ssh ubuntu@head`",
    ),
    "ray_python": (r"[A-Za-z0-9_/][A-Za-z0-9_./+-]*", "a program, such as python3 or /opt/ray/bin/python"),
    "training_python": (r"[^-\s]\S*", "a program, such as python3 or /usr/bin/python3.12"),
}
