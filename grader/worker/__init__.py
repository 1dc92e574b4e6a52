"""The worker: the process that runs the submission. Untrusted from its first import of student code on.

Imports nothing of ours but `grader.protocol`, and nothing imports it; the contender starts it as a program.
"""
