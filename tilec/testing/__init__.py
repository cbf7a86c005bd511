"""Tools that test compilers and kernels: random programs, a reducer, comparison of targets."""
