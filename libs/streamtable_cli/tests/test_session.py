from streamtable_cli.session import session_from


def test_a_session_does_not_show_options_which_may_be_passwords() -> None:
    session = session_from("localhost:9092", ["sasl.password=very secret"], None, 1.0)
    assert "very secret" in session.flags.values()
    assert "secret" not in repr(session)
