#!/usr/bin/env bash
# Runs a command on another machine with what bench/pack packed, from the folder `tree` beside this script.
#
#   there.sh COMMAND...    there.sh bench/compare vulkan e2b.gguf; there.sh carat bench e2b.gguf; there.sh webgpu_products_test;
#                          there.sh bash -c '...' for several
#
# Packs that are here, whole, are unpacked first, once; others are left out, and a new one replaces its older self. Models that the
# command names and that are not here are synthesised: e2b.gguf, e2b-32k.gguf (for browsers), mmproj.gguf.
# VK_DRIVER_FILES (VK_ICD_FILENAMES), CARAT_CHROMIUM and CARAT_CHROMIUM_FLAGS are kept where they are set. The packed libraries go
# before the machine's, whose own programs, Python for one, may need newer ones: run those without this script.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
tree=$here/tree
say() { printf '== %s\n' "$*" >&2; }

expand() { if command -v xz >/dev/null; then xz -dc -T0; else python3 -c 'import lzma, shutil, sys
shutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer, 1 << 20)'; fi; }

# --- unpacking ------------------------------------------------------------------------------------------------------------------

unpack() { # PACK
  local sums done_file=$tree/.unpacked/$1
  sums=$(grep -F "./$1.tar.xz." "$here/sums")
  [ -e "$done_file" ] && [ "$(cat "$done_file")" = "$sums" ] && return
  cd "$here"
  if ! sha256sum --check --status 2>/dev/null <<< "$sums"; then
    say "left out: $1, of which parts are missing or of another time$([ -e "$done_file" ] && echo '; tree has an OLDER one')"
    return
  fi
  say "unpacking $1"
  mkdir -p "$tree/.unpacked"
  cut -c 67- <<< "$sums" | xargs cat | expand | tar -xf - -C "$tree" --no-same-owner
  echo "$sums" > "$done_file"
}

for pack in $(sed 's,.*\./,,; s,\.tar\.xz\..*,,' "$here/sums" | sort -u); do unpack "$pack"; done
cd "$tree"

# Tests look for their fixtures where they were built.
if [ -e built-in ] && [ ! -e "$(cat built-in)/build/fixtures" ]; then
  { mkdir -p "$(cat built-in)/build" && ln -sfn "$tree/build/fixtures" "$(cat built-in)/build/fixtures"; } ||
    say "tests will miss their fixtures at $(cat built-in)/build/fixtures"
fi

# --- the environment ------------------------------------------------------------------------------------------------------------

mkdir -p -m 700 home
export HOME=${HOME:-$tree/home} XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$tree/home}
export PATH=$tree/bin:$tree/build/release:$PATH LD_LIBRARY_PATH=$tree/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
chromium_flags='--ozone-platform=headless --enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia'

listed() { compgen -G "/etc/vulkan/icd.d/$1" || compgen -G "/usr/share/vulkan/icd.d/$1"; } >/dev/null
use_driver() { export VK_DRIVER_FILES=$1 VK_ICD_FILENAMES=$1; }

# NVIDIA's by its library for EGL, since what containers list is the one for X, which fails where there is none; else what the system
# lists; else the software renderer.
find_driver() {
  local folder
  for folder in /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib64; do
    [ -e "$folder/libEGL_nvidia.so.0" ] || continue
    LD_LIBRARY_PATH+=:$folder
    printf '{"file_format_version": "1.0.1", "ICD": {"library_path": "%s", "api_version": "1.4.312"}}\n' \
      "$folder/libEGL_nvidia.so.0" > nvidia_icd.json
    use_driver "$tree/nvidia_icd.json"
    return
  done
  listed '*.json' && return
  say "found no driver of a graphics card: WebGPU is left the software renderer of the pack chromium"
  use_driver "$tree/chromium/vk_swiftshader_icd.json"
  chromium_flags+=' --use-webgpu-adapter=swiftshader'
}

[ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ] || find_driver
export CARAT_CHROMIUM=${CARAT_CHROMIUM:-$tree/chromium/chromium} CARAT_CHROMIUM_FLAGS=${CARAT_CHROMIUM_FLAGS:-$chromium_flags}

# --- models and the command -----------------------------------------------------------------------------------------------------

synthesise() { # FILE [OPTIONS]
  [[ " ${command[*]} " == *[\ /\'\"]"$1"[\ \'\"]* ]] && [ ! -e "$1" ] || return 0
  say "making $1"
  carat synth e2b "$1.part" "${@:2}" && mv "$1.part" "$1"
}

command=("$@")
synthesise e2b.gguf
synthesise e2b-32k.gguf --vocab 32768
synthesise mmproj.gguf --mmproj
exec "$@"
