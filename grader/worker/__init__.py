"""The worker: the process that runs a submission. Untrusted from the first import of student code on.

The worker starts a worker as a program. These modules import nothing of the grader but `grader.protocol`, and no
other room imports them.
"""
