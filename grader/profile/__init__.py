"""Why a submission's kernels are slow, as `grader profile` tells it: facts of traces, compilers and counters, and remarks about them."""
