"""Uses torch's own TCPStore with the other side of hone: `client PORT` as a client of hone's server, `server PORT` as a
server that hone's client joins. tests/rendezvous/torch_test.cpp starts it where HONE_TEST_TORCH names a Python that has
torch."""

import ctypes
import datetime
import pickle
import sys
import types

import torch  # noqa: F401
from torch.distributed import TCPStore

ROLE, PORT = sys.argv[1], int(sys.argv[2])
LIMIT = datetime.timedelta(seconds=60)

# The class that vLLM's processes pickle, under its module's name.
NAME = "vllm.distributed.device_communicators.pynccl_wrapper"


class ncclUniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def define_module():
    parts = NAME.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules[".".join(parts[:i])] = types.ModuleType(".".join(parts[:i]))
    ncclUniqueId.__module__ = NAME
    sys.modules[NAME].ncclUniqueId = ncclUniqueId


def barrier(store, number):
    """Rank 1's part of StatelessProcessGroup.barrier()."""
    name = pickle.loads(store.get(f"broadcast_from/0/{number}"))
    store.set(f"arrival_{name}_1", b"1")
    for rank in (0, 1):
        assert store.get(f"arrival_{name}_{rank}") == b"1"
    store.set(f"departure_{name}_1", b"1")


def use(store):
    store.set("k", b"v1")
    assert store.get("k") == b"v1"
    assert store.add("n", 3) == 3 and store.add("n", -1) == 2
    assert store.check(["k", "n"]) and not store.check(["k", "zz"])
    assert store.compare_set("c", "", "x") == b"x" and store.compare_set("c", "x", "y") == b"y"
    assert store.compare_set("c", "x", "z") == b"y" and store.compare_set("d", "x", "z") == b"x"
    store.multi_set(["a", "b"], ["1", "2"])
    assert store.multi_get(["a", "b"]) == [b"1", b"2"]
    store.append("a", "zz")
    assert store.get("a") == b"1zz"
    keys = store.num_keys()
    assert store.delete_key("k") and not store.delete_key("k") and store.num_keys() == keys - 1
    try:
        store.wait(["never"], datetime.timedelta(milliseconds=200))
        raise SystemExit("a wait for a missing key has ended")
    except torch.distributed.DistStoreError:
        pass
    for key in ("a", "b", "c", "n"):
        store.delete_key(key)


def client():
    # Without libuv first, as vLLM's processes connect, and last with it, as is torch's default.
    for libuv in (False, True):
        store = TCPStore("127.0.0.1", PORT, world_size=2, is_master=False, timeout=LIMIT, use_libuv=libuv)
        use(store)
    identity = pickle.loads(store.get("broadcast_from/0/0"))
    assert isinstance(identity, ncclUniqueId) and list(identity.internal) == list(range(-64, 64)), identity
    barrier(store, 1)
    barrier(store, 2)


def server():
    store = TCPStore("127.0.0.1", PORT, world_size=2, is_master=True, timeout=LIMIT, use_libuv=False)
    identity = ncclUniqueId()
    identity.internal[:] = list(range(-64, 64))
    store.set("broadcast_from/0/0", pickle.dumps(identity))
    store.wait(["hone_is_done"], LIMIT)


define_module()
{"client": client, "server": server}[ROLE]()
