from streamtable.store.memory import MemoryStores


def test_a_crash_keeps_plain_writes_and_loses_the_bulk_writes_after_them() -> None:
    stores = MemoryStores()
    store = stores.open("t", 0)
    store.write([(b"a", b"1")], b"kept")
    store.write([(b"a", b"2")], b"lost", bulk=True)
    store.write([(b"b", b"3")], b"lost too", bulk=True)
    stores.crash()
    again = stores.open("t", 0)
    assert (again.checkpoint(), again.get(b"a"), again.get(b"b")) == (b"kept", b"1", None)


def test_a_plain_write_makes_the_bulk_writes_before_it_durable() -> None:
    stores = MemoryStores()
    store = stores.open("t", 0)
    store.write([(b"a", b"1")], b"bulk", bulk=True)
    store.write([(b"b", b"2")], b"plain")
    stores.crash()
    again = stores.open("t", 0)
    assert (again.checkpoint(), again.get(b"a"), again.get(b"b")) == (b"plain", b"1", b"2")


def test_what_a_crash_takes_away_can_be_opened_by_its_next_owner() -> None:
    stores = MemoryStores()
    stores.open("t", 0)
    stores.open("t", 1)
    stores.crash()
    assert stores.open("t", 0).checkpoint() is None
    assert stores.open("t", 1).checkpoint() is None
