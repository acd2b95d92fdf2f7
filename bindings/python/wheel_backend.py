"""Builds the wheel of the binding: the package spry, which is spry.py with the shared library, its modules and a small model
beside it. PEP 517's hooks, with the standard library only.

The library is the file that SPRY_LIBRARY names, else one that was built in the sources' `build` folder, else CMake builds it.
"""

import base64
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARY = "libspry.dylib" if sys.platform == "darwin" else "libspry.so"
MODEL = "Spry-Tales-29M.gguf"
SYSTEM_LIBRARIES = r"lib(c|m|dl|pthread|rt)\.so\.\d|ld-linux.*"


def _build(folder):
    if not os.path.exists(os.path.join(ROOT, "CMakeLists.txt")):
        sys.exit("spry: no library and no sources: SPRY_LIBRARY names a %s, and sources are two folders above %s" % (LIBRARY, HERE))
    for command in (["cmake", "-S", ROOT, "-B", folder, "-DBUILD_TESTING=OFF"],
                    ["cmake", "--build", folder, "--target", "libspry_shared", "--parallel", str(os.cpu_count() or 1)]):
        if subprocess.run(command, check=False).returncode:
            sys.exit("spry: the library could not be built: %s failed" % " ".join(command))
    return os.path.join(folder, LIBRARY)


def _library(folder):
    named = os.environ.get("SPRY_LIBRARY")
    if named and not os.path.isfile(named):
        sys.exit("spry: SPRY_LIBRARY: there is no file %s" % named)
    built = os.path.join(ROOT, "build", LIBRARY)
    return os.path.realpath(named or (built if os.path.exists(built) else _build(folder)))


def _version():
    if os.path.exists(os.path.join(ROOT, "CMakeLists.txt")):
        with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
            return re.search(r"project\(spry VERSION ([\d.]+)", file.read()).group(1)
    with open(os.path.join(HERE, "spry.py"), encoding="utf-8") as file:
        major, minor = re.search(r"(?m)^VERSION = \((\d+), (\d+)\)", file.read()).groups()
    return "%s.%s.0" % (major, minor)


def _readelf(option, library):
    try:
        return subprocess.run(["readelf", option, library], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    except OSError:
        return ""


def _platform(library):
    """The machines that the library runs on: all with its C library or a later one, if it needs nothing else, or this one."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", _readelf("-dW", library))
    versions = [int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", _readelf("-VW", library))]
    if needed and versions and all(re.fullmatch(SYSTEM_LIBRARIES, name) for name in needed):
        machine = re.search(r"Machine:.*(X86-64|AArch64)", _readelf("-hW", library))
        if machine:
            return "manylinux_2_%d_%s" % (max(max(versions), 17), {"X86-64": "x86_64", "AArch64": "aarch64"}[machine.group(1)])
    return re.sub(r"[-.]", "_", sysconfig.get_platform())


def _metadata():
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    return ("Metadata-Version: 2.1\nName: spry\nVersion: %s\nSummary: Run language models on this machine\nLicense: MIT\n"
            "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n%s" % (_version(), text))


def _models():
    for folder in (os.path.join(ROOT, "models"), os.environ.get("SPRY_MODELS", "")):
        if os.path.exists(os.path.join(folder, MODEL)):
            yield os.path.join(folder, MODEL)
            return


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # noqa: ARG001 (the hook's arguments)
    folder = tempfile.mkdtemp(prefix="spry-wheel-")
    try:
        library = _library(os.path.join(folder, "build"))
        tag = "py3-none-" + _platform(library)
        info = "spry-%s.dist-info" % _version()
        name = "spry-%s-%s.whl" % (_version(), tag)
        files = [("spry/__init__.py", os.path.join(HERE, "spry.py")), ("spry/" + LIBRARY, library)]
        modules = [path for place in (".", "spry") for path in glob.glob(os.path.join(os.path.dirname(library), place, "spry_cuda.so"))]
        files += [("spry/spry_cuda.so", path) for path in modules[:1]]
        files += [("spry/models/" + MODEL, path) for path in _models()]
        texts = [(info + "/METADATA", _metadata()),
                 (info + "/WHEEL", "Wheel-Version: 1.0\nGenerator: spry\nRoot-Is-Purelib: false\nTag: %s\n" % tag)]
        record = []
        with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
            for inside, content in files + texts:
                if (inside, content) in files:
                    with open(content, "rb") as file:
                        content = file.read()
                else:
                    content = content.encode()
                entry = zipfile.ZipInfo(inside, (1980, 1, 1, 0, 0, 0))
                entry.external_attr = (0o755 if inside.endswith((".so", ".dylib")) else 0o644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                wheel.writestr(entry, content)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record.append("%s,sha256=%s,%d" % (inside, digest, len(content)))
            wheel.writestr(zipfile.ZipInfo(info + "/RECORD", (1980, 1, 1, 0, 0, 0)), "\n".join([*record, info + "/RECORD,,"]) + "\n")
        return name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_sdist(sdist_directory, config_settings=None):  # noqa: ARG001
    raise NotImplementedError("the sources of the library are more than this folder: scripts/release packs them")


if __name__ == "__main__":
    print(build_wheel(sys.argv[1]))
