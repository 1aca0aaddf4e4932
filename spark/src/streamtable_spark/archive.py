"""Pack the files of this project that `spark-submit` needs: `python -m streamtable_spark.archive FOLDER`.

It writes `streamtable-spark.zip`, for `--py-files`, and `streamtable-spark.py`, the program to submit. The dependencies
of the packages have to be installed where the driver and the tasks run.
"""

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKED: Final = (
    "streamtable_spark", "contracts", "streamtable", "streamtable_supervisor", "streamtable_testing",
    "exactavro", "exactjson",
)  # fmt: skip
PROGRAM: Final = '''"""The jobs, for spark-submit: streamtable-spark.py JOB ARGUMENT..."""

from streamtable_spark.main import main

main()
'''


def pack(folder: Path) -> None:
    """Write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "streamtable-spark.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in PACKED:
            found = find_spec(name)
            assert found is not None, f"{name} is installed with this package"
            for place in found.submodule_search_locations or ():
                for path in sorted(Path(place).rglob("*")):
                    if path.is_file() and "__pycache__" not in path.parts:
                        archive.write(path, path.relative_to(Path(place).parent))
    (folder / "streamtable-spark.py").write_text(PROGRAM)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
