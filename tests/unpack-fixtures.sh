#!/usr/bin/env bash
# Unpack the test fixtures, which are stored compressed, into a folder (default: build/fixtures). Files already there are kept.
# usage: unpack-fixtures.sh [DEST]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dest=${1:-$here/../build/fixtures}
mkdir -p "$dest"
dest=$(cd "$dest" && pwd)
cd "$here/fixtures"
find . -type f | while read -r file; do
  target=$dest/${file%.xz}
  [ "$target" -nt "$file" ] && continue
  mkdir -p "$(dirname "$target")"
  case $file in
    *.xz) xz -dc "$file" > "$target.part" && mv "$target.part" "$target" ;;
    *) cp "$file" "$target" && touch "$target" ;;
  esac
done
