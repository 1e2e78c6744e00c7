#!/bin/sh
# A real user manager of systemd, with a journal, for a user of its own, in a mount namespace that nobody else sees.
# Called inside `unshare --mount`: namespace.sh FOLDER UID PYTHON_PREFIX. Says `ready` and stays until its input ends;
# then everything is stopped and its control groups are removed.
set -eu
folder=$1 uid=$2 prefix=$3
mount --make-rprivate /

# "Booted with systemd" is this folder to all its programs.
mount -t tmpfs tmpfs /run/systemd 2>/dev/null || { mkdir -p /run/systemd; mount -t tmpfs tmpfs /run/systemd; }
mkdir -p /run/systemd/system /run/systemd/journal /run/log
mount -t tmpfs tmpfs /run/log
mkdir /run/log/journal

{ cat /etc/passwd; echo "fabledtest:x:$uid:$uid::$folder/home:/bin/sh"; } > "$folder/passwd"
{ cat /etc/group; echo "fabledtest:x:$uid:"; } > "$folder/group"
chmod 644 "$folder/passwd" "$folder/group"
mount --bind "$folder/passwd" /etc/passwd
mount --bind "$folder/group" /etc/group

# The interpreter may lie in a home that only its owner may enter: shown at the same place, alone.
if ! setpriv --reuid "$uid" --regid "$uid" --clear-groups test -x "$prefix/bin"; then
  mkdir "$folder/prefix"
  mount --bind "$prefix" "$folder/prefix"
  top=/$(echo "$prefix" | cut -d/ -f2)
  mount -t tmpfs -o mode=755 tmpfs "$top"
  mkdir -p "$prefix"
  mount --bind "$folder/prefix" "$prefix"
fi

# Control groups of its own, in each hierarchy that the manager uses.
groups=
for base in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
  [ -e "$base/cgroup.procs" ] || continue
  group=$base/fabled-test-$$
  mkdir "$group"
  chown -R "$uid:$uid" "$group"
  echo $$ > "$group/cgroup.procs"
  groups="$groups $group"
done

/lib/systemd/systemd-journald >"$folder/journald.log" 2>&1 &
journal=$!
mkdir -p "$folder/home" "$folder/run"
chown "$uid:$uid" "$folder/home" "$folder/run"
chmod 700 "$folder/home" "$folder/run"
cd "$folder/home"
while [ ! -S /run/systemd/journal/stdout ]; do kill -0 $journal; sleep 0.05; done

setpriv --reuid "$uid" --regid "$uid" --clear-groups env -i HOME="$folder/home" PATH=/usr/bin:/bin \
  XDG_RUNTIME_DIR="$folder/run" SYSTEMD_LOG_TARGET=console /usr/lib/systemd/systemd --user \
  </dev/null >"$folder/manager.log" 2>&1 &
manager=$!

finish() {
  trap - EXIT
  kill $manager 2>/dev/null && wait $manager || true
  kill $journal 2>/dev/null && wait $journal || true
  for group in $groups; do
    echo $$ > "$(dirname "$group")/cgroup.procs"
    find "$group" -depth -type d -exec rmdir {} + || true
  done
}
trap finish EXIT
trap 'exit 1' INT TERM
while [ ! -S "$folder/run/systemd/private" ]; do kill -0 $manager; sleep 0.05; done
echo ready
read -r _ || true
