"""usage: policy.py CHECK SOURCE_DIR [BUILD_DIR]

Runs one check of this folder over the tree; prints every violation and exits 1 if there is one.
"""

import importlib
import sys
from pathlib import Path


def main():
    name, root = sys.argv[1], Path(sys.argv[2]).resolve()
    build = Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else None
    found = importlib.import_module(name).check(root, build)
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
