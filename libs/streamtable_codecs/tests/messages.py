"""Message classes of the tests, compiled once when they are first needed."""

import tempfile
from functools import cache
from importlib.resources import files as files_of
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

MONEY = """
syntax = "proto3";
package shop;
message Money { int64 cents = 1; string currency = 2; }
"""
SHOP = """
// message Nothing { } in a comment
syntax = "proto3";
package shop;
import "money.proto";
message Head { string a = 1; }
message Order {
  option deprecated = false;
  message Line { string sku = 1; Money price = 2; int32 count = 3; message Deep { bool flag = 1; } }
  message Note { string text = 1; }
  string id = 1;
  repeated Line lines = 2;
  optional bytes blob = 4;
  oneof how { string card = 5; bool cash = 6; }
  enum State { NEW = 0; PAID = 1; }
  State state = 7;
  double weight = 8;
  repeated sint64 numbers = 9;
  map<string, int64> counts = 10;
}
message Key { string shop = 1; int32 shelf = 2; map<string, string> tags = 3; }
"""
CHANGED = """
syntax = "proto3";
package shop;
message Head { int64 a = 1; }
message Order { message Line { string sku = 1; } string id = 1; repeated Line lines = 2; string more = 20; }
message Key { string shop = 1; }
"""
OLD_STYLE = """
syntax = "proto2";
package shop;
message Strict { required string id = 1; }
"""


@cache
def messages(**files: str) -> Any:
    """Return a function that returns the class of a full name. `files`: the sources by their names without `.proto`."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, f"{name}.proto").write_text(text)
        folders = [f"-I{folder}", f"-I{files_of('grpc_tools') / '_proto'}"]
        command = ["protoc", *folders, f"--descriptor_set_out={folder}/set", "--include_imports"]
        assert protoc.main([*command, *(f"{name}.proto" for name in files)]) == 0
        found = FileDescriptorSet.FromString(Path(folder, "set").read_bytes())
    pool = DescriptorPool()
    for file in found.file:
        pool.Add(file)
    return lambda name: GetMessageClass(pool.FindMessageTypeByName(name))


def shop(name: str) -> Any:
    return messages(money=MONEY, shop=SHOP)(f"shop.{name}")


def changed(name: str) -> Any:
    return messages(shop=CHANGED)(f"shop.{name}")
