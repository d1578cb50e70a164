"""What a file may cost its reader: the limits of archives, metadata, libraries and GPU code.

A file beyond a limit is refused in one line. The limits are far above what wheels of extensions
need (their figures are in brackets), and low enough that a command reads any file within 1 GiB of
memory and a minute. docs/design.md lists them.
"""

MIB = 1 << 20

# Archives.
MEMBERS = 50_000
"""Files and folders of an archive (torch's own wheels: 15,000)."""
DIRECTORY_BYTES = 16 * MIB
"""The archive's own list of its members."""
TAR_HEADER_BYTES = 16 << 10
"""What stands before a member of a tar: its header, with its pax headers and long names."""
NAME_PARTS = 32
PART_BYTES = 255
"""A name's folders, and the bytes of each: more no file system has."""
UNPACKED_BYTES = 2 << 30
RATIO = 200
"""Unpacked bytes for each byte of the file. Machine code packs 3 to 20 times, a bomb 1000 times."""
RATIO_FROM = 16 * MIB
"""Below this size any ratio is harmless, e.g. that of a file of zeros."""

# Metadata: a wheel's RECORD, METADATA, WHEEL and claims.
RECORD_BYTES = 16 * MIB
RECORD_ROWS = MEMBERS + 100
METADATA_BYTES = 1 * MIB
"""METADATA with its description (40 KiB), or the claims (30 KiB)."""
METADATA_FIELDS = 2000
WHEEL_FILE_BYTES = 64 << 10
TAGS = 1000
"""Tags of a wheel after `py2.py3-none-any` is multiplied out (30)."""

# Libraries.
LIBRARIES = 500
"""ELF files of a wheel."""
LIBRARY_SECONDS = 30
"""Processor time to read all libraries of a wheel, or of a package, with their GPU code (2)."""
INSPECT_SECONDS = 50
"""Processor time of `inspect` for a file: to unpack, to hash, to read its libraries (14)."""
SECTIONS = 16_384
"""Of a library (100) or a cubin, which has several for each kernel (cuBLASLt: 4,800)."""
SEGMENTS = 128
DYNAMIC_TAGS = 4096
SYMBOLS = 500_000
"""Dynamic symbols of one library (libtorch_cpu: 130,000)."""
SYMBOLS_OF_WHEEL = 250_000
"""Of all libraries of a wheel (5,000): auditwheel reads each one twice, in Python."""
SYMBOLS_KEPT = 600_000
"""Symbols of torch and Python that `inspect` keeps of all libraries of a file (torch: 150,000)."""
STRING_BYTES = 64 * MIB
"""The names of a library's symbols (libtorch_cpu: 20 MiB)."""
VERSION_BYTES = 1 * MIB
VERSIONS = 4096
"""Symbol versions that a library needs or defines (libstdc++: 60)."""
SYMBOL_BYTES = 16 << 10
"""The longest name of a symbol (C++ templates: 4 KiB)."""

# GPU code.
MODULES = 50_000
"""Modules of GPU code in a library (cuBLASLt: 5,500)."""
MODULE_BYTES = 128 * MIB
"""One module, unpacked."""
GPU_CODE_BYTES = 2 << 30
"""All modules of a library, unpacked."""
KERNELS = 500_000
"""Kernels of all modules of a library."""
CUOBJDUMP_SECONDS = 20
BUNDLE_ENTRIES = 1024
BUNDLE_NAME = 256
