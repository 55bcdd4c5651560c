"""Thin bridges from trainers that own the loop (Lightning, Hugging Face, Keras) and from torch's DataLoader to a run.

Each module imports its framework, and is imported by a program that uses it; nothing else imports one.
"""
