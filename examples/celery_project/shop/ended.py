"""``python -m shop.ended``: print what the last chain came to."""

from shop.app import app
from shop.start import ID

if __name__ == "__main__":
    print(app.AsyncResult(ID.read_text()).get(timeout=60))
