"""A program beside a thread that runs Python out of C++, as those of gRPC and MLX do."""

import subprocess
import sys
from pathlib import Path

CALLS = """
#include <chrono>
#include <thread>
extern "C" void calls(void (*python)()) noexcept {
    for (;;) {
        python();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}
"""

BESIDE = """
import ctypes, sys, threading
calls, python = ctypes.CDLL(sys.argv.pop(1)).calls, ctypes.CFUNCTYPE(None)(lambda: None)
threading.Thread(target=calls, args=(python,), daemon=True).start()
from {module}.__main__ import main
main()
"""


def beside_a_native_thread(module: str, folder: Path) -> list[str]:
    """What runs `main` of that module so; its arguments follow. Python's own end ends that thread in the midst of C++,
    which aborts the process."""
    library = folder / "calls.so"
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library], input=CALLS.encode(), check=True, timeout=60
    )
    return [sys.executable, "-c", BESIDE.format(module=module), str(library)]
