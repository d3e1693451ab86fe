"""The helper process of ``library``: JSON strings in, JSON strings (or null) out, one a line, in order."""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Serve until stdin closes."""
    from wetext import Normalizer

    normalizer = Normalizer(lang="en", operator="tn")
    normalizer.normalize("5 kg")  # loads the grammars
    out = sys.stdout
    out.write('"ready"\n')
    out.flush()
    for line in sys.stdin:
        answer: str | None
        try:
            answer = str(normalizer.normalize(json.loads(line)))
        # "No normalization path", or an empty path that its parser asserts against.
        except (RuntimeError, ValueError, LookupError, AssertionError):
            answer = None
        out.write(json.dumps(answer) + "\n")
        out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
