"""Run by a Python that has torch: translates a copy of CUDA sources with torch's hipify, in place.

Run by `torchwheel_runtime.builder.sources` as `python -c … FOLDER HEADERS-FOLDERS… -- FILES…`, with
paths relative to FOLDER. Standard library and torch only.
"""

import contextlib
import json
import os
import sys


def main() -> None:
    """Print one line of JSON, last: each file that was looked at, and what became of it."""
    split = sys.argv.index("--")
    folder, headers, files = sys.argv[1], sys.argv[2:split], sys.argv[split + 1 :]
    # It reports to both streams; standard output is for the answer.
    with contextlib.redirect_stdout(sys.stderr):
        from torch.utils.hipify import hipify_python  # noqa: PLC0415 - not where it is only read

        results = hipify_python.hipify(
            project_directory=folder,
            output_directory=folder,
            header_include_dirs=headers,
            includes=[os.path.join(folder, "*")],  # noqa: PTH118 - a pattern
            extra_files=[os.path.join(folder, file) for file in files],  # noqa: PTH118
            is_pytorch_extension=True,
            hipify_extra_files_only=True,
            show_progress=False,
        )
    became = {
        os.path.relpath(path, folder): os.path.relpath(result.hipified_path or path, folder)
        for path, result in results.items()
        if os.path.commonpath([path, folder]) == folder
    }
    print(json.dumps(became))


if __name__ == "__main__":
    main()
