"""The data plane of endpoints: a process of its own that verifies, balances and forwards `InvokeEndpoint`.

It lives under a warden as an agent does, so that neither the end nor the upgrade of a daemon costs a request. It
follows the route table that the daemon wrote last, and the keys file. Must not know jobs, the store or how replicas are
started.
"""
