"""tilec.compile called with a plain function."""

import tilec


def main(A, B):
    return A + B


tilec.compile(main)
