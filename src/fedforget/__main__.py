"""``python -m fedforget`` is the command ``fedforget``."""

from fedforget.cli.main import app

if __name__ == "__main__":
    app(prog_name="fedforget")
