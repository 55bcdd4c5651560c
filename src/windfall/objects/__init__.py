"""Object storage by URI: `file://` and `s3://`, behind one small port.

Decides how bytes are put, found and brought back, and how a failure is called. Must not know what the bytes are for.
"""
