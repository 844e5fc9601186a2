#!/bin/sh
# Installs, upgrades or removes the customer-managed workflow agent; --help says how.
# Where releases are, and base64 of the PEM public keys that sign them: filled in when a release is made.
RELEASE_URL=""
RELEASE_KEY=""

# Nothing runs before the last byte of the last line is here: a download that breaks off is a syntax error.
{

program=customer-managed-workflow-agent
old_name=customer-managed-deployment-agent
# What the root of an installation has links to.
links="$program $old_name workflow-runner workflow-runner-embeddable workflow-runner-embeddable-arm64"
# Configuration files that lie beside them.
configurations="pulumi-workflow-agent.yaml pulumi-deployment-agent.yaml"
# What the agent's own updates leave there: the version that worked last, one that is unpacked, the update on its way, what was seen of a mirror.
updates="releases-seen.json .download proven .proven.new .current.new .incoming .update.lock update.json update.json.broken update-failed.json"
system_root=/opt/$program
system_links=/usr/local/bin
small=2048        # most blocks (512 or 1024 bytes) of a text that is downloaded
large=2097152     # most blocks of an archive
attempts=4        # of each download

usage() {
  cat <<'USAGE'
Install, upgrade or remove the customer-managed workflow agent.

  curl -fsSL https://RELEASES/install.sh | sh -s -- [OPTION...]

  --version VERSION   install this version, like v1.2.3 (default: the newest of the channel)
  --channel CHANNEL   stable or beta (default: stable)
  --user              install for yourself (default, unless you are root)
  --system            install for the machine: /opt, /usr/local/bin, the machine's service
                      (needs root, and is root's default)
  --dir DIR           install into DIR
  --no-service        do not register a service
  --docker            let the machine's service use the local Docker Engine by its group, which
                      makes it root in all but name
  --process           run the machine's service in the sandbox for deploy_target: process
  --no-modify-path    do not offer to extend PATH
  --uninstall         remove service and programs; configuration and state stay
  --purge             with --uninstall: remove configuration and state too
  --mirror URL        take releases from here: https://, http:// or file:///DIR
  --key FILE          public keys (PEM) that sign the releases, instead of the built-in ones
  --yes               answer every question with yes
  --silent            ask nothing, print errors only
  --help              print this

Environment: WORKFLOW_AGENT_VERSION, WORKFLOW_AGENT_DIR, WORKFLOW_AGENT_MIRROR and
WORKFLOW_AGENT_KEY stand for the options of those names; NO_COLOR turns colours off;
TMPDIR is where downloads go until they are checked.

Exit codes: 0 done, 1 failed, 2 a mistake in the command line.
USAGE
}

# --- words ---

say() { if [ -z "$silent" ]; then printf '%s\n' "$*"; fi; }

# detail is for a person who watches.
detail() { if [ -z "$silent" ] && [ -t 2 ]; then printf '%s%s%s\n' "$dim" "$*" "$plain" >&2; fi; }

warn() { printf '%sinstall.sh:%s %s\n' "$red" "$plain" "$*" >&2; }

fail() {
  warn "$@"
  exit 1
}

mistake() {
  warn "$1; see --help"
  exit 2
}

colours() {
  red='' dim='' plain=''
  if [ -t 2 ] && [ -z "${NO_COLOR-}" ] && [ "${TERM-dumb}" != dumb ]; then
    red=$(printf '\033[31m') dim=$(printf '\033[2m') plain=$(printf '\033[0m')
  fi
}

# ask QUESTION: whether the person at the terminal says yes. The terminal is opened by its own name,
# because the standard input may be this script.
ask() {
  if [ -n "$yes" ]; then return 0; fi
  if ! terminal; then return 1; fi
  printf '%s [y/N] ' "$1" >/dev/tty
  answer=
  read -r answer </dev/tty || :
  case $answer in
    [yY] | [yY][eE][sS]) return 0 ;;
  esac
  return 1
}

# terminal: whether there is somebody to ask.
terminal() { [ -z "$silent" ] && (true </dev/tty >/dev/tty) 2>/dev/null; }

have() { command -v "$1" >/dev/null 2>&1; }

# What the program that ran last had to say. A server may have put something for terminals into it.
last_words() { tail -n 1 "$work/said" | sed 's/[[:cntrl:]]//g'; }
first_words() { sed 's/[[:cntrl:]]//g; q' "$work/said"; }

# quoted TEXT: TEXT as one word of a shell.
quoted() { printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }

# --- options ---

# value OPTION COUNT: an option that needs a value has one.
value() { if [ "$2" -lt 2 ]; then mistake "$1 needs a value"; fi; }

options() {
  version=${WORKFLOW_AGENT_VERSION-} directory=${WORKFLOW_AGENT_DIR-}
  mirror=${WORKFLOW_AGENT_MIRROR-} key_file=${WORKFLOW_AGENT_KEY-}
  channel='' scope='' no_service='' docker='' process='' no_path='' uninstall='' purge='' yes='' silent=''
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
        if [ -n "$scope" ] && [ "$scope" != "${1#--}" ]; then mistake "--user and --system exclude each other"; fi
        scope=${1#--}
        ;;
      --no-service) no_service=1 ;;
      --docker) docker=1 ;;
      --process) process=1 ;;
      --no-modify-path) no_path=1 ;;
      --uninstall) uninstall=1 ;;
      --purge) purge=1 ;;
      --yes) yes=1 ;;
      --silent) silent=1 ;;
      --help | -h) usage; exit 0 ;;
      *) mistake "$(quoted "$1") is not an option" ;;
    esac
    shift
  done
  case $channel in
    '' | stable | beta) ;;
    *) mistake "there is no channel $(quoted "$channel"): there are stable and beta" ;;
  esac
  if [ -n "$version" ]; then
    if [ -n "$channel" ]; then mistake "--version and --channel exclude each other"; fi
    version=v${version#v}
    if ! is_version "$version"; then mistake "$(quoted "$version") is not a version: it must look like v1.2.3 or v1.2.3-rc.1"; fi
  fi
  if [ -n "$purge" ] && [ -z "$uninstall" ]; then mistake "--purge goes with --uninstall"; fi
}

# is_version TEXT: whether TEXT is the version of a release. It becomes part of paths.
is_version() {
  case $1 in
    *[!0-9A-Za-z.-]*) return 1 ;;
  esac
  [ ${#1} -le 64 ] && printf '%s\n' "$1" |
    grep -Eq '^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$'
}

# older A B: whether version A comes before version B in the order of semver.
older() {
  awk -v a="${1#v}" -v b="${2#v}" '
    function core(v) { sub(/-.*/, "", v); return v }
    function rest(v) { return v ~ /-/ ? substr(v, index(v, "-") + 1) : "" }
    function word(x, y, nx, ny) {
      nx = x ~ /^[0-9]+$/; ny = y ~ /^[0-9]+$/
      if (nx && ny) return (x + 0 > y + 0) - (x + 0 < y + 0)
      if (nx != ny) return nx ? -1 : 1
      return ((x "") > (y "")) - ((x "") < (y ""))
    }
    function order(a, b, x, y, n, m, i, c) {
      n = split(a, x, "."); m = split(b, y, ".")
      for (i = 1; i <= n && i <= m; i++) if (c = word(x[i], y[i])) return c
      return (n > m) - (n < m)
    }
    BEGIN {
      c = order(core(a), core(b))
      if (!c) {
        if (rest(a) == "" || rest(b) == "") c = (rest(a) == "") - (rest(b) == "")
        else c = order(rest(a), rest(b))
      }
      exit c >= 0
    }'
}

# --- the machine ---

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
    fail "there is no agent for this machine ($system $machine). Supported are Linux and macOS, each on x86-64 (x86_64, amd64) and ARM64 (aarch64, arm64)."
  fi
  # Rosetta tells a translated shell that the machine is an Intel.
  if [ "$os" = darwin ] && [ "$(sysctl -n hw.optional.arm64 2>/dev/null || :)" = 1 ]; then arch=arm64; fi
}

# need PROGRAM PURPOSE [PACKAGE]
need() {
  if have "$1"; then return; fi
  lacking=1
  warn "this machine lacks $1, which $2. Install it: $(package_manager) ${3-$1}"
}

package_manager() {
  for manager in 'apt-get install' 'dnf install' 'yum install' 'apk add' 'zypper install' 'pacman -S' 'brew install'; do
    if have "${manager%% *}"; then
      if [ "${manager%% *}" != brew ] && [ "$(id -u)" != 0 ]; then manager="sudo $manager"; fi
      printf '%s' "$manager"
      return
    fi
  done
  printf 'with your package manager,'
}

tools() {
  lacking=
  for tool in sed grep mktemp; do need "$tool" "this script is written with"; done
  need awk "this script is written with" gawk
  need find "this script is written with" findutils
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
        need curl "downloads the release (wget will do, too)"
      fi
      ;;
  esac
  if [ -n "$lacking" ]; then exit 1; fi
}

# place decides for whom and where.
place() {
  uid=$(id -u)
  if [ -z "$scope" ]; then
    scope=user
    if [ "$uid" = 0 ]; then scope=system; fi
  fi
  user_flag='' sudo=''
  case $scope in
    user) user_flag=' --user' ;;
    system) if [ -n "${SUDO_USER-}" ]; then sudo='sudo '; fi ;;
  esac
  if [ "$scope" = system ] && [ "$uid" != 0 ]; then
    fail "--system needs root: run this as curl … | sudo sh -s -- --system, or use --user."
  fi
  home=${HOME-}
  # shellcheck disable=SC2012 # it looks at one name, and only at its owner
  if [ "$scope" = user ] && [ "$uid" = 0 ] && [ -d "$home" ] && [ "$(ls -ldn "$home" 2>/dev/null | awk '{ print $3 }')" != 0 ]; then
    fail "you are root, but $home belongs to somebody else: run this without sudo to install for yourself, or use --system."
  fi
  root=$directory
  if [ -z "$root" ] && [ "$scope" = system ]; then
    root=$system_root
  elif [ -z "$root" ]; then
    if [ -z "$home" ]; then fail "HOME is not set, so that there is no home directory to install into: set it, or use --dir DIR."; fi
    root=$home/.pulumi/bin/$program
  fi
  case $root in
    /*) ;;
    *) root=$PWD/$root ;;
  esac
  while [ "$root" != "${root%/}" ]; do root=${root%/}; done
  case $root in
    '') fail "the root directory is no place to install into: use --dir DIR." ;;
    *:* | *[[:cntrl:]]*) fail "a directory that is to be in PATH cannot have a colon or a line break in its name: use another --dir." ;;
  esac
}

# --- the release ---

# source_of_release finds out where to download, and whom to trust.
source_of_release() {
  if [ -z "$mirror" ]; then mirror=$RELEASE_URL; fi
  if [ -z "$mirror" ] || { [ -z "$key_file" ] && [ -z "$RELEASE_KEY" ]; }; then
    warn "this install.sh does not come from a release, so that it does not know where releases are and who signs them: use --mirror URL --key FILE."
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
  # With TLS, TLS only, also where a server redirects to.
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

# load PATH FILE BLOCKS: download PATH of the mirror to FILE of the work directory. It returns 1 with the
# cause in why, 4 if the mirror has no such file.
load() {
  tries=0
  while :; do
    tries=$((tries + 1))
    loaded=0
    load_once "$1" "$2" "$3" 3>&2 2>"$work/said" || loaded=$?
    if [ "$loaded" = 0 ]; then return 0; fi
    # The address, which may have a password in it, is in the words of some of these programs.
    why="$loader failed (exit code $loaded)"
    words=$(last_words)
    if [ -z "$secret" ] && [ -n "$words" ]; then why=$words; fi
    if grep -Eq 'error: 404|ERROR 404|404 Not Found|404 File not found|No such file' "$work/said"; then return 4; fi
    rm -f "$work/$2"
    case $loader$loaded in
      cp* | curl23) return 1 ;; # it cannot be read or written, which does not mend itself
    esac
    if [ "$tries" -ge "$attempts" ]; then return 1; fi
    detail "$why; trying again"
    sleep $((tries + $$ % 2)) # not all machines at once
  done
}

# load_once downloads with bounded size and time. The address goes in by standard input where that can be
# done, because everybody may see the arguments of a program.
load_once() (
  ulimit -f "$3" 2>/dev/null || :
  address=$mirror/$1
  limit=
  if timeout --foreground 9 uname >/dev/null 2>&1; then
    limit='timeout --foreground 1800' # else Ctrl-C does not reach what it runs
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
    wget) $limit wget -q -O "$work/$2" "$address" ;; # its -T crashes some static builds
  esac
)

# trusted FILE: nothing of the release is looked at before this. A signature that is not right ends it.
trusted() {
  missing=0
  load "$1.sig" "${1##*/}.sig" "$small" || missing=$?
  case $missing in
    0) ;;
    4) fail "$shown has no signature for ${1##*/}, and nothing without one is installed. If it is your own mirror, copy ${1##*/}.sig there, too." ;;
    *) fail "cannot download ${1##*/}.sig from $shown: $why" ;;
  esac
  for key in "$work"/key-*.pem; do
    if openssl dgst -sha256 -verify "$key" -signature "$work/${1##*/}.sig" "$work/${1##*/}" >/dev/null 2>&1; then return; fi
  done
  fail "the signature of ${1##*/} from $shown is not by a release key. It was changed on its way or on the mirror, or the key is another one's (--key, or an old install.sh). Nothing was installed: try again later, and if it stays so, tell whoever runs the mirror."
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
    fail "there is no public key (PEM, BEGIN PUBLIC KEY) in ${key_file:-this install.sh}."
}

# newest asks the channel for its version.
newest() {
  channel=${channel:-stable}
  missing=0
  load "$channel.txt" "$channel.txt" "$small" || missing=$?
  case $missing in
    0) ;;
    4) fail "$shown has no channel $channel (no $channel.txt). Name a version with --version, or look at the URL." ;;
    *) fail "cannot download $channel.txt from $shown: $why" ;;
  esac
  trusted "$channel.txt"
  version=$(sed -n 's/^version: //p' "$work/$channel.txt")
  if ! is_version "$version"; then fail "the channel file $channel.txt of $shown names no version."; fi
}

# download brings the archive, checked against the signed list of its release.
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
    '') fail "the signed list of the release $version from $shown does not have $archive: it is the list of another release, or there is no agent $version for this machine. Nothing was installed." ;;
    *[!0-9a-f]*) fail "the signed list of the release $version from $shown is damaged at $archive. Nothing was installed." ;;
  esac
  detail "Downloading $archive"
  missing=0
  load "$version/$archive" "$archive" "$large" || missing=$?
  case $missing in
    0) ;;
    4) fail "$shown has no $archive, though the list of the release names it." ;;
    *) fail "cannot download $archive from $shown to $work: $why. Is there enough room?" ;;
  esac
  got=$(openssl dgst -sha256 <"$work/$archive" | sed 's/^.*= *//')
  if [ "$got" != "$want" ]; then
    fail "the checksum of $archive is $got, and the signed list says $want. It was damaged on its way, or changed on the mirror $shown. Nothing was installed: try again, and if it stays so, tell whoever runs the mirror."
  fi
}

# harmless: the archive has nothing but files of the release in one directory, and one link between them.
harmless() {
  tar -tzf "$work/$archive" >"$work/names" 2>"$work/said" || fail "cannot read $archive: $(first_words)"
  tar -tvzf "$work/$archive" >"$work/entries" 2>"$work/said" || fail "cannot read $archive: $(first_words)"
  if ! awk -v top="${archive%.tar.gz}/" '
    index($0, top) != 1 || /[^0-9A-Za-z.\/_-]/ || /\/\// || ("/" $0 "/") ~ /\/\.\.?\// { exit bad = 1 }
    END { exit bad || NR == 0 }' "$work/names" ||
    ! awk -v link="/$old_name -> $program" '
      /^[-d]/ && !/ link to | -> / { next } # or a hard link
      /^l/ && substr($0, length($0) - length(link) + 1) == link { next }
      { exit 1 }' "$work/entries"; then
    fail "$archive has names that a release does not have, so that it was not unpacked. Tell whoever made the release."
  fi
}

# --- the installation ---

# look finds what is there already.
look() {
  before='' flat='' fresh=''
  if [ -L "$root/current" ]; then
    before=$(readlink "$root/current")
    before=${before##*/}
  elif [ -f "$root/$program" ] && [ ! -L "$root/$program" ]; then
    flat=1
  else
    fresh=1
    ours=
    for name in versions $configurations; do
      if [ -e "$root/$name" ]; then ours=1; fi
    done
    if [ -e "$root" ] && [ -z "$ours" ] && [ -n "$(ls -A "$root" 2>&1)" ]; then
      fail "$root has something in it that is not an agent: use --dir with a new directory."
    fi
  fi
}

# packaged refuses to put a second agent beside one of a package manager.
packaged() {
  for file in "$(command -v $program || :)" /usr/bin/$program; do
    if [ ! -e "$file" ]; then continue; fi
    if have dpkg && dpkg -S "$file" >/dev/null 2>&1; then
      owned "apt" "sudo apt-get install --only-upgrade $program" "sudo apt-get remove $program"
    elif have rpm && HOME=$work rpm -qf "$file" >/dev/null 2>&1; then
      owned "rpm" "sudo dnf upgrade $program" "sudo dnf remove $program"
    fi
    case $(readlink "$file" || :) in
      *Cellar/*) owned "Homebrew" "brew upgrade $program" "brew uninstall $program" ;;
    esac
  done
}

owned() {
  if [ -n "$uninstall" ]; then fail "$file belongs to a package of $1. Remove it with: $3"; fi
  fail "$file belongs to a package of $1. Upgrade it with: $2 (or first remove it: $3)"
}

# lock keeps two installations into one directory apart. The lock of one that was killed is taken over.
lock() {
  above=$root # what is there before anything is made
  until [ -z "$above" ] || [ -d "$above" ]; do above=${above%/*}; done
  making=1
  mkdir -p "$root/versions" 2>"$work/said" || fail "cannot make $root/versions: $(last_words)"
  if ! ln -s "$$" "$root/versions/.lock" 2>"$work/said"; then
    other=$(readlink "$root/versions/.lock" 2>/dev/null || :)
    if [ -n "$other" ] && kill -0 "$other" 2>/dev/null; then
      fail "process $other is installing into $root: wait for it. If it is something else, remove $root/versions/.lock."
    fi
    if ! rm -f "$root/versions/.lock" || ! ln -s "$$" "$root/versions/.lock"; then
      fail "cannot write to $root/versions: $(last_words)"
    fi
  fi
  # The agent's own updates have theirs. Where there is no flock, two at once are not noticed.
  if have flock; then
    exec 9>>"$root/.update.lock"
    if ! flock -n 9; then fail "the agent in $root is updating itself: try again in a few minutes."; fi
  fi
  # What a killed one left.
  rm -rf "$root"/versions/.new-* "$root/.link"
}

# unlock lets updates go on: registering the service tells them that this version is the good one.
unlock() {
  if have flock; then exec 9>&-; fi
  rm -f "$root/versions/.lock"
}

# renamed FROM TO: one rename, also where TO is a link to a directory. GNU, BusyBox and toybox say it with
# -T, macOS and FreeBSD with -h, and an old macOS has at least perl.
renamed() {
  mv -f -T "$1" "$2" 2>/dev/null || mv -f -h "$1" "$2" 2>/dev/null ||
    perl -e 'exit !rename $ARGV[0], $ARGV[1]' "$1" "$2" 2>/dev/null
}

# point NAME TARGET: NAME in the root leads to TARGET from one moment to the next.
point() {
  if [ -L "$root/$1" ] && [ "$(readlink "$root/$1")" = "$2" ]; then return; fi
  rm -f "$root/.link"
  if ! ln -s "$2" "$root/.link" || ! renamed "$root/.link" "$root/$1"; then
    rm -f "$root/.link"
    fail "cannot make the link $root/$1 (is the disk full?)."
  fi
}

point_all() {
  for name in $links; do point "$name" "current/$name"; done
}

# unpack puts the release into a directory of its own and sees whether it runs here.
unpack() {
  stage=$(mktemp -d "$root/versions/.new-XXXXXX") || fail "cannot write to $root/versions: is the disk full?"
  if ! tar -xozf "$work/$archive" -C "$stage" 2>"$work/said"; then
    fail "cannot unpack $archive into $root: $(first_words). What was there is as before. $(room)"
  fi
  tree=$stage/${archive%.tar.gz}
  for name in $links; do
    if [ "$name" != $old_name ] && [ ! -f "$tree/$name" ]; then fail "$archive has no program $name. Tell whoever made the release."; fi
  done
  chmod -R u+rwX,go+rX,go-w "$tree"
  reported=$("$tree/$program" version 2>"$work/said") ||
    fail "the agent $version does not run on this machine: $(last_words). Is $root mounted noexec?"
  if [ "$reported" != "$version" ]; then
    fail "the agent in $archive says that it is $reported. Tell whoever made the release."
  fi
  for name in $links; do # not before one has run: on a file system without execution no file can be executed
    if [ ! -x "$tree/$name" ]; then fail "$archive has no program $name. Tell whoever made the release."; fi
  done
  # On the disk before anything points to it. A sync that takes no files syncs all.
  sync "$tree"/* 2>/dev/null || :
}

room() { df -Ph "$root" 2>/dev/null | awk 'NR == 2 { print $4 " are free on " $6 "." }'; }

# keep moves the new release to its final name. Files of the same version are replaced one by one, so that
# a program that was damaged is whole again and none is away for a moment.
keep() {
  target=$root/versions/$version
  if [ ! -d "$target" ]; then
    placed=$target
    mv "$tree" "$target" || fail "cannot move the release to $target."
    return
  fi
  (cd "$tree" && find . -type d) | while IFS= read -r name; do mkdir -p "$target/$name"; done
  (cd "$tree" && find . ! -type d) | while IFS= read -r name; do
    if ! renamed "$tree/$name" "$target/$name"; then warn "cannot replace $target/$name"; exit 1; fi
  done
}

# adopt turns the flat directory of older installers, in which programs lie beside the configuration, into
# a version of its own, so that the new one replaces all its programs at once, too.
adopt() {
  before=v0.0.0-flat
  rm -rf "$root/versions/$before"
  placed=$root/versions/$before
  mkdir "$placed" || fail "cannot make $placed. $(room)"
  for name in $links; do
    if [ -f "$root/$name" ]; then cp -p "$root/$name" "$placed/$name" || fail "cannot copy $root/$name. $(room)"; fi
  done
  point current "versions/$before"
  placed=
  for name in $links; do
    if [ -f "$root/$name" ]; then point "$name" "current/$name"; fi
  done
}

# prune leaves the version in use, the one before it, the one that worked last, and what a process still runs.
prune() {
  if [ "$before" = "$version" ]; then return; fi
  proven=$(readlink "$root/proven" || :)
  for name in "$root"/versions/v*; do
    case ${name##*/} in
      "$version" | "$before" | "${proven##*/}") continue ;;
    esac
    if ! executes "${name##*/}/"; then rm -rf "$name"; fi
  done
}

# executes VERSION: whether a process that we may see runs a program of this installation's VERSION.
executes() {
  real=$(cd "$root" && pwd -P)/versions/$1
  if [ -d /proc/self ]; then
    # shellcheck disable=SC2010 # only whether one of them leads there
    ls -l /proc/[0-9]*/exe 2>/dev/null | grep -Fq -e "-> $real"
  else
    # shellcheck disable=SC2009 # pgrep does not see paths
    ps -axo comm= 2>/dev/null | grep -Fq -e "$real"
  fi
}

# --- service ---

ctl() {
  verb=$1
  shift
  if [ "$scope" = user ]; then set -- --user "$@"; fi
  "$root/$program" service "$verb" "$@"
}

# state_of_service sets running to 0 if the service runs, 3 if not, 4 if there is none.
state_of_service() {
  running=0
  ctl status >/dev/null 2>&1 || running=$?
}

# manager: whether there is a service manager for this service; says why not.
manager() {
  if [ "$os" = darwin ]; then return 0; fi
  if [ ! -d /run/systemd/system ]; then
    say "No service was registered: systemd does not run this machine (a container?). Start the agent by other means: $program run"
    return 1
  fi
  if [ "$scope" = user ] && [ -z "${XDG_RUNTIME_DIR-}" ]; then
    if [ ! -S "/run/user/$uid/bus" ] && [ ! -S "/run/user/$uid/systemd/private" ]; then
      say "No service was registered: you have no session of systemd here. Log in as this user (not by su or sudo), or have root run 'loginctl enable-linger $(id -un)'; then: $(quoted "$root/$program") service install --user"
      return 1
    fi
    XDG_RUNTIME_DIR=/run/user/$uid
    export XDG_RUNTIME_DIR
  fi
}

# serve registers the service, which also brings an older registration up to date, and restarts it if it runs.
serve() {
  set --
  if [ -n "$docker" ]; then set -- "$@" --docker; fi
  if [ -n "$process" ]; then set -- "$@" --process; fi
  state_of_service
  if ! ctl install "$@" >"$work/said" 2>&1; then
    warn "the agent $version is installed, but its service is not: $(last_words). Then run: $(quoted "$root/$program") service install$user_flag"
    failed=1
    return
  fi
  if [ "$running" != 0 ]; then return; fi
  if ctl restart >"$work/said" 2>&1; then
    say "The service was restarted with $version. Running deployments went on."
    return
  fi
  warn "the service does not start with $version: $(last_words)"
  if [ -n "$before" ] && [ "$before" != "$version" ]; then
    point current "versions/$before"
    if ctl install >/dev/null 2>&1 && ctl restart >/dev/null 2>&1; then
      fail "the service runs with $before again. See $program service logs$user_flag"
    fi
  fi
  fail "the service does not run. See $program service logs$user_flag"
}

linger() {
  if [ "$os" = linux ] && [ "$scope" = user ] && [ ! -e "/var/lib/systemd/linger/$(id -un)" ]; then
    say "Your service ends with your last session, unless you run: loginctl enable-linger"
  fi
}

# --- PATH ---

# link_system puts the agent into everybody's PATH.
link_system() {
  mkdir -p $system_links
  for name in $program $old_name; do
    link=$system_links/$name
    if [ -L "$link" ] && [ "$(readlink "$link")" = "$root/$name" ]; then continue; fi
    if [ -e "$link" ] && [ ! -L "$link" ]; then
      warn "$link is a file of somebody else's and was left alone: remove it to start the agent by its name."
      continue
    fi
    rm -f "$link.new"
    if ! ln -s "$root/$name" "$link.new" || ! renamed "$link.new" "$link"; then
      rm -f "$link.new"
      warn "cannot make the link $link"
      failed=1
    fi
  done
}

# shellcheck disable=SC2016 # the profile expands it
profile_line() { printf 'export PATH="$PATH":%s' "$(quoted "$root")"; }

# profile sets file to what the user's shell reads, '' if that is not known.
profile() {
  file=
  if [ -z "$home" ]; then return; fi
  case ${SHELL-} in
    */zsh) file=${ZDOTDIR:-$home}/.zshrc ;;
    */bash)
      file=$home/.bashrc
      if [ "$os" = darwin ]; then file=$home/.bash_profile; fi
      ;;
    */sh | */dash | */ash | */ksh | */mksh | */busybox) file=$home/.profile ;;
  esac
}

# extended: whether file extends PATH already, by our line or by that of an older installer.
extended() {
  grep -Fqs -e "$(profile_line)" "$file" ||
    { [ "$root" = "$home/.pulumi/bin/$program" ] && grep -Eqs "^[^#]*PATH.*/\.pulumi/bin/$program" "$file"; }
}

extend_path() {
  case :${PATH-}: in
    *:"$root":*) return ;;
  esac
  if [ -n "$no_path" ]; then return; fi
  profile
  if [ -n "$file" ] && extended; then
    say "Open a new shell: $file has the agent in its PATH already."
    return
  fi
  if [ -n "$file" ] && [ -z "$silent" ] && ask "Add $root to PATH in $file?"; then
    if printf '\n# %s\n%s\n' "$program" "$(profile_line)" >>"$file"; then
      say "Added to $file. Open a new shell, or run: $(profile_line)"
      return
    fi
  fi
  # Also with --silent: somebody has to add it.
  printf 'To have the agent in your PATH, add this line to %s:\n  %s\n' "${file:-the profile of your shell}" "$(profile_line)"
}

# --- removal ---

# remove_programs leaves what people and deployments have written.
remove_programs() {
  for name in $links current .link; do rm -f "$root/$name"; done
  for name in $updates; do rm -rf "${root:?}/$name"; done
  rm -rf "$root/versions"
  rmdir "$root" 2>/dev/null || :
}

# kept lists what an installation leaves: configuration, environment, state.
kept() {
  set --
  if [ "$scope" = system ]; then
    for name in $configurations; do set -- "$@" "/etc/$name"; done
    set -- "$@" "/etc/$program.env" "/etc/$program.choices" /var/lib/workflow-agent
  else
    for name in $configurations; do set -- "$@" "$root/$name"; done
    if [ -n "$home" ]; then
      set -- "$@" "${XDG_CONFIG_HOME:-$home/.config}/$program.env" "${XDG_CONFIG_HOME:-$home/.config}/$program.choices" \
        "${XDG_STATE_HOME:-$home/.local/state}/workflow-agent"
    fi
  fi
  for name in "$@"; do
    if [ -e "$name" ] || [ -L "$name" ]; then printf '%s\n' "$name"; fi
  done
}

remove() {
  platform
  workspace
  place
  look
  if [ -d "$root/versions" ]; then lock; fi
  if [ -n "$fresh" ] && [ ! -e "$root/versions" ]; then
    packaged
    if [ -z "$purge" ] || [ -z "$(kept)" ]; then
      say "There is no agent in $root."
      exit 0
    fi
  fi
  if [ -n "$purge" ] && [ -x "$root/$program" ]; then
    set -- status
    if [ "$scope" = system ]; then set -- status --config /etc/pulumi-workflow-agent.yaml; fi
    if "$root/$program" "$@" 2>/dev/null | grep -q '^Jobs:'; then
      fail "deployments run on this machine, and --purge would take their files: wait for them with $program drain --wait, or leave out --purge."
    fi
  fi
  if [ -n "$purge" ] && [ -n "$(kept)" ] && [ -z "$yes" ] && terminal; then
    kept >/dev/tty
    if ! ask "Delete these, too?"; then fail "nothing was removed."; fi
  fi
  running=4
  if [ -x "$root/$program" ] && manager >/dev/null; then
    state_of_service
    if [ "$running" = 0 ]; then
      ctl stop >"$work/said" 2>&1 || fail "cannot stop the service: $(last_words). Nothing was removed."
    fi
  fi
  if still_needed; then
    if [ "$running" = 0 ] && ! ctl start >/dev/null 2>&1; then warn "the service does not start again. See $program service logs$user_flag"; fi
    fail "processes still run programs of $root, such as deployments with deploy_target: process, which would fail at their next step. Wait for them ($sudo$program drain --wait), or use --yes. Nothing was removed."
  fi
  if [ "$running" != 4 ]; then
    ctl uninstall >"$work/said" 2>&1 || fail "cannot remove the service: $(last_words). Nothing else was removed."
    say "Removed the service."
  fi
  if [ "$scope" = system ]; then
    for name in $program $old_name; do
      if [ "$(readlink "$system_links/$name" || :)" = "$root/$name" ]; then rm -f "$system_links/$name"; fi
    done
  fi
  remove_programs
  say "Removed the agent from $root."
  if [ -n "$purge" ]; then
    forget
  elif [ -n "$(kept)" ]; then
    say "Configuration and state stay (--uninstall --purge removes them):"
    say "$(kept)"
  fi
  profile
  if [ "$scope" = user ] && [ -n "$file" ] && grep -Fqs -e "$(profile_line)" "$file"; then
    say "$file still has the line: $(profile_line)"
  fi
}

# still_needed: whether something runs from here even after what ends by itself had the time to.
still_needed() {
  if [ -n "$yes" ] || [ ! -d "$root/versions" ]; then return 1; fi
  tries=0
  while executes ''; do
    tries=$((tries + 1))
    if [ "$tries" -gt 5 ]; then return; fi
    sleep 1
  done
  return 1
}

# forget removes what kept lists, and the service's account.
forget() {
  if [ "$scope" = system ] && [ "$os" = linux ] && id workflow-agent >/dev/null 2>&1; then
    if have ps && [ -n "$(ps -u workflow-agent -o pid= 2>/dev/null)" ]; then
      fail "processes of deployments still run as workflow-agent. When they are done, run --uninstall --purge again."
    fi
    if have userdel; then userdel workflow-agent 2>/dev/null || :; fi
  fi
  kept >"$work/kept"
  while IFS= read -r name; do rm -rf "$name"; done <"$work/kept"
  rmdir "$root" 2>/dev/null || :
  say "Removed configuration and state."
}

# --- the whole ---

# workspace makes the directory of what is not checked yet; nobody else may look into it.
workspace() {
  work=$(mktemp -d "${TMPDIR:-/tmp}/workflow-agent.XXXXXX") ||
    fail "cannot make a directory in ${TMPDIR:-/tmp}: is the disk full? TMPDIR names another place."
}

# leave ends an installation, however it ends: what is not whole goes, what was there stays.
# shellcheck disable=SC2317 # it is called by a trap
leave() {
  code=$?
  trap - EXIT
  trap '' HUP INT TERM
  if [ -n "$work" ]; then rm -rf "$work"; fi
  if [ -n "$stage" ]; then rm -rf "$stage"; fi
  if [ -n "$making" ]; then
    # A signal may have come between a step and the note of it, so the disk is asked.
    if [ "$(readlink "$root/versions/.lock" || :)" = "$$" ]; then
      now=$(readlink "$root/current" || :)
      if [ -n "$placed" ] && [ "$placed" != "$root/$now" ]; then rm -rf "$placed"; fi
      if [ -n "$undo" ] && [ "$now" != "versions/$version" ]; then
        for name in $links current; do rm -f "$root/$name"; done
        now=
      fi
      if [ -z "$now" ]; then rm -f "$root/.update.lock"; fi
      rm -f "$root/.link" "$root/versions/.lock"
    fi
    rmdir "$root/versions" 2>/dev/null || :
    name=$root
    while [ "$name" != "$above" ] && rmdir "$name" 2>/dev/null; do name=${name%/*}; done
  fi
  exit "$code"
}

install_agent() {
  source_of_release
  platform
  tools
  workspace
  place
  packaged
  look
  keys
  explicit=$version
  if [ -z "$version" ]; then newest; fi
  if [ -n "$before" ] && is_version "$before" && [ -z "$explicit" ] && older "$version" "$before"; then
    if ! ask "$root has $before, which is newer than $version. Install the older one?"; then
      fail "$root has $before, which is newer than $version of $shown. To go back to it, say so: --version $version"
    fi
  fi
  download
  harmless

  lock
  look # again: now nobody else changes it
  undo=$fresh
  unpack
  if [ -n "$flat" ]; then adopt; fi
  keep
  point_all
  rm -f "$root/update.json" # an update that did not end would take the next line back
  point current "versions/$version"
  undo='' placed=''
  prune
  unlock
  if [ "$scope" = system ]; then link_system; fi
  case $before in
    '') say "Installed $version in $root." ;;
    "$version") say "$version was installed in $root already; its files are whole." ;;
    v0.0.0-flat) say "Upgraded the agent in $root to $version. Its configuration stays." ;;
    *) say "Upgraded from $before to $version in $root. Its configuration stays." ;;
  esac

  failed=
  if [ -n "$no_service" ]; then
    say "No service was registered (--no-service). An agent that runs goes on as it was until it is restarted."
  elif manager; then
    serve
    linger
  else
    no_service=1
  fi
  if [ "$scope" = user ]; then extend_path; fi
  if [ -n "$failed" ]; then exit 1; fi
  next
}

# next says what is left to do.
next() {
  agent=$program
  if [ "$scope" = system ]; then
    # The PATH of sudo may be shorter than that of people.
    case :${PATH-}: in
      *:"$system_links":*) ;;
      *) agent=$system_links/$program ;;
    esac
  fi
  if [ -n "$no_service" ]; then
    say "Next: $sudo$agent configure, then start it: $agent run"
  elif [ "$running" != 0 ]; then
    say "Next: $sudo$agent configure, then: $sudo$agent service start$user_flag"
  fi
}

main() {
  if [ -n "${ZSH_VERSION-}" ]; then emulate sh; fi
  set -eu +fC
  umask 022
  LC_ALL=C
  export LC_ALL
  unset CDPATH GREP_OPTIONS TAR_OPTIONS GZIP POSIXLY_CORRECT QUOTING_STYLE 2>/dev/null || :
  silent='' yes='' work='' stage='' placed='' making='' undo='' root=''
  colours
  options "$@"
  # The rest of the standard input is nobody's: it may be this script.
  exec </dev/null
  trap leave EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  if [ -n "$uninstall" ]; then
    remove
  else
    install_agent
  fi
}

main "$@"; exit $?; }
