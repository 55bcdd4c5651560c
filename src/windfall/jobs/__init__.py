"""What a job is: its states, attempts, arrays, dependencies, definitions and retry rules.

Pure values and decisions. Nothing here knows where jobs run, how they are stored or what the wire looks like.
"""
