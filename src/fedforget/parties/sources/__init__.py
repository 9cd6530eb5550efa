"""Where records come from: files of several formats, standard input, queries of databases.

Every source gives the same: ids and values, some rows at a time, in the order of the federation's
features.  Columns are matched by their names; a source may have others, which are not looked at.
Anything wrong is said with its place, and nothing has been imported then.
"""

from typing import TYPE_CHECKING

from fedforget.lazy import names_from

if TYPE_CHECKING:
    from fedforget.parties.sources.opening import open_source
    from fedforget.parties.sources.options import SourceOptions
    from fedforget.parties.sources.reader import ROWS_AT_A_TIME, TableError
    from fedforget.parties.sources.source import Source

__all__ = ["ROWS_AT_A_TIME", "Source", "SourceOptions", "TableError", "open_source"]

# A command that reads no records loads no readers.
__getattr__ = names_from(
    __name__,
    {
        "ROWS_AT_A_TIME": f"{__name__}.reader",
        "Source": f"{__name__}.source",
        "SourceOptions": f"{__name__}.options",
        "TableError": f"{__name__}.reader",
        "open_source": f"{__name__}.opening",
    },
)
