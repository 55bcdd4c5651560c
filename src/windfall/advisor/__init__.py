"""From measured samples to the cause of low use, with evidence, and to advice with predicted gain.

Part of the functional core: values in, values out.
"""
