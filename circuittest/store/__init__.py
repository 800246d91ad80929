"""A content-addressed store of what was measured: safetensors and JSON, safe under concurrent writers."""

from circuittest.store.entries import Damaged, Entry
from circuittest.store.keys import key_of, versions
from circuittest.store.store import CAP, Info, Store

__all__ = ["CAP", "Damaged", "Entry", "Info", "Store", "key_of", "versions"]
