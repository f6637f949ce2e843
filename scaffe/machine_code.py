"""Compiles native code to run where Python cannot: in handlers of memory signals, and after the interpreter's end."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
from llvmlite import ir


def machine_code(module: ir.Module, name: str) -> int:
    """The address of a function of a module, compiled; its code stays for as long as the process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)),
                                        llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))  # one reference more: it outlives the interpreter
    return int(engine.get_function_address(name))
