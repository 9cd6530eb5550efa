"""Self-contained HTML pages, made from the templates in the folder ``html``."""
