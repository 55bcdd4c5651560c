"""What will become of the jobs there are: the real reactor and scheduler play the time to come on a copy of the state.

Pure: the time, the numbers that are drawn and the copy are arguments, and nothing of the real state is touched.
"""
