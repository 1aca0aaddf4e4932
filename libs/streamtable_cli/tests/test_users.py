"""`streamtable users`: plans and passwords; tests/system/test_secure.py tests the effects on a broker."""

from pathlib import Path

import pytest

from streamtable.errors import ConfigurationError
from streamtable_admin.acls import plan_acls
from streamtable_admin.declared import Declared
from streamtable_admin.rights import Acl
from streamtable_cli.users import read_passwords

DECLARED = Declared.model_validate({"topics": {"in": None}, "users": {"alice": {"reads": ["in"]}}})


def test_missing_acls_are_granted_and_excess_ones_revoked() -> None:
    kept, missing, had = (Acl("alice", "topic", name, "READ") for name in ("kept", "missing", "had"))
    found = plan_acls({kept, missing}, {kept, had})
    assert (found.grant, found.revoke, found.same) == ((missing,), (had,), (kept,))


def test_a_password_is_the_only_line_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "alice.password").write_text("of alice\n")
    (tmp_path / "bob.password").write_text("of a user who is not declared")
    assert read_passwords(tmp_path, DECLARED) == {"alice": b"of alice"}


@pytest.mark.parametrize("content", ["", "\n", "two\nlines\n"])
def test_a_file_without_one_password_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "alice.password").write_text(content)
    with pytest.raises(
        ConfigurationError, match=r"alice\.password: expected one line with the password of user 'alice'"
    ) as raised:
        read_passwords(tmp_path, DECLARED)
    assert "lines" not in str(raised.value)


def test_a_user_without_a_password_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="must contain the password of user 'alice'"):
        read_passwords(tmp_path, DECLARED)
