"""What keeps a bridge to a Ray cluster from standing, as people read it: what is wrong, and what to do."""

from __future__ import annotations

from windfall.engines.ray.lines import for_people

_TEXTS = {
    "no-ray": "{why}: name the Python of the cluster with --ray-python, such as /opt/ray/bin/python",
    "old-ray": "the cluster has Ray {why}, and 2.58 or later is needed: upgrade it",
    "no-cluster": (
        "{why}: give a command that reaches a node of the cluster (--ray 'ssh HEAD'), or set RAY_ADDRESS there"
    ),
    "open": (
        "{why}, so that everyone who reaches it runs programs on every node: start Ray with RAY_AUTH_MODE=token, or"
        " accept that on a network of your own with --ray-trusts-network"
    ),
    "no-token": (
        "the cluster asks for a token, and {why}: put the token there (readable only by its user), or set"
        " RAY_AUTH_TOKEN_PATH"
    ),
    "no-answer": "{why}",
}
#: What a shell answers for a program that it does not find, or must not run, and what ssh answers for itself.
_NOT_FOUND, _NOT_RUN, _SSH_FAILED = 127, 126, 255


def refusal(code: str, why: str) -> str:
    """Why the bridge does not serve."""
    return _TEXTS.get(code, "{why}").format(why=for_people(why) or "it does not say why")


def ending(command: str, python: str, status: int, words: str) -> str:
    """Why a bridge ended before or while it served. `words` is its standard error."""
    said = [line.strip() for line in words.splitlines() if line.strip()]
    last = for_people(said[-1]) if said else "it says nothing"
    if status in (_NOT_FOUND, _NOT_RUN):
        return f"`{command}` finds no {python} ({last}): name the Python of the cluster with --ray-python"
    if status == _SSH_FAILED:
        return f"`{command}` cannot connect: {last}"
    return f"the bridge that `{command}` started has ended with status {status}: {last}"
