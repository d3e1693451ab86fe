from __future__ import annotations

import subprocess
import sys

from tests.peers.process import ROOT

SCRIPT = """
import gc
from gateway import collector
kept = [[i] for i in range(100_000)]
before = gc.get_freeze_count()
collector.settle()
print(gc.get_freeze_count() - before > 100_000, gc.isenabled(), gc.get_threshold())
class Node: pass
import weakref
node = Node(); node.me = node; gone = weakref.ref(node); del node
more = [[] for _ in range(collector.YOUNG * 2)]
print(gone() is None)
"""


def test_start_up_is_frozen_and_young_cycles_still_die() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True True (5000, 20, 1000)\nTrue\n"
