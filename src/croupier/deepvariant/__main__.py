"""python -m croupier.deepvariant: croupier deepvariant, as a script that replaces another"""

import sys

from croupier.cli import main

sys.argv.insert(1, "deepvariant")
main()
