"""The protocol layer: signatures, routing, parsing, validation and answers, driven by botocore's models.

Decides what a well-formed, authentic request is. Must not know what any operation means. The package
imports nothing by itself, so that the command line can sign requests without loading botocore.
"""
