"""Builds the native extension; everything else about the package is declared in setup.cfg."""

import os
from glob import glob
from pathlib import Path

import nanobind
from setuptools import Extension, setup

NANOBIND = Path(nanobind.include_dir()).parent
# nanobind's own sources handle PyObject as C does, which strict aliasing forbids.
FLAGS = ["-std=c++17", "-fvisibility=hidden", "-fno-strict-aliasing"]
RELEASE = ["-O2", "-g0", "-DNDEBUG", "-DNB_COMPACT_ASSERTIONS"]
SANITIZE = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"]

sanitize = os.environ.get("ET_REPLAY_SANITIZE") == "1"

setup(
    ext_modules=[
        Extension(
            "et_replay._core",
            sources=[
                *sorted(glob("allocator/*.cpp") + glob("planner/*.cpp")),
                str(NANOBIND / "src" / "nb_combined.cpp"),
            ],
            depends=sorted(glob("allocator/*.hpp") + glob("planner/*.hpp")),
            include_dirs=[
                ".",
                str(NANOBIND / "include"),
                str(NANOBIND / "ext" / "robin_map" / "include"),
            ],
            extra_compile_args=FLAGS + (SANITIZE if sanitize else RELEASE),
            # dlopen finds the CUDA driver; before glibc 2.34 it has a library of its own.
            extra_link_args=[*(SANITIZE if sanitize else []), "-ldl"],
            language="c++",
        )
    ]
)
