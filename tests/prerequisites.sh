#!/bin/sh
# Makes sure that the programs which the tests need are there, and installs those
# that are not from Debian's packages. Usage: prerequisites.sh PROGRAM...
set -eu

# find_program PROGRAM: is it there?
find_program() {
	case $1 in
	postgresql)
		command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
		;;
	haproxy | pgbouncer) [ -x "/usr/sbin/$1" ] || command -v "$1" >/dev/null ;;
	chromium) command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ;;
	python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
	libc6-dev) [ -e /usr/include/stdio.h ] ;;
	systemd) command -v systemd-analyze >/dev/null ;;
	maven) command -v mvn >/dev/null ;;
	default-jdk-headless) command -v javac >/dev/null ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

missing=
for program in "$@"; do
	find_program "$program" || missing="$missing $program"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
	root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	root=sudo
else
	root=none
fi
if [ "$root" = none ] || ! command -v apt-get >/dev/null; then
	echo "prerequisites: install these first, as root:$missing (on Debian: apt-get install$missing)" >&2
	exit 1
fi

echo "prerequisites: installing$missing" >&2
log=$(mktemp)
trap 'exit 130' INT # or dash would end without what follows
trap 'exit 143' TERM HUP
trap 'rm -f "$log"' EXIT
# The tests start servers themselves; those of the packages must not run (invoke-rc.d(8)).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$log"; $root rm -f "$policy"' EXIT
	$root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy"
fi
# shellcheck disable=SC2086 # the words are meant to be split
if ! { $root apt-get update && $root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
	tail -n 5 "$log" >&2
	echo "prerequisites: these could not be installed:$missing" >&2
	exit 1
fi
for program in $missing; do
	find_program "$program" || { echo "prerequisites: $program is installed, and still not found" >&2; exit 1; }
done
