"""The files of others in the page are the ones that were looked at."""

from hashlib import sha256
from importlib.resources import files

VENDOR = files("console").joinpath("page", "vendor")


def test_vendored_files_have_the_recorded_hashes_and_a_licence() -> None:
    lines = VENDOR.joinpath("SHA256SUMS").read_text(encoding="utf-8").splitlines()
    recorded = {name: digest for digest, name in (line.split() for line in lines)}
    assert recorded == {name: sha256(VENDOR.joinpath(name).read_bytes()).hexdigest() for name in recorded}
    present = {each.name for each in VENDOR.iterdir()} - {"README.md", "SHA256SUMS"}
    assert present == recorded.keys()
    assert "Permission is hereby granted, free of charge" in VENDOR.joinpath("dagre.LICENSE.txt").read_text()
