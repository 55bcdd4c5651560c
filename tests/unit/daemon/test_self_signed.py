"""The certificate that closes SeaweedFS's inner ports: compared with the standard's own examples."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from windfall.daemon.s3_secrets import public_key, self_signed, sign

#: RFC 8032, section 7.1: private key, public key, message, signature.
EXAMPLES = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
]


@pytest.mark.parametrize(("seed", "public", "message", "signature"), EXAMPLES)
def test_keys_and_signatures_are_those_of_the_standard(seed, public, message, signature):
    assert public_key(bytes.fromhex(seed)).hex() == public
    assert sign(bytes.fromhex(seed), bytes.fromhex(message)).hex() == signature


def contexts(tmp_path, name):
    certificate, key = self_signed("windfall")
    (tmp_path / f"{name}.crt").write_text(certificate)
    (tmp_path / f"{name}.key").write_text(key)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / f"{name}.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=tmp_path / f"{name}.crt")
    client.check_hostname = False
    for context in (server, client):
        context.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
    return server, client


def echoed(server, client):
    near, far = socket.socketpair()

    def answer():
        try:
            with server.wrap_socket(far, server_side=True) as line:
                line.sendall(line.recv(10))
        except OSError:
            far.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with near, client.wrap_socket(near) as line:
            line.sendall(b"hello")
            return line.recv(10)
    finally:
        thread.join()


def test_both_ends_hold_it_and_nobody_else_gets_in(tmp_path):
    server, client = contexts(tmp_path, "one")
    _, stranger = contexts(tmp_path, "other")
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    assert echoed(server, client) == b"hello"
    assert answer_or_refusal(server, stranger) != b"hello"


def answer_or_refusal(server, client):
    try:
        return echoed(server, client)
    except OSError as error:
        return error
