#!/bin/sh
# Installs, upgrades or removes the customer-managed workflow agent or the server; --help lists the options.
# This script downloads and verifies a release; the release's program does the rest (command "install").
# Each release fills in its URL, and the public keys that sign releases, as base64 of PEM.
RELEASE_URL=""
RELEASE_KEY=""
RELEASE_CHANNEL=""

# The braces make an incomplete download a syntax error: nothing runs unless the last line is complete.
{

program=customer-managed-workflow-agent what=agent
small=2048        # maximum size of a downloaded text, in blocks of 512 or 1024 bytes
large=2097152     # maximum size of an archive, in blocks
attempts=4        # attempts per download

usage() {
  cat <<'USAGE'
Install, upgrade or remove the customer-managed workflow agent or, with --server, the server.

  curl -fsSL https://RELEASES/install.sh | sh -s -- [OPTION...]

  --version VERSION   install this version, like v1.2.3 (default: the newest of the channel)
  --channel CHANNEL   stable or beta (default: stable, if this mirror has stable releases)
  --server            the server instead of the agent: for the machine, in /opt, with its service,
                      which is started (needs root; --user, --docker and --process are of the agent)
  --user              install for yourself (default, unless you are root)
  --system            install for the machine: /opt, /usr/local/bin, the machine's service
                      (needs root, and is root's default)
  --dir DIR           install into DIR
  --no-service        do not register a service
  --docker            let the machine's service use the local Docker Engine by its group, which
                      makes it root in all but name
  --process           run the machine's service in the sandbox for deploy_target: process
  --no-modify-path    do not offer to extend PATH
  --uninstall         remove service and programs; keep configuration and state
  --purge             with --uninstall: also remove configuration and state; for the server, these
                      are all data and the key of all secrets, so it also needs --yes
  --mirror URL        download releases from here: https://, http:// or file:///DIR
  --key FILE          public keys (PEM) that sign the releases, instead of the built-in ones
  --yes               answer every question with yes
  --silent            ask nothing, print errors only
  --help              print this

Environment: WORKFLOW_AGENT_VERSION, WORKFLOW_AGENT_DIR, WORKFLOW_AGENT_MIRROR and
WORKFLOW_AGENT_KEY set the options with these names; the first two are only for the agent.
TMPDIR is the directory for downloads until they are verified.

Exit codes: 0 success, 1 failure, 2 mistake in the command line.
USAGE
}

say() { if [ -z "$silent" ]; then printf '%s\n' "$*"; fi; }

warn() { printf 'install.sh: %s\n' "$*" >&2; }

fail() {
  warn "$@"
  exit 1
}

mistake() {
  warn "$1; see --help"
  exit 2
}

have() { command -v "$1" >/dev/null 2>&1; }

# The last line that a program printed, without control characters, which a server may have inserted.
last_words() { tail -n 1 "$work/said" | sed 's/[[:cntrl:]]//g'; }

# value OPTION COUNT: ends the script if an option lacks its value.
value() { if [ "$2" -lt 2 ]; then mistake "$1 needs a value"; fi; }

options() {
  version='' directory=''
  mirror=${WORKFLOW_AGENT_MIRROR-} key_file=${WORKFLOW_AGENT_KEY-}
  channel='' scope='' uninstall='' purge='' silent='' server='' agents=''
  while [ $# -gt 0 ]; do
    case $1 in
      --version=* | --channel=* | --dir=* | --mirror=* | --key=*)
        word=$1
        shift
        set -- "${word%%=*}" "${word#*=}" "$@"
        ;;
    esac
    case $1 in
      --version) value "$1" $#; version=$2; shift ;;
      --channel) value "$1" $#; channel=$2; shift ;;
      --dir) value "$1" $#; directory=$2; shift ;;
      --mirror) value "$1" $#; mirror=$2; shift ;;
      --key) value "$1" $#; key_file=$2; shift ;;
      --user | --system)
        if [ -n "$scope" ] && [ "$scope" != "$1" ]; then mistake "--user and --system exclude each other"; fi
        scope=$1
        ;;
      --server) server=1 program=workflow-server what=server ;;
      --docker | --process | --no-modify-path) agents=$1 ;;
      --no-service | --yes) ;;
      --uninstall) uninstall=1 ;;
      --purge) purge=1 ;;
      --silent) silent=1 ;;
      --help | -h) usage; exit 0 ;;
      *) mistake "'$1' is not an option" ;;
    esac
    shift
  done
  if [ -z "$server" ]; then version=${version:-${WORKFLOW_AGENT_VERSION-}} directory=${directory:-${WORKFLOW_AGENT_DIR-}}; fi
  case $channel in
    '' | stable | beta) ;;
    *) mistake "'$channel' is not a channel: use stable or beta" ;;
  esac
  if [ -n "$version" ]; then
    if [ -n "$channel" ]; then mistake "--version and --channel exclude each other"; fi
    version=v${version#v}
    if ! is_version "$version"; then mistake "'$version' is not a version: it must look like v1.2.3 or v1.2.3-rc.1"; fi
  fi
  if [ -n "$purge" ] && [ -z "$uninstall" ]; then mistake "--purge requires --uninstall"; fi
  if [ -n "$server" ] && { [ -n "$agents" ] || [ "$scope" = --user ]; }; then
    mistake "${agents:---user} is an option of the agent, not of --server"
  fi
  if [ -n "$server" ] || { [ -z "$scope" ] && [ "$(id -u)" = 0 ]; }; then scope=--system; fi
  if [ "$scope" = --system ] && [ "$(id -u)" != 0 ]; then
    if [ -n "$server" ]; then fail "--server needs root: run this as curl … | sudo sh -s -- --server."; fi
    fail "--system needs root: run this as curl … | sudo sh -s -- --system, or use --user."
  fi
  if [ -z "$directory" ] && [ "$scope" = --system ]; then
    directory=/opt/$program
  elif [ -z "$directory" ]; then
    if [ -z "${HOME-}" ]; then fail "HOME is not set, so the home directory to install into is unknown: set HOME, or use --dir DIR."; fi
    directory=$HOME/.pulumi/bin/$program
  fi
}

# is_version TEXT: whether TEXT is the version of a release. The check is strict because versions become parts of paths.
is_version() {
  case $1 in
    *[!0-9A-Za-z.-]*) return 1 ;;
  esac
  [ ${#1} -le 64 ] && printf '%s\n' "$1" |
    grep -Eq '^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$'
}

platform() {
  system=$(uname -s) machine=$(uname -m)
  case $system in
    Linux) os=linux ;;
    Darwin) os=darwin ;;
    *) os= ;;
  esac
  case $machine in
    x86_64 | amd64) arch=x64 ;;
    aarch64 | arm64) arch=arm64 ;;
    *) arch= ;;
  esac
  if [ -z "$os" ] || [ -z "$arch" ]; then
    fail "no $what is available for this machine ($system $machine). Supported are Linux and macOS, each on x86-64 (x86_64, amd64) and ARM64 (aarch64, arm64)."
  fi
  # Under Rosetta, uname reports an Intel machine.
  if [ "$os" = darwin ] && [ "$(sysctl -n hw.optional.arm64 2>/dev/null || :)" = 1 ]; then arch=arm64; fi
}

# need PROGRAM PURPOSE [PACKAGE]
need() {
  if have "$1"; then return; fi
  lacking=1
  warn "this machine lacks $1, which $2. To install it: $(package_manager) ${3-$1}"
}

package_manager() {
  for manager in 'apt-get install' 'dnf install' 'yum install' 'apk add' 'zypper install' 'pacman -S' 'brew install'; do
    if have "${manager%% *}"; then
      printf '%s' "$manager"
      return
    fi
  done
  printf 'with your package manager,'
}

tools() {
  lacking=
  for tool in sed grep mktemp; do need "$tool" "this script uses"; done
  need awk "this script uses" gawk
  need tar "unpacks the release"
  need gzip "unpacks the release"
  need openssl "checks the release's signature"
  case $mirror in
    file://*) loader='cp' ;;
    *)
      if have curl; then
        loader=curl
      elif have wget; then
        loader=wget
        case $(wget --version 2>/dev/null || :) in
          *'GNU Wget'*) loader=gnuwget ;;
        esac
      else
        need curl "downloads the release (wget works, too)"
      fi
      ;;
  esac
  if [ -n "$lacking" ]; then exit 1; fi
}

# source_of_release determines the mirror and the keys to trust.
source_of_release() {
  if [ -z "$mirror" ]; then mirror=$RELEASE_URL; fi
  if [ -z "$mirror" ] || { [ -z "$key_file" ] && [ -z "$RELEASE_KEY" ]; }; then
    warn "this install.sh is not from a release, so it contains neither the URL of releases nor the keys that sign them: use --mirror URL --key FILE."
    exit 2
  fi
  while [ "$mirror" != "${mirror%/}" ]; do mirror=${mirror%/}; done
  case $mirror in
    *[[:space:][:cntrl:]\"\\]*)
      case $mirror in
        file://*) ;;
        *) mistake "the URL of the mirror has a space, a quote or a backslash" ;;
      esac
      ;;
  esac
  # If the mirror uses TLS, redirects must use TLS, too.
  case $mirror in
    https://?*) schemes='=https' ;;
    http://?*) schemes='=http,https' ;;
    file:///?*) schemes='' ;;
    *) mistake "the mirror must be a URL that begins with https://, http:// or file:///" ;;
  esac
  case $mirror in
    file://*) shown=$mirror secret= ;;
    *)
      rest=${mirror#*://}
      authority=${rest%%/*}
      secret=
      case $authority in
        *@*) secret=1 ;;
      esac
      shown=${mirror%%://*}://${authority##*@}${rest#"$authority"}
      ;;
  esac
}

# load PATH FILE BLOCKS: downloads PATH of the mirror to FILE in the work directory. It returns 1 with the
# cause in why, 4 if the mirror has no such file.
load() {
  tries=0
  while :; do
    tries=$((tries + 1))
    loaded=0
    load_once "$1" "$2" "$3" 3>&2 2>"$work/said" || loaded=$?
    if [ "$loaded" = 0 ]; then return 0; fi
    # Some of these programs print the address, which may contain a password.
    why="$loader failed (exit code $loaded)"
    words=$(last_words)
    if [ -z "$secret" ] && [ -n "$words" ]; then why=$words; fi
    if grep -Eq 'error: 404|ERROR 404|404 Not Found|404 File not found|No such file' "$work/said"; then return 4; fi
    rm -f "$work/$2"
    case $loader$loaded in
      cp* | curl23) return 1 ;; # reading or writing failed, and a retry does not help
    esac
    if [ "$tries" -ge "$attempts" ]; then return 1; fi
    sleep $((tries + $$ % 2)) # so that not all machines retry at once
  done
}

# load_once downloads with bounded size and time. It passes the address on standard input if possible,
# because every user can see the arguments of a program.
load_once() (
  ulimit -f "$3" 2>/dev/null || :
  address=$mirror/$1
  limit=
  if timeout --foreground 9 uname >/dev/null 2>&1; then
    limit='timeout --foreground 1800' # otherwise, Ctrl-C does not reach the command
  elif timeout 9 uname >/dev/null 2>&1; then
    limit='timeout 1800'
  fi
  case $loader in
    cp) exec cp "${address#file://}" "$work/$2" ;;
    curl)
      progress=--silent
      if [ "$3" = "$large" ] && [ -z "$silent" ] && [ -t 3 ]; then
        progress=--progress-bar
        exec 2>&3
      fi
      printf 'url = "%s"\n' "$address" | curl --config - --globoff --fail --location --proto "$schemes" --proto-redir "$schemes" \
        --connect-timeout 20 --max-time 1800 --speed-limit 1000 --speed-time 60 --show-error "$progress" --output "$work/$2"
      ;;
    gnuwget)
      printf '%s\n' "$address" | $limit wget --no-verbose --timeout=30 --tries=1 --input-file=- --output-document="$work/$2"
      ;;
    wget) $limit wget -q -O "$work/$2" "$address" ;; # its option -T crashes some static builds
  esac
)

# trusted FILE: verifies the signature of FILE, which must not be used before. A wrong signature ends the script.
trusted() {
  missing=0
  load "$1.sig" "${1##*/}.sig" "$small" || missing=$?
  case $missing in
    0) ;;
    4) fail "$shown has no signature for ${1##*/}, and unsigned files are not installed. If this is your own mirror, copy ${1##*/}.sig to it, too." ;;
    *) fail "cannot download ${1##*/}.sig from $shown: $why" ;;
  esac
  for key in "$work"/key-*.pem; do
    if openssl dgst -sha256 -verify "$key" -signature "$work/${1##*/}.sig" "$work/${1##*/}" >/dev/null 2>&1; then return; fi
  done
  fail "the signature of ${1##*/} from $shown is not from a release key. The file was changed in transit or on the mirror, or these releases are signed with another key (use --key, or a newer install.sh). Nothing was installed: try again later, and if the error remains, tell the operator of the mirror."
}

keys() {
  if [ -n "$key_file" ]; then
    if ! cat "$key_file" >"$work/keys.pem" 2>/dev/null; then fail "cannot read the key file $key_file."; fi
  elif ! printf '%s' "$RELEASE_KEY" | openssl base64 -d -A >"$work/keys.pem" 2>/dev/null; then
    fail "this install.sh is damaged: its key is not base64. Download it again."
  fi
  (cd "$work" && awk '
    /^-----BEGIN PUBLIC KEY-----/ { inside = ++n }
    inside { print >("key-" n ".pem") }
    /^-----END PUBLIC KEY-----/ { close("key-" n ".pem"); inside = 0 }
    END { exit n == 0 }' keys.pem) ||
    fail "${key_file:-this install.sh} contains no public key (PEM, BEGIN PUBLIC KEY)."
}

# newest reads the version of the channel's newest release.
newest() {
  channel=${channel:-${RELEASE_CHANNEL:-stable}}
  missing=0
  load "$channel.txt" "$channel.txt" "$small" || missing=$?
  case $missing in
    0) ;;
    4) fail "$shown has no channel $channel (no $channel.txt). Name a version with --version, choose --channel beta, or check the URL." ;;
    *) fail "cannot download $channel.txt from $shown: $why" ;;
  esac
  trusted "$channel.txt"
  version=$(sed -n 's/^version: //p' "$work/$channel.txt")
  if ! is_version "$version"; then fail "the channel file $channel.txt of $shown names no version."; fi
}

# download downloads the archive and checks it against the signed list of its release.
download() {
  archive=$program-$version-$os-$arch.tar.gz
  missing=0
  load "$version/checksums.txt" checksums.txt "$small" || missing=$?
  case $missing in
    0) ;;
    4) fail "$shown has no release $version." ;;
    *) fail "cannot download checksums.txt of $version from $shown: $why" ;;
  esac
  trusted "$version/checksums.txt"
  want=$(awk -v name="$archive" '$2 == name { print $1 }' "$work/checksums.txt")
  case $want in
    '') fail "the signed list of the release $version from $shown does not contain $archive: it is the list of another release, or the $what $version does not exist for this machine. Nothing was installed." ;;
    *[!0-9a-f]*) fail "the signed list of the release $version from $shown has an invalid entry for $archive. Nothing was installed." ;;
  esac
  missing=0
  load "$version/$archive" "$archive" "$large" || missing=$?
  case $missing in
    0) ;;
    4) fail "$shown has no $archive, although the release's list contains it." ;;
    *) fail "cannot download $archive from $shown to $work: $why. Is the disk full?" ;;
  esac
  got=$(openssl dgst -sha256 <"$work/$archive" | sed 's/^.*= *//')
  if [ "$got" != "$want" ]; then
    fail "the checksum of $archive is $got, but must be $want according to the signed list. The archive was damaged in transit or changed on the mirror $shown. Nothing was installed: try again, and if the error remains, tell the operator of the mirror."
  fi
}

# ancestor sets above to the nearest existing directory above the installation.
ancestor() {
  case $directory in
    /*) above=$directory ;;
    *) above=$PWD/$directory ;;
  esac
  while [ "$above" != "${above%/}" ]; do above=${above%/}; done
  above=${above%/*}
  until [ -d "$above/" ]; do above=${above%/*}; done
}

# safe DIR: whether root can trust the programs in DIR, because no other user can replace DIR or any
# directory above it. For other users, every directory that they name is safe.
safe() {
  if [ "$(id -u)" != 0 ]; then return 0; fi
  at=$(cd "$1" && pwd -P) || return 1
  while :; do
    entry=$(ls -ldn "${at:-/}") || return 1
    case $entry in
      ?????????[tT]*) ;; # others may add files, but not replace existing ones
      ?????w* | ????????w*) return 1 ;;
    esac
    if ! printf '%s\n' "$entry" | { read -r _ _ owner _ && [ "$owner" = 0 ]; }; then return 1; fi
    if [ -z "${at%/}" ]; then return 0; fi
    at=${at%/*}
  done
}

# owned FILE: whether root can trust FILE in a directory where others may add files, such as /tmp.
owned() {
  if [ "$(id -u)" != 0 ]; then return 0; fi
  entry=$(ls -ldnL "$1") || return 1
  case $entry in
    ?????w* | ????????w*) return 1 ;;
  esac
  printf '%s\n' "$entry" | { read -r _ _ owner _ && [ "$owner" = 0 ]; }
}

# start COMMAND...: writes the command's output, the agent, to a file and starts it once. TMPDIR may be
# mounted noexec, so start also tries the installation's own file system.
start() {
  ancestor
  for dir in "$work" "$above/"; do
    if [ "$dir" != "$work" ] && ! safe "$dir"; then continue; fi
    boot=$(mktemp -d "${dir%/}/.workflow-agent.XXXXXX") || continue
    agent=$boot/$program
    if "$@" >"$agent" 2>"$work/said" && chmod 700 "$agent" && reported=$("$agent" version 2>"$work/said"); then return 0; fi
    rm -rf "$boot"
  done
  boot=''
  return 1
}

# prepare checks the requirements of a download.
prepare() {
  source_of_release
  platform
  tools
}

# obtain verifies the release and starts its agent.
obtain() {
  keys
  asked=$version
  if [ -z "$version" ]; then newest; fi
  download
  if ! start tar -xzOf "$work/$archive" "${archive%.tar.gz}/$program"; then
    fail "the $what $version does not run on this machine: $(last_words). Are $work and $above/ mounted noexec, or is the disk full?"
  fi
  if [ "$reported" != "$version" ]; then
    fail "the $what in $archive reports the version $reported. Tell the publisher of the release."
  fi
}

# installed starts the agent to remove, or a package's agent.
installed() {
  for file in "$directory/$program" "$(command -v $program || :)" /usr/bin/$program; do
    if [ ! -f "$file" ]; then continue; fi
    if ! safe "${file%/*}" || ! owned "$file"; then
      fail "root does not run $file, because another user can replace it: run this as that user, with --user."
    fi
    if start cat "$file"; then return 0; fi
  done
  return 1
}

# shellcheck disable=SC2317 # called by a trap
leave() {
  code=$?
  trap - EXIT
  trap '' HUP INT TERM
  rm -rf "${boot:-/nonexistent}" "${work:-/nonexistent}"
  exit "$code"
}

main() {
  if [ -n "${ZSH_VERSION-}" ]; then emulate sh; fi
  set -eu +fC
  umask 022
  LC_ALL=C
  export LC_ALL
  unset CDPATH GREP_OPTIONS TAR_OPTIONS GZIP POSIXLY_CORRECT QUOTING_STYLE 2>/dev/null || :
  silent='' work='' boot='' asked='' archive=''
  options "$@"
  exec </dev/null # the remaining standard input may be this script
  trap leave EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  if [ -z "$uninstall" ]; then prepare; fi
  work=$(mktemp -d "${TMPDIR:-/tmp}/workflow-agent.XXXXXX") ||
    fail "cannot create a directory in ${TMPDIR:-/tmp}: is the disk full? Set TMPDIR to another directory."
  if [ -z "$uninstall" ]; then
    obtain
  elif ! installed; then
    if [ -z "$purge" ]; then
      say "There is no $what in $directory."
      exit 0
    fi
    prepare
    obtain
  fi
  "$agent" install "$@" "${scope:---user}" --dir "$directory" --version "$asked" --stage "$work" --release "$version" --key "$work/keys.pem" \
    ${server:+"--archive=$work/$archive"}
}

main "$@"; exit $?; }
