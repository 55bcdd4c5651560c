"""AWS Batch on the wire: dicts in AWS's camelCase become commands of the core, and the core's values become
dicts.

AWS's field names and texts live in this folder and nowhere else. Nothing here changes state: that is the
core's work, behind the CorePort.
"""
