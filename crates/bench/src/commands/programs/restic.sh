# restic backs files up into a new repository, checks all of it, and gives one back.
# Usage: restic.sh [WORDS that start a program...]
set -eu
rm -rf repository cache
export RESTIC_PASSWORD=x RESTIC_REPOSITORY="$PWD/repository" RESTIC_CACHE_DIR="$PWD/cache"
"$@" restic init -q
"$@" restic backup -q lines
"$@" restic check -q --read-data >&2
"$@" restic dump -q latest /lines | cksum
