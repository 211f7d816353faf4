"""temporary"""
import hashlib
from typing import Any
def code_version(fn: Any, *, declared: str|None=None) -> str:
    if declared is not None: return "v:"+declared
    return hashlib.sha256(fn.__code__.co_code).hexdigest()[:12]
def file_digest(path: str) -> str:
    with open(path,"rb") as f: return hashlib.file_digest(f,"sha256").hexdigest()
