"""How something is installed here, in the words of the host's own package manager."""

from __future__ import annotations

from windfall.agent.checkup.host import Host

_FEDORA_LIKE = ("amzn", "rhel", "fedora", "centos", "rocky", "almalinux")


def system_of(host: Host) -> str:
    """The host's kind: debian, fedora or empty when it is neither."""
    fields = dict(line.partition("=")[::2] for line in (host.read("/etc/os-release") or "").splitlines())
    ids = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    if any(one in ("debian", "ubuntu") for one in ids):
        return "debian"
    return "fedora" if any(one in _FEDORA_LIKE for one in ids) else ""


def install(host: Host, debian: str, fedora: str | None = None) -> str:
    """The command that installs a package."""
    system = system_of(host)
    if system == "debian":
        return f"sudo apt-get install -y {debian}"
    if system == "fedora":
        return f"sudo dnf install -y {fedora or debian}"
    return f"install the package {debian}"
