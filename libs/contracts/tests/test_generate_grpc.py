"""The generated gRPC modules are current, and no change of a .proto file breaks callers of the last release."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

CONTRACTS = Path(__file__).resolve().parents[1]
COMMITTED = CONTRACTS / "src" / "contracts" / "grpc"
SHOP_V1 = Path("shop/v1")
SHOP = """syntax = "proto3";
package shop.v1;
service Shop {
  rpc Get(Order) returns (Order);
  rpc Watch(Order) returns (stream Order);
}
enum Colour { RED = 0; BLUE = 1; }
message Empty {}
message Order {
  reserved 90, 95 to 97;
  reserved "old";
  message Line { string article = 1; }
  string id = 1;
  int32 count = 2;
  repeated Line lines = 3;
  optional int64 price = 4;
  Colour colour = 5;
  oneof place { string shop = 6; string site = 7; }
  map<string, int32> stock = 8;
  bytes raw = 9;
  fixed64 hash = 10;
}
"""


def load_generator() -> ModuleType:
    spec = spec_from_file_location("generate_grpc", CONTRACTS / "generate_grpc.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = load_generator()


def modules_of(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*.py*") if path.suffix in {".py", ".pyi"}]
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in files}


def test_the_committed_grpc_modules_are_what_the_proto_files_generate(tmp_path: Path) -> None:
    generator.generate(tmp_path)
    assert modules_of(tmp_path) == modules_of(COMMITTED)


def test_no_proto_file_breaks_callers_of_its_last_release() -> None:
    assert generator.check(generator.PROTO) == []


@pytest.fixture
def proto(tmp_path: Path) -> Path:
    """A folder like `proto/`, with one version that has been released once."""
    write(tmp_path, SHOP)
    generator.release(tmp_path, SHOP_V1)
    return tmp_path


def write(proto: Path, text: str) -> None:
    folder = proto / SHOP_V1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shop.proto").write_text(text, "utf-8")


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("  string id = 1;\n", "", 'Order.id: the field was removed without "reserved 1; reserved'),
        ("  string id = 1;\n", "  reserved 1;\n", "Order.id: the field was removed without"),
        ("string id = 1", "string key = 1", "Order.id: the name of field 1 changed to key"),
        ("string id = 1", 'string id = 1 [json_name="key"]', "Order.id: the name of field 1 changed"),
        ("string id = 1", "string id = 11", "Order.id: the field was removed without"),
        ("int32 count = 2", "int64 count = 2", "Order.count: the type changed from int32 to int64"),
        ("int32 count = 2", "sint32 count = 2", "Order.count: the type changed from int32 to sint32"),
        ("int32 count = 2", "bool count = 2", "Order.count: the type changed from int32 to bool"),
        ("int32 count = 2", "repeated int32 count = 2", "Order.count: it was single and is repeated"),
        ("bytes raw = 9", "string raw = 9", "Order.raw: the type changed from bytes to string"),
        ("fixed64 hash", "uint64 hash", "Order.hash: the type changed from fixed64 to uint64"),
        ("repeated Line lines", "Line lines", "Order.lines: it was repeated and is single"),
        ("repeated Line lines", "repeated Empty lines", "Order.lines: the type changed from"),
        ("Colour colour", "int32 colour", "Order.colour: the type changed from .shop.v1.Colour to int32"),
        ("map<string, int32>", "map<string, string>", "Order.StockEntry.value: the type changed"),
        ("oneof place { string shop = 6;", "string shop = 6; oneof place {", "Order.shop: it was moved into, out of"),
        ("optional int64 price = 4;", "oneof p { int64 price = 4; }", "Order.price: it was moved into, out of"),
        ("RED = 0; BLUE = 1;", "RED = 0;", 'Colour.BLUE: the value was removed without "reserved 1;'),
        ("BLUE = 1;", "GREEN = 1;", "Colour.BLUE: the name of value 1 changed to GREEN"),
        ("reserved 90, 95 to 97;", "reserved 90, 96 to 97;", "Order: 95 must stay reserved"),
        ('reserved "old";', "", "Order: old must stay reserved"),
        ("message Empty {}\n", "", "shop.v1.Empty: the message was removed"),
        ("package shop.v1", "package shop.v2", "shop.v1.Shop: the service was removed"),
        ("service Shop", "service Store", "shop.v1.Shop: the service was removed"),
        ("rpc Get(", "rpc Fetch(", "shop.v1.Shop.Get: the method was removed"),
        ("Get(Order)", "Get(Empty)", "Shop.Get: its input type changed"),
        ("Get(Order) returns (Order)", "Get(Order) returns (Empty)", "Shop.Get: its output type changed"),
        ("Get(Order)", "Get(stream Order)", "Shop.Get: its client streaming changed from False to True"),
        ("(stream Order)", "(Order)", "Shop.Watch: its server streaming changed from True to False"),
    ],
)  # fmt: skip
def test_a_change_that_callers_notice_is_reported_with_its_place(
    proto: Path, before: str, after: str, problem: str
) -> None:
    assert before in SHOP
    write(proto, SHOP.replace(before, after))
    problems = generator.check(proto)
    assert any(problem in text for text in problems), problems
    with pytest.raises(SystemExit):
        generator.release(proto, SHOP_V1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  string id = 1;\n", "  string id = 1;\n  string more = 11;\n"),
        ("  string id = 1;\n", '  reserved 1; reserved "id";\n'),
        ("RED = 0; BLUE = 1;", "RED = 0; BLUE = 1; GREEN = 2;"),
        ("RED = 0; BLUE = 1;", 'reserved 1; reserved "BLUE"; RED = 0;'),
        ("int32 count = 2", "uint32 count = 2"),
        ("optional int64 price", "int64 price"),
        ("rpc Get(", "rpc Put(Order) returns (Empty);\n  rpc Get("),
        ("message Empty {}", "// Nothing.\nmessage Empty { string more = 1; }"),
        ("reserved 90, 95 to 97;", "reserved 90, 94 to 98;"),
    ],
)
def test_a_change_that_callers_do_not_notice_is_passed_and_can_be_released(
    proto: Path, before: str, after: str
) -> None:
    assert before in SHOP
    write(proto, SHOP.replace(before, after))
    assert generator.check(proto) == []
    assert generator.release(proto, SHOP_V1) == proto / "history" / SHOP_V1 / "2"


def test_a_version_is_released_before_it_is_used_and_does_not_go_away(proto: Path) -> None:
    other = proto / "shop" / "v2"
    other.mkdir()
    (other / "shop.proto").write_text(SHOP.replace("shop.v1", "shop.v2"), "utf-8")
    assert generator.check(proto) == ["shop/v2: python libs/contracts/generate_grpc.py release shop/v2"]
    generator.release(proto, Path("shop/v2"))
    assert generator.check(proto) == []
    for path in (proto / SHOP_V1).iterdir():
        path.unlink()
    (proto / SHOP_V1).rmdir()
    assert generator.check(proto) == ["shop/v1: it was released and is gone"]


def test_a_release_is_made_once_and_without_gaps(proto: Path) -> None:
    with pytest.raises(SystemExit, match="released already, as 1"):
        generator.release(proto, SHOP_V1)
    with pytest.raises(SystemExit, match=r"no \.proto files"):
        generator.release(proto, Path("nowhere/v1"))
    (proto / "history" / SHOP_V1 / "1").rename(proto / "history" / SHOP_V1 / "2")
    with pytest.raises(SystemExit, match="without gaps"):
        generator.release(proto, SHOP_V1)
