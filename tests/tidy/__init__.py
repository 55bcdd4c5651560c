"""Rules about the text of this repository, each with a message that says what to do instead.

Every module holds one rule as a function over text or syntax trees, one test that applies it to the tree, and
tests that break it by hand, so that the rule is known to be able to fail.
"""
