"""The methods that fedforget is compared with, each written from its own paper."""
