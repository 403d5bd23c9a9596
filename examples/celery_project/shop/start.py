"""``python -m shop.start PARTNER DAY``: start a chain, and keep its id in a file for `shop.ended`."""

import sys
from pathlib import Path

from shop.tasks import load_when_delivered

ID = Path("last-chain.txt")

if __name__ == "__main__":
    started = load_when_delivered(*sys.argv[1:]).apply_async()
    ID.write_text(started.id)
    print(started.id)
