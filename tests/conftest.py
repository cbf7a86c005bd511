"""Every compilation in the tests is verified after each pass."""

import os

os.environ.setdefault("TILEC_VERIFY", "1")
