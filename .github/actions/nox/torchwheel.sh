#!/bin/sh
# For a project whose workflow calls those of this repository: installs torchwheel as it is at this
# commit, and by hash all that it needs. `nox -s NAME -- ARGUMENT…` then runs it, whatever noxfile.py
# the project has.
set -eu
root=$(cd "$GITHUB_ACTION_PATH/../../.." && pwd)
home="$RUNNER_TEMP/torchwheel"
nox=$(command -v nox)
python -m venv "$home"
"$home/bin/python" -m pip install --require-hashes --only-binary=:all: \
  --requirement "$root/pkg/torchwheel/src/torchwheel/data/pipeline.lock.txt"
"$home/bin/python" -m pip install --no-index --no-deps --no-build-isolation \
  "$root/pkg/torchwheel_runtime" "$root/pkg/torchwheel"
mkdir "$home/sessions"
cat > "$home/sessions/nox" <<END
#!/bin/sh
set -eu
name=\$2
shift 2
[ "\${1:-}" != -- ] || shift
case \$name in
earlier)
  GH_REPO=\$GITHUB_REPOSITORY exec "$nox" -f "$root/noxfile.py" -s earlier -- "\$PWD/\$1" ;;
evidence)
  exec "$nox" -f "$root/noxfile.py" -s evidence -- "\$1" "\$PWD/\$2" ;;
*)
  PATH="$home/bin:\$PATH" exec torchwheel "\$name" "\$@" ;;
esac
END
chmod +x "$home/sessions/nox"
echo "$home/sessions" >> "$GITHUB_PATH"
